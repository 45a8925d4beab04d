-- Extends leases (?1, a JSON array of [seq, id, fence]) to ?3. One that has run out is extended as well, unless
-- another relay has claimed a record of its key since.
UPDATE {outbox} AS row SET send_after = ?3
FROM (SELECT value ->> 0 AS seq, value ->> 1 AS id, value ->> 2 AS fence FROM json_each(?1)) AS lease
WHERE row.seq = lease.seq AND row.id = lease.id AND row.fence = lease.fence
    AND row.owner IS NOT NULL AND row.sent_at IS NULL AND row.dead_at IS NULL
    AND (row.send_after > ?2 OR row.key IS NULL OR NOT EXISTS (
        SELECT 1 FROM {outbox} AS other INDEXED BY {outbox}_claimed
        WHERE other.key = row.key AND other.send_after > ?2 AND other.owner <> row.owner
            AND other.owner IS NOT NULL AND other.key IS NOT NULL
            AND other.sent_at IS NULL AND other.dead_at IS NULL))
RETURNING seq, fence
