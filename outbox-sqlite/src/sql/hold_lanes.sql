-- Takes rows of one kind (?2) to these destinations (?6, a JSON array) out of what claims walk, among the next ?7
-- due ones behind (?4, ?5).
UPDATE {outbox} SET held = 'destination'
WHERE seq IN (
    SELECT seq FROM (
        SELECT seq, destination FROM {outbox} INDEXED BY {outbox}_due
        WHERE suspect = ?1 AND kind = ?2 AND send_after <= ?3 AND (send_after, seq) > (?4, ?5)
            AND held IS NULL AND sent_at IS NULL AND dead_at IS NULL
        ORDER BY send_after, seq
        LIMIT ?7)
    WHERE destination IN (SELECT value FROM json_each(?6)))
