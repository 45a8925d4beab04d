-- As kinds.sql, for kinds that are known by name (?2, a JSON array).
SELECT asked.value AS kind,
    (SELECT send_after FROM {outbox} INDEXED BY {outbox}_due
        WHERE suspect = ?1 AND kind = asked.value
            AND held IS NULL AND sent_at IS NULL AND dead_at IS NULL
        ORDER BY send_after LIMIT 1) AS first,
    (SELECT send_after FROM {outbox} INDEXED BY {outbox}_due
        WHERE suspect = ?1 AND kind = asked.value AND send_after > ?3
            AND held IS NULL AND sent_at IS NULL AND dead_at IS NULL
        ORDER BY send_after LIMIT 1) AS later
FROM json_each(?2) AS asked
