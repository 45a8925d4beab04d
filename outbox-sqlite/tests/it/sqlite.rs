//! What is SQLite's own: its locks, its tables, its files.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use outbox_core::{
    ClaimRequest, Dedup, NewRecord, Operate, Owner, Pattern, Payload, RouteDemand, State, Store,
    StoreErrorKind, Wake,
};
use outbox_sqlite::{SqliteConfig, SqliteStore};
use sqlx::{AssertSqlSafe, sqlite::SqlitePoolOptions};

use crate::{
    harness::Files,
    process::{end, enqueue, take},
};

const ME: Owner = Owner::from_random(1);
const LEASE: Duration = Duration::from_secs(600);

fn record() -> NewRecord {
    NewRecord::json("order.placed", &1).unwrap()
}

/// A2: a transaction that has read, and writes after another has, is told that this is its own conflict.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_write_of_a_transaction_that_has_read_is_a_conflict() {
    let files = Files::new();
    let store = files.open("app.db").await;
    for other_commits_first in [true, false] {
        let mut late = store.pool().begin().await.unwrap();
        sqlx::query("SELECT count(*) FROM outbox").fetch_one(&mut *late).await.unwrap();
        let mut other = store.pool().begin().await.unwrap();
        store.enqueue(&mut other, record()).await.unwrap();
        let enqueued = if other_commits_first {
            other.commit().await.unwrap();
            store.enqueue(&mut late, record()).await
        } else {
            let commit = async {
                // real time: the other side is waiting by then.
                tokio::time::sleep(Duration::from_millis(50)).await;
                other.commit().await.unwrap();
            };
            tokio::join!(store.enqueue(&mut late, record()), commit).0
        };
        assert_eq!(enqueued.unwrap_err().kind(), StoreErrorKind::Conflict);
        late.rollback().await.unwrap();
    }
    let mut again = store.pool().begin().await.unwrap();
    store.enqueue(&mut again, record()).await.unwrap();
    again.commit().await.unwrap();
    assert_eq!(take(&store, ME, LEASE, 10).await.len(), 3);
}

/// A2: a transaction that waits for a writer gets its turn, and so does a claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_writer_is_waited_for() {
    let files = Files::new();
    let store = files.open("app.db").await;
    enqueue(&store, record()).await;
    let mut slow = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    store.enqueue(&mut slow, record()).await.unwrap();
    let commit = async {
        // real time: the other side is waiting by then.
        tokio::time::sleep(Duration::from_millis(300)).await;
        slow.commit().await.unwrap();
    };
    let (taken, _, ()) = tokio::join!(take(&store, ME, LEASE, 10), enqueue(&store, record()), commit);
    assert!(taken.len() >= 2, "the claim came after the slow commit");
}

/// R7: a lock that nobody gives back in time is an outage, not a conflict of anybody.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_without_end_is_an_outage() {
    let files = Files::new();
    let config = SqliteConfig::new().with_busy_for(Duration::from_millis(100));
    let store = SqliteStore::connect(files.path("app.db"), config).await.unwrap();
    enqueue(&store, record()).await;
    let endless = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    let routes = vec![RouteDemand::new(Pattern::Default, 10)];
    let claim = store.claim(&ClaimRequest::new(ME, LEASE, 10, routes)).await;
    assert_eq!(claim.unwrap_err().kind(), StoreErrorKind::Unavailable);
    endless.rollback().await.unwrap();
    assert_eq!(take(&store, ME, LEASE, 10).await.len(), 1);
}

