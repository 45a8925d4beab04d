SELECT k.key
FROM (SELECT s.stripe, pg_try_advisory_xact_lock($2::bigint + s.stripe) AS got
      FROM (SELECT DISTINCT (hashtext(u.key) & 1023)::bigint AS stripe FROM unnest($1::text[]) AS u (key)) s) g
JOIN unnest($1::text[]) AS k (key) ON (hashtext(k.key) & 1023)::bigint = g.stripe
WHERE g.got
