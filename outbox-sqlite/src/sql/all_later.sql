-- When the next rows fall due, from the time ?2 on, of what kind, and where they go.
SELECT send_after, kind, destination FROM {outbox} INDEXED BY {outbox}_due_of_all
WHERE suspect = ?1 AND send_after >= ?2
    AND held IS NULL AND sent_at IS NULL AND dead_at IS NULL
ORDER BY send_after LIMIT ?3
