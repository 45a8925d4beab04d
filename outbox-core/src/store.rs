//! What holds records: the `Store` trait, what a relay asks of it and what it answers.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use uuid::Uuid;

use crate::{Lease, NewRecord, Owner, Pattern, Pause, Record, Settlement, State, StoreError};

/// A table of records that relays claim from.
///
/// # Contract
///
/// - **S1** A claim is committed before it is returned; nothing is held while sending.
/// - **S2** Two relays never hold the same record, and one call never takes more than its limits.
/// - **S3** Every mark and renewal names `(seq, id, fence)`; one whose claim has ended changes nothing
///   and is returned as lost. A lease that has run out and that nobody took may still be marked.
/// - **S4** Only kinds asked for are claimed; the most specific pattern decides.
/// - **S5** All time is the database's. Durations go in, instants never do.
/// - **S6** Every record in every reachable state is found again.
/// - **S7** Records of one key go out in order, and never two at once but in one run.
/// - **S8** The cost of a claim does not grow with rows that it cannot take.
/// - **S9** A claim says when the next record falls due.
/// - **S10** Retention works in bounded batches and never touches unfinished records.
///
/// # Cancellation
///
/// Only [`wait`](Self::wait) may be dropped half-way. The relay runs every other future to its end.
///
/// # Errors
///
/// [`StoreErrorKind::Unavailable`](crate::StoreErrorKind::Unavailable) makes the relay wait and try
/// again; a store retries its own serialization failures and deadlocks itself.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Announces a run of a relay before its first claim, so that other relays can see its death.
    /// The answer is kept until the run ends and dropped then.
    ///
    /// The default announces nothing: a dead run's records fall due when their lease ends.
    async fn enter(&self, owner: Owner) -> Result<Box<dyn Presence>, StoreError> {
        let _ = owner;
        Ok(Box::new(Unseen))
    }

    /// Takes up to `request.limit` due records: counts an attempt, draws a new fence, and sets the
    /// lease. They come back sorted by `seq`.
    ///
    /// A record under a lease that has run out is taken as well: its attempt is refunded and its
    /// lapse counted in the same step.
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch, StoreError>;

    /// Writes outcomes. One report a mark, in input order; of two marks for one lease in one call
    /// the first counts.
    async fn mark(&self, marks: &[Mark]) -> Result<MarkReport, StoreError>;

    /// Extends leases to `lease_for` from now, and returns those that are lost.
    ///
    /// One that has run out is extended as well, unless another relay has claimed a record of its key
    /// since: two never hold one key.
    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, StoreError>;

    /// Waits for a hint that there is something to claim. It may come without cause or not at all.
    async fn wait(&self, at_most: Duration) -> Result<Wake, StoreError>;

    /// Deletes what retention no longer keeps, one bounded batch, and mends what hand-written SQL
    /// left behind. Called again at once while [`Swept::more`].
    async fn sweep(&self, retention: &Retention) -> Result<Swept, StoreError>;

    /// Counts of what the outbox holds, at bounded cost. `routed` names the patterns that have a
    /// route, to tell the records that have none.
    async fn stats(&self, routed: &[Pattern]) -> Result<Stats, StoreError>;
}

#[async_trait]
impl<S: Store + ?Sized> Store for Arc<S> {
    async fn enter(&self, owner: Owner) -> Result<Box<dyn Presence>, StoreError> {
        (**self).enter(owner).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch, StoreError> {
        (**self).claim(request).await
    }

    async fn mark(&self, marks: &[Mark]) -> Result<MarkReport, StoreError> {
        (**self).mark(marks).await
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, StoreError> {
        (**self).renew(leases, lease_for).await
    }

    async fn wait(&self, at_most: Duration) -> Result<Wake, StoreError> {
        (**self).wait(at_most).await
    }

    async fn sweep(&self, retention: &Retention) -> Result<Swept, StoreError> {
        (**self).sweep(retention).await
    }

    async fn stats(&self, routed: &[Pattern]) -> Result<Stats, StoreError> {
        (**self).stats(routed).await
    }
}

/// How applications write records, inside their own transaction.
#[async_trait]
pub trait Enqueue: Send + Sync {
    /// A connection of the database's driver; transactions and pool connections deref to it.
    type Connection: ?Sized + Send;

    /// Writes records in one round trip, with one answer a record, in input order.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Invalid`](crate::StoreErrorKind::Invalid) before any SQL, for the first record that
    /// is not valid: none is written and the transaction stays usable.
    async fn enqueue_all(
        &self,
        connection: &mut Self::Connection,
        records: &[NewRecord],
    ) -> Result<Vec<Enqueued>, StoreError>;
}

/// What an enqueue did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Enqueued {
    /// The record was written.
    New {
        /// Its identity.
        id: Uuid,
        /// Its place in line.
        seq: i64,
    },
    /// A record of the same kind and dedup key is kept; nothing was written.
    Existing {
        /// The identity of the first.
        id: Uuid,
        /// Where the first stands; none when retention has deleted its row.
        state: Option<State>,
    },
}

impl Enqueued {
    /// The identity of the record that the outbox holds.
    pub fn id(&self) -> Uuid {
        match self {
            Self::New { id, .. } | Self::Existing { id, .. } => *id,
        }
    }

