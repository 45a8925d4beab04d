//! The inbox of a receiver: lets each id in once.

use outbox_core::StoreError;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{PostgresStore, error::doing, schema::fill};

impl PostgresStore {
    /// Notes in the receiver's own transaction that `consumer` has the record `id`; false: it had it before.
    /// Waits for an open first.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Conflict`](outbox_core::StoreErrorKind::Conflict) above READ COMMITTED, when another
    /// transaction came first.
    pub async fn accept(
        &self,
        connection: &mut PgConnection,
        consumer: &str,
        id: Uuid,
    ) -> Result<bool, StoreError> {
        let sql = fill(
            "INSERT INTO {inbox} (consumer, id) VALUES ($1, $2) ON CONFLICT DO NOTHING",
            &self.shared.config,
        );
        let done = self.query(&sql.into()).bind(consumer.to_owned()).bind(id).execute(connection).await;
        done.map(|done| done.rows_affected() == 1).map_err(doing("accept a record"))
    }
}
