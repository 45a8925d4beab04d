SELECT c.seq, c.kind, c.destination, c.key, c.send_after
FROM unnest($1::text[], $2::bigint[], $3::integer[]) AS k (kind, room, route)
CROSS JOIN LATERAL (
    SELECT o.seq, o.kind, o.destination, o.key, o.send_after FROM {outbox} o
    WHERE {ready} AND o.key IS NOT NULL AND o.kind = k.kind AND o.send_after <= statement_timestamp()
      AND NOT EXISTS (SELECT FROM unnest($4::integer[], $5::text[]) AS x (route, destination)
                      WHERE x.route = k.route AND x.destination = o.destination)
      AND NOT EXISTS (SELECT FROM {outbox} e WHERE e.key = o.key AND e.seq < o.seq AND {line_of_e} OFFSET 0)
      AND NOT EXISTS (SELECT FROM {outbox} l WHERE l.key = o.key AND {live_of_l} OFFSET 0)
    ORDER BY o.kind, o.send_after, o.seq LIMIT k.room
) c
ORDER BY c.send_after, c.seq
