-- The lanes of one kind, from the destination ?3 on, each with its oldest row.
WITH RECURSIVE lanes (destination) AS (
    SELECT * FROM (
        SELECT destination FROM {outbox} INDEXED BY {outbox}_lanes
        WHERE suspect = ?1 AND kind = ?2 AND destination >= ?3
            AND held = 'destination' AND sent_at IS NULL AND dead_at IS NULL
        ORDER BY destination LIMIT 1)
    UNION ALL
    SELECT (
        SELECT destination FROM {outbox} INDEXED BY {outbox}_lanes
        WHERE suspect = ?1 AND kind = ?2 AND destination > lanes.destination
            AND held = 'destination' AND sent_at IS NULL AND dead_at IS NULL
        ORDER BY destination LIMIT 1)
    FROM lanes WHERE lanes.destination IS NOT NULL
    LIMIT ?4
)
SELECT destination,
    (SELECT send_after FROM {outbox} INDEXED BY {outbox}_lanes
        WHERE suspect = ?1 AND kind = ?2 AND destination = lanes.destination
            AND held = 'destination' AND sent_at IS NULL AND dead_at IS NULL
        ORDER BY send_after LIMIT 1) AS first
FROM lanes WHERE destination IS NOT NULL
