WITH found AS MATERIALIZED (
    SELECT o.seq, o.dead_at, o.sent_at FROM {outbox} o WHERE o.seq = ANY ($1::bigint[]) ORDER BY o.seq FOR UPDATE
), place AS (
    SELECT f.seq, row_number() OVER (ORDER BY f.seq) - 1 AS place FROM found f
    WHERE CASE WHEN $2::boolean THEN f.dead_at IS NOT NULL ELSE f.sent_at IS NOT NULL END
)
UPDATE {outbox} o
SET owner = NULL, fence = o.fence + 1, sent_at = NULL, dead_at = NULL, attempts = 0, lapses = 0, age_micros = 0,
    blocks_key = false, send_after = statement_timestamp() + place.place * $3::bigint * interval '1 microsecond'
FROM place WHERE o.seq = place.seq
