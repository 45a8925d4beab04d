INSERT INTO {dedup} AS d (kind, dedup_key, id, keep_until, replaces_dead)
SELECT n.kind, n.dedup_key, n.id, clock_timestamp() + n.keep_micros * interval '1 microsecond', n.replaces_dead
FROM unnest($1::text[], $2::text[], $3::uuid[], $4::bigint[], $5::boolean[])
     AS n (kind, dedup_key, id, keep_micros, replaces_dead)
ORDER BY n.kind COLLATE "C", n.dedup_key COLLATE "C"
ON CONFLICT (kind, dedup_key) DO UPDATE
SET id = excluded.id, keep_until = excluded.keep_until, replaces_dead = excluded.replaces_dead
WHERE d.keep_until <= clock_timestamp()
   OR (excluded.replaces_dead
       AND EXISTS (SELECT FROM {outbox} o WHERE o.id = d.id AND o.dead_at IS NOT NULL))
RETURNING id
