//! The inbox: what receivers have seen.

use outbox_core::{StoreError, Uuid};
use sqlx::SqliteConnection;

use crate::{
    error::store_error,
    link::{Patience, query},
    row::id_text,
    store::SqliteStore,
};

impl SqliteStore {
    /// Notes in a receiver's own transaction that `consumer` has the record `id`. False: it had it
    /// before, and the receiver does nothing.
    ///
    /// The note and the receiver's work commit together or not at all. Kept for
    /// [`Retention::inbox_for`](outbox_core::Retention::inbox_for).
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Conflict`](outbox_core::StoreErrorKind::Conflict) when the transaction has
    /// read before and another has written since.
    pub async fn accept(
        &self,
        connection: &mut SqliteConnection,
        consumer: &str,
        id: Uuid,
    ) -> Result<bool, StoreError> {
        let mut patience = Patience::new(self.shared.config.busy_for);
        loop {
            let note = query(&self.shared.statements.accept).bind(consumer.to_owned()).bind(id_text(id));
            match note.execute(&mut *connection).await {
                Ok(noted) => return Ok(noted.rows_affected() == 1),
                Err(error) if patience.outlasts(&error).await => {}
                Err(error) => return Err(store_error("accept", error)),
            }
        }
    }
}
