//! The store itself: what all handles share, and the `Store` trait on it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::{Either, select};
use uuid::Uuid;

use super::{
    bell::Bell,
    claim::claim,
    locks::{LockKey, Locks},
    mark, stats, sweep,
    table::Table,
};
use crate::{
    ClaimBatch, ClaimRequest, Clock, Lease, Mark, MarkReport, PAYLOAD_BYTES_MAX_DEFAULT, Pattern, PauseScope,
    Retention, Stats, Store, StoreError, Swept, SystemClock, Wake,
};

/// An outbox in memory. Clones are the same outbox.
#[derive(Clone)]
pub struct MemoryStore {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) payload_bytes_max: usize,
    pub(super) bell: Bell,
    state: Mutex<State>,
}

/// All that a database would hold.
#[derive(Default)]
pub(super) struct State {
    pub(super) table: Table,
    pub(super) locks: Locks,
    /// Identities of records that open transactions have written.
    pub(super) reserved: HashSet<Uuid>,
    pub(super) pauses: BTreeMap<PauseScope, Paused>,
    dedup: HashMap<LockKey, Kept>,
    pub(super) dedup_ends: BTreeSet<(Duration, LockKey)>,
    inbox: HashSet<(String, Uuid)>,
    pub(super) inbox_ages: BTreeSet<(Duration, String, Uuid)>,
    seqs: i64,
    transactions: u64,
}

/// The first enqueue of a dedup key.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    pub(super) id: Uuid,
    pub(super) until: Duration,
}

pub(super) struct Paused {
    pub(super) reason: String,
    pub(super) since: Duration,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the rows as they were: every change is made in one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub(super) fn next_seq(&mut self) -> i64 {
        self.seqs += 1;
        self.seqs
    }

    pub(super) fn next_transaction(&mut self) -> u64 {
        self.transactions += 1;
        self.transactions
    }

    pub(super) fn holds(&self, id: Uuid) -> bool {
        self.reserved.contains(&id) || self.table.seq_of(id).is_some()
    }

    pub(super) fn kept(&self, key: &LockKey) -> Option<Kept> {
        self.dedup.get(key).copied()
    }

    pub(super) fn keep(&mut self, key: LockKey, kept: Kept) {
        self.dedup_ends.insert((kept.until, key.clone()));
        if let Some(before) = self.dedup.insert(key.clone(), kept)
            && before.until != kept.until
        {
            self.dedup_ends.remove(&(before.until, key));
        }
    }

    pub(super) fn forget(&mut self, key: &LockKey) {
        self.dedup.remove(key);
    }

    pub(super) fn has_accepted(&self, entry: &(String, Uuid)) -> bool {
        self.inbox.contains(entry)
    }

    pub(super) fn accept(&mut self, consumer: String, id: Uuid, now: Duration) {
        self.inbox_ages.insert((now, consumer.clone(), id));
        self.inbox.insert((consumer, id));
    }

    pub(super) fn unaccept(&mut self, entry: &(String, Uuid)) {
        self.inbox.remove(entry);
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("clock", &self.shared.clock).finish_non_exhaustive()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty outbox on the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(SystemClock::new())
    }

    /// An empty outbox whose time is this clock's.
    pub fn with_clock(clock: impl Clock) -> Self {
        Self::build(Arc::new(clock), PAYLOAD_BYTES_MAX_DEFAULT)
    }

    /// The same clock and another, empty outbox that takes payloads up to this size. Default: 1 MiB.
    #[must_use]
    pub fn with_payload_bytes_max(self, payload_bytes_max: usize) -> Self {
        Self::build(Arc::clone(&self.shared.clock), payload_bytes_max)
    }

    fn build(clock: Arc<dyn Clock>, payload_bytes_max: usize) -> Self {
        let state = Mutex::default();
        Self { shared: Arc::new(Shared { clock, payload_bytes_max, bell: Bell::default(), state }) }
    }

    /// Hints to the relays of this process that there is something to claim. A commit does so itself.
    pub fn wake(&self) {
        self.shared.bell.ring();
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch, StoreError> {
        let clock = &*self.shared.clock;
        let state = &mut *self.shared.state();
        Ok(claim(&mut state.table, state.pauses.keys(), request, clock.now(), clock))
    }

    async fn mark(&self, marks: &[Mark]) -> Result<MarkReport, StoreError> {
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        state.table.advance(now);
        Ok(MarkReport::new(marks.iter().map(|mark| mark::mark(&mut state.table, mark, now)).collect()))
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, StoreError> {
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        let is_lost = |lease: &&Lease| !mark::renew(&mut state.table, lease, lease_for, now);
        Ok(leases.iter().filter(is_lost).copied().collect())
    }

    async fn wait(&self, at_most: Duration) -> Result<Wake, StoreError> {
        let ring = pin!(self.shared.bell.rings());
        match select(ring, self.shared.clock.sleep(at_most)).await {
            Either::Left(_) => Ok(Wake::Hint),
            Either::Right(_) => Ok(Wake::Timeout),
        }
    }

    async fn sweep(&self, retention: &Retention) -> Result<Swept, StoreError> {
        let now = self.shared.clock.now();
        Ok(sweep::sweep(&mut self.shared.state(), retention, now))
    }

    async fn stats(&self, routed: &[Pattern]) -> Result<Stats, StoreError> {
        let clock = &*self.shared.clock;
        Ok(stats::stats(&mut self.shared.state(), routed, clock.now(), clock))
    }
}
