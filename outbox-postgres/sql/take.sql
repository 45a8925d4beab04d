WITH chosen AS MATERIALIZED (
    SELECT o.seq FROM unnest($1::bigint[]) AS c (seq) JOIN {outbox} o ON o.seq = c.seq
    WHERE o.sent_at IS NULL AND o.dead_at IS NULL
      AND (o.owner IS NULL OR o.send_after <= statement_timestamp())
    ORDER BY o.seq FOR UPDATE OF o SKIP LOCKED
), taken AS (
    UPDATE {outbox} o
    SET owner = $2, fence = o.fence + 1,
        attempts = CASE WHEN o.owner IS NULL THEN o.attempts + 1 ELSE o.attempts END,
        lapses = CASE WHEN o.owner IS NULL THEN o.lapses ELSE o.lapses + 1 END,
        send_after = statement_timestamp() + $3::bigint * interval '1 microsecond'
    FROM chosen WHERE o.seq = chosen.seq
    RETURNING o.*
)
SELECT seq, id, kind, destination, key, payload::text AS payload, payload_bytes, content_type, headers::text AS headers,
       attempts, lapses, fence, age_micros, progress::text AS progress, created_at
FROM taken ORDER BY seq
