//! What a wrong store does to its input before the right one sees it.

use std::{
    num::NonZeroUsize,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use outbox_core::{ClaimRequest, Mark, NewRecord, Pattern, Payload, Retention, RouteDemand, Settlement};

use super::Flaw;

/// Between a key and what makes it another.
pub(super) const BREAK: char = '\u{1}';

static UNIQUE: AtomicU64 = AtomicU64::new(0);

pub(super) fn record(flaw: Flaw, record: &mut NewRecord) {
    match flaw {
        Flaw::ForgetsDedup => record.dedup = None,
        Flaw::IgnoresDelays => record.delay = Duration::ZERO,
        Flaw::IgnoresHoldKey => record.hold_key = false,
        Flaw::ScheduledHoldsItsKey => record.hold_key = true,
        Flaw::EmptyKeyIsNone => record.key = record.key.take().filter(|key| !key.is_empty()),
        Flaw::KeysOvertake => {
            if let Some(key) = &mut record.key {
                key.push_str(&format!("{BREAK}{}", UNIQUE.fetch_add(1, Ordering::Relaxed)));
            }
        }
        Flaw::KeysPerKind => {
            if let Some(key) = &mut record.key {
                key.push_str(&format!("{BREAK}{}", record.kind));
            }
        }
        Flaw::NormalizesJson => {
            if let Payload::Json(text) = &record.payload
                && let Ok(value) = serde_json::from_str::<serde_json::Value>(text)
            {
                record.payload = Payload::Json(value.to_string());
            }
        }
        Flaw::CountsDeadFirsts | Flaw::DedupForEver | Flaw::DedupIgnoresCase => {
            if let Some(dedup) = &mut record.dedup {
                match flaw {
                    Flaw::CountsDeadFirsts => dedup.replaces_dead = false,
                    Flaw::DedupForEver => dedup.keep_for *= 1_000,
                    _ => dedup.key.make_ascii_lowercase(),
                }
            }
        }
        _ => {}
    }
}

pub(super) fn request(flaw: Flaw, request: &mut ClaimRequest) {
    match flaw {
        Flaw::AlwaysTakesSuspects => request.suspect = true,
        Flaw::IgnoresRunMax => request.run_max = NonZeroUsize::MAX,
        Flaw::LeasesForEver => request.lease_for *= 1_000,
        Flaw::FullRoutesFallThrough => request.routes.retain(|route| route.limit > 0),
        Flaw::ClaimsOverTheLimit => request.limit += 1,
        Flaw::IgnoresDestinationLimits | Flaw::OneDestinationFillsTheRest => {
            for route in &mut request.routes {
                route.destination_limit = usize::MAX;
                route.destinations.clear();
            }
        }
        Flaw::IgnoresRoutes => {
            let limit = request.routes.iter().map(|route| route.limit).sum();
            request.routes = vec![RouteDemand::new(Pattern::Default, limit)];
        }
        _ => {}
    }
}

pub(super) fn mark(flaw: Flaw, mark: &mut Mark) {
    if flaw == Flaw::ForgetsProgress {
        mark.progress = None;
    }
    match (flaw, &mut mark.settlement) {
        (Flaw::DeadNeverBlocks, Settlement::Dead { blocks_key, .. }) => *blocks_key = false,
        (Flaw::SentIsForgotten, Settlement::Sent { .. }) => mark.settlement = Settlement::Released,
        (Flaw::IgnoresWaits, Settlement::Retry { after, .. } | Settlement::Deferred { after, .. }) => {
            *after = Duration::ZERO;
        }
        (Flaw::RetriesAreDeferred, Settlement::Retry { after, error, .. }) => {
            mark.settlement = Settlement::Deferred { after: *after, error: Some(error.clone()) };
        }
        _ => {}
    }
}

pub(super) fn retention(flaw: Flaw, retention: &mut Retention) {
    match flaw {
        Flaw::SweepsAtOnce => {
            retention.sent_for = Some(Duration::ZERO);
            retention.dead_for = Some(Duration::ZERO);
            retention.inbox_for = Some(Duration::ZERO);
        }
        Flaw::SweepsEverything => retention.batch = NonZeroUsize::MAX,
        _ => {}
    }
}
