INSERT INTO {outbox} (id, kind, destination, key, content_type, hold_key, headers, payload, send_after)
VALUES
