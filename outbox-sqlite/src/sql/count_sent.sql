SELECT count(*) FROM (
    SELECT 1 FROM {outbox} INDEXED BY {outbox}_sent WHERE sent_at IS NOT NULL LIMIT ?1)
