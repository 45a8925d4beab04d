//! A circuit breaker: what is down gets one probe at a time instead of traffic.
//!
//! Pure: time and randomness are passed in.

use std::time::Duration;

use tokio::time::Instant;

use crate::Backoff;

/// Sends in a row that ran into their timeout before a destination is taken to be down. A destination
/// that says so itself is believed at once.
const SILENCES_MAX: u32 = 5;

/// Keeps traffic from one sink or one destination while it is down.
#[derive(Clone, Debug)]
pub(super) struct Breaker {
    state: State,
    backoff: Backoff,
    /// Openings since the last success.
    openings: u32,
    /// Sends in a row without any answer.
    silences: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Closed,
    /// Nothing goes until then.
    Open(Instant),
    /// One at a time goes, to see.
    HalfOpen,
}

impl Breaker {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self { state: State::Closed, backoff, openings: 0, silences: 0 }
    }

    /// How many may be under way at `now`.
    pub(super) fn allows(&self, now: Instant) -> usize {
        match self.state {
            State::Closed => usize::MAX,
            State::Open(until) if now < until => 0,
            State::Open(_) | State::HalfOpen => 1,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Whether there is nothing to remember: it is closed, or nothing has come for long after its pause.
    pub(super) fn is_past(&self, now: Instant) -> bool {
        match self.state {
            State::Closed => true,
            State::Open(until) => now.saturating_duration_since(until) >= 10 * self.backoff.cap,
            State::HalfOpen => false,
        }
    }

    /// When an open breaker lets its next probe through.
    pub(super) fn probe_at(&self) -> Option<Instant> {
        match self.state {
            State::Open(until) => Some(until),
            State::Closed | State::HalfOpen => None,
        }
    }

    /// Makes the next send a probe.
    pub(super) fn half_open(&mut self) {
        self.state = State::HalfOpen;
    }

    /// The destination answered. Returns whether this closed the breaker.
    pub(super) fn succeeded(&mut self) -> bool {
        let was_open = !self.is_closed();
        self.state = State::Closed;
        self.openings = 0;
        self.silences = 0;
        was_open
    }

    /// The destination said that it is down or busy. What was under way when it opened says nothing
    /// new. Returns whether this opened the breaker.
    pub(super) fn failed(&mut self, now: Instant, asked: Duration, random: f64) -> bool {
        match self.state {
            State::Open(until) if now < until => {
                self.state = State::Open(until.max(now + asked));
                false
            }
            _ => {
                self.openings = self.openings.saturating_add(1);
                self.silences = 0;
                // Half of it fixed, so that a probe never follows at once.
                let ceiling = self.backoff.ceiling(self.openings);
                let pause = ceiling / 2 + (ceiling / 2).mul_f64(random.clamp(0.0, 1.0));
                self.state = State::Open(now + pause.max(asked));
                true
            }
        }
    }

    /// A send got no answer in time. Returns whether this opened the breaker.
    pub(super) fn silent(&mut self, now: Instant, random: f64) -> bool {
        self.silences = self.silences.saturating_add(1);
        let probing = !self.is_closed();
        (probing || self.silences >= SILENCES_MAX) && self.failed(now, Duration::ZERO, random)
    }

    /// How long a record waits that could not go at `now`.
    pub(super) fn deferral(&self, now: Instant, random: f64) -> Duration {
        let rest = match self.state {
            State::Open(until) => until.saturating_duration_since(now),
            State::Closed | State::HalfOpen => self.backoff.base,
        };
        // A little later than the probe, and not all at once.
        rest + rest.mul_f64(random.clamp(0.0, 1.0) / 4.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn breaker() -> Breaker {
        Breaker::new(Backoff::new(SECOND, 8 * SECOND))
    }

    #[test]
    fn an_open_breaker_lets_one_probe_through_after_each_pause() {
        let start = Instant::now();
        let mut breaker = breaker();
        assert_eq!(breaker.allows(start), usize::MAX);
        assert!(breaker.failed(start, Duration::ZERO, 1.0));
        assert_eq!(breaker.allows(start), 0);
        assert_eq!(breaker.allows(start + SECOND), 1);
        assert!(breaker.failed(start + SECOND, Duration::ZERO, 1.0));
        assert_eq!(breaker.allows(start + 2 * SECOND), 0);
        assert_eq!(breaker.allows(start + 3 * SECOND), 1);
        assert!(breaker.succeeded());
        assert_eq!(breaker.allows(start + 3 * SECOND), usize::MAX);
    }

    #[test]
    fn failures_of_what_was_already_under_way_lengthen_nothing() {
        let start = Instant::now();
        let mut breaker = breaker();
        breaker.failed(start, Duration::ZERO, 1.0);
        for _ in 0..100 {
            assert!(!breaker.failed(start, Duration::ZERO, 1.0));
        }
        assert_eq!(breaker.probe_at(), Some(start + SECOND));
    }

    #[test]
    fn a_pause_that_was_asked_for_is_kept() {
        let start = Instant::now();
        let mut breaker = breaker();
        breaker.failed(start, 120 * SECOND, 0.0);
        assert_eq!(breaker.allows(start + 119 * SECOND), 0);
        assert_eq!(breaker.deferral(start, 0.0), 120 * SECOND);
    }

    #[test]
    fn silence_opens_only_when_nothing_answers_in_between() {
        let start = Instant::now();
        let mut breaker = breaker();
        for _ in 0..4 {
            assert!(!breaker.silent(start, 0.0));
        }
        breaker.succeeded();
        for _ in 0..4 {
            assert!(!breaker.silent(start, 0.0));
        }
        assert!(breaker.silent(start, 0.0));
        // The probe's silence opens it again at once.
        assert!(breaker.silent(start + SECOND, 0.0));
    }
}
