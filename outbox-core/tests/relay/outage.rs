//! R6, R7: hints that never come, and a database that is away.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use outbox_core::{
    ClaimBatch, ClaimRequest, Lease, Mark, MarkReport, MemoryStore, Pattern, Retention, State, Stats, Store,
    StoreError, StoreErrorKind, Swept, Wake, async_trait, relay::Relay,
};
use tokio::time::Instant;

use crate::world::*;

/// The store in memory behind a connection that can be cut.
#[derive(Clone)]
struct Remote {
    store: MemoryStore,
    away: Arc<AtomicBool>,
    /// Whether marks are written and their answer lost.
    loses_answers: Arc<AtomicBool>,
    hints: bool,
    calls: Arc<AtomicU64>,
}

impl Remote {
    fn new(store: &MemoryStore) -> Self {
        Self {
            store: store.clone(),
            away: Arc::default(),
            loses_answers: Arc::default(),
            hints: true,
            calls: Arc::default(),
        }
    }

    fn reach(&self) -> Result<(), StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match self.away.load(Ordering::Relaxed) {
            true => Err(StoreError::new(StoreErrorKind::Unavailable, "reach the database")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Store for Remote {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch, StoreError> {
        self.reach()?;
        self.store.claim(request).await
    }

    async fn mark(&self, marks: &[Mark]) -> Result<MarkReport, StoreError> {
        self.reach()?;
        let report = self.store.mark(marks).await?;
        match self.loses_answers.swap(false, Ordering::Relaxed) {
            true => Err(StoreError::new(StoreErrorKind::Unavailable, "read the answer")),
            false => Ok(report),
        }
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, StoreError> {
        self.reach()?;
        self.store.renew(leases, lease_for).await
    }

    async fn wait(&self, at_most: Duration) -> Result<Wake, StoreError> {
        if !self.hints {
            pass(at_most).await;
            return Ok(Wake::Timeout);
        }
        self.store.wait(at_most).await
    }

    async fn sweep(&self, retention: &Retention) -> Result<Swept, StoreError> {
        self.reach()?;
        self.store.sweep(retention).await
    }

    async fn stats(&self, routed: &[Pattern]) -> Result<Stats, StoreError> {
        self.reach()?;
        self.store.stats(routed).await
    }
}

/// R6: with every hint lost, a record leaves within the poll interval.
#[tokio::test(start_paused = true)]
async fn without_hints_a_record_leaves_within_the_poll_interval() {
    let (store, sink) = (outbox(), TestSink::accepting());
    let remote = Remote { hints: false, ..Remote::new(&store) };
    let relay = start(Relay::new(remote).route("*", sink.clone()));
    for n in 1..=20 {
        pass(1_370 * MILLI).await;
        let committed = Instant::now();
        enqueue(&store, [record("a")]).await;
        all_sent(&store, n, 2 * SECOND).await;
        let waited = sink.log().last().unwrap().begun - committed;
        assert!(waited <= SECOND + 2 * MILLI, "{waited:?}");
    }
    relay.stop().await.unwrap();
}

/// R6: with hints a record leaves at once.
#[tokio::test(start_paused = true)]
async fn with_a_hint_a_record_leaves_at_once() {
    let (store, sink) = (outbox(), TestSink::accepting());
    let relay = start(Relay::new(store.clone()).route("*", sink.clone()));
    pass(5_300 * MILLI).await;
    let committed = Instant::now();
    enqueue(&store, [record("a")]).await;
    all_sent(&store, 1, SECOND).await;
    assert!(sink.log()[0].begun - committed <= MILLI);
    relay.stop().await.unwrap();
}

/// S9: an idle relay asks at most twice a poll interval, and a scheduled record leaves when it is due.
#[tokio::test(start_paused = true)]
async fn an_idle_relay_sleeps_until_the_next_record_is_due() {
    let (store, sink) = (outbox(), TestSink::accepting());
    let remote = Remote::new(&store);
    let calls = Arc::clone(&remote.calls);
    let relay = start(Relay::new(remote).route("*", sink.clone()));
    enqueue(&store, [record("a").delay(100 * SECOND + 300 * MILLI)]).await;
    let committed = Instant::now();
    pass(100 * SECOND).await;
    assert!(calls.load(Ordering::Relaxed) <= 200, "{} calls in 100 s", calls.load(Ordering::Relaxed));
    all_sent(&store, 1, SECOND).await;
    let waited = sink.log()[0].begun - committed;
    assert!(waited >= 100_300 * MILLI && waited < 100_310 * MILLI, "{waited:?}");
    relay.stop().await.unwrap();
}

/// R7: the database goes away in the middle and comes back: the relay carries on, and what was sent
/// meanwhile is marked and not sent again.
#[tokio::test(start_paused = true)]
async fn an_outage_of_the_database_loses_and_doubles_nothing() {
    let store = outbox();
    let sink = TestSink::new(|_| Do::Accept(50 * MILLI));
    let remote = Remote::new(&store);
    enqueue(&store, (0..1_000).map(|_| record("a"))).await;
    let relay = Relay::new(remote.clone()).seed(8).route("*", sink.clone());
    let health = relay.health();
    let relay = start(relay);
    assert!(within(SECOND, async || sink.accepted() > 100).await);
    remote.away.store(true, Ordering::Relaxed);
    pass(60 * SECOND).await;
    assert!(health.now().store_error.is_some());
    let before = remote.calls.load(Ordering::Relaxed);
    pass(60 * SECOND).await;
    let calls = remote.calls.load(Ordering::Relaxed) - before;
    assert!(calls < 120, "{calls} calls in a minute without a database");
    remote.away.store(false, Ordering::Relaxed);
    all_sent(&store, 1_000, 30 * SECOND).await;
    assert!(sink.copies().values().all(|copies| *copies == 1));
    assert!(health.now().store_error.is_none());
    relay.stop().await.unwrap();
}

/// R7: a relay that starts without its database waits for it.
#[tokio::test(start_paused = true)]
async fn a_relay_waits_for_a_database_that_is_away_at_start() {
    let (store, sink) = (outbox(), TestSink::accepting());
    let remote = Remote::new(&store);
    remote.away.store(true, Ordering::Relaxed);
    enqueue(&store, [record("a")]).await;
    let relay = start(Relay::new(remote.clone()).route("*", sink));
    pass(30 * SECOND).await;
    remote.away.store(false, Ordering::Relaxed);
    all_sent(&store, 1, 6 * SECOND).await;
    relay.stop().await.unwrap();
}

/// S3: marks whose answer was lost are written again, and change nothing the second time.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_mark_doubles_nothing() {
    let (store, sink) = (outbox(), TestSink::accepting());
    let remote = Remote::new(&store);
    remote.loses_answers.store(true, Ordering::Relaxed);
    enqueue(&store, (0..10).map(|_| record("a"))).await;
    let relay = start(Relay::new(remote).route("*", sink.clone()));
    all_sent(&store, 10, SECOND).await;
    pass(60 * SECOND).await;
    assert_eq!(sink.sends(), 10);
    assert_eq!(count(&store, State::Sent).await, 10);
    relay.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn missing_tables_end_a_relay_at_its_start() {
    #[derive(Clone)]
    struct Bare;
    #[async_trait]
    impl Store for Bare {
        async fn claim(&self, _: &ClaimRequest) -> Result<ClaimBatch, StoreError> {
            Err(StoreError::new(StoreErrorKind::Schema, "claim records"))
        }
        async fn mark(&self, _: &[Mark]) -> Result<MarkReport, StoreError> {
            Ok(MarkReport::default())
        }
        async fn renew(&self, _: &[Lease], _: Duration) -> Result<Vec<Lease>, StoreError> {
            Ok(Vec::new())
        }
        async fn wait(&self, at_most: Duration) -> Result<Wake, StoreError> {
            pass(at_most).await;
            Ok(Wake::Timeout)
        }
        async fn sweep(&self, _: &Retention) -> Result<Swept, StoreError> {
            Ok(Swept::default())
        }
        async fn stats(&self, _: &[Pattern]) -> Result<Stats, StoreError> {
            Ok(Stats::default())
        }
    }
    let error = start(Relay::new(Bare).route("*", TestSink::accepting())).end().await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "failed to claim records: the outbox tables are missing or of another version");
}
