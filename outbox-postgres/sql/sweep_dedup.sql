DELETE FROM {dedup} WHERE (kind, dedup_key) IN (
    SELECT d.kind, d.dedup_key FROM {dedup} d
    WHERE d.keep_until <= statement_timestamp() - $1::bigint * interval '1 microsecond'
    ORDER BY d.keep_until LIMIT $2 FOR UPDATE SKIP LOCKED)
