DELETE FROM {outbox}_inbox WHERE (consumer, id) IN (
    SELECT consumer, id FROM {outbox}_inbox WHERE created_at <= ?1 ORDER BY created_at LIMIT ?2)
