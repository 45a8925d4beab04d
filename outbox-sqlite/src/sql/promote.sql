-- Scheduled rows of these keys (?1, a JSON array) that have fallen due take their place in line. The due time stays.
UPDATE {outbox} SET hold_key = 1
WHERE seq IN (
    SELECT late.seq
    FROM json_each(?1) AS asked
    CROSS JOIN {outbox} AS late INDEXED BY {outbox}_scheduled
    WHERE late.key = asked.value AND late.send_after <= ?2
        AND late.key IS NOT NULL AND late.sent_at IS NULL AND late.dead_at IS NULL AND late.scheduled = 1
    LIMIT ?3)
