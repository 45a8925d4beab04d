WITH m AS MATERIALIZED (
    SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::text[], $5::bigint[], $6::text[], $7::bigint[],
                         $8::boolean[], $9::text[])
           AS m (seq, id, fence, what, after_micros, text, age_micros, blocks_key, progress)
), locked AS MATERIALIZED (
    SELECT m.* FROM m JOIN {outbox} o ON o.seq = m.seq ORDER BY o.seq FOR UPDATE OF o
)
UPDATE {outbox} o
SET owner = NULL, fence = o.fence + 1,
    sent_at = CASE WHEN m.what = 'sent' THEN statement_timestamp() END,
    dead_at = CASE WHEN m.what = 'dead' THEN statement_timestamp() END,
    send_after = CASE WHEN m.what IN ('sent', 'dead') THEN o.send_after
                      ELSE statement_timestamp() + m.after_micros * interval '1 microsecond' END,
    receipt = CASE WHEN m.what = 'sent' THEN m.text ELSE o.receipt END,
    last_error = CASE WHEN m.what IN ('retry', 'dead') THEN m.text
                      WHEN m.what = 'deferred' THEN coalesce(m.text, o.last_error) ELSE o.last_error END,
    age_micros = CASE WHEN m.what = 'retry' THEN m.age_micros ELSE o.age_micros END,
    lapses = CASE WHEN m.what = 'retry' THEN 0 ELSE o.lapses END,
    attempts = CASE WHEN m.what IN ('deferred', 'released') THEN greatest(o.attempts - 1, 0) ELSE o.attempts END,
    blocks_key = m.what = 'dead' AND m.blocks_key AND o.key IS NOT NULL,
    progress = coalesce(m.progress::jsonb, o.progress)
FROM locked m
WHERE o.seq = m.seq AND o.id = m.id AND o.fence = m.fence AND o.owner IS NOT NULL
RETURNING o.seq
