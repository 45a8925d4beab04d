//! The rows and their indexes, which every change keeps in step.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
    time::Duration,
};

use uuid::Uuid;

use super::{lanes::Lanes, row::Row};
use crate::State;

/// All committed rows.
#[derive(Default)]
pub(super) struct Table {
    rows: BTreeMap<i64, Row>,
    by_id: HashMap<Uuid, i64>,
    lines: BTreeMap<String, Line>,
    /// Up to which time leases and schedules have been followed.
    now: Duration,
    /// Rows that a claim may take once due: those without a key, and the head of each free key.
    pub(super) ready: Lanes,
    /// As `ready`, but what may be killing relays: of these a claim takes one.
    pub(super) suspects: Lanes,
    /// Rows whose lease is in force.
    pub(super) leased: Lanes,
    /// Rows of a key that were scheduled and have never been due.
    pub(super) scheduled: Lanes,
    /// The rows of `leased` and `scheduled`, by when time changes them.
    timers: BTreeSet<(Duration, i64)>,
    /// Pending rows by due time, held back or not.
    pub(super) pending: BTreeSet<(Duration, i64)>,
    /// Sent rows, and dead rows that block nothing, by when they ended.
    pub(super) sent: BTreeSet<(Duration, i64)>,
    pub(super) dead: BTreeSet<(Duration, i64)>,
    counts: [u64; 4],
    /// How many unfinished rows each kind has.
    pub(super) kinds: BTreeMap<String, u64>,
}

/// The records of one key.
#[derive(Default)]
pub(super) struct Line {
    /// Those that later ones wait for: unfinished, or dead and blocking.
    pub(super) records: BTreeSet<i64>,
    /// Those under a lease in force; while there are any, no other is claimed.
    live: BTreeSet<i64>,
    /// The one that stands in `ready` or `suspects`.
    open: Option<i64>,
}

impl Table {
    pub(super) fn row(&self, seq: i64) -> Option<&Row> {
        self.rows.get(&seq)
    }

    pub(super) fn by_id(&self, id: Uuid) -> Option<&Row> {
        self.by_id.get(&id).and_then(|seq| self.rows.get(seq))
    }

    pub(super) fn seq_of(&self, id: Uuid) -> Option<i64> {
        self.by_id.get(&id).copied()
    }

    /// Every row behind `seq`, in order.
    pub(super) fn after(&self, seq: i64) -> impl Iterator<Item = &Row> {
        self.rows.range((Bound::Excluded(seq), Bound::Unbounded)).map(|(_, row)| row)
    }

    pub(super) fn line(&self, key: &str) -> Option<&Line> {
        self.lines.get(key)
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = (&str, &Line)> {
        self.lines.iter().map(|(key, line)| (key.as_str(), line))
    }

    pub(super) fn count(&self, state: State) -> u64 {
        self.counts[state as usize]
    }

    /// Whether another relay than this row's holds a record of its key.
    pub(super) fn key_is_with_another(&self, row: &Row) -> bool {
        let Some(line) = row.key.as_ref().and_then(|key| self.lines.get(key)) else { return false };
        line.live.iter().filter_map(|seq| self.rows.get(seq)).any(|live| live.owner != row.owner)
    }

    /// Follows leases and schedules up to `now`.
    pub(super) fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        while let Some((_, seq)) = self.timers.first().copied().filter(|(at, _)| *at <= self.now) {
            self.change(seq, |_| {});
        }
    }

    pub(super) fn insert(&mut self, mut row: Row) {
        row.timed = row.is_timed(self.now);
        self.by_id.insert(row.id, row.seq);
        self.index(&row);
        let (seq, key) = (row.seq, row.key.clone());
        self.rows.insert(seq, row);
        self.open_head(key.as_deref());
    }

    pub(super) fn remove(&mut self, seq: i64) -> Option<Row> {
        let row = self.rows.remove(&seq)?;
        self.by_id.remove(&row.id);
        self.unindex(&row);
        self.open_head(row.key.as_deref());
        Some(row)
    }

