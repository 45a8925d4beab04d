//! Operators' calls on the outbox in memory.

use std::{
    num::NonZeroU32,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use uuid::Uuid;

use super::{
    row::Row,
    store::{MemoryStore, Paused},
};
use crate::{Clock, Filter, Operate, Pause, PauseScope, Payload, RecordView, State, StoreError};

/// The most records that one call lists.
const LISTED_MAX: usize = 1_000;

#[async_trait]
impl Operate for MemoryStore {
    async fn list(
        &self,
        filter: &Filter,
        after_seq: i64,
        limit: usize,
    ) -> Result<Vec<RecordView>, StoreError> {
        let clock = &*self.shared.clock;
        let state = self.shared.state();
        let found = state.table.after(after_seq).filter(|row| passes(row, filter, clock));
        Ok(found.take(limit.min(LISTED_MAX)).map(|row| view(row, clock)).collect())
    }

    async fn show(&self, id: Uuid) -> Result<Option<(RecordView, Payload)>, StoreError> {
        let clock = &*self.shared.clock;
        let state = self.shared.state();
        Ok(state.table.by_id(id).map(|row| (view(row, clock), row.payload.clone())))
    }

    async fn redrive(&self, ids: &[Uuid]) -> Result<u64, StoreError> {
        let seqs = {
            let state = self.shared.state();
            ids.iter().filter_map(|id| state.table.seq_of(*id)).collect()
        };
        Ok(self.revive(State::Dead, seqs, None))
    }

    async fn redrive_filtered(
        &self,
        filter: &Filter,
        per_second: Option<NonZeroU32>,
        limit: usize,
    ) -> Result<u64, StoreError> {
        let seqs = self.find(filter, State::Dead, limit);
        Ok(self.revive(State::Dead, seqs, per_second))
    }

    async fn discard(&self, ids: &[Uuid], reason: &str) -> Result<u64, StoreError> {
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        state.table.advance(now);
        let mut changed = 0;
        for id in ids {
            let found = state.table.by_id(*id).filter(|row| row.state() != State::Sent).map(|row| row.seq);
            if let Some(seq) = found {
                state.table.change(seq, |row| row.discard(reason, now));
                changed += 1;
            }
        }
        drop(state);
        self.wake();
        Ok(changed)
    }

    async fn resend(
        &self,
        filter: &Filter,
        per_second: Option<NonZeroU32>,
        limit: usize,
    ) -> Result<u64, StoreError> {
        let seqs = self.find(filter, State::Sent, limit);
        Ok(self.revive(State::Sent, seqs, per_second))
    }

    async fn pause(&self, scope: &PauseScope, reason: &str) -> Result<(), StoreError> {
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        let paused = Paused { reason: reason.to_owned(), since: now };
        state
            .pauses
            .entry(scope.clone())
            .and_modify(|paused| reason.clone_into(&mut paused.reason))
            .or_insert(paused);
        Ok(())
    }

    async fn resume(&self, scope: &PauseScope) -> Result<bool, StoreError> {
        let was_paused = self.shared.state().pauses.remove(scope).is_some();
        self.wake();
        Ok(was_paused)
    }

    async fn pauses(&self) -> Result<Vec<Pause>, StoreError> {
        let clock = &*self.shared.clock;
        let state = self.shared.state();
        let pauses = state.pauses.iter();
        Ok(pauses
            .map(|(scope, paused)| Pause::new(scope.clone(), paused.reason.clone(), clock.date(paused.since)))
            .collect())
    }
}

impl MemoryStore {
    fn find(&self, filter: &Filter, state: State, limit: usize) -> Vec<i64> {
        let clock = &*self.shared.clock;
        let held = self.shared.state();
        let found = held.table.after(0).filter(|row| row.state() == state && passes(row, filter, clock));
        found.take(limit).map(|row| row.seq).collect()
    }

    /// Makes those of the rows that are in this state pending, due one after the other.
    fn revive(&self, from: State, seqs: Vec<i64>, per_second: Option<NonZeroU32>) -> u64 {
        let now = self.shared.clock.now();
        let apart = per_second.map_or(Duration::ZERO, |rate| Duration::from_secs(1) / rate.get());
        let mut state = self.shared.state();
        state.table.advance(now);
        let mut revived: u32 = 0;
        for seq in seqs {
            if state.table.row(seq).is_some_and(|row| row.state() == from) {
                let due = now.saturating_add(apart.saturating_mul(revived));
                state.table.change(seq, |row| row.revive(due));
                revived += 1;
            }
        }
        drop(state);
        self.wake();
        revived.into()
    }
}

fn passes(row: &Row, filter: &Filter, clock: &dyn Clock) -> bool {
    let dated = clock.date(row.dated());
    let in_time = |since: Option<SystemTime>, until: Option<SystemTime>| {
        since.is_none_or(|since| dated >= since) && until.is_none_or(|until| dated < until)
    };
    filter.state.is_none_or(|state| row.state() == state)
        && filter.kind.as_ref().is_none_or(|kind| kind.matches(&row.kind))
        && filter.destination.as_ref().is_none_or(|to| row.destination.as_ref() == Some(to))
        && filter.key.as_ref().is_none_or(|key| row.key.as_ref() == Some(key))
        && in_time(filter.since, filter.until)
}

fn view(row: &Row, clock: &dyn Clock) -> RecordView {
    let mut view = RecordView::new(row.seq, row.id, row.kind.clone(), clock.date(row.created_at));
    view.destination.clone_from(&row.destination);
    view.key.clone_from(&row.key);
    view.content_type.clone_from(&row.content_type);
    view.headers = row.headers.clone().unwrap_or_default();
    view.state = row.state();
    view.send_after = clock.date(row.send_after);
    view.attempts = row.attempts;
    view.lapses = row.lapses;
    view.blocks_key = row.blocks_key;
    view.sent_at = row.sent_at.map(|at| clock.date(at));
    view.dead_at = row.dead_at.map(|at| clock.date(at));
    view.last_error.clone_from(&row.last_error);
    view.receipt.clone_from(&row.receipt);
    view
}
