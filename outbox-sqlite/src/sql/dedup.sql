-- Remembers the first enqueue of a dedup key. No row comes back when one that counts is kept.
INSERT INTO {outbox}_dedup AS first (kind, dedup_key, id, keep_until)
VALUES (?1, ?2, ?3, {now} + ?4)
ON CONFLICT (kind, dedup_key) DO UPDATE
SET id = excluded.id, keep_until = excluded.keep_until
WHERE first.keep_until <= {now}
    OR (?5 AND EXISTS (
        SELECT 1 FROM {outbox} WHERE id = first.id AND sent_at IS NULL AND dead_at IS NOT NULL))
RETURNING id
