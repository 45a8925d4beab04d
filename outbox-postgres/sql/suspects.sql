SELECT o.seq, o.kind, o.destination, o.key, o.send_after FROM {outbox} o
WHERE {suspect} AND o.send_after <= statement_timestamp()
  AND (o.key IS NULL
       OR (NOT EXISTS (SELECT FROM {outbox} e WHERE e.key = o.key AND e.seq < o.seq AND {line_of_e} OFFSET 0)
           AND NOT EXISTS (SELECT FROM {outbox} l WHERE l.key = o.key AND {live_of_l} OFFSET 0)))
ORDER BY o.send_after, o.seq LIMIT 1000
