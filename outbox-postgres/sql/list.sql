SELECT seq, id, kind, destination, key, content_type, headers::text AS headers, send_after, attempts, lapses, blocks_key,
       created_at, sent_at, dead_at, last_error, receipt, owner IS NOT NULL AS owned
FROM {outbox} o WHERE o.seq > $1 AND {filter} ORDER BY o.seq LIMIT $9
