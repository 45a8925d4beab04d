-- The line of a key behind its head.
SELECT seq, kind, destination, send_after, suspect, dead_at
FROM {outbox} INDEXED BY {outbox}_line
WHERE key = ?1 AND seq > ?2
    AND key IS NOT NULL AND sent_at IS NULL AND (dead_at IS NULL OR blocks_key = 1) AND scheduled = 0
ORDER BY seq
LIMIT ?3
