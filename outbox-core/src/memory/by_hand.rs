//! What somebody at a database's prompt can do to the table, for tests.

use std::time::Duration;

use uuid::Uuid;

use super::{
    row::{NEVER, Row},
    store::MemoryStore,
};
use crate::{NewRecord, Payload};

/// Changes of rows without the store's rules, as a hand-written statement makes them.
#[derive(Debug)]
pub struct ByHand<'s>(&'s MemoryStore);

/// A time that is written by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetDue {
    /// Before all time: `'-infinity'`.
    Always,
    /// After all time: `'infinity'`.
    Never,
}

impl MemoryStore {
    /// Changes rows without the store's rules. For tests.
    pub fn by_hand(&self) -> ByHand<'_> {
        ByHand(self)
    }
}

impl ByHand<'_> {
    /// A plain insert that names kind and payload alone.
    pub fn insert(&self, kind: &str, payload: &str) -> Uuid {
        self.insert_row(kind, payload, |_| {})
    }

    /// A row with headers that hold no text.
    pub fn insert_undecodable(&self, kind: &str) -> Uuid {
        self.insert_row(kind, "{}", |row| row.headers = Err("header `n` is not text".to_owned()))
    }

    /// Deletes a row, and says whether there was one.
    pub fn delete(&self, id: Uuid) -> bool {
        let mut state = self.0.shared.state();
        state.table.seq_of(id).is_some_and(|seq| state.table.remove(seq).is_some())
    }

    /// Writes `send_after`, and says whether there is such a row.
    pub fn set_due(&self, id: Uuid, due: SetDue) -> bool {
        let send_after = match due {
            SetDue::Always => Duration::ZERO,
            SetDue::Never => NEVER,
        };
        let mut state = self.0.shared.state();
        let found = state.table.seq_of(id);
        found.is_some_and(|seq| state.table.change(seq, |row| row.send_after = send_after))
    }

    fn insert_row(&self, kind: &str, payload: &str, write: impl FnOnce(&mut Row)) -> Uuid {
        let record = NewRecord::bytes(kind, "application/json", "");
        let now = self.0.shared.clock.now();
        let mut state = self.0.shared.state();
        let mut row = Row::new(state.next_seq(), &record, now);
        row.payload = Payload::Json(payload.to_owned());
        write(&mut row);
        state.table.insert(row);
        record.id
    }
}
