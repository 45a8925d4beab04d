//! Writing records in the application's own transaction.

use std::{collections::HashSet, fmt::Write, sync::Arc};

use outbox_core::{Enqueue, Enqueued, NewRecord, Payload, State, StoreError, Uuid, async_trait};
use sqlx::{AssertSqlSafe, Row, SqliteConnection, query::Query, sqlite::SqliteArguments};

use crate::{
    error::store_error,
    link::{Patience, query},
    row::{id_of, id_text, millis, state},
    store::{Shared, SqliteStore},
};

/// How many rows one insert takes; sizes are few, so that each is prepared once.
const ROWS: [usize; 4] = [128, 32, 8, 1];

/// The columns of an insert that are bound, one row.
const PARAMETERS: usize = 9;

impl SqliteStore {
    /// Writes one record in the caller's transaction; see [`Enqueue::enqueue_all`].
    ///
    /// Transactions and pool connections of sqlx deref to the connection: `&mut transaction`. A transaction that
    /// has read before should be opened by `begin_with("BEGIN IMMEDIATE")`: otherwise it ends in a
    /// [`Conflict`](outbox_core::StoreErrorKind::Conflict) when another has written since.
    ///
    /// # Errors
    ///
    /// As [`Enqueue::enqueue_all`].
    pub async fn enqueue(
        &self,
        connection: &mut SqliteConnection,
        record: NewRecord,
    ) -> Result<Enqueued, StoreError> {
        let id = record.id;
        let enqueued = self.shared.enqueue(connection, std::slice::from_ref(&record)).await?;
        Ok(enqueued.into_iter().next().unwrap_or(Enqueued::Existing { id, state: None }))
    }

    /// Writes records in the caller's transaction; see [`Enqueue::enqueue_all`].
    ///
    /// # Cancellation
    ///
    /// Dropped half-way, some of the records may stand in the transaction: roll it back.
    ///
    /// # Errors
    ///
    /// As [`Enqueue::enqueue_all`].
    pub async fn enqueue_all(
        &self,
        connection: &mut SqliteConnection,
        records: &[NewRecord],
    ) -> Result<Vec<Enqueued>, StoreError> {
        self.shared.enqueue(connection, records).await
    }
}

#[async_trait]
impl Enqueue for SqliteStore {
    type Connection = SqliteConnection;

    async fn enqueue_all(
        &self,
        connection: &mut SqliteConnection,
        records: &[NewRecord],
    ) -> Result<Vec<Enqueued>, StoreError> {
        self.shared.enqueue(connection, records).await
    }
}

impl Shared {
    async fn enqueue(
        &self,
        connection: &mut SqliteConnection,
        records: &[NewRecord],
    ) -> Result<Vec<Enqueued>, StoreError> {
        for record in records {
            record.validate(self.config.payload_bytes_max)?;
        }
        let mut patience = Patience::new(self.config.busy_for);
        loop {
            match self.write(connection, records).await {
                Err(error) if patience.outlasts(&error).await => {}
                written => return written.map_err(|error| store_error("enqueue", error)),
            }
        }
    }

    /// All of the records or none: a call of several statements is taken back as a whole.
    async fn write(
        &self,
        connection: &mut SqliteConnection,
        records: &[NewRecord],
    ) -> Result<Vec<Enqueued>, sqlx::Error> {
        if records.len() <= 1 && records.iter().all(|record| record.dedup.is_none()) {
            return self.write_all(connection, records).await;
        }
        sqlx::query("SAVEPOINT outbox_enqueue").execute(&mut *connection).await?;
        let written = self.write_all(connection, records).await;
        if written.is_err() {
            // Some errors, such as a full disk, end the whole transaction, and the savepoint with it.
            let _ = sqlx::query("ROLLBACK TO outbox_enqueue").execute(&mut *connection).await;
            let _ = sqlx::query("RELEASE outbox_enqueue").execute(&mut *connection).await;
            return written;
        }
        sqlx::query("RELEASE outbox_enqueue").execute(&mut *connection).await?;
        written
    }

