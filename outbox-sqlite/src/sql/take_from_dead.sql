-- What a dead relay (?1) holds is due at once. A row under a lease in force is never held.
UPDATE {outbox} INDEXED BY {outbox}_due SET send_after = ?2
WHERE suspect = 1 AND owner = ?1 AND send_after > ?2
    AND held IS NULL AND sent_at IS NULL AND dead_at IS NULL
