SELECT o.kind, (extract(epoch FROM o.send_after - statement_timestamp()) * 1000000)::bigint AS micros
FROM {outbox} o
WHERE {suspect} AND o.send_after > statement_timestamp() AND o.send_after < 'infinity'
ORDER BY o.send_after LIMIT 200
