//! The harness of wrong stores; what is wrong with enqueues and transactions is wrong here.

use std::time::Duration;

use outbox_core::{
    Enqueued, MemoryTransaction, NewRecord, StoreError, StoreErrorKind, Uuid, async_trait,
    conformance::{
        MemoryHarness,
        store::{SetDue, StoreHarness},
    },
};

use super::{Flaw, before, store::WrongStore};

pub(super) struct WrongHarness {
    right: MemoryHarness,
    flaw: Option<Flaw>,
}

impl WrongHarness {
    pub(super) fn new(flaw: Flaw) -> Self {
        Self { right: MemoryHarness::new(), flaw: Some(flaw) }
    }

    pub(super) fn right() -> Self {
        Self { right: MemoryHarness::new(), flaw: None }
    }
}

#[async_trait]
impl StoreHarness for WrongHarness {
    type Store = WrongStore;
    type Transaction = MemoryTransaction;

    const OVERLAPPING_WRITERS: bool = true;

    async fn store(&self) -> WrongStore {
        WrongStore::new(self.right.store().await, self.flaw)
    }

    async fn begin(&self, store: &WrongStore) -> MemoryTransaction {
        store.inner.begin()
    }

    async fn enqueue(
        &self,
        store: &WrongStore,
        transaction: &mut MemoryTransaction,
        records: &[NewRecord],
    ) -> Result<Vec<Enqueued>, StoreError> {
        let mut records = records.to_vec();
        if let Some(flaw) = self.flaw {
            records.iter_mut().for_each(|record| before::record(flaw, record));
        }
        match self.flaw {
            Some(Flaw::EnqueuesAtOnce) => {
                let mut own = store.inner.begin();
                let enqueued = self.right.enqueue(&store.inner, &mut own, &records).await;
                own.commit();
                enqueued
            }
            Some(Flaw::EnqueuesOneByOne) => {
                let mut enqueued = Vec::new();
                for record in records {
                    enqueued.extend(self.right.enqueue(&store.inner, transaction, &[record]).await?);
                }
                Ok(enqueued)
            }
            Some(Flaw::AnswersOutOfOrder) => {
                let mut enqueued = self.right.enqueue(&store.inner, transaction, &records).await?;
                enqueued.reverse();
                Ok(enqueued)
            }
            Some(Flaw::RefusesVaguely) => self
                .right
                .enqueue(&store.inner, transaction, &records)
                .await
                .map_err(|_| StoreError::new(StoreErrorKind::Other, "enqueue")),
            _ => self.right.enqueue(&store.inner, transaction, &records).await,
        }
    }

    async fn accept(
        &self,
        store: &WrongStore,
        transaction: &mut MemoryTransaction,
        consumer: &str,
        id: Uuid,
    ) -> Result<bool, StoreError> {
        if self.flaw == Some(Flaw::InboxForgets) {
            return Ok(true);
        }
        self.right.accept(&store.inner, transaction, consumer, id).await
    }

    async fn commit(&self, transaction: MemoryTransaction) {
        self.right.commit(transaction).await;
    }

    async fn rollback(&self, transaction: MemoryTransaction) {
        if self.flaw == Some(Flaw::RollbackCommits) {
            return self.right.commit(transaction).await;
        }
        self.right.rollback(transaction).await;
    }

    async fn advance(&self, store: &WrongStore, time: Duration) {
        self.right.advance(&store.inner, time).await;
    }

    async fn insert_plain(&self, store: &WrongStore, kind: &str, payload: &str) -> Uuid {
        self.right.insert_plain(&store.inner, kind, payload).await
    }

    async fn insert_undecodable(&self, store: &WrongStore, kind: &str) -> Uuid {
        self.right.insert_undecodable(&store.inner, kind).await
    }

    async fn delete(&self, store: &WrongStore, id: Uuid) {
        if self.flaw == Some(Flaw::DeletedHeadsStay) {
            // Whatever the statement did, the store still takes the row for the head of its key.
            store.inner.by_hand().set_due(id, SetDue::Never);
            return;
        }
        self.right.delete(&store.inner, id).await;
    }

    async fn set_due(&self, store: &WrongStore, id: Uuid, due: SetDue) -> bool {
        self.right.set_due(&store.inner, id, due).await
    }
}
