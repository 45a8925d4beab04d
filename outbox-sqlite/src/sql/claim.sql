UPDATE {outbox}
SET owner = ?2,
    fence = fence + 1,
    attempts = attempts + (owner IS NULL),
    lapses = lapses + (owner IS NOT NULL),
    send_after = ?3,
    held = NULL
WHERE seq IN (SELECT value FROM json_each(?1))
RETURNING seq, id, kind, destination, key, payload, content_type, headers, attempts, lapses, fence, age, progress,
    created_at
