-- The first record of a key's line, and the second.
SELECT seq, id, kind, owner, send_after, dead_at, created_at
FROM {outbox} INDEXED BY {outbox}_line
WHERE key = ?1
    AND key IS NOT NULL AND sent_at IS NULL AND (dead_at IS NULL OR blocks_key = 1) AND scheduled = 0
ORDER BY seq
LIMIT 2