    /// Changes one row, and says whether there is one.
    pub(super) fn change(&mut self, seq: i64, write: impl FnOnce(&mut Row)) -> bool {
        let Some(mut row) = self.rows.remove(&seq) else { return false };
        self.unindex(&row);
        write(&mut row);
        row.timed = row.is_timed(self.now);
        self.index(&row);
        let key = row.key.clone();
        self.rows.insert(seq, row);
        self.open_head(key.as_deref());
        true
    }

    fn index(&mut self, row: &Row) {
        self.counts[row.state() as usize] += 1;
        match row.state() {
            State::Pending => _ = self.pending.insert((row.send_after, row.seq)),
            State::Claimed => {}
            State::Sent => _ = self.sent.insert((row.dated(), row.seq)),
            State::Dead if row.blocks_key => {}
            State::Dead => _ = self.dead.insert((row.dated(), row.seq)),
        }
        if row.is_unfinished() {
            match self.kinds.get_mut(&row.kind) {
                Some(count) => *count += 1,
                None => _ = self.kinds.insert(row.kind.clone(), 1),
            }
        }
        if row.timed {
            self.timers.insert((row.send_after, row.seq));
            if row.owner.is_some() { &mut self.leased } else { &mut self.scheduled }.insert(row);
        }
        match &row.key {
            Some(key) if row.is_in_line() => {
                let line = self.lines.entry(key.clone()).or_default();
                line.records.insert(row.seq);
                if row.timed {
                    line.live.insert(row.seq);
                }
            }
            None if row.is_unfinished() && !row.timed => self.open(row),
            _ => {}
        }
    }

    fn unindex(&mut self, row: &Row) {
        self.counts[row.state() as usize] -= 1;
        match row.state() {
            State::Pending => _ = self.pending.remove(&(row.send_after, row.seq)),
            State::Claimed => {}
            State::Sent => _ = self.sent.remove(&(row.dated(), row.seq)),
            State::Dead => _ = self.dead.remove(&(row.dated(), row.seq)),
        }
        if row.is_unfinished()
            && let Some(count) = self.kinds.get_mut(&row.kind)
        {
            *count -= 1;
            if *count == 0 {
                self.kinds.remove(&row.kind);
            }
        }
        if row.timed {
            self.timers.remove(&(row.send_after, row.seq));
            if row.owner.is_some() { &mut self.leased } else { &mut self.scheduled }.remove(row);
        }
        match &row.key {
            Some(key) => {
                let Some(line) = self.lines.get_mut(key) else { return };
                line.records.remove(&row.seq);
                line.live.remove(&row.seq);
                let was_open = line.open.take_if(|open| *open == row.seq).is_some();
                if line.records.is_empty() {
                    self.lines.remove(key);
                }
                if was_open {
                    self.close(row);
                }
            }
            None if row.is_unfinished() && !row.timed => self.close(row),
            None => {}
        }
    }

    fn open(&mut self, row: &Row) {
        if row.is_suspect() { &mut self.suspects } else { &mut self.ready }.insert(row);
    }

    fn close(&mut self, row: &Row) {
        if row.is_suspect() { &mut self.suspects } else { &mut self.ready }.remove(row);
    }

    /// Opens the head of a key to claims, if it may go, and closes the one that was open.
    fn open_head(&mut self, key: Option<&str>) {
        let Some(line) = key.and_then(|key| self.lines.get_mut(key)) else { return };
        let free = line.live.is_empty();
        let head = line.records.first().filter(|_| free).and_then(|seq| self.rows.get(seq));
        let head = head.filter(|row| row.is_unfinished());
        let was_open = std::mem::replace(&mut line.open, head.map(|row| row.seq));
        if was_open == line.open {
            return;
        }
        if let Some(row) = head {
            if row.is_suspect() { &mut self.suspects } else { &mut self.ready }.insert(row);
        }
        if let Some(row) = was_open.and_then(|seq| self.rows.get(&seq)) {
            if row.is_suspect() { &mut self.suspects } else { &mut self.ready }.remove(row);
        }
    }
}
