-- The outbox of one database.
--
-- The pattern: <a href="https://agentwranglers.se/playbook/events/publishing-events/outbox">Agent Wranglers integration and events playbook</a>
-- (pattern source, CC BY 4.0).
--
-- All times are milliseconds since 1970, by the clock of the machine that runs the statement. julianday() knows them in
-- every release of SQLite; unixepoch('subsec') does not.

CREATE TABLE {outbox} (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    -- A random UUID as lower-case text, which every language and every shell reads.
    id TEXT NOT NULL UNIQUE DEFAULT (lower(
        hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-'
        || substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
    kind TEXT NOT NULL,
    destination TEXT,
    key TEXT,
    content_type TEXT NOT NULL DEFAULT 'application/json',
    hold_key INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL DEFAULT ({now}),
    send_after INTEGER NOT NULL DEFAULT ({now}),
    attempts INTEGER NOT NULL DEFAULT 0,
    lapses INTEGER NOT NULL DEFAULT 0,
    owner INTEGER,
    fence INTEGER NOT NULL DEFAULT 0,
    held TEXT,
    blocks_key INTEGER NOT NULL DEFAULT 0,
    age INTEGER NOT NULL DEFAULT 0,
    sent_at INTEGER,
    dead_at INTEGER,
    last_error TEXT,
    receipt TEXT,
    progress TEXT,
    headers TEXT NOT NULL DEFAULT '{}',
    -- TEXT is JSON, BLOB is any bytes. Last, so that a long one is not read to reach what stands behind it.
    payload ANY NOT NULL,
    -- Under a lease, or lapsed before: may be what kills relays.
    suspect INTEGER NOT NULL GENERATED ALWAYS AS (owner IS NOT NULL OR lapses > 0) VIRTUAL,
    -- Put off by its producer and not yet known to have been due: does not hold its key.
    scheduled INTEGER NOT NULL GENERATED ALWAYS AS (fence = 0 AND hold_key = 0 AND send_after > created_at) VIRTUAL,
    CHECK (kind <> '' AND length(CAST(kind AS BLOB)) <= 255),
    CHECK (typeof(payload) IN ('text', 'blob')),
    CHECK (held IN ('key', 'destination')),
    CHECK (
        id LIKE '________-____-____-____-____________' AND id NOT GLOB '*[^0-9a-f-]*'
        AND length(replace(id, '-', '')) = 32)
) STRICT;

-- What a claim walks: ready rows and suspects of each kind, in the order in which they fall due.
CREATE INDEX {outbox}_due ON {outbox} (suspect, kind, send_after, seq)
    WHERE held IS NULL AND sent_at IS NULL AND dead_at IS NULL;

-- The same rows of all kinds in one order, for relays that take every kind.
CREATE INDEX {outbox}_due_of_all ON {outbox} (suspect, send_after, seq)
    WHERE held IS NULL AND sent_at IS NULL AND dead_at IS NULL;

-- Rows that a destination held up: one lane for each kind and destination.
CREATE INDEX {outbox}_lanes ON {outbox} (suspect, kind, destination, send_after, seq)
    WHERE held = 'destination' AND sent_at IS NULL AND dead_at IS NULL;

-- Rows that the head of their key holds up.
CREATE INDEX {outbox}_behind ON {outbox} (key, seq)
    WHERE held = 'key';

-- The line of each key: what later records wait for.
CREATE INDEX {outbox}_line ON {outbox} (key, seq)
    WHERE key IS NOT NULL AND sent_at IS NULL AND (dead_at IS NULL OR blocks_key = 1) AND scheduled = 0;

-- Rows that will stand in that line once they are due.
CREATE INDEX {outbox}_scheduled ON {outbox} (key, send_after)
    WHERE key IS NOT NULL AND sent_at IS NULL AND dead_at IS NULL AND scheduled = 1;

-- Keys with a record under a lease.
CREATE INDEX {outbox}_claimed ON {outbox} (key, send_after)
    WHERE owner IS NOT NULL AND key IS NOT NULL AND sent_at IS NULL AND dead_at IS NULL;

-- For retention.
CREATE INDEX {outbox}_sent ON {outbox} (sent_at) WHERE sent_at IS NOT NULL;
CREATE INDEX {outbox}_dead ON {outbox} (blocks_key, dead_at) WHERE dead_at IS NOT NULL;

-- The first enqueue of each dedup key, for as long as it is kept.
CREATE TABLE {outbox}_dedup (
    kind TEXT NOT NULL,
    dedup_key TEXT NOT NULL,
    id TEXT NOT NULL,
    keep_until INTEGER NOT NULL,
    PRIMARY KEY (kind, dedup_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX {outbox}_dedup_keep_until ON {outbox}_dedup (keep_until);

-- What each receiver has seen.
CREATE TABLE {outbox}_inbox (
    consumer TEXT NOT NULL,
    id TEXT NOT NULL,
    created_at INTEGER NOT NULL DEFAULT ({now}),
    PRIMARY KEY (consumer, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX {outbox}_inbox_created_at ON {outbox}_inbox (created_at);

-- What operators have paused: everything, a pattern of kinds, or a destination.
CREATE TABLE {outbox}_pauses (
    covers TEXT NOT NULL CHECK (covers IN ('all', 'kind', 'destination')),
    name TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '',
    since INTEGER NOT NULL DEFAULT ({now}),
    PRIMARY KEY (covers, name)
) STRICT, WITHOUT ROWID;
