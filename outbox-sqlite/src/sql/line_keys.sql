-- Keys from ?1 on that have a line, found by a jump from each to the next.
WITH RECURSIVE keys (key) AS (
    SELECT * FROM (
        SELECT key FROM {outbox} INDEXED BY {outbox}_line
        WHERE key >= ?1
            AND key IS NOT NULL AND sent_at IS NULL AND (dead_at IS NULL OR blocks_key = 1) AND scheduled = 0
        ORDER BY key LIMIT 1)
    UNION ALL
    SELECT (
        SELECT key FROM {outbox} INDEXED BY {outbox}_line
        WHERE key > keys.key
            AND key IS NOT NULL AND sent_at IS NULL AND (dead_at IS NULL OR blocks_key = 1) AND scheduled = 0
        ORDER BY key LIMIT 1)
    FROM keys WHERE keys.key IS NOT NULL
    LIMIT ?2
)
SELECT key FROM keys WHERE key IS NOT NULL
