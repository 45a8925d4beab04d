//! A store that is slow, fails, and loses answers, all from a seed.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use outbox_core::{
    ClaimBatch, ClaimRequest, Lease, Mark, MarkReport, MemoryStore, Owner, Pattern, Presence, Retention,
    Stats, Store, StoreError, StoreErrorKind, Swept, Wake, async_trait,
};

use crate::world::*;

#[derive(Clone)]
pub(crate) struct Shaky {
    store: MemoryStore,
    random: Arc<Mutex<fastrand::Rng>>,
    /// Calls of a hundred that fail, half of them after they took effect.
    failing: u32,
    pub(crate) away: Arc<AtomicBool>,
    pub(crate) seen: Arc<AtomicBool>,
}

impl Shaky {
    pub(crate) fn new(store: &MemoryStore, seed: u64, failing: u32) -> Self {
        Self {
            store: store.clone(),
            random: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
            failing,
            away: Arc::default(),
            seen: Arc::new(AtomicBool::new(true)),
        }
    }

    async fn call<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let failed = || Err(StoreError::new(StoreErrorKind::Unavailable, "reach the database"));
        if self.failing == 0 {
            return call.await;
        }
        let (before, after, dice) = {
            let mut random = self.random.lock().unwrap();
            (random.u32(0..30) * MILLI, random.u32(0..30) * MILLI, random.u32(0..200))
        };
        pass(before).await;
        if dice < self.failing || self.away.load(Ordering::Relaxed) {
            return failed();
        }
        let answer = call.await;
        pass(after).await;
        if dice < 2 * self.failing || self.away.load(Ordering::Relaxed) {
            return failed();
        }
        answer
    }
}

struct Seen(Arc<AtomicBool>);

impl Presence for Seen {
    fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Store for Shaky {
    async fn enter(&self, _: Owner) -> Result<Box<dyn Presence>, StoreError> {
        let seen = Seen(Arc::clone(&self.seen));
        self.call(async move { Ok(Box::new(seen) as Box<dyn Presence>) }).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch, StoreError> {
        self.call(self.store.claim(request)).await
    }

    async fn mark(&self, marks: &[Mark]) -> Result<MarkReport, StoreError> {
        self.call(self.store.mark(marks)).await
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, StoreError> {
        self.call(self.store.renew(leases, lease_for)).await
    }

    async fn wait(&self, at_most: Duration) -> Result<Wake, StoreError> {
        self.store.wait(at_most).await
    }

    async fn sweep(&self, retention: &Retention) -> Result<Swept, StoreError> {
        self.call(self.store.sweep(retention)).await
    }

    async fn stats(&self, routed: &[Pattern]) -> Result<Stats, StoreError> {
        self.call(self.store.stats(routed)).await
    }
}
