SELECT o.seq, o.id, o.fence,
       CASE WHEN o.sent_at IS NOT NULL THEN 'sent' WHEN o.dead_at IS NOT NULL THEN 'dead'
            WHEN o.owner IS NOT NULL THEN 'claimed' ELSE 'pending' END AS state,
       o.last_error
FROM unnest($1::bigint[]) AS m (seq) JOIN {outbox} o ON o.seq = m.seq
