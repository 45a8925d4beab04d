INSERT INTO {outbox}_inbox (consumer, id) VALUES (?1, ?2)
ON CONFLICT DO NOTHING
