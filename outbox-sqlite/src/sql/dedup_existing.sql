SELECT first.id, record.seq IS NOT NULL AS kept, record.owner, record.sent_at, record.dead_at
FROM {outbox}_dedup AS first
LEFT JOIN {outbox} AS record ON record.id = first.id
WHERE first.kind = ?1 AND first.dedup_key = ?2
