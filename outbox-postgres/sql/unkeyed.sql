WITH candidate AS MATERIALIZED (
    SELECT c.* FROM unnest($1::text[], $2::bigint[], $3::integer[]) AS k (kind, room, route)
    CROSS JOIN LATERAL (
        SELECT o.seq, o.kind, o.destination, o.key, o.send_after FROM {outbox} o
        WHERE {ready} AND o.key IS NULL AND o.kind = k.kind AND o.send_after <= statement_timestamp()
          AND NOT EXISTS (SELECT FROM unnest($4::integer[], $5::text[]) AS x (route, destination)
                          WHERE x.route = k.route AND x.destination = o.destination)
        ORDER BY o.kind, o.send_after, o.seq LIMIT k.room FOR UPDATE OF o SKIP LOCKED
    ) c
)
SELECT seq, kind, destination, key, send_after FROM candidate ORDER BY send_after, seq
