//! A store that answers oddly, and sends of which nothing is known.

use std::{
    collections::HashSet,
    num::NonZeroU32,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use outbox_core::{
    ClaimBatch, ClaimRequest, ErrorScope, Lease, Mark, MarkReport, MemoryStore, Owner, Pattern, Presence,
    Retention, SendError, State, Stats, Store, StoreError, StoreErrorKind, Swept, Wake, async_trait,
    relay::{RateLimit, Relay, Route},
};

use crate::world::*;

/// The store in memory, with renewals that fail or find a record lost, and a run that may go unseen.
#[derive(Clone)]
struct Odd {
    store: MemoryStore,
    seen: Arc<AtomicBool>,
    renewals_fail: bool,
    renewals: Arc<AtomicUsize>,
    loses: Option<i64>,
    lost: Arc<Mutex<HashSet<Lease>>>,
}

impl Odd {
    fn new(store: &MemoryStore) -> Self {
        Self {
            store: store.clone(),
            seen: Arc::new(AtomicBool::new(true)),
            renewals_fail: false,
            renewals: Arc::default(),
            loses: None,
            lost: Arc::default(),
        }
    }
}

struct Seen(Arc<AtomicBool>);

impl Presence for Seen {
    fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Store for Odd {
    async fn enter(&self, _: Owner) -> Result<Box<dyn Presence>, StoreError> {
        Ok(Box::new(Seen(Arc::clone(&self.seen))))
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch, StoreError> {
        self.store.claim(request).await
    }

    async fn mark(&self, marks: &[Mark]) -> Result<MarkReport, StoreError> {
        self.store.mark(marks).await
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, StoreError> {
        self.renewals.fetch_add(1, Ordering::Relaxed);
        if self.renewals_fail {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "renew"));
        }
        let mut lost = self.store.renew(leases, lease_for).await?;
        lost.extend(leases.iter().filter(|lease| Some(lease.seq) == self.loses));
        self.lost.lock().unwrap().extend(lost.iter().copied());
        Ok(lost)
    }

    async fn wait(&self, at_most: Duration) -> Result<Wake, StoreError> {
        self.store.wait(at_most).await
    }

    async fn sweep(&self, retention: &Retention) -> Result<Swept, StoreError> {
        self.store.sweep(retention).await
    }

    async fn stats(&self, routed: &[Pattern]) -> Result<Stats, StoreError> {
        self.store.stats(routed).await
    }
}

/// S2: a run of a key that is under way goes no further once one of its leases is lost.
#[tokio::test(start_paused = true)]
async fn a_record_whose_lease_was_reported_lost_is_not_handed_over() {
    for batch in [1, 10] {
        let store = outbox();
        let mut odd = Odd::new(&store);
        odd.loses = Some(8);
        let (lost, told_lost) = (Arc::clone(&odd.lost), Arc::new(AtomicBool::new(false)));
        let late = Arc::clone(&told_lost);
        let sink = TestSink::new(move |record| {
            if lost.lock().unwrap().contains(&record.lease()) {
                late.store(true, Ordering::Relaxed);
            }
            Do::Accept(400 * MILLI)
        })
        .in_batches(batch);
        enqueue(&store, (0..10).map(|_| record("a").key("k"))).await;
        let relay = Relay::new(odd.clone())
            .config(config().with_lease_for(6 * SECOND).with_send_timeout(SECOND))
            .route("*", sink.clone());
        let relay = start(relay);
        all_sent(&store, 10, 60 * SECOND).await;
        assert!(!odd.lost.lock().unwrap().is_empty());
        assert!(!told_lost.load(Ordering::Relaxed), "handed over although lost");
        assert!(sink.copies().values().all(|copies| *copies == 1));
        relay.stop().await.unwrap();
    }
}

/// R4, R7: renewals that a record waits for are asked for with the store's backoff while they fail.
#[tokio::test(start_paused = true)]
async fn renewals_that_fail_do_not_storm_the_store() {
    let store = outbox();
    let mut odd = Odd::new(&store);
    odd.seen.store(false, Ordering::Relaxed);
    odd.renewals_fail = true;
    let sink = TestSink::new(|_| Do::Accept(300 * MILLI));
    enqueue(&store, (0..10).map(|_| record("a").key("k"))).await;
    let relay = start(Relay::new(odd.clone()).seed(3).route("*", Route::to(sink).concurrency(10)));
    pass(10 * SECOND).await;
    let renewals = odd.renewals.load(Ordering::Relaxed);
    assert!((2..120).contains(&renewals), "{renewals} in ten seconds");
    relay.stop().await.unwrap();
}

/// R4: a relay that others cannot see renews before it hands anything over, and still delivers.
#[tokio::test(start_paused = true)]
async fn an_unseen_relay_renews_before_it_hands_over() {
    let store = outbox();
    let odd = Odd::new(&store);
    let sink = TestSink::new(|_| Do::Accept(300 * MILLI));
    enqueue(&store, (0..20).map(|_| record("a").key("k"))).await;
    let relay = start(Relay::new(odd.clone()).route("*", sink.clone()));
    assert!(within(5 * SECOND, async || sink.accepted() == 5).await);
    odd.seen.store(false, Ordering::Relaxed);
    let before = odd.renewals.load(Ordering::Relaxed);
    assert!(within(10 * SECOND, async || sink.accepted() == 15).await);
    // Each is trusted for half a second, so a renewal goes with every second record at least.
    let renewals = odd.renewals.load(Ordering::Relaxed) - before;
    assert!(renewals >= 5, "{renewals} renewals for ten records");
    odd.seen.store(true, Ordering::Relaxed);
    all_sent(&store, 20, 10 * SECOND).await;
    assert!(sink.copies().values().all(|copies| *copies == 1));
    relay.stop().await.unwrap();
}

/// R2: what waits for its rate is woken by its own time, whatever else waits.
#[tokio::test(start_paused = true)]
async fn each_destination_keeps_its_rate_beside_one_that_is_down() {
    let store = outbox();
    let sink = TestSink::new(|record| match record.destination.as_deref() {
        Some("down") => {
            Do::Fail(Duration::ZERO, SendError::unavailable("down").with_scope(ErrorScope::Destination))
        }
        _ => Do::Accept(Duration::ZERO),
    });
    let records = (0..60).flat_map(|_| ["x", "y", "down"].map(|name| record(name).destination(name)));
    enqueue(&store, records).await;
    let limit = RateLimit::per_second(NonZeroU32::new(5).unwrap());
    let route = Route::to(sink.clone()).destination_rate_limit(limit);
    let relay = start(Relay::new(store.clone()).seed(1).route("*", route));
    pass(6 * SECOND).await;
    for name in ["x", "y"] {
        let sent = sink.log().iter().filter(|sent| sent.kind == name).count();
        assert!((28..=32).contains(&sent), "{sent} to {name} in six seconds at five a second");
    }
    relay.stop().await.unwrap();
}

/// R5: after a panic nothing is known of a batch; a stop does not give it back as if it had never gone.
#[tokio::test(start_paused = true)]
async fn a_stop_after_a_panic_counts_what_may_have_been_sent() {
    let store = outbox();
    let calls = AtomicUsize::new(0);
    let sink = TestSink::new(move |_| match calls.fetch_add(1, Ordering::Relaxed) {
        0 => Do::Accept(Duration::ZERO),
        1 => Do::Panic("bug"),
        _ => Do::Hang,
    })
    .in_batches(3);
    let ids = enqueue(&store, (0..4).map(|_| record("a"))).await;
    let relay = Relay::new(store.clone())
        .config(config().with_grace(SECOND))
        .route("*", Route::to(sink.clone()).concurrency(1));
    let relay = start(relay);
    assert!(within(5 * SECOND, async || sink.sends() >= 3).await);
    relay.stop().await.unwrap();
    assert_eq!(count(&store, State::Claimed).await, 0);
    for sent in sink.log().iter().filter(|sent| sent.together > 1) {
        let view = view(&store, sent.id).await;
        assert!(view.state == State::Sent || view.attempts == 1, "{view:?}");
    }
    assert_eq!(view(&store, ids[3]).await.attempts, 0, "it was never handed over");
}

/// A relay that is no more is not ready, however it ended.
#[tokio::test(start_paused = true)]
async fn a_killed_relay_is_not_ready() {
    let store = outbox();
    let relay = Relay::new(store).route("*", TestSink::accepting());
    let health = relay.health();
    let relay = start(relay);
    assert!(within(SECOND, async || health.now().is_ready()).await);
    relay.kill().await;
    assert!(!health.now().is_ready());
}
