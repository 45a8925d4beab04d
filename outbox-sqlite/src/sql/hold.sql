-- Takes rows that cannot go for a while out of what claims walk.
UPDATE {outbox} SET held = ?2 WHERE seq IN (SELECT value FROM json_each(?1))
