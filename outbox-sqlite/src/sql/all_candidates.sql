-- As candidates.sql, for rows of all kinds: ?2 is not used.
SELECT seq, send_after, destination, key,
    CASE WHEN key IS NOT NULL THEN (
        SELECT seq FROM {outbox} AS line INDEXED BY {outbox}_line
        WHERE line.key = row.key AND line.key IS NOT NULL AND line.sent_at IS NULL
            AND (line.dead_at IS NULL OR line.blocks_key = 1) AND line.scheduled = 0
        ORDER BY line.seq LIMIT 1) END AS head,
    CASE WHEN key IS NOT NULL THEN (
        SELECT seq FROM {outbox} AS line INDEXED BY {outbox}_line
        WHERE line.key = row.key AND line.seq > row.seq AND line.key IS NOT NULL AND line.sent_at IS NULL
            AND (line.dead_at IS NULL OR line.blocks_key = 1) AND line.scheduled = 0
        ORDER BY line.seq LIMIT 1) END AS next,
    key IS NOT NULL AND EXISTS (
        SELECT 1 FROM {outbox} AS claimed INDEXED BY {outbox}_claimed
        WHERE claimed.key = row.key AND claimed.send_after > ?3
            AND claimed.owner IS NOT NULL AND claimed.key IS NOT NULL
            AND claimed.sent_at IS NULL AND claimed.dead_at IS NULL) AS busy,
    key IS NOT NULL AND EXISTS (
        SELECT 1 FROM {outbox} AS late INDEXED BY {outbox}_scheduled
        WHERE late.key = row.key AND late.send_after <= ?3
            AND late.key IS NOT NULL AND late.sent_at IS NULL AND late.dead_at IS NULL
            AND late.scheduled = 1) AS ripe,
    kind
FROM {outbox} AS row INDEXED BY {outbox}_due_of_all
WHERE suspect = ?1 AND ?2 IS NULL AND send_after <= ?3 AND (send_after, seq) > (?4, ?5)
    AND held IS NULL AND sent_at IS NULL AND dead_at IS NULL
ORDER BY send_after, seq
LIMIT ?6
