WITH found AS MATERIALIZED (
    SELECT o.seq FROM {outbox} o WHERE o.id = ANY ($1::uuid[]) AND o.sent_at IS NULL ORDER BY o.seq FOR UPDATE
)
UPDATE {outbox} o
SET owner = NULL, fence = o.fence + 1, dead_at = coalesce(o.dead_at, statement_timestamp()), last_error = $2,
    blocks_key = false
FROM found WHERE o.seq = found.seq AND o.sent_at IS NULL
