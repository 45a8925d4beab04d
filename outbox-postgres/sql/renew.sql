WITH m AS MATERIALIZED (
    SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::bigint[]) AS m (seq, id, fence)
), locked AS MATERIALIZED (
    SELECT m.* FROM m JOIN {outbox} o ON o.seq = m.seq
    WHERE o.id = m.id AND o.fence = m.fence AND o.owner IS NOT NULL ORDER BY o.seq FOR UPDATE OF o
)
UPDATE {outbox} o SET send_after = statement_timestamp() + $4::bigint * interval '1 microsecond'
FROM locked m
WHERE o.seq = m.seq AND o.id = m.id AND o.fence = m.fence AND o.owner IS NOT NULL
  AND (o.key IS NULL OR o.send_after > statement_timestamp()
       OR NOT EXISTS (SELECT FROM {outbox} l WHERE l.key = o.key AND l.owner <> o.owner AND {live_of_l}))
RETURNING o.seq
