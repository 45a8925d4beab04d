//! A rate limit, as a bucket of tokens. Pure: time is passed in, so that it follows the relay's clock;
//! the crates that offer this bring a clock of their own.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use tokio::time::{Duration, Instant};

/// How many records a second may be handed over, and how many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RateLimit {
    /// Records a second, on average.
    pub per_second: NonZeroU32,
    /// Records that may go at once after a quiet time.
    pub burst: NonZeroU32,
}

impl RateLimit {
    /// `per_second` records a second, with bursts of a tenth of that and at least one.
    pub const fn per_second(per_second: NonZeroU32) -> Self {
        let burst = match NonZeroU32::new(per_second.get() / 10) {
            Some(burst) => burst,
            None => NonZeroU32::MIN,
        };
        Self { per_second, burst }
    }

    /// The most that goes out in any second.
    pub(super) fn in_a_second(self) -> usize {
        self.per_second.get().saturating_add(self.burst.get()) as usize
    }

    /// Sets how many records may go at once after a quiet time.
    #[must_use]
    pub const fn with_burst(mut self, burst: NonZeroU32) -> Self {
        self.burst = burst;
        self
    }
}

/// A limit under way: the generic cell rate algorithm, which keeps one instant instead of a count.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    /// The time that one record takes of the rate.
    interval: Duration,
    /// How far ahead of its rate it may run.
    tolerance: Duration,
    /// When the bucket will be full again.
    full_at: Instant,
}

impl Bucket {
    pub(super) fn new(limit: RateLimit, now: Instant) -> Self {
        // A rate beyond what the clock can tell apart is the fastest that it can.
        let interval = (Duration::from_secs(1) / limit.per_second.get()).max(Duration::from_nanos(1));
        Self { interval, tolerance: interval * limit.burst.get(), full_at: now }
    }

    /// How many may go at `now`.
    pub(super) fn available(&self, now: Instant) -> usize {
        let used = self.full_at.saturating_duration_since(now);
        let left = self.tolerance.saturating_sub(used);
        (left.as_nanos() / self.interval.as_nanos().max(1)) as usize
    }

    /// Takes one. The caller has seen that there is one.
    pub(super) fn take(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now) + self.interval;
    }

    /// Whether it is as good as new.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }

    /// When the next may go.
    pub(super) fn next_at(&self) -> Instant {
        let ahead = self.tolerance.saturating_sub(self.interval);
        self.full_at.checked_sub(ahead).unwrap_or(self.full_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(per_second: u32, burst: u32) -> RateLimit {
        RateLimit { per_second: NonZeroU32::new(per_second).unwrap(), burst: NonZeroU32::new(burst).unwrap() }
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(limit(10, 3), start);
        for left in [3, 2, 1] {
            assert_eq!(bucket.available(start), left);
            bucket.take(start);
        }
        assert_eq!(bucket.available(start), 0);
        assert_eq!(bucket.next_at(), start + Duration::from_millis(100));
        assert_eq!(bucket.available(bucket.next_at()), 1);
        assert_eq!(bucket.available(start + Duration::from_secs(60)), 3);
    }

    #[test]
    fn the_rate_holds_over_a_long_run() {
        let start = Instant::now();
        let mut bucket = Bucket::new(limit(100, 10), start);
        let mut sent = 0;
        for millisecond in 0..10_000 {
            let now = start + Duration::from_millis(millisecond);
            while bucket.available(now) > 0 {
                bucket.take(now);
                sent += 1;
            }
        }
        assert!((1_000..=1_010).contains(&sent), "{sent}");
    }
}
