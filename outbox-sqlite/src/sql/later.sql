-- When the next rows of one kind fall due, and where they go.
SELECT send_after, destination FROM {outbox} INDEXED BY {outbox}_due
WHERE suspect = ?1 AND kind = ?2 AND send_after > ?3
    AND held IS NULL AND sent_at IS NULL AND dead_at IS NULL
ORDER BY send_after LIMIT ?4
