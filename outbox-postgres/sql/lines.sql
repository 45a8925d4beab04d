SELECT r.key, r.seq, r.kind, r.destination,
       r.dead_at IS NULL AND r.send_after <= statement_timestamp() AS due,
       r.owner IS NOT NULL OR r.lapses > 0 AS suspect
FROM unnest($1::text[]) WITH ORDINALITY AS k (key, place)
CROSS JOIN LATERAL (
    SELECT e.* FROM {outbox} e WHERE e.key = k.key AND {line_of_e} ORDER BY e.key, e.seq LIMIT $2
) r
WHERE NOT EXISTS (SELECT FROM {outbox} l WHERE l.key = k.key AND {live_of_l} OFFSET 0)
ORDER BY k.place, r.seq
