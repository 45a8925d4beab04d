-- Writes outcomes: ?1 is a JSON array of [seq, id, fence, outcome, wait, text, age, blocks_key, progress], one entry
-- a claim; ?2 is now.
UPDATE {outbox} AS row
SET owner = NULL,
    held = NULL,
    fence = row.fence + 1,
    attempts = max(0, row.attempts - (mark.outcome IN ('deferred', 'released'))),
    lapses = CASE mark.outcome WHEN 'retry' THEN 0 ELSE row.lapses END,
    send_after = CASE WHEN mark.outcome IN ('sent', 'dead') THEN row.send_after ELSE ?2 + mark.wait END,
    age = CASE mark.outcome WHEN 'retry' THEN mark.age ELSE row.age END,
    sent_at = CASE mark.outcome WHEN 'sent' THEN ?2 END,
    dead_at = CASE mark.outcome WHEN 'dead' THEN ?2 END,
    receipt = CASE mark.outcome WHEN 'sent' THEN mark.text ELSE row.receipt END,
    last_error = CASE
        WHEN mark.outcome IN ('retry', 'dead', 'deferred') THEN coalesce(mark.text, row.last_error)
        ELSE row.last_error END,
    blocks_key = mark.blocks AND row.key IS NOT NULL,
    progress = coalesce(mark.progress, row.progress)
FROM (
    SELECT value ->> 0 AS seq, value ->> 1 AS id, value ->> 2 AS fence, value ->> 3 AS outcome, value ->> 4 AS wait,
        value ->> 5 AS text, value ->> 6 AS age, value ->> 7 AS blocks, value ->> 8 AS progress
    FROM json_each(?1)
) AS mark
WHERE row.seq = mark.seq AND row.id = mark.id AND row.fence = mark.fence
    AND row.owner IS NOT NULL AND row.sent_at IS NULL AND row.dead_at IS NULL
RETURNING seq, key
