SELECT pg_advisory_xact_lock($2::bigint + s.stripe)
FROM (SELECT DISTINCT (hashtext(o.key) & 1023)::bigint AS stripe
      FROM unnest($1::bigint[]) AS m (seq) JOIN {outbox} o ON o.seq = m.seq
      WHERE o.key IS NOT NULL AND o.owner IS NOT NULL AND o.send_after <= statement_timestamp()
      ORDER BY 1) s
