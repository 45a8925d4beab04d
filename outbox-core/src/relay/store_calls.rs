//! Calls of the store, each in a task of its own, so that one is never dropped half-way and decoding
//! does not hold up the loop.

use std::{future::Future, sync::Arc};

use tokio::{
    task::JoinHandle,
    time::{Duration, Instant},
};

use super::{held::Slot, telemetry};
use crate::{
    ClaimBatch, ClaimRequest, Lease, Mark, MarkReport, Owner, Pattern, Presence, Retention, Stats, Store,
    StoreError, StoreErrorKind, Swept,
};

/// A call that may be under way, with what its answer is about.
pub(super) struct Call<A, T> {
    under_way: Option<(A, JoinHandle<Result<T, StoreError>>)>,
}

impl<A, T> Default for Call<A, T> {
    fn default() -> Self {
        Self { under_way: None }
    }
}

impl<A, T: Send + 'static> Call<A, T> {
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_none()
    }

    fn start(
        &mut self,
        about: A,
        name: &'static str,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) {
        let call = async move {
            let begun = Instant::now();
            let result = call.await;
            telemetry::store_call(name, begun.elapsed(), result.is_err());
            result
        };
        self.under_way = Some((about, tokio::spawn(call)));
    }

    /// Waits for the call under way; for ever when there is none. May be dropped and called again.
    pub(super) async fn ended(&mut self) -> (A, Result<T, StoreError>) {
        let result = match &mut self.under_way {
            Some((_, handle)) => handle.await.unwrap_or_else(|panic| {
                Err(StoreError::new(StoreErrorKind::Other, "run a call of the store").with_source(panic))
            }),
            None => std::future::pending().await,
        };
        match self.under_way.take() {
            Some((about, _)) => (about, result),
            None => std::future::pending().await,
        }
    }
}

/// What a claim asked for.
pub(super) struct Asked {
    pub(super) at: Instant,
    /// The limit of each route, and in all.
    pub(super) limits: Vec<usize>,
    pub(super) limit: usize,
    pub(super) request: Arc<ClaimRequest>,
}

/// What a renewal is about.
pub(super) struct Renewing {
    pub(super) at: Instant,
    pub(super) slots: Vec<Slot>,
}

/// The calls of one relay, at most one of each under way.
pub(super) struct StoreCalls<S> {
    store: Arc<S>,
    pub(super) enter: Call<(), Box<dyn Presence>>,
    pub(super) claim: Call<Asked, ClaimBatch>,
    pub(super) mark: Call<(Vec<(Slot, Mark)>,), MarkReport>,
    pub(super) renew: Call<Renewing, Vec<Lease>>,
    pub(super) sweep: Call<(), Swept>,
    pub(super) stats: Call<(), Stats>,
}

impl<S: Store> StoreCalls<S> {
    pub(super) fn new(store: Arc<S>) -> Self {
        Self {
            store,
            enter: Call::default(),
            claim: Call::default(),
            mark: Call::default(),
            renew: Call::default(),
            sweep: Call::default(),
            stats: Call::default(),
        }
    }

    pub(super) fn store(&self) -> Arc<S> {
        Arc::clone(&self.store)
    }

    pub(super) fn start_enter(&mut self, owner: Owner) {
        let store = self.store();
        self.enter.start((), "enter", async move { store.enter(owner).await });
    }

    pub(super) fn start_claim(&mut self, asked: Asked) {
        let (store, request) = (self.store(), Arc::clone(&asked.request));
        self.claim.start(asked, "claim", async move { store.claim(&request).await });
    }

    pub(super) fn start_mark(&mut self, marks: Vec<(Slot, Mark)>) {
        let store = self.store();
        let written: Vec<Mark> = marks.iter().map(|(_, mark)| mark.clone()).collect();
        self.mark.start((marks,), "mark", async move { store.mark(&written).await });
    }

    pub(super) fn start_renew(&mut self, renewing: Renewing, leases: Vec<Lease>, lease_for: Duration) {
        let store = self.store();
        self.renew.start(renewing, "renew", async move { store.renew(&leases, lease_for).await });
    }

    pub(super) fn start_sweep(&mut self, retention: Retention) {
        let store = self.store();
        self.sweep.start((), "sweep", async move { store.sweep(&retention).await });
    }

    pub(super) fn start_stats(&mut self, routed: Vec<Pattern>) {
        let store = self.store();
        self.stats.start((), "stats", async move { store.stats(&routed).await });
    }
}