    /// Whether the record was written.
    pub fn is_new(&self) -> bool {
        matches!(self, Self::New { .. })
    }
}

/// A run that a store watches. Dropping it ends the run.
pub trait Presence: Send + Sync {
    /// Whether other relays can see this run as alive. While not, the relay renews its leases before
    /// it hands anything further to a sink.
    fn is_held(&self) -> bool;
}

struct Unseen;

impl Presence for Unseen {
    fn is_held(&self) -> bool {
        true
    }
}

/// What a relay can take now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClaimRequest {
    /// The run that claims.
    pub owner: Owner,
    /// How long the lease lasts, from the claim's statement.
    pub lease_for: Duration,
    /// The most records to take.
    pub limit: usize,
    /// Every route of the relay, with or without room: the most specific pattern of a kind decides,
    /// so that a full route does not lose its kinds to a wider one.
    pub routes: Vec<RouteDemand>,
    /// Whether one record that has lapsed before, or whose lease has run out, may be among them. It
    /// is sent alone, so there is never more than one.
    pub suspect: bool,
    /// The most records of one key to take together, in order and of one route.
    pub run_max: NonZeroUsize,
}

impl ClaimRequest {
    /// A request for up to `limit` records for these routes: suspects included, runs of up to 100.
    pub fn new(owner: Owner, lease_for: Duration, limit: usize, routes: Vec<RouteDemand>) -> Self {
        Self { owner, lease_for, limit, routes, suspect: true, run_max: NonZeroUsize::MIN.saturating_add(99) }
    }

    /// The route that takes `kind`: the most specific pattern wins.
    pub fn route_of(&self, kind: &str) -> Option<usize> {
        let rank = |pattern: &Pattern| match pattern {
            Pattern::Exact(_) => usize::MAX,
            Pattern::Prefix(prefix) => prefix.len(),
            Pattern::Default => 0,
        };
        self.routes
            .iter()
            .enumerate()
            .filter(|(_, route)| route.pattern.matches(kind))
            .max_by_key(|(_, route)| rank(&route.pattern))
            .map(|(at, _)| at)
    }
}

/// What one route of a relay can take now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RouteDemand {
    /// The kinds.
    pub pattern: Pattern,
    /// The most records to take for this route; 0: the route is full, or its sink is down.
    pub limit: usize,
    /// The most records to take for any one destination; records without a destination are not
    /// bounded by it.
    pub destination_limit: usize,
    /// Destinations for which another limit holds: 0 leaves a destination out, 1 probes one that was
    /// down.
    pub destinations: BTreeMap<String, usize>,
}

impl RouteDemand {
    /// Up to `limit` records of these kinds, to any destination.
    pub fn new(pattern: Pattern, limit: usize) -> Self {
        Self { pattern, limit, destination_limit: usize::MAX, destinations: BTreeMap::new() }
    }

    /// The most records to take for this destination.
    pub fn limit_for(&self, destination: Option<&str>) -> usize {
        match destination {
            Some(name) => {
                self.destinations.get(name).copied().unwrap_or(self.destination_limit).min(self.limit)
            }
            None => self.limit,
        }
    }
}

/// What a claim took, and when to come back.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ClaimBatch {
    /// The records, sorted by `seq`.
    pub records: Vec<Record>,
    /// Claimed records that no sink can be given; the relay marks them dead with the reason.
    pub undecodable: Vec<Undecodable>,
    /// How long until the next record falls due that this request could take, by the database's
    /// clock; zero when there is more to take now; none when there is nothing.
    ///
    /// Never zero after a claim that took nothing: a record that is due but held back by its key or
    /// destination is not counted.
    pub next_due: Option<Duration>,
}

impl ClaimBatch {
    /// A batch of these records.
    pub fn new(records: Vec<Record>, next_due: Option<Duration>) -> Self {
        Self { records, undecodable: Vec::new(), next_due }
    }
}

/// A claimed row that is not a record, such as one with headers that hold no text.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Undecodable {
    /// The right to mark it.
    pub lease: Lease,
    /// Its kind.
    pub kind: String,
    /// What is wrong, without its content.
    pub reason: String,
}

impl Undecodable {
    /// A row that cannot be read, and why.
    pub fn new(lease: Lease, kind: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { lease, kind: kind.into(), reason: reason.into() }
    }
}