/// A claim that is dropped half-way leaves no lock behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_claim_holds_no_lock() {
    let files = Files::new();
    let store = files.open("app.db").await;
    let mut left = 0;
    for polls in 1..60 {
        left += 1;
        enqueue(&store, record()).await;
        let routes = vec![RouteDemand::new(Pattern::Default, 1)];
        let request = ClaimRequest::new(ME, LEASE, 1, routes);
        let mut claim = pin!(store.claim(&request));
        let mut count = 0;
        // Polled so often, and then dropped wherever it stands.
        poll_fn(|cx| {
            count += 1;
            let done = claim.as_mut().poll(cx).is_ready();
            if done || count >= polls { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
    for _ in 0..left {
        enqueue(&store, record()).await;
    }
}

/// A1: what a plain client writes by SQL alone is sent like any other, and its defaults are those of Rust.
#[tokio::test(flavor = "multi_thread")]
async fn a_plain_insert_has_every_default() {
    let files = Files::new();
    let store = files.open("app.db").await;
    for payload in ["'{\"n\": 1.10}'", "x'00ff'"] {
        let sql = format!("INSERT INTO outbox (kind, payload) VALUES ('a', {payload})");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(store.pool()).await.unwrap();
    }
    let taken = take(&store, ME, LEASE, 10).await;
    assert_eq!(taken[0].payload, Payload::Json("{\"n\": 1.10}".into()));
    assert_eq!(taken[1].payload, Payload::Bytes(vec![0, 255]));
    for record in &taken {
        assert_eq!(record.id.get_version_num(), 4, "a random UUID");
        assert!(record.created_at.elapsed().unwrap() < Duration::from_secs(60));
        assert_eq!((record.content_type.as_str(), record.headers.len()), ("application/json", 0));
    }
    for bad in [
        "(kind, payload) VALUES ('', '{}')",
        "(kind) VALUES ('a')",
        "(kind, payload) VALUES ('a', 1)",
        "(kind, payload, id) VALUES ('a', '{}', 'no uuid')",
        "(kind, payload, id) VALUES ('a', '{}', upper(hex(randomblob(16))))",
        "(kind, payload, attempts) VALUES ('a', '{}', 'many')",
    ] {
        let sql = format!("INSERT INTO outbox {bad}");
        assert!(sqlx::raw_sql(AssertSqlSafe(sql)).execute(store.pool()).await.is_err(), "{bad}");
    }
}

/// S6: a row that holds no text where text belongs is returned apart, and holds back no other.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_not_utf8_is_returned_apart() {
    let files = Files::new();
    let store = files.open("app.db").await;
    for (column, value) in [
        ("payload", "CAST(x'ff' AS TEXT)"),
        ("content_type, payload", "CAST(x'ff' AS TEXT), '{}'"),
        ("headers, payload", "'[1]', '{}'"),
        ("progress, payload", "'{', '{}'"),
    ] {
        let sql = format!("INSERT INTO outbox (kind, {column}) VALUES ('a', {value})");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(store.pool()).await.unwrap();
    }
    enqueue(&store, record()).await;
    let routes = vec![RouteDemand::new(Pattern::Default, 10)];
    let batch = store.claim(&ClaimRequest::new(ME, LEASE, 10, routes)).await.unwrap();
    assert_eq!((batch.records.len(), batch.undecodable.len()), (1, 4));
    for undecodable in &batch.undecodable {
        assert_eq!(undecodable.kind, "a");
        assert!(!undecodable.reason.contains('\u{fffd}') && !undecodable.reason.contains("[1]"));
    }
}

/// Tables that are missing, or of a newer release, are named as what they are.
#[tokio::test(flavor = "multi_thread")]
async fn missing_and_newer_tables_are_told_apart_from_outages() {
    let files = Files::new();
    let store = files.open("app.db").await;
    let newer = "INSERT INTO outbox_version (version) VALUES (99)";
    sqlx::query(newer).execute(store.pool()).await.unwrap();
    let error = store.migrate().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Schema);
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("version 99"), "{source}");

    let pool = store.pool().clone();
    let missing = SqliteStore::with_config(pool, SqliteConfig::new().with_table("none")).unwrap();
    let error = missing.stats(&[]).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Schema);
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("migrate()"), "{source}");
    let mut transaction = store.pool().begin().await.unwrap();
    let error = missing.enqueue(&mut transaction, record()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Schema);
}

/// The printed script and `migrate` make the same tables.
#[tokio::test(flavor = "multi_thread")]
async fn the_printed_migrations_are_the_ones_that_run() {
    let files = Files::new();
    let tables = async |store: &SqliteStore| -> Vec<(String, String)> {
        let sql = "SELECT name, coalesce(sql, '') FROM sqlite_schema ORDER BY name";
        sqlx::query_as(sql).fetch_all(store.pool()).await.unwrap()
    };
    let migrated = files.open("migrated.db").await;
    let options =
        sqlx::sqlite::SqliteConnectOptions::new().filename(files.path("printed.db")).create_if_missing(true);
    let printed = SqliteStore::new(SqlitePoolOptions::new().connect_with(options).await.unwrap());
    sqlx::raw_sql(AssertSqlSafe(printed.migrations_sql())).execute(printed.pool()).await.unwrap();
    assert_eq!(tables(&migrated).await, tables(&printed).await);
    enqueue(&printed, record()).await;
    assert_eq!(take(&printed, ME, LEASE, 10).await.len(), 1);
    printed.migrate().await.unwrap();
}

/// Two outboxes of different names in one file know nothing of each other.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_holds_several_outboxes() {
    let files = Files::new();
    let one = files.open("app.db").await;
    let config = SqliteConfig::new().with_table("letters");
    let two = SqliteStore::with_config(one.pool().clone(), config).unwrap();
    two.migrate().await.unwrap();
    let id = enqueue(&two, record().key("k").dedup(Dedup::new("d"))).await;
    assert!(take(&one, ME, LEASE, 10).await.is_empty());
    let taken = take(&two, ME, LEASE, 10).await;
    assert_eq!(taken[0].id, id);
    end(&two, &taken).await;
    assert_eq!(two.show(id).await.unwrap().unwrap().0.state, State::Sent);
}

