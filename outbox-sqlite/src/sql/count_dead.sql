SELECT count(*) FROM (
    SELECT 1 FROM {outbox} INDEXED BY {outbox}_dead
    WHERE dead_at IS NOT NULL AND sent_at IS NULL LIMIT ?1)
