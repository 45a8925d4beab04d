//! Retention: what is kept no longer goes, oldest first and a batch at a time.

use std::{collections::BTreeSet, time::Duration};

use super::store::State;
use crate::{Retention, Swept};

pub(super) fn sweep(state: &mut State, retention: &Retention, now: Duration) -> Swept {
    state.table.advance(now);
    let mut left = retention.batch.get();
    let mut swept = Swept::default();

    // Only rows that are sent, or dead and block nothing, stand in these two.
    let expired = |rows: &BTreeSet<(Duration, i64)>, kept_for: Option<Duration>, left: &mut usize| {
        let end = kept_for.and_then(|kept_for| now.checked_sub(kept_for));
        let seqs: Vec<i64> =
            rows.iter().take_while(|(at, _)| Some(*at) <= end).take(*left).map(|(_, seq)| *seq).collect();
        *left -= seqs.len();
        seqs
    };
    for seq in expired(&state.table.sent, retention.sent_for, &mut left) {
        state.table.remove(seq);
        swept.sent += 1;
    }
    for seq in expired(&state.table.dead, retention.dead_for, &mut left) {
        state.table.remove(seq);
        swept.dead += 1;
    }

    let inbox_end = retention.inbox_for.and_then(|kept_for| now.checked_sub(kept_for));
    while left > 0
        && state.inbox_ages.first().is_some_and(|(at, ..)| Some(*at) <= inbox_end)
        && let Some((_, consumer, id)) = state.inbox_ages.pop_first()
    {
        state.unaccept(&(consumer, id));
        swept.inbox += 1;
        left -= 1;
    }
    while left > 0
        && state.dedup_ends.first().is_some_and(|(until, _)| *until <= now)
        && let Some((_, key)) = state.dedup_ends.pop_first()
    {
        state.forget(&key);
        swept.dedup += 1;
        left -= 1;
    }
    swept.more = left == 0;
    swept
}
