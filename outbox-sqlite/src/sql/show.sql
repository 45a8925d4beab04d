SELECT seq, id, kind, destination, key, content_type, headers, send_after, attempts, lapses, owner, blocks_key, created_at,
    sent_at, dead_at, last_error, receipt, payload
FROM {outbox} WHERE id = ?1
