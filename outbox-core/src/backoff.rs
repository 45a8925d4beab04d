//! How long to wait before the next attempt.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Exponential backoff with full jitter: attempt `n` waits for a time drawn evenly from zero to
/// `min(cap, base * 2^(n - 1))`.
///
/// With the default of 1 s and 15 min, the ceilings of the first attempts are 1 s, 2 s, 4 s, 8 s,
/// 16 s, … and 15 min from the eleventh on.
///
/// ```
/// use std::time::Duration;
/// use outbox_core::Backoff;
///
/// let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// assert_eq!(backoff.delay(1, 0.5), Duration::from_millis(500));
/// assert_eq!(backoff.delay(4, 1.0), Duration::from_secs(8));
/// assert_eq!(backoff.delay(1000, 1.0), Duration::from_secs(60));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Backoff {
    /// The ceiling of the first wait.
    pub base: Duration,
    /// The ceiling that no wait passes.
    pub cap: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base: Duration::from_secs(1), cap: Duration::from_secs(15 * 60) }
    }
}

impl Backoff {
    /// A backoff that starts at `base` and never passes `cap`.
    pub const fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap }
    }

    /// The longest wait after `attempt` attempts, which count from 1.
    pub fn ceiling(&self, attempt: u32) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.cap)
    }

    /// The wait after `attempt` attempts, for a `random` number from 0 to 1.
    pub fn delay(&self, attempt: u32, random: f64) -> Duration {
        let random = if random.is_finite() { random.clamp(0.0, 1.0) } else { 1.0 };
        self.ceiling(attempt).mul_f64(random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_double_up_to_the_cap_and_never_overflow() {
        let backoff = Backoff::default();
        let seconds: Vec<u64> = (1..=12).map(|n| backoff.ceiling(n).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
        assert_eq!(backoff.ceiling(u32::MAX), backoff.cap);
        assert_eq!(backoff.ceiling(0), backoff.base);
        assert_eq!(Backoff::new(Duration::MAX, Duration::MAX).ceiling(9), Duration::MAX);
    }

    #[test]
    fn jitter_spreads_over_the_whole_range() {
        let backoff = Backoff::default();
        assert_eq!(backoff.delay(3, 0.0), Duration::ZERO);
        assert_eq!(backoff.delay(3, 0.25), Duration::from_secs(1));
        assert_eq!(backoff.delay(3, 7.0), Duration::from_secs(4));
        assert_eq!(backoff.delay(3, f64::NAN), Duration::from_secs(4));
    }
}
