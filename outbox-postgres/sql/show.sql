SELECT seq, id, kind, destination, key, content_type, headers::text AS headers, send_after, attempts, lapses, blocks_key,
       created_at, sent_at, dead_at, last_error, receipt, owner IS NOT NULL AS owned,
       payload::text AS payload, payload_bytes
FROM {outbox} o WHERE o.id = $1
