-- Makes sent rows (?1, a JSON array of [seq, due]) pending again.
UPDATE {outbox} AS row
SET owner = NULL,
    held = NULL,
    fence = row.fence + 1,
    sent_at = NULL,
    dead_at = NULL,
    attempts = 0,
    lapses = 0,
    age = 0,
    blocks_key = 0,
    send_after = chosen.due
FROM (SELECT value ->> 0 AS seq, value ->> 1 AS due FROM json_each(?1)) AS chosen
WHERE row.seq = chosen.seq AND row.sent_at IS NOT NULL
