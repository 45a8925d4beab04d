//! Settings of a relay, and what makes them hold together.

use std::{fmt, num::NonZeroUsize, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Backoff, Retention, StoreError};

/// The longest that any setting may last.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Settings of a relay. Every duration is by the relay's monotonic clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RelayConfig {
    /// How long a claim lasts without renewal, and so how long the records of a dead relay wait when
    /// the store cannot see its death. Default: 10 s. Renewals come at a quarter of it, so it must
    /// exceed the longest `send_timeout` by half. Too high, and a crash delays for that long; too low, and a
    /// stall of the database ends claims.
    pub lease_for: Duration,
    /// How long one send may take, unless its route says otherwise. Default: 5 s.
    pub send_timeout: Duration,
    /// The longest time between two looks at the table when no hint comes. Default: 1 s. Lower
    /// costs queries, higher costs latency where hints are lost.
    pub poll_interval: Duration,
    /// How long a shutdown may take, from its signal to the end of `run`. Default: 20 s.
    pub grace: Duration,
    /// The most records taken by one claim. Default: 500.
    pub claim_batch: NonZeroUsize,
    /// The most records of one key taken together, and sent one after the other. Default: 500.
    pub run_max: NonZeroUsize,
    /// The most records of one route held at once beyond those that are being sent. The relay holds
    /// what the route sends in a tenth of a second, up to this. Default: 4,000.
    pub prefetch_max: usize,
    /// How long outcomes are gathered before they are written together. Default: 2 ms.
    pub mark_linger: Duration,
    /// The most outcomes written by one statement. Default: 1,000.
    pub mark_batch: NonZeroUsize,
    /// The wait of the circuit breakers between probes. Default: 500 ms doubling to 30 s.
    pub breaker: Backoff,
    /// The wait after an error of the store. Default: 100 ms doubling to 5 s.
    pub store_backoff: Backoff,
    /// How often retention runs. Default: 10 s; none leaves it to someone else.
    pub sweep_every: Option<Duration>,
    /// How often the store is counted for the metrics and for the warning about records without a
    /// route. Default: 30 s; none does without.
    pub stats_every: Option<Duration>,
    /// What retention keeps.
    pub retention: Retention,
}

impl Default for RelayConfig {
    fn default() -> Self {
        const ONE: NonZeroUsize = NonZeroUsize::MIN;
        Self {
            lease_for: Duration::from_secs(10),
            send_timeout: Duration::from_secs(5),
            poll_interval: Duration::from_secs(1),
            grace: Duration::from_secs(20),
            claim_batch: ONE.saturating_add(499),
            run_max: ONE.saturating_add(499),
            prefetch_max: 4_000,
            mark_linger: Duration::from_millis(2),
            mark_batch: ONE.saturating_add(999),
            breaker: Backoff::new(Duration::from_millis(500), Duration::from_secs(30)),
            store_backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(5)),
            sweep_every: Some(Duration::from_secs(10)),
            stats_every: Some(Duration::from_secs(30)),
            retention: Retention::default(),
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $with:ident, $field:ident: $type:ty;)*) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $with(mut self, value: $type) -> Self {
            self.$field = value;
            self
        })*
    };
}

impl RelayConfig {
    setters! {
        /// Sets [`lease_for`](Self::lease_for).
        with_lease_for, lease_for: Duration;
        /// Sets [`send_timeout`](Self::send_timeout).
        with_send_timeout, send_timeout: Duration;
        /// Sets [`poll_interval`](Self::poll_interval).
        with_poll_interval, poll_interval: Duration;
        /// Sets [`grace`](Self::grace).
        with_grace, grace: Duration;
        /// Sets [`claim_batch`](Self::claim_batch).
        with_claim_batch, claim_batch: NonZeroUsize;
        /// Sets [`run_max`](Self::run_max).
        with_run_max, run_max: NonZeroUsize;
        /// Sets [`prefetch_max`](Self::prefetch_max).
        with_prefetch_max, prefetch_max: usize;
        /// Sets [`mark_linger`](Self::mark_linger).
        with_mark_linger, mark_linger: Duration;
        /// Sets [`mark_batch`](Self::mark_batch).
        with_mark_batch, mark_batch: NonZeroUsize;
        /// Sets [`breaker`](Self::breaker).
        with_breaker, breaker: Backoff;
        /// Sets [`store_backoff`](Self::store_backoff).
        with_store_backoff, store_backoff: Backoff;
        /// Sets [`sweep_every`](Self::sweep_every).
        with_sweep_every, sweep_every: Option<Duration>;
        /// Sets [`stats_every`](Self::stats_every).
        with_stats_every, stats_every: Option<Duration>;
        /// Sets [`retention`](Self::retention).
        with_retention, retention: Retention;
    }

    /// How long after its claim or last renewal a lease is renewed.
    pub(super) fn renew_after(&self) -> Duration {
        self.lease_for / 4
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let positive = [
            ("lease_for", self.lease_for),
            ("poll_interval", self.poll_interval),
            ("breaker.base", self.breaker.base),
            ("store_backoff.base", self.store_backoff.base),
        ];
        for (name, duration) in positive {
            if duration.is_zero() {
                return Err(format!("{name} is zero"));
            }
        }
        let bounded = [
            ("lease_for", Some(self.lease_for)),
            ("poll_interval", Some(self.poll_interval)),
            ("grace", Some(self.grace)),
            ("mark_linger", Some(self.mark_linger)),
            ("breaker.cap", Some(self.breaker.cap)),
            ("store_backoff.cap", Some(self.store_backoff.cap)),
            ("sweep_every", self.sweep_every),
            ("stats_every", self.stats_every),
        ];
        for (name, duration) in bounded {
            // Beyond that, sums of times run over.
            if duration.is_some_and(|duration| duration > YEAR) {
                return Err(format!("{name} is longer than a year"));
            }
        }
        self.check_timeout("send_timeout", self.send_timeout)
    }

    /// A record handed over just before its renewal must have its whole send timeout left.
    pub(super) fn check_timeout(&self, name: &str, send_timeout: Duration) -> Result<(), String> {
        let most = self.lease_for * 2 / 3;
        if send_timeout.is_zero() {
            Err(format!("{name} is zero"))
        } else if send_timeout > most {
            Err(format!(
                "{name} of {send_timeout:?} does not fit a lease of {:?}: it may be at most two thirds, {most:?}",
                self.lease_for
            ))
        } else {
            Ok(())
        }
    }
}

/// Why a relay did not start, or ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum RelayError {
    /// Settings that cannot hold; the text says which.
    Config(String),
    /// The store refused in a way that waiting does not mend.
    Store(StoreError),
}

impl fmt::Display for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(why) => write!(f, "failed to start the relay: {why}"),
            Self::Store(_) => f.write_str("failed to run the relay"),
        }
    }
}

impl std::error::Error for RelayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(_) => None,
            Self::Store(error) => Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R4: settings that cannot hold are refused, with the figures that would.
    #[test]
    fn a_send_timeout_that_outlives_the_lease_is_refused() {
        assert_eq!(RelayConfig::default().check(), Ok(()));
        let error = RelayConfig::default().with_send_timeout(Duration::from_secs(9)).check().unwrap_err();
        assert_eq!(
            error,
            "send_timeout of 9s does not fit a lease of 10s: it may be at most two thirds, 6.666666666s"
        );
        assert!(RelayConfig::default().with_lease_for(Duration::ZERO).check().is_err());
        assert!(RelayConfig::default().with_poll_interval(Duration::ZERO).check().is_err());
        assert!(RelayConfig::default().with_grace(Duration::MAX).check().is_err());
    }
}
