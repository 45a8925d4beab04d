DELETE FROM {outbox} WHERE seq IN (
    SELECT seq FROM {outbox} INDEXED BY {outbox}_dead
    WHERE dead_at IS NOT NULL AND blocks_key = 0 AND dead_at <= ?1 AND sent_at IS NULL
    ORDER BY dead_at LIMIT ?2)
