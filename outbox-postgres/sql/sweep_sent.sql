DELETE FROM {outbox} WHERE seq IN (
    SELECT o.seq FROM {outbox} o WHERE o.sent_at IS NOT NULL
      AND o.sent_at <= statement_timestamp() - $1::bigint * interval '1 microsecond'
    ORDER BY o.sent_at LIMIT $2 FOR UPDATE SKIP LOCKED)
