DELETE FROM {inbox} WHERE (consumer, id) IN (
    SELECT i.consumer, i.id FROM {inbox} i
    WHERE i.accepted_at <= statement_timestamp() - $1::bigint * interval '1 microsecond'
    ORDER BY i.accepted_at LIMIT $2 FOR UPDATE SKIP LOCKED)
