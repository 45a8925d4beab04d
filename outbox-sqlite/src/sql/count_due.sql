-- Pending and claimed rows that nothing holds, each counted up to ?2 among rows of this sort (?1: suspects or not).
SELECT coalesce(sum(owner IS NULL), 0), coalesce(sum(owner IS NOT NULL), 0) FROM (
    SELECT owner FROM {outbox} INDEXED BY {outbox}_due
    WHERE suspect = ?1 AND held IS NULL AND sent_at IS NULL AND dead_at IS NULL
    LIMIT ?2)
