-- Takes rows of one kind (?2) that wait for the head of their key out of what claims walk, among the next ?6 due ones
-- behind (?4, ?5).
UPDATE {outbox} SET held = 'key'
WHERE seq IN (
    SELECT seq FROM (
        SELECT seq, key, scheduled FROM {outbox} INDEXED BY {outbox}_due
        WHERE suspect = ?1 AND kind = ?2 AND send_after <= ?3 AND (send_after, seq) > (?4, ?5)
            AND held IS NULL AND sent_at IS NULL AND dead_at IS NULL
        ORDER BY send_after, seq
        LIMIT ?6) AS waiting
    WHERE key IS NOT NULL AND scheduled = 0 AND EXISTS (
        SELECT 1 FROM {outbox} AS line INDEXED BY {outbox}_line
        WHERE line.key = waiting.key AND line.seq < waiting.seq AND line.key IS NOT NULL AND line.sent_at IS NULL
            AND (line.dead_at IS NULL OR line.blocks_key = 1) AND line.scheduled = 0))
