INSERT INTO {outbox}_version (version) VALUES (?1)
