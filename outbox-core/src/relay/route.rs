//! A route: the sink that takes some kinds, and how it is treated.

use std::{fmt, num::NonZeroUsize, sync::Arc, time::Duration};

use super::RateLimit;
use crate::{Backoff, OnDead, Policy, Sink};

/// A sink and its policy.
///
/// ```
/// use std::{num::NonZeroU32, time::Duration};
/// use outbox_core::{MemorySink, OnDead, relay::{RateLimit, Route}};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let route = Route::to(MemorySink::new())
///     .concurrency(4)
///     .attempts_max(30)
///     .age_max(Duration::from_secs(24 * 3600))
///     .on_dead(OnDead::Skip)
///     .rate_limit(RateLimit::per_second(NonZeroU32::new(50).ok_or("zero")?));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Route {
    pub(super) sink: Arc<dyn Sink>,
    pub(super) policy: Policy,
    pub(super) concurrency: Option<usize>,
    pub(super) destination_concurrency: Option<usize>,
    pub(super) send_timeout: Option<Duration>,
    pub(super) rate_limit: Option<RateLimit>,
    pub(super) destination_rate_limit: Option<RateLimit>,
    pub(super) pipelined_keys: bool,
}

impl<S: Sink> From<S> for Route {
    fn from(sink: S) -> Self {
        Self::to(sink)
    }
}

impl Route {
    /// A route to `sink` with the default policy.
    pub fn to(sink: impl Sink) -> Self {
        Self::to_shared(Arc::new(sink))
    }

    /// A route to a sink that other routes use as well; they share its circuit breaker.
    pub fn to_shared(sink: Arc<dyn Sink>) -> Self {
        Self {
            sink,
            policy: Policy::default(),
            concurrency: None,
            destination_concurrency: None,
            send_timeout: None,
            rate_limit: None,
            destination_rate_limit: None,
            pipelined_keys: false,
        }
    }

    /// How records that fail are treated, all at once.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How many calls of the sink may be under way. Default: what the sink says,
    /// [`SinkLimits::batches_in_flight`](crate::SinkLimits::batches_in_flight). Zero is refused at start.
    #[must_use]
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = Some(calls);
        self
    }

    /// How many records of one destination may be under way. Default: a quarter of the route's
    /// concurrency, so that one slow destination leaves room for others. Records without a
    /// destination are not bounded by it.
    #[must_use]
    pub fn destination_concurrency(mut self, records: usize) -> Self {
        self.destination_concurrency = Some(records);
        self
    }

    /// Counted attempts after which a record is dead. See [`Policy::attempts_max`]. Zero is taken as 1.
    #[must_use]
    pub fn attempts_max(mut self, attempts: u32) -> Self {
        self.policy.attempts_max = std::num::NonZeroU32::new(attempts).unwrap_or(std::num::NonZeroU32::MIN);
        self
    }

    /// The longest time spent on attempts and the waits between them. See [`Policy::age_max`].
    #[must_use]
    pub fn age_max(mut self, age: Duration) -> Self {
        self.policy.age_max = Some(age);
        self
    }

    /// The wait after a counted failure. See [`Policy::backoff`].
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.policy.backoff = backoff;
        self
    }

    /// What a dead record does to its key. See [`Policy::on_dead`].
    #[must_use]
    pub fn on_dead(mut self, on_dead: OnDead) -> Self {
        self.policy.on_dead = on_dead;
        self
    }

    /// How long one send may take. Default: the relay's.
    #[must_use]
    pub fn send_timeout(mut self, timeout: Duration) -> Self {
        self.send_timeout = Some(timeout);
        self
    }

    /// How fast records may be handed over. Default: no limit.
    #[must_use]
    pub fn rate_limit(mut self, limit: RateLimit) -> Self {
        self.rate_limit = Some(limit);
        self
    }

    /// How fast records of one destination may be handed over. Default: no limit.
    #[must_use]
    pub fn destination_rate_limit(mut self, limit: RateLimit) -> Self {
        self.destination_rate_limit = Some(limit);
        self
    }

    /// Lets records of one key be on the wire together. Faster for one hot key; a failure in the middle
    /// then lets later records of the key overtake it. Only sinks that take several records in one
    /// call make use of it.
    #[must_use]
    pub fn pipelined_keys(mut self) -> Self {
        self.pipelined_keys = true;
        self
    }

    /// How many records of one destination may be under way, given the route's concurrency.
    pub(super) fn destination_cap(&self, concurrency: NonZeroUsize) -> usize {
        self.destination_concurrency.unwrap_or(concurrency.get() / 4).max(1)
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("sink", &self.sink.name())
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}
