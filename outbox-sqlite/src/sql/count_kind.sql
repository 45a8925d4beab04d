-- Unfinished rows of one kind that no key holds, counted up to ?2.
SELECT count(*) FROM (
    SELECT 1 FROM {outbox} INDEXED BY {outbox}_due
    WHERE suspect IN (0, 1) AND kind = ?1 AND held IS NULL AND sent_at IS NULL AND dead_at IS NULL
    UNION ALL
    SELECT 1 FROM {outbox} INDEXED BY {outbox}_lanes
    WHERE suspect IN (0, 1) AND kind = ?1 AND held = 'destination' AND sent_at IS NULL AND dead_at IS NULL
    LIMIT ?2)
