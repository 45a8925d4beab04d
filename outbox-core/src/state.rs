//! The pure state machine: every transition of a record, from what happened to what is written.
//!
//! Nothing here reads a clock or draws a random number; the relay passes both in, and stores only
//! apply what comes out.

use std::{num::NonZeroU32, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Backoff, ErrorScope, Outcome, Record, SendError, SendErrorKind, sink::bounded};

/// The longest `last_error` kept, in bytes.
const ERROR_BYTES_MAX: usize = 4_096;

/// How a route treats records that fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Policy {
    /// Counted attempts after which a record is dead. Default: 20, about two hours and a half of trying with
    /// the default backoff. Too low, and a short outage that looks like refusals kills records.
    pub attempts_max: NonZeroU32,
    /// The longest time a record may spend on counted attempts and the waits between them. It counts
    /// from the first hand-over and leaves out time deferred, paused or in line. Default: none.
    pub age_max: Option<Duration>,
    /// Claims ended by a dead or silent relay after which a record is taken to be what kills relays,
    /// and is dead. Default: 5.
    pub lapses_max: NonZeroU32,
    /// The wait after a counted failure. Default: 1 s doubling to 15 min, with full jitter.
    pub backoff: Backoff,
    /// The longest wait that a destination's `retry_after` can ask for. Default: 1 h.
    pub retry_after_max: Duration,
    /// What a dead record does to its key. Default: [`OnDead::Block`].
    pub on_dead: OnDead,
}

impl Default for Policy {
    fn default() -> Self {
        const ATTEMPTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(19);
        const LAPSES: NonZeroU32 = NonZeroU32::MIN.saturating_add(4);
        Self {
            attempts_max: ATTEMPTS,
            age_max: None,
            lapses_max: LAPSES,
            backoff: Backoff::default(),
            retry_after_max: Duration::from_secs(3600),
            on_dead: OnDead::Block,
        }
    }
}

/// What a dead record does to the later records of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OnDead {
    /// Holds them back until it is redriven or discarded: order is kept at the price of waiting.
    Block,
    /// Lets them go: the key continues with a gap.
    Skip,
}

/// What a mark writes. Each ends the claim.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Settlement {
    /// The destination has it.
    Sent {
        /// What the destination answered.
        receipt: Option<String>,
    },
    /// A counted failure: pending again, due `after` this long by the database's clock.
    Retry {
        /// The wait.
        after: Duration,
        /// Kept as `last_error`.
        error: String,
        /// The record's age once the wait is over; replaces [`Record::age`].
        age: Duration,
    },
    /// Given up.
    Dead {
        /// Kept as `last_error`.
        error: String,
        /// Whether it holds back its key.
        blocks_key: bool,
    },
    /// Not the record's fault: pending again, the attempt is refunded.
    Deferred {
        /// The wait.
        after: Duration,
        /// Kept as `last_error`; none leaves what stands there.
        error: Option<String>,
    },
    /// Never handed to a sink: pending again and due at once, the attempt is refunded.
    Released,
}

/// What the relay measured about one send.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Timing {
    /// How long the send took.
    pub sending: Duration,
    /// How long a deferred record waits: the backoff of the destination's or sink's breaker.
    pub deferral: Duration,
}

impl Timing {
    /// A send of this length, with this wait should it be deferred.
    pub const fn new(sending: Duration, deferral: Duration) -> Self {
        Self { sending, deferral }
    }
}

/// Whether a claimed record may be handed to its sink. Some: it is settled without a send.
///
/// A record dies here only after it was handed over before: by lapses, or because `attempts_max`
/// has been lowered beneath the attempts it has had.
pub fn before_send(record: &Record, policy: &Policy) -> Option<Settlement> {
    let error = if record.lapses >= policy.lapses_max.get() {
        format!("{} claims in a row ended with a dead or silent relay", record.lapses)
    } else if record.attempts > policy.attempts_max.get() {
        format!("attempts_max is {}, and it has had {}", policy.attempts_max, record.attempts - 1)
    } else {
        return None;
    };
    Some(dead(error, policy))
}

/// What to write after a send. `random` is drawn evenly from 0 to 1.
pub fn settle(
    record: &Record,
    outcome: &Outcome,
    policy: &Policy,
    timing: &Timing,
    random: f64,
) -> Settlement {
    match outcome {
        Outcome::Sent(receipt) => Settlement::Sent { receipt: receipt.as_str().map(str::to_owned) },
        Outcome::NotAttempted => Settlement::Deferred { after: timing.deferral, error: None },
        Outcome::Unknown => {
            let error = "the sink reported no outcome: it may have been sent".to_owned();
            retry(record, error, None, policy, timing, random)
        }
        Outcome::Failed(error) => match (error.kind(), error.scope()) {
            (SendErrorKind::Permanent, ErrorScope::Record) => dead(text_of(error), policy),
            (SendErrorKind::Transient, _) => {
                retry(record, text_of(error), error.retry_after(), policy, timing, random)
            }
            (SendErrorKind::Permanent | SendErrorKind::Throttled | SendErrorKind::Unavailable, _) => {
                let asked = error.retry_after().unwrap_or_default().min(policy.retry_after_max);
                Settlement::Deferred { after: timing.deferral.max(asked), error: Some(text_of(error)) }
            }
        },
    }
}

