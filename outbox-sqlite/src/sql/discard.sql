-- Gives rows up (?1, a JSON array of ids): whatever their state, but for sent ones, they block nothing any more.
UPDATE {outbox}
SET owner = NULL,
    held = NULL,
    fence = fence + 1,
    dead_at = coalesce(dead_at, ?2),
    last_error = ?3,
    blocks_key = 0
WHERE id IN (SELECT value FROM json_each(?1)) AND sent_at IS NULL
RETURNING key
