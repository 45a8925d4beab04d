SELECT coalesce(sum(owner IS NULL), 0), coalesce(sum(owner IS NOT NULL), 0) FROM (
    SELECT owner FROM {outbox} INDEXED BY {outbox}_lanes
    WHERE held = 'destination' AND sent_at IS NULL AND dead_at IS NULL
    LIMIT ?1)
