-- Rows whose flag has lost its ground by a hand-written change of the row itself, among the first ?1 of each sort.
UPDATE {outbox} SET held = NULL
WHERE seq IN (
    SELECT seq FROM (
        SELECT seq, key, scheduled, sent_at, dead_at FROM {outbox} INDEXED BY {outbox}_behind
        WHERE held = 'key' LIMIT ?1)
    WHERE key IS NULL OR scheduled = 1 OR sent_at IS NOT NULL OR dead_at IS NOT NULL
    UNION ALL
    SELECT seq FROM (
        SELECT seq, destination FROM {outbox} INDEXED BY {outbox}_lanes
        WHERE held = 'destination' AND sent_at IS NULL AND dead_at IS NULL LIMIT ?1)
    WHERE destination IS NULL)
