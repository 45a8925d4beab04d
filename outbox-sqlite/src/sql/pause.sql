INSERT INTO {outbox}_pauses (covers, name, reason) VALUES (?1, ?2, ?3)
ON CONFLICT (covers, name) DO UPDATE SET reason = excluded.reason
