-- The kinds from ?2 to before ?3 that have rows of this sort (?1: suspects or not), found by a jump from each to
-- the next: the oldest row of each, and the first that is due later than ?4.
WITH RECURSIVE kinds (kind) AS (
    SELECT * FROM (
        SELECT kind FROM {outbox} INDEXED BY {outbox}_due
        WHERE suspect = ?1 AND kind >= ?2 AND kind < ?3
            AND held IS NULL AND sent_at IS NULL AND dead_at IS NULL
        ORDER BY kind LIMIT 1)
    UNION ALL
    SELECT (
        SELECT kind FROM {outbox} INDEXED BY {outbox}_due
        WHERE suspect = ?1 AND kind > kinds.kind AND kind < ?3
            AND held IS NULL AND sent_at IS NULL AND dead_at IS NULL
        ORDER BY kind LIMIT 1)
    FROM kinds WHERE kinds.kind IS NOT NULL
    LIMIT ?5
)
SELECT kind,
    (SELECT send_after FROM {outbox} INDEXED BY {outbox}_due
        WHERE suspect = ?1 AND kind = kinds.kind
            AND held IS NULL AND sent_at IS NULL AND dead_at IS NULL
        ORDER BY send_after LIMIT 1) AS first,
    (SELECT send_after FROM {outbox} INDEXED BY {outbox}_due
        WHERE suspect = ?1 AND kind = kinds.kind AND send_after > ?4
            AND held IS NULL AND sent_at IS NULL AND dead_at IS NULL
        ORDER BY send_after LIMIT 1) AS later
FROM kinds WHERE kind IS NOT NULL