fn retry(
    record: &Record,
    error: String,
    retry_after: Option<Duration>,
    policy: &Policy,
    timing: &Timing,
    random: f64,
) -> Settlement {
    if record.attempts >= policy.attempts_max.get() {
        return dead(format!("attempts_max of {} reached: {error}", policy.attempts_max), policy);
    }
    let asked = retry_after.unwrap_or_default().min(policy.retry_after_max);
    let after = policy.backoff.delay(record.attempts, random).max(asked);
    let spent = record.age.saturating_add(timing.sending);
    match policy.age_max {
        Some(age_max) if spent.saturating_add(after) > age_max => {
            dead(format!("age_max of {age_max:?} reached: {error}"), policy)
        }
        _ => Settlement::Retry { after, error, age: spent.saturating_add(after) },
    }
}

fn dead(error: String, policy: &Policy) -> Settlement {
    Settlement::Dead { error: bounded(error, ERROR_BYTES_MAX), blocks_key: policy.on_dead == OnDead::Block }
}

/// The error with its sources, as one line.
fn text_of(error: &SendError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Many libraries repeat the cause in their own text.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    bounded(text, ERROR_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::{Payload, Receipt};

    const SECOND: Duration = Duration::from_secs(1);

    fn record(attempts: u32) -> Record {
        let mut record = Record::new(1, Uuid::nil(), "order.placed", Payload::Json("{}".into()));
        record.attempts = attempts;
        record
    }

    fn settled(attempts: u32, outcome: Outcome) -> Settlement {
        settle(&record(attempts), &outcome, &Policy::default(), &Timing::new(SECOND, 7 * SECOND), 1.0)
    }

    /// R1: every outcome leads to its own settlement.
    #[test]
    fn each_outcome_has_its_settlement() {
        assert_eq!(
            settled(1, Outcome::Sent(Receipt::new("offset 9"))),
            Settlement::Sent { receipt: Some("offset 9".into()) }
        );
        assert_eq!(
            settled(3, Outcome::Failed(SendError::transient("odd"))),
            Settlement::Retry { after: 4 * SECOND, error: "odd".into(), age: 5 * SECOND }
        );
        assert_eq!(
            settled(1, Outcome::Failed(SendError::permanent("too large"))),
            Settlement::Dead { error: "too large".into(), blocks_key: true }
        );
        for kind in [SendErrorKind::Throttled, SendErrorKind::Unavailable] {
            assert_eq!(
                settled(20, Outcome::Failed(SendError::new(kind, "down"))),
                Settlement::Deferred { after: 7 * SECOND, error: Some("down".into()) }
            );
        }
        assert_eq!(
            settled(20, Outcome::NotAttempted),
            Settlement::Deferred { after: 7 * SECOND, error: None }
        );
        assert!(matches!(settled(1, Outcome::Unknown), Settlement::Retry { .. }));
    }

    #[test]
    fn a_broken_destination_kills_no_record() {
        for scope in [ErrorScope::Destination, ErrorScope::Sink] {
            let error = SendError::permanent("access refused").with_scope(scope);
            assert!(matches!(settled(20, Outcome::Failed(error)), Settlement::Deferred { .. }));
        }
    }

    /// R3: attempts and age end in dead, and the last error is kept.
    #[test]
    fn a_record_out_of_attempts_or_age_is_dead_with_its_last_error() {
        let Settlement::Dead { error, .. } = settled(20, Outcome::Failed(SendError::transient("odd"))) else {
            panic!("not dead")
        };
        assert_eq!(error, "attempts_max of 20 reached: odd");

        let policy = Policy { age_max: Some(10 * SECOND), ..Policy::default() };
        let timing = Timing::new(SECOND, SECOND);
        let mut aging = record(2);
        aging.age = 7 * SECOND;
        let outcome = Outcome::Failed(SendError::transient("odd"));
        assert!(matches!(settle(&aging, &outcome, &policy, &timing, 1.0), Settlement::Retry { .. }));
        aging.age = 8 * SECOND;
        assert!(matches!(settle(&aging, &outcome, &policy, &timing, 1.0), Settlement::Dead { .. }));
    }

    /// R3: the longer of backoff and `retry_after` counts, capped by configuration.
    #[test]
    fn retry_after_lengthens_a_wait_up_to_its_cap() {
        let after = |asked: u64| {
            let error = SendError::transient("busy").with_retry_after(Duration::from_secs(asked));
            match settled(3, Outcome::Failed(error)) {
                Settlement::Retry { after, .. } => after.as_secs(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(after(0), 4);
        assert_eq!(after(120), 120);
        assert_eq!(after(10 * 365 * 24 * 3600), 3600);
    }

    /// R9: only lapses up to `lapses_max` are forgiven.
    #[test]
    fn a_record_that_lapsed_too_often_is_not_sent_again() {
        let mut lapsed = record(1);
        lapsed.lapses = 4;
        assert_eq!(before_send(&lapsed, &Policy::default()), None);
        lapsed.lapses = 5;
        assert!(matches!(before_send(&lapsed, &Policy::default()), Some(Settlement::Dead { .. })));
    }

    #[test]
    fn attempts_max_allows_that_many_attempts() {
        assert_eq!(before_send(&record(20), &Policy::default()), None);
        assert!(before_send(&record(21), &Policy::default()).is_some());
    }

    #[test]
    fn a_key_goes_on_by_policy() {
        let policy = Policy { on_dead: OnDead::Skip, ..Policy::default() };
        let outcome = Outcome::Failed(SendError::permanent("no"));
        assert_eq!(
            settle(&record(1), &outcome, &policy, &Timing::new(SECOND, SECOND), 0.0),
            Settlement::Dead { error: "no".into(), blocks_key: false }
        );
    }
}
