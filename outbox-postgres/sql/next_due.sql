SELECT k.kind, (extract(epoch FROM d.send_after - statement_timestamp()) * 1000000)::bigint AS micros
FROM unnest($1::text[]) AS k (kind)
CROSS JOIN LATERAL (
    (SELECT o.send_after FROM {outbox} o WHERE {ready} AND o.key IS NULL AND o.kind = k.kind
       AND o.send_after > statement_timestamp() AND o.send_after < 'infinity' ORDER BY o.kind, o.send_after LIMIT 1)
    UNION ALL
    (SELECT o.send_after FROM {outbox} o WHERE {ready} AND o.key IS NOT NULL AND o.kind = k.kind
       AND o.send_after > statement_timestamp() AND o.send_after < 'infinity' ORDER BY o.kind, o.send_after LIMIT 1)
) d
