-- The kinds that have rows of this sort (?1) in lanes, from ?2 on.
WITH RECURSIVE kinds (kind) AS (
    SELECT * FROM (
        SELECT kind FROM {outbox} INDEXED BY {outbox}_lanes
        WHERE suspect = ?1 AND kind >= ?2
            AND held = 'destination' AND sent_at IS NULL AND dead_at IS NULL
        ORDER BY kind LIMIT 1)
    UNION ALL
    SELECT (
        SELECT kind FROM {outbox} INDEXED BY {outbox}_lanes
        WHERE suspect = ?1 AND kind > kinds.kind
            AND held = 'destination' AND sent_at IS NULL AND dead_at IS NULL
        ORDER BY kind LIMIT 1)
    FROM kinds WHERE kinds.kind IS NOT NULL
    LIMIT ?3
)
SELECT kind FROM kinds WHERE kind IS NOT NULL
