-- Keys with a dead record that blocks them.
SELECT key FROM {outbox} INDEXED BY {outbox}_dead
WHERE dead_at IS NOT NULL AND blocks_key = 1 AND key IS NOT NULL
ORDER BY dead_at LIMIT ?1
