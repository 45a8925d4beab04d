DELETE FROM {outbox}_pauses WHERE covers = ?1 AND name = ?2
