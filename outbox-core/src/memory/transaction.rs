//! Transactions on the outbox in memory: what they write is seen at their commit and not before.

use std::{collections::HashSet, fmt, future::poll_fn, sync::Arc, task::Poll, time::Duration};

use async_trait::async_trait;
use uuid::Uuid;

use super::{
    locks::{Asked, LockKey},
    row::Row,
    store::{Kept, MemoryStore, Shared, State},
};
use crate::{Dedup, Enqueue, Enqueued, NewRecord, State as RecordState, StoreError, StoreErrorKind};

/// A transaction. Dropped without a commit, it is rolled back.
///
/// It stands for the transaction of the database that an application's own data is in.
pub struct MemoryTransaction {
    shared: Arc<Shared>,
    number: u64,
    rows: Vec<Row>,
    dedup: Vec<(LockKey, Kept)>,
    inbox: Vec<(String, Uuid)>,
    locks: Vec<LockKey>,
}

impl fmt::Debug for MemoryTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTransaction").field("records", &self.rows.len()).finish_non_exhaustive()
    }
}

impl MemoryTransaction {
    pub(super) fn new(shared: Arc<Shared>, number: u64) -> Self {
        Self { shared, number, rows: Vec::new(), dedup: Vec::new(), inbox: Vec::new(), locks: Vec::new() }
    }

    /// Makes visible what was written, all at once, and hints to relays of this process.
    pub fn commit(mut self) {
        let rows = std::mem::take(&mut self.rows);
        let wrote = !rows.is_empty();
        {
            let now = self.shared.clock.now();
            let mut state = self.shared.state();
            for row in rows {
                state.reserved.remove(&row.id);
                state.table.insert(row);
            }
            for (key, kept) in self.dedup.drain(..) {
                state.keep(key, kept);
            }
            for (consumer, id) in self.inbox.drain(..) {
                state.accept(consumer, id, now);
            }
        }
        let shared = Arc::clone(&self.shared);
        drop(self);
        if wrote {
            shared.bell.ring();
        }
    }

    /// Forgets what was written.
    pub fn rollback(self) {}

    fn belongs_to(&self, store: &MemoryStore) -> Result<(), StoreError> {
        if Arc::ptr_eq(&self.shared, &store.shared) {
            return Ok(());
        }
        Err(StoreError::new(StoreErrorKind::Config, "write to the transaction of another outbox"))
    }

    /// Waits until no other open transaction has written what `key` names.
    async fn lock(&mut self, key: LockKey) -> Result<(), StoreError> {
        let asked = poll_fn(|cx| match self.shared.state().locks.ask(&key, self.number, cx.waker()) {
            Asked::Granted => Poll::Ready(Ok(())),
            Asked::Wait => Poll::Pending,
            Asked::Deadlock => {
                Poll::Ready(Err(StoreError::new(StoreErrorKind::Conflict, "wait for another transaction")))
            }
        });
        asked.await?;
        self.locks.push(key);
        Ok(())
    }

    /// The first enqueue that a dedup key repeats, if it counts.
    fn first(&self, state: &State, key: &LockKey, dedup: &Dedup, now: Duration) -> Option<Enqueued> {
        if let Some((_, kept)) = self.dedup.iter().rev().find(|(own, _)| own == key) {
            return Some(Enqueued::Existing { id: kept.id, state: Some(RecordState::Pending) });
        }
        let kept = state.kept(key).filter(|kept| kept.until > now)?;
        let state = state.table.by_id(kept.id).map(Row::state);
        let counts = !(dedup.replaces_dead && state == Some(RecordState::Dead));
        counts.then_some(Enqueued::Existing { id: kept.id, state })
    }

    fn write(&mut self, records: &[NewRecord]) -> Result<Vec<Enqueued>, StoreError> {
        let shared = Arc::clone(&self.shared);
        let now = shared.clock.now();
        let mut state = shared.state();
        // Nothing is written before all of it can be.
        let mut ids = HashSet::with_capacity(records.len());
        if records.iter().any(|record| state.holds(record.id) || !ids.insert(record.id)) {
            return Err(StoreError::new(StoreErrorKind::DuplicateId, "enqueue"));
        }
        let mut enqueued = Vec::with_capacity(records.len());
        for record in records {
            if let Some(dedup) = &record.dedup {
                let key = LockKey::Dedup(record.kind.clone(), dedup.key.clone());
                if let Some(first) = self.first(&state, &key, dedup, now) {
                    enqueued.push(first);
                    continue;
                }
                let kept = Kept { id: record.id, until: now.saturating_add(dedup.keep_for) };
                self.dedup.push((key, kept));
            }
            let seq = state.next_seq();
            state.reserved.insert(record.id);
            self.rows.push(Row::new(seq, record, now));
            enqueued.push(Enqueued::New { id: record.id, seq });
        }
        Ok(enqueued)
    }
}

impl Drop for MemoryTransaction {
    fn drop(&mut self) {
        let wakers = {
            let mut state = self.shared.state();
            for row in &self.rows {
                state.reserved.remove(&row.id);
            }
            state.locks.release(self.number, &self.locks)
        };
        wakers.into_iter().for_each(std::task::Waker::wake);
    }
}

impl MemoryStore {
    /// Opens a transaction.
    pub fn begin(&self) -> MemoryTransaction {
        let number = self.shared.state().next_transaction();
        MemoryTransaction::new(Arc::clone(&self.shared), number)
    }

    /// Writes one record; see [`Enqueue::enqueue_all`].
    ///
    /// # Errors
    ///
    /// As [`Enqueue::enqueue_all`].
    pub async fn enqueue(
        &self,
        transaction: &mut MemoryTransaction,
        record: NewRecord,
    ) -> Result<Enqueued, StoreError> {
        let id = record.id;
        let enqueued = self.enqueue_all(transaction, &[record]).await?;
        Ok(enqueued.into_iter().next().unwrap_or(Enqueued::Existing { id, state: None }))
    }

    /// Notes in a receiver's transaction that `consumer` has the record `id`. False: it had it before, and
    /// the receiver does nothing. Waits for an open transaction that has noted the same.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Conflict`] when two transactions wait for each other.
    pub async fn accept(
        &self,
        transaction: &mut MemoryTransaction,
        consumer: &str,
        id: Uuid,
    ) -> Result<bool, StoreError> {
        transaction.belongs_to(self)?;
        transaction.lock(LockKey::Inbox(consumer.to_owned(), id)).await?;
        let entry = (consumer.to_owned(), id);
        let known = transaction.inbox.contains(&entry) || self.shared.state().has_accepted(&entry);
        if !known {
            transaction.inbox.push(entry);
        }
        Ok(!known)
    }
}

#[async_trait]
impl Enqueue for MemoryStore {
    type Connection = MemoryTransaction;

    async fn enqueue_all(
        &self,
        transaction: &mut MemoryTransaction,
        records: &[NewRecord],
    ) -> Result<Vec<Enqueued>, StoreError> {
        transaction.belongs_to(self)?;
        for record in records {
            record.validate(self.shared.payload_bytes_max)?;
        }
        let mut keys: Vec<LockKey> = records
            .iter()
            .filter_map(|record| {
                record.dedup.as_ref().map(|dedup| LockKey::Dedup(record.kind.clone(), dedup.key.clone()))
            })
            .collect();
        // In one order, so that two producers of the same keys do not wait for each other.
        keys.sort();
        for key in keys {
            transaction.lock(key).await?;
        }
        transaction.write(records)
    }
}
