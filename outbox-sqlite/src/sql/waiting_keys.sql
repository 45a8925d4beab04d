-- Keys from ?1 on that have held rows, found by a jump from each to the next.
WITH RECURSIVE keys (key) AS (
    SELECT * FROM (
        SELECT key FROM {outbox} INDEXED BY {outbox}_behind
        WHERE held = 'key' AND key >= ?1 ORDER BY key LIMIT 1)
    UNION ALL
    SELECT (
        SELECT key FROM {outbox} INDEXED BY {outbox}_behind
        WHERE held = 'key' AND key > keys.key ORDER BY key LIMIT 1)
    FROM keys WHERE keys.key IS NOT NULL
    LIMIT ?2
)
SELECT key FROM keys WHERE key IS NOT NULL
