-- Takes rows of one key (?1) out of what claims walk, from ?2 on: they wait for its head.
UPDATE {outbox} SET held = 'key'
WHERE seq IN (
    SELECT seq FROM {outbox} INDEXED BY {outbox}_line
    WHERE key = ?1 AND seq >= ?2
        AND key IS NOT NULL AND sent_at IS NULL AND (dead_at IS NULL OR blocks_key = 1) AND scheduled = 0
    ORDER BY seq LIMIT ?3)
    AND held IS NULL AND owner IS NULL AND dead_at IS NULL
