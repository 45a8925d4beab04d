//! Several processes on one file.

use std::{
    collections::HashSet,
    io::{BufRead, BufReader},
    time::{Duration, Instant},
};

use outbox_core::{NewRecord, Operate, Owner, State, Store, Wake};

use crate::{
    harness::Files,
    process::{Role, end, ended, enqueue, said, start, take},
};

const ME: Owner = Owner::from_random(1);
const LEASE: Duration = Duration::from_secs(600);

/// A2: eight processes write while one claims and marks, and none of them is told that the database is locked.
#[tokio::test(flavor = "multi_thread")]
async fn writers_and_a_relay_never_lock_each_other_out() {
    let files = Files::new();
    let store = files.open("app.db").await;
    let writers: Vec<_> = (0..8).map(|_| start(Role::Write, &files.path("app.db"))).collect();
    let mut sent = 0;
    let since = Instant::now();
    while sent < 400 && since.elapsed() < Duration::from_secs(60) {
        let taken = take(&store, ME, LEASE, 100).await;
        end(&store, &taken).await;
        sent += taken.len();
        if taken.is_empty() {
            store.wait(Duration::from_millis(50)).await.unwrap();
        }
    }
    for writer in writers {
        ended(writer);
    }
    assert_eq!(sent, 400);
}

/// S2: of 20,000 records, two relays in two processes never take the same one.
#[tokio::test(flavor = "multi_thread")]
async fn two_relays_on_one_file_share_the_records_between_them() {
    let files = Files::new();
    let store = files.open("app.db").await;
    let mut expected = HashSet::new();
    for _ in 0..10 {
        let mut transaction = store.pool().begin().await.unwrap();
        let records: Vec<_> = (0..2_000).map(|n| NewRecord::json("order.placed", &n).unwrap()).collect();
        for enqueued in store.enqueue_all(&mut transaction, &records).await.unwrap() {
            assert!(expected.insert(enqueued.id().to_string()));
        }
        transaction.commit().await.unwrap();
    }
    let relays = [(); 2].map(|()| start(Role::Relay, &files.path("app.db")));
    let shares = relays.map(ended);
    assert!(shares.iter().all(|share| !share.is_empty()), "both took part");
    let mut taken = HashSet::new();
    for id in shares.into_iter().flatten() {
        assert!(taken.insert(id), "a record was taken twice");
    }
    assert_eq!(taken, expected);
}

/// A1: what was committed right before the process died is sent after a restart with the same file.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_outlives_the_process_that_committed_it() {
    let files = Files::new();
    let output = start(Role::Abort, &files.path("app.db")).wait_with_output().unwrap();
    assert!(!output.status.success(), "it was to die");
    let store = files.open("app.db").await;
    let taken = take(&store, ME, LEASE, 10).await;
    assert_eq!(said(&String::from_utf8_lossy(&output.stdout)), [taken[0].id.to_string()]);
    assert_eq!(taken.len(), 1);
}

/// Processes that start at once on a new file all find its tables.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_migrated_once_however_many_try() {
    let files = Files::new();
    let children: Vec<_> = (0..6).map(|_| start(Role::Open, &files.path("app.db"))).collect();
    for child in children {
        ended(child);
    }
    let store = files.open("app.db").await;
    let (one, two) = tokio::join!(store.migrate(), store.migrate());
    one.unwrap();
    two.unwrap();
    let applied: i64 =
        sqlx::query_scalar("SELECT count(*) FROM outbox_version").fetch_one(store.pool()).await.unwrap();
    assert_eq!(applied, 1);
}

/// R6: a commit of another process ends a wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_another_process_is_a_hint() {
    let files = Files::new();
    let store = files.open("app.db").await;
    // What has happened so far is seen.
    while store.wait(Duration::from_millis(300)).await.unwrap() == Wake::Hint {}
    let since = Instant::now();
    let writer = start(Role::Write, &files.path("app.db"));
    assert_eq!(store.wait(Duration::from_secs(60)).await.unwrap(), Wake::Hint);
    assert!(since.elapsed() < Duration::from_secs(30));
    ended(writer);
}

/// R8: what a killed relay held is due within 3 s, however long its lease, and nothing is left beside the file.
#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_a_relay_is_seen() {
    let files = Files::new();
    let store = files.open("app.db").await;
    for n in 0..3 {
        enqueue(&store, NewRecord::json("order.placed", &n).unwrap()).await;
    }
    let mut holder = start(Role::Hold, &files.path("app.db"));
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("child: holds 3")));
    assert!(take(&store, ME, LEASE, 10).await.is_empty(), "it lives, and holds them");

    holder.kill().unwrap();
    holder.wait().unwrap();
    let since = Instant::now();
    let mut taken = Vec::new();
    while taken.is_empty() {
        assert!(since.elapsed() < Duration::from_secs(3), "its death was not seen");
        store.wait(Duration::from_secs(3)).await.unwrap();
        taken = take(&store, ME, LEASE, 10).await;
    }
    assert_eq!((taken[0].attempts, taken[0].lapses), (1, 1), "a lapse is no failure");
    assert!(!files.path("app.db-relays").exists(), "its file is still there");
}

/// R5: a run that ends well is no death: what may have been sent waits for the end of its lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_clean_end_is_no_death() {
    let files = Files::new();
    let store = files.open("app.db").await;
    let id = enqueue(&store, NewRecord::json("order.placed", &1).unwrap()).await;
    let run = store.enter(ME).await.unwrap();
    assert!(run.is_held());
    assert!(files.path("app.db-relays").exists());
    assert_eq!(take(&store, ME, LEASE, 10).await.len(), 1);
    drop(run);
    assert!(!files.path("app.db-relays").exists(), "its file is still there");
    let other = files.open("app.db").await;
    assert!(take(&other, Owner::from_random(2), LEASE, 10).await.is_empty());
    assert_eq!(other.show(id).await.unwrap().unwrap().0.state, State::Claimed);
}
