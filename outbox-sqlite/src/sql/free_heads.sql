-- Sets free the present head of each of these keys (?1, a JSON array).
UPDATE {outbox} SET held = NULL
WHERE held = 'key' AND seq IN (
    SELECT (
        SELECT seq FROM {outbox} AS line INDEXED BY {outbox}_line
        WHERE line.key = freed.value AND line.key IS NOT NULL AND line.sent_at IS NULL
            AND (line.dead_at IS NULL OR line.blocks_key = 1) AND line.scheduled = 0
        ORDER BY line.seq LIMIT 1)
    FROM json_each(?1) AS freed)
