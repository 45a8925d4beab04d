-- Of these keys (?1, a JSON array) those whose head is held, which only a hand-written statement leaves behind.
SELECT asked.value
FROM json_each(?1) AS asked
WHERE (
    SELECT line.held FROM {outbox} AS line INDEXED BY {outbox}_line
    WHERE line.key = asked.value AND line.key IS NOT NULL AND line.sent_at IS NULL
        AND (line.dead_at IS NULL OR line.blocks_key = 1) AND line.scheduled = 0
    ORDER BY line.seq LIMIT 1) = 'key'