/// The outcome of one claimed record, to be written.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Mark {
    /// The claim that it ends.
    pub lease: Lease,
    /// What to write.
    pub settlement: Settlement,
    /// Replaces the record's progress; none leaves what stands there.
    pub progress: Option<serde_json::Value>,
}

impl Mark {
    /// Ends the claim of `lease` with `settlement`.
    pub fn new(lease: Lease, settlement: Settlement) -> Self {
        Self { lease, settlement, progress: None }
    }

    /// Keeps what the sink needs to know at the next attempt.
    #[must_use]
    pub fn with_progress(mut self, progress: Option<serde_json::Value>) -> Self {
        self.progress = progress;
        self
    }
}

/// What each mark did, in input order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MarkReport {
    /// One entry a mark.
    pub marked: Vec<Marked>,
}

impl MarkReport {
    /// A report of these entries.
    pub fn new(marked: Vec<Marked>) -> Self {
        Self { marked }
    }

    /// How many marks met a claim that had ended otherwise.
    pub fn lost(&self) -> usize {
        self.marked.iter().filter(|marked| **marked == Marked::Lost).count()
    }
}

/// What one mark did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Marked {
    /// It was written.
    Applied,
    /// It had been written before, by a call whose answer was lost. Nothing changed.
    AlreadyApplied,
    /// The claim had ended otherwise. Nothing changed.
    Lost,
}

/// What ended a [`Store::wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wake {
    /// There may be something to claim.
    Hint,
    /// The time is over.
    Timeout,
}

/// How long finished rows are kept. All ages are by the database's clock.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Retention {
    /// Sent records are deleted at this age since they were sent. Default: 7 days; none keeps them.
    pub sent_for: Option<Duration>,
    /// Dead records that block no key are deleted at this age since they died. Default: none, kept.
    pub dead_for: Option<Duration>,
    /// Inbox rows are deleted at this age. It must outlast the longest time after which a second copy
    /// can arrive. Default: 30 days; none keeps them.
    pub inbox_for: Option<Duration>,
    /// The most rows deleted by one call. Default: 1,000. Higher holds locks for longer.
    pub batch: NonZeroUsize,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        Self {
            sent_for: Some(DAY * 7),
            dead_for: None,
            inbox_for: Some(DAY * 30),
            batch: NonZeroUsize::MIN.saturating_add(999),
        }
    }
}

/// What one [`Store::sweep`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// Sent records deleted.
    pub sent: u64,
    /// Dead records deleted.
    pub dead: u64,
    /// Inbox rows deleted.
    pub inbox: u64,
    /// Dedup rows deleted, whose time to be kept was over.
    pub dedup: u64,
    /// Records set free that a hand-written change had left held.
    pub mended: u64,
    /// Whether there is more to delete.
    pub more: bool,
}

/// What the outbox holds.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Pending records: due, scheduled, backing off or held back.
    pub pending: Count,
    /// Records under a lease.
    pub claimed: Count,
    /// Sent records still kept.
    pub sent: Count,
    /// Dead records still kept.
    pub dead: Count,
    /// How long the oldest due record that has a route has waited since it fell due.
    pub oldest_due: Option<Duration>,
    /// Kinds of unfinished records that no route takes, at most 100.
    pub unrouted: Vec<(String, Count)>,
    /// Keys whose first unfinished record holds back others, at most 100.
    pub held_keys: Vec<HeldKey>,
    /// What operators have paused.
    pub paused: Vec<Pause>,
}

/// A number that is exact up to the bound to which it was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Count {
    /// The number.
    pub value: u64,
    /// Whether there are more than `value`, which is then the bound.
    pub at_least: bool,
}

impl Count {
    /// The bound to which stores count.
    pub const BOUND: u64 = 10_000;

    /// A number counted up to [`BOUND`](Self::BOUND).
    pub fn bounded(counted: u64) -> Self {
        Self { value: counted.min(Self::BOUND), at_least: counted > Self::BOUND }
    }
}

/// A key whose first unfinished record holds back others.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldKey {
    /// The key.
    pub key: String,
    /// The first record: its place in line.
    pub seq: i64,
    /// The first record: its identity.
    pub id: Uuid,
    /// The first record: its kind.
    pub kind: String,
    /// Why it does not go.
    pub because: HeldBecause,
    /// When it was enqueued.
    pub created_at: SystemTime,
}

impl HeldKey {
    /// A held key and the record at its head.
    pub fn new(
        key: impl Into<String>,
        head: (i64, Uuid, String),
        because: HeldBecause,
        created_at: SystemTime,
    ) -> Self {
        let (seq, id, kind) = head;
        Self { key: key.into(), seq, id, kind, because, created_at }
    }
}

/// Why the first record of a key does not go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeldBecause {
    /// It waits for its next attempt.
    Retrying,
    /// It is dead and blocks its key.
    Dead,
    /// No route takes its kind.
    Unrouted,
}
