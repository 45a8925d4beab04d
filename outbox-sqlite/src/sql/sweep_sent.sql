DELETE FROM {outbox} WHERE seq IN (
    SELECT seq FROM {outbox} INDEXED BY {outbox}_sent
    WHERE sent_at IS NOT NULL AND sent_at <= ?1
    ORDER BY sent_at LIMIT ?2)