/// A database in memory works with a pool of one connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_in_memory_is_an_outbox() {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.unwrap();
    let store = SqliteStore::new(pool);
    store.migrate().await.unwrap();
    let id = enqueue(&store, record()).await;
    let run = store.enter(ME).await.unwrap();
    let taken = take(&store, ME, LEASE, 10).await;
    assert_eq!(taken[0].id, id);
    end(&store, &taken).await;
    assert_eq!(store.stats(&[]).await.unwrap().sent.value, 1);
    drop(run);
}

/// R6: a ring wakes everyone who waits, and one that nobody heard the next who does.
#[tokio::test(flavor = "multi_thread")]
async fn a_ring_wakes_all_who_wait() {
    let files = Files::new();
    // So rare a look that no hint can come from it.
    let config = SqliteConfig::new().with_watch_interval(Duration::from_secs(600));
    let store = SqliteStore::connect(files.path("app.db"), config).await.unwrap();
    store.wake();
    assert_eq!(store.wait(Duration::from_secs(60)).await.unwrap(), Wake::Hint);
    let ring = async {
        // real time: the other side is waiting by then.
        tokio::time::sleep(Duration::from_millis(100)).await;
        store.wake();
    };
    let long = Duration::from_secs(60);
    let (one, two, ()) = tokio::join!(store.wait(long), store.wait(long), ring);
    assert_eq!((one.unwrap(), two.unwrap()), (Wake::Hint, Wake::Hint));
}

/// S7: rows that a hand-written change left held are set free by a sweep.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_mends_what_was_changed_by_hand() {
    let files = Files::new();
    let store = files.open("app.db").await;
    for n in 0..3 {
        enqueue(&store, record().key(format!("k{n}")).destination("d")).await;
    }
    let by_hand = "UPDATE outbox SET held = 'key' WHERE key = 'k0';
        UPDATE outbox SET held = 'key', key = NULL WHERE key = 'k1';
        UPDATE outbox SET held = 'destination', destination = NULL WHERE key = 'k2';";
    sqlx::raw_sql(by_hand).execute(store.pool()).await.unwrap();
    assert!(take(&store, ME, LEASE, 10).await.is_empty());
    let swept = store.sweep(&outbox_core::Retention::default()).await.unwrap();
    assert_eq!(swept.mended, 3);
    assert_eq!(take(&store, ME, LEASE, 10).await.len(), 3);
}

/// S8: a relay that takes every kind but a full one passes over the thousands of rows of that one.
#[tokio::test(flavor = "multi_thread")]
async fn unwanted_kinds_hold_back_no_other() {
    let files = Files::new();
    let store = files.open("app.db").await;
    let fill = "INSERT INTO outbox (kind, payload) WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n \
                WHERE i < 2999) SELECT 'full.' || (i % 700), '1' FROM n";
    sqlx::raw_sql(fill).execute(store.pool()).await.unwrap();
    let mut expected = Vec::new();
    for n in 0..300 {
        expected.push(enqueue(&store, NewRecord::json(format!("kind {n:03}"), &n).unwrap()).await);
    }
    let routes =
        vec![RouteDemand::new(Pattern::Default, 50), RouteDemand::new(Pattern::Prefix("full.".into()), 0)];
    let request = ClaimRequest::new(ME, LEASE, 50, routes);
    let mut taken = Vec::new();
    for _ in 0..6 {
        let batch = store.claim(&request).await.unwrap();
        assert_eq!(batch.records.len(), 50, "each claim is as full as it may be");
        taken.extend(batch.records.iter().map(|record| record.id));
    }
    taken.sort_unstable();
    expected.sort_unstable();
    assert_eq!(taken, expected);
    let batch = store.claim(&request).await.unwrap();
    assert!(
        batch.records.is_empty() && batch.next_due != Some(Duration::ZERO),
        "nothing is left, and it rests"
    );
}

/// R2: thousands of rows behind one failing key hold back no other kind, not even while they are put aside.
#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_key_holds_back_no_other_kind() {
    let files = Files::new();
    let store = files.open("app.db").await;
    let stuck = "INSERT INTO outbox (kind, payload, key, fence, attempts, send_after) VALUES ('stuck', '1', 'k', 2, 1, 1e15);
        INSERT INTO outbox (kind, payload, key) WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n
            WHERE i < 49999) SELECT 'stuck', '1', 'k' FROM n;";
    sqlx::raw_sql(stuck).execute(store.pool()).await.unwrap();
    let other = enqueue(&store, record()).await;
    let taken = take(&store, ME, LEASE, 100).await;
    assert_eq!(taken.iter().map(|record| record.id).collect::<Vec<_>>(), [other], "the first claim takes it");
    let routes = vec![RouteDemand::new(Pattern::Default, 100)];
    let request = ClaimRequest::new(ME, LEASE, 100, routes);
    let mut claims = 0;
    while store.claim(&request).await.unwrap().next_due.is_some_and(|due| due < Duration::from_millis(100)) {
        claims += 1;
        assert!(claims < 20, "they are put aside ten thousand at a time");
    }
}
