-- How a row stands whose mark changed nothing.
SELECT id, fence, owner, sent_at, dead_at, last_error FROM {outbox} WHERE seq = ?1
