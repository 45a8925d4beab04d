WITH RECURSIVE unkeyed (kind) AS (
    (SELECT o.kind FROM {outbox} o WHERE {ready} AND o.key IS NULL ORDER BY o.kind LIMIT 1)
    UNION ALL
    SELECT (SELECT o.kind FROM {outbox} o WHERE {ready} AND o.key IS NULL AND o.kind > u.kind ORDER BY o.kind LIMIT 1)
    FROM unkeyed u WHERE u.kind IS NOT NULL
), keyed (kind) AS (
    (SELECT o.kind FROM {outbox} o WHERE {ready} AND o.key IS NOT NULL ORDER BY o.kind LIMIT 1)
    UNION ALL
    SELECT (SELECT o.kind FROM {outbox} o WHERE {ready} AND o.key IS NOT NULL AND o.kind > k.kind ORDER BY o.kind LIMIT 1)
    FROM keyed k WHERE k.kind IS NOT NULL
)
SELECT kind FROM unkeyed WHERE kind IS NOT NULL UNION SELECT kind FROM keyed WHERE kind IS NOT NULL
