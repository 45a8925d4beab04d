//! Names and units of the metrics, and the handles through which the relay counts.
//!
//! They go to whatever recorder of the `metrics` facade the application installs before the relay
//! starts; without one they cost next to nothing.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tokio::time::Duration;

/// Counter, records: taken by a claim. Label `route`.
pub const CLAIMED: &str = "outbox_claimed_total";
/// Counter, records: acknowledged by their destination and marked. Label `route`.
pub const SENT: &str = "outbox_sent_total";
/// Counter, records: failed and to be tried again. Label `route`.
pub const RETRIED: &str = "outbox_retried_total";
/// Counter, records: given up. Label `route`.
pub const DEAD: &str = "outbox_dead_total";
/// Counter, records: put off without counting an attempt. Label `route`.
pub const DEFERRED: &str = "outbox_deferred_total";
/// Counter, records: given back without having been handed to a sink. Label `route`.
pub const RELEASED: &str = "outbox_released_total";
/// Counter, marks and renewals: whose claim had ended otherwise. A few after a stall are normal; a
/// steady flow means that leases are too short.
pub const LOST: &str = "outbox_lost_leases_total";
/// Counter, errors: of the store. Label `call`.
pub const STORE_ERRORS: &str = "outbox_store_errors_total";
/// Histogram, seconds: one send, from its hand-over to its outcome. Label `route`.
pub const SEND_SECONDS: &str = "outbox_send_seconds";
/// Histogram, seconds: one call of the store. Label `call`.
pub const STORE_SECONDS: &str = "outbox_store_seconds";
/// Gauge, records: held by this relay. Label `route`.
pub const HELD: &str = "outbox_held";
/// Gauge, 0 or 1: whether the sink of the route is taken to be down. Label `route`.
pub const SINK_DOWN: &str = "outbox_sink_down";
/// Gauge, records: pending in the store, counted up to 10,000.
pub const PENDING: &str = "outbox_pending";
/// Gauge, records: dead in the store, counted up to 10,000.
pub const DEAD_KEPT: &str = "outbox_dead";
/// Gauge, records: pending without a route, counted up to 10,000 a kind.
pub const UNROUTED: &str = "outbox_unrouted";
/// Gauge, keys: held back by their first record, counted up to 100.
pub const HELD_KEYS: &str = "outbox_held_keys";
/// Gauge, seconds: how long the oldest due record has waited.
pub const OLDEST_DUE_SECONDS: &str = "outbox_oldest_due_seconds";

/// The handles of one route.
pub(super) struct RouteMetrics {
    pub(super) claimed: Counter,
    pub(super) sent: Counter,
    pub(super) retried: Counter,
    pub(super) dead: Counter,
    pub(super) deferred: Counter,
    pub(super) released: Counter,
    pub(super) send_seconds: Histogram,
    pub(super) held: Gauge,
    pub(super) sink_down: Gauge,
}

impl RouteMetrics {
    pub(super) fn new(route: &str) -> Self {
        let route = route.to_owned();
        Self {
            claimed: counter!(CLAIMED, "route" => route.clone()),
            sent: counter!(SENT, "route" => route.clone()),
            retried: counter!(RETRIED, "route" => route.clone()),
            dead: counter!(DEAD, "route" => route.clone()),
            deferred: counter!(DEFERRED, "route" => route.clone()),
            released: counter!(RELEASED, "route" => route.clone()),
            send_seconds: histogram!(SEND_SECONDS, "route" => route.clone()),
            held: gauge!(HELD, "route" => route.clone()),
            sink_down: gauge!(SINK_DOWN, "route" => route),
        }
    }
}

/// Counts one call of the store.
pub(super) fn store_call(call: &'static str, took: Duration, failed: bool) {
    histogram!(STORE_SECONDS, "call" => call).record(took);
    if failed {
        counter!(STORE_ERRORS, "call" => call).increment(1);
    }
}

/// Counts leases that were lost.
pub(super) fn lost(leases: usize) {
    if leases > 0 {
        counter!(LOST).increment(leases as u64);
    }
}

/// Shows what the store holds.
pub(super) fn stats(stats: &crate::Stats) {
    gauge!(PENDING).set(stats.pending.value as f64);
    gauge!(DEAD_KEPT).set(stats.dead.value as f64);
    gauge!(UNROUTED).set(stats.unrouted.iter().map(|(_, count)| count.value).sum::<u64>() as f64);
    gauge!(HELD_KEYS).set(stats.held_keys.len() as f64);
    gauge!(OLDEST_DUE_SECONDS).set(stats.oldest_due.unwrap_or_default().as_secs_f64());
}
