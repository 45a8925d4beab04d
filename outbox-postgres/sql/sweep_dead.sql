DELETE FROM {outbox} WHERE seq IN (
    SELECT o.seq FROM {outbox} o WHERE o.dead_at IS NOT NULL AND NOT o.blocks_key
      AND o.dead_at <= statement_timestamp() - $1::bigint * interval '1 microsecond'
    ORDER BY o.dead_at LIMIT $2 FOR UPDATE SKIP LOCKED)
