//! What a store brings so that the checks can be run against it.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

pub use crate::memory::SetDue;
use crate::{Enqueued, NewRecord, Operate, Store, StoreError};

/// How to make outboxes in a store under test, and how to do to them what happens in the field.
///
/// What cannot fail in a test panics.
#[async_trait]
pub trait StoreHarness: Send + Sync {
    /// The store.
    type Store: Store + Operate + Clone;
    /// An open transaction of the store's database.
    type Transaction: Send;

    /// Whether two transactions can have written and not yet committed at the same time, and a claim can be
    /// made meanwhile. False only for a database with one writer at a time; the checks of
    /// overlapping transactions then show nothing.
    const OVERLAPPING_WRITERS: bool;

    /// A new and empty outbox.
    async fn store(&self) -> Self::Store;

    /// Another handle on the same outbox, as another process would open it; where that cannot be, a
    /// clone.
    async fn reopen(&self, store: &Self::Store) -> Self::Store {
        store.clone()
    }

    /// Opens a transaction.
    async fn begin(&self, store: &Self::Store) -> Self::Transaction;

    /// Enqueues in a transaction.
    async fn enqueue(
        &self,
        store: &Self::Store,
        transaction: &mut Self::Transaction,
        records: &[NewRecord],
    ) -> Result<Vec<Enqueued>, StoreError>;

    /// Notes in the inbox, in a receiver's transaction, that `consumer` has the record `id`.
    async fn accept(
        &self,
        store: &Self::Store,
        transaction: &mut Self::Transaction,
        consumer: &str,
        id: Uuid,
    ) -> Result<bool, StoreError>;

    /// Commits a transaction.
    async fn commit(&self, transaction: Self::Transaction);

    /// Rolls a transaction back.
    async fn rollback(&self, transaction: Self::Transaction);

    /// Moves the outbox's time on. A store on a real database moves every time that is written in its
    /// tables back instead: of the records, of dedup keys and of the inbox.
    async fn advance(&self, store: &Self::Store, time: Duration);

    /// Inserts a row as any language would, naming kind and payload alone, and returns its id.
    async fn insert_plain(&self, store: &Self::Store, kind: &str, payload: &str) -> Uuid;

    /// Inserts a row with headers that hold no text, such as `{"n": 1}`, and returns its id.
    async fn insert_undecodable(&self, store: &Self::Store, kind: &str) -> Uuid;

    /// Deletes a row of the outbox by a hand-written statement.
    async fn delete(&self, store: &Self::Store, id: Uuid);

    /// Writes an infinite `send_after` by hand. False: the database cannot hold one, and the check
    /// shows nothing.
    async fn set_due(&self, store: &Self::Store, id: Uuid, due: SetDue) -> bool;
}
