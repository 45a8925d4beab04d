//! The harness of the store in memory, which is also the example of one.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::store::{SetDue, StoreHarness};
use crate::{Enqueue, Enqueued, ManualClock, MemoryStore, MemoryTransaction, NewRecord, StoreError};

/// Runs the checks against [`MemoryStore`], whose time is a [`ManualClock`].
#[derive(Debug)]
pub struct MemoryHarness {
    clock: ManualClock,
}

impl MemoryHarness {
    /// A harness with a clock of its own.
    pub fn new() -> Self {
        let clock = ManualClock::new();
        // At zero, a store that takes "never" for the start of time would pass.
        clock.advance(Duration::from_secs(1_000_000_000));
        Self { clock }
    }
}

impl Default for MemoryHarness {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl StoreHarness for MemoryHarness {
    type Store = MemoryStore;
    type Transaction = MemoryTransaction;

    const OVERLAPPING_WRITERS: bool = true;

    async fn store(&self) -> MemoryStore {
        MemoryStore::with_clock(self.clock.clone())
    }

    async fn begin(&self, store: &MemoryStore) -> MemoryTransaction {
        store.begin()
    }

    async fn enqueue(
        &self,
        store: &MemoryStore,
        transaction: &mut MemoryTransaction,
        records: &[NewRecord],
    ) -> Result<Vec<Enqueued>, StoreError> {
        store.enqueue_all(transaction, records).await
    }

    async fn accept(
        &self,
        store: &MemoryStore,
        transaction: &mut MemoryTransaction,
        consumer: &str,
        id: Uuid,
    ) -> Result<bool, StoreError> {
        store.accept(transaction, consumer, id).await
    }

    async fn commit(&self, transaction: MemoryTransaction) {
        transaction.commit();
    }

    async fn rollback(&self, transaction: MemoryTransaction) {
        transaction.rollback();
    }

    async fn advance(&self, _: &MemoryStore, time: Duration) {
        self.clock.advance(time);
    }

    async fn insert_plain(&self, store: &MemoryStore, kind: &str, payload: &str) -> Uuid {
        store.by_hand().insert(kind, payload)
    }

    async fn insert_undecodable(&self, store: &MemoryStore, kind: &str) -> Uuid {
        store.by_hand().insert_undecodable(kind)
    }

    async fn delete(&self, store: &MemoryStore, id: Uuid) {
        store.by_hand().delete(id);
    }

    async fn set_due(&self, store: &MemoryStore, id: Uuid, due: SetDue) -> bool {
        store.by_hand().set_due(id, due)
    }
}
