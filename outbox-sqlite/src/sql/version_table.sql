CREATE TABLE IF NOT EXISTS {outbox}_version (
    version INTEGER PRIMARY KEY,
    applied_at INTEGER NOT NULL DEFAULT ({now})
) STRICT;
