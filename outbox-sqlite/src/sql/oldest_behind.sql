-- Kinds among the first ?1 rows that a key holds: how many, and the oldest.
SELECT kind, count(*), min(send_after) FROM (
    SELECT kind, send_after FROM {outbox} INDEXED BY {outbox}_behind
    WHERE held = 'key' AND owner IS NULL AND sent_at IS NULL AND dead_at IS NULL LIMIT ?1)
GROUP BY kind
