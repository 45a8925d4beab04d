DELETE FROM {outbox}_dedup WHERE (kind, dedup_key) IN (
    SELECT kind, dedup_key FROM {outbox}_dedup WHERE keep_until <= ?1 ORDER BY keep_until LIMIT ?2)