    async fn write_all(
        &self,
        connection: &mut SqliteConnection,
        records: &[NewRecord],
    ) -> Result<Vec<Enqueued>, sqlx::Error> {
        let mut enqueued = Vec::with_capacity(records.len());
        let mut added = HashSet::new();
        let mut to_insert = Vec::with_capacity(records.len());
        for record in records {
            let first = self.remember(connection, record, &added).await?;
            if first.is_none() {
                added.insert(record.id);
                to_insert.push(record);
            }
            enqueued.push(first);
        }
        let mut seqs = Vec::with_capacity(to_insert.len());
        let mut left = to_insert.as_slice();
        while !left.is_empty() {
            let rows = ROWS.into_iter().find(|rows| *rows <= left.len()).unwrap_or(1);
            let (part, rest) = left.split_at(rows);
            self.insert(connection, part, &mut seqs).await?;
            left = rest;
        }
        let mut written = to_insert.iter().zip(seqs);
        Ok(enqueued
            .into_iter()
            .filter_map(|first| {
                first.or_else(|| written.next().map(|(record, seq)| Enqueued::New { id: record.id, seq }))
            })
            .collect())
    }

    /// Keeps the dedup key of a record, or returns the first that it repeats.
    async fn remember(
        &self,
        connection: &mut SqliteConnection,
        record: &NewRecord,
        added: &HashSet<Uuid>,
    ) -> Result<Option<Enqueued>, sqlx::Error> {
        let Some(dedup) = &record.dedup else { return Ok(None) };
        let kept = query(&self.statements.dedup)
            .bind(record.kind.clone())
            .bind(dedup.key.clone())
            .bind(id_text(record.id))
            .bind(millis(dedup.keep_for))
            .bind(dedup.replaces_dead)
            .fetch_optional(&mut *connection)
            .await?;
        if kept.is_some() {
            return Ok(None);
        }
        let first = query(&self.statements.dedup_existing)
            .bind(record.kind.clone())
            .bind(dedup.key.clone())
            .fetch_one(connection)
            .await?;
        let id = id_of(&first)?;
        let is_kept: bool = first.try_get("kept")?;
        let set = |column| first.try_get::<Option<i64>, _>(column).map(|value| value.is_some());
        let state = if is_kept {
            Some(state(set("owner")?, set("sent_at")?, set("dead_at")?))
        } else {
            added.contains(&id).then_some(State::Pending)
        };
        Ok(Some(Enqueued::Existing { id, state }))
    }

    /// Inserts a part in one statement, and adds the places in line in order.
    async fn insert(
        &self,
        connection: &mut SqliteConnection,
        records: &[&NewRecord],
        seqs: &mut Vec<i64>,
    ) -> Result<(), sqlx::Error> {
        let insert = &self.inserts[ROWS.iter().position(|rows| *rows == records.len()).unwrap_or(3)];
        let mut query = sqlx::query(AssertSqlSafe(Arc::clone(insert)));
        for record in records {
            query = bind(query, record);
        }
        let start = seqs.len();
        for row in query.fetch_all(connection).await? {
            seqs.push(row.try_get(0)?);
        }
        // Rows are inserted in order, but SQLite does not promise to return them so.
        seqs[start..].sort_unstable();
        Ok(())
    }
}

/// The inserts of each number of rows.
pub(crate) fn inserts(start: &str) -> [Arc<str>; ROWS.len()] {
    ROWS.map(|rows| {
        let mut sql = start.trim_end().to_owned();
        for row in 0..rows {
            let at = row * PARAMETERS;
            let comma = if row == 0 { "" } else { "," };
            // Writing to a string cannot fail.
            let _ = write!(
                sql,
                "{comma}\n(?{}, ?{}, ?{}, ?{}, ?{}, ?{}, ?{}, ?{}, {} + ?{})",
                at + 1,
                at + 2,
                at + 3,
                at + 4,
                at + 5,
                at + 6,
                at + 7,
                at + 8,
                crate::schema::NOW,
                at + 9,
            );
        }
        sql.push_str("\nRETURNING seq");
        sql.into()
    })
}

fn bind<'q>(
    query: Query<'q, sqlx::Sqlite, SqliteArguments>,
    record: &NewRecord,
) -> Query<'q, sqlx::Sqlite, SqliteArguments> {
    let headers =
        serde_json::Value::from_iter(record.headers.iter().map(|(name, value)| (&**name, &**value)));
    let query = query
        .bind(id_text(record.id))
        .bind(record.kind.clone())
        .bind(record.destination.clone())
        .bind(record.key.clone())
        .bind(record.content_type.clone())
        .bind(record.hold_key)
        .bind(headers.to_string());
    let query = match &record.payload {
        Payload::Json(text) => query.bind(text.clone()),
        other => query.bind(other.as_bytes().to_vec()),
    };
    query.bind(millis(record.delay))
}
