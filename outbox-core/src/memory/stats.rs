//! What the outbox holds, in numbers.

use std::time::Duration;

use super::{row::Row, store::State};
use crate::{Clock, Count, HeldBecause, HeldKey, Pattern, Pause, State as RecordState, Stats};

/// The most kinds and keys that are listed.
const LISTED_MAX: usize = 100;

pub(super) fn stats(state: &mut State, routed: &[Pattern], now: Duration, clock: &dyn Clock) -> Stats {
    state.table.advance(now);
    let table = &state.table;
    let is_routed = |kind: &str| routed.iter().any(|pattern| pattern.matches(kind));
    let count = |state| Count::bounded(table.count(state));

    let because = |head: &Row| {
        if head.dead_at.is_some() {
            Some(HeldBecause::Dead)
        } else if !is_routed(&head.kind) {
            Some(HeldBecause::Unrouted)
        } else {
            (head.owner.is_none() && head.send_after > now).then_some(HeldBecause::Retrying)
        }
    };
    let held_keys = table
        .lines()
        .filter(|(_, line)| line.records.len() > 1)
        .filter_map(|(key, line)| line.records.first().map(|seq| (key, *seq)))
        .filter_map(|(key, seq)| table.row(seq).map(|head| (key, head)))
        .filter_map(|(key, head)| {
            let named = (head.seq, head.id, head.kind.clone());
            Some(HeldKey::new(key, named, because(head)?, clock.date(head.created_at)))
        })
        .take(LISTED_MAX)
        .collect();

    let mut stats = Stats {
        pending: count(RecordState::Pending),
        claimed: count(RecordState::Claimed),
        sent: count(RecordState::Sent),
        dead: count(RecordState::Dead),
        held_keys,
        ..Stats::default()
    };
    stats.oldest_due = table
        .pending
        .iter()
        .take_while(|(due, _)| *due <= now)
        .take(Count::BOUND as usize)
        .find(|(_, seq)| table.row(*seq).is_some_and(|row| is_routed(&row.kind)))
        .map(|(due, _)| now.saturating_sub(*due));
    stats.unrouted = table
        .kinds
        .iter()
        .filter(|(kind, _)| !is_routed(kind))
        .take(LISTED_MAX)
        .map(|(kind, count)| (kind.clone(), Count::bounded(*count)))
        .collect();
    stats.paused = state
        .pauses
        .iter()
        .map(|(scope, paused)| Pause::new(scope.clone(), paused.reason.clone(), clock.date(paused.since)))
        .collect();
    stats
}
