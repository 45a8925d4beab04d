SELECT d.id, CASE WHEN o.id IS NULL THEN NULL WHEN o.sent_at IS NOT NULL THEN 'sent'
            WHEN o.dead_at IS NOT NULL THEN 'dead' WHEN o.owner IS NOT NULL THEN 'claimed' ELSE 'pending' END AS state,
       n.place
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS n (kind, dedup_key, place)
JOIN {dedup} d ON d.kind = n.kind AND d.dedup_key = n.dedup_key
LEFT JOIN {outbox} o ON o.id = d.id
