//! How records are written, inside the caller's transaction.

use std::collections::HashMap;

use async_trait::async_trait;
use outbox_core::{Enqueue, Enqueued, NewRecord, Payload, State, StoreError, StoreErrorKind};
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use crate::{PostgresStore, error::doing, row::micros};

const DOING: &str = "enqueue";

impl PostgresStore {
    /// Writes one record inside the caller's transaction.
    ///
    /// # Errors
    ///
    /// As [`Enqueue::enqueue_all`].
    pub async fn enqueue(
        &self,
        connection: &mut PgConnection,
        record: NewRecord,
    ) -> Result<Enqueued, StoreError> {
        let enqueued = self.enqueue_all(connection, std::slice::from_ref(&record)).await?;
        enqueued.into_iter().next().ok_or_else(|| StoreError::new(StoreErrorKind::Other, DOING))
    }

    /// The ids of the records that may go in: each dedup key's first.
    async fn remember(
        &self,
        connection: &mut PgConnection,
        firsts: &[&NewRecord],
    ) -> Result<Vec<Uuid>, StoreError> {
        let dedups = || firsts.iter().filter_map(|record| record.dedup.as_ref());
        let rows = self
            .query(&self.shared.sql.remember)
            .bind(firsts.iter().map(|record| record.kind.clone()).collect::<Vec<_>>())
            .bind(dedups().map(|dedup| dedup.key.clone()).collect::<Vec<_>>())
            .bind(firsts.iter().map(|record| record.id).collect::<Vec<_>>())
            .bind(dedups().map(|dedup| micros(dedup.keep_for)).collect::<Vec<_>>())
            .bind(dedups().map(|dedup| dedup.replaces_dead).collect::<Vec<_>>())
            .fetch_all(connection)
            .await
            .map_err(doing(DOING))?;
        rows.iter().map(|row| row.try_get("id").map_err(doing(DOING))).collect()
    }

    /// What the outbox holds under these dedup keys, by their place. A statement later than the one that
    /// waited for it, so that it is seen.
    async fn existing(
        &self,
        connection: &mut PgConnection,
        records: &[&NewRecord],
    ) -> Result<HashMap<usize, Enqueued>, StoreError> {
        let keys = records.iter().filter_map(|record| record.dedup.as_ref()).map(|dedup| dedup.key.clone());
        let rows = self
            .query(&self.shared.sql.existing)
            .bind(records.iter().map(|record| record.kind.clone()).collect::<Vec<_>>())
            .bind(keys.collect::<Vec<_>>())
            .fetch_all(connection)
            .await
            .map_err(doing(DOING))?;
        let mut existing = HashMap::new();
        for row in rows {
            let state = match row.try_get::<Option<&str>, _>("state").map_err(doing(DOING))? {
                Some("sent") => Some(State::Sent),
                Some("dead") => Some(State::Dead),
                Some("claimed") => Some(State::Claimed),
                Some(_) => Some(State::Pending),
                None => None,
            };
            let place: i64 = row.try_get("place").map_err(doing(DOING))?;
            let id = row.try_get("id").map_err(doing(DOING))?;
            existing.insert(usize::try_from(place - 1).unwrap_or_default(), Enqueued::Existing { id, state });
        }
        Ok(existing)
    }

    async fn insert(
        &self,
        connection: &mut PgConnection,
        records: &[&NewRecord],
    ) -> Result<HashMap<Uuid, i64>, StoreError> {
        let json = |record: &&NewRecord| match &record.payload {
            Payload::Json(text) => Some(text.clone()),
            _ => None,
        };
        let bytes = |record: &&NewRecord| match &record.payload {
            Payload::Json(_) => None,
            payload => Some(payload.as_bytes().to_vec()),
        };
        let mut headers = Vec::with_capacity(records.len());
        for record in records {
            let text = serde_json::to_string(&record.headers);
            headers.push(
                text.map_err(|error| StoreError::new(StoreErrorKind::Other, DOING).with_source(error))?,
            );
        }
        let rows = self
            .query(&self.shared.sql.insert)
            .bind(records.iter().map(|record| record.id).collect::<Vec<_>>())
            .bind(records.iter().map(|record| record.kind.clone()).collect::<Vec<_>>())
            .bind(records.iter().map(|record| record.destination.clone()).collect::<Vec<_>>())
            .bind(records.iter().map(|record| record.key.clone()).collect::<Vec<_>>())
            .bind(records.iter().map(json).collect::<Vec<_>>())
            .bind(records.iter().map(bytes).collect::<Vec<_>>())
            .bind(records.iter().map(|record| record.content_type.clone()).collect::<Vec<_>>())
            .bind(headers)
            .bind(records.iter().map(|record| record.hold_key).collect::<Vec<_>>())
            .bind(records.iter().map(|record| micros(record.delay)).collect::<Vec<_>>())
            .fetch_all(connection)
            .await
            .map_err(doing(DOING))?;
        rows.iter()
            .map(|row| Ok((row.try_get("id")?, row.try_get("seq")?)))
            .collect::<Result<_, sqlx::Error>>()
            .map_err(doing(DOING))
    }
}

#[async_trait]
impl Enqueue for PostgresStore {
    type Connection = PgConnection;

    async fn enqueue_all(
        &self,
        connection: &mut PgConnection,
        records: &[NewRecord],
    ) -> Result<Vec<Enqueued>, StoreError> {
        for record in records {
            record.validate(self.shared.config.payload_bytes_max)?;
        }
        let mut seen = HashMap::new();
        let firsts: Vec<&NewRecord> = records
            .iter()
            .filter(|record| match &record.dedup {
                Some(dedup) => seen.insert((record.kind.as_str(), dedup.key.as_str()), record.id).is_none(),
                None => false,
            })
            .collect();
        let remembered =
            if firsts.is_empty() { Vec::new() } else { self.remember(connection, &firsts).await? };
        let mut let_in: std::collections::HashSet<Uuid> = remembered.into_iter().collect();
        let mut fresh = Vec::with_capacity(records.len());
        let mut repeated = Vec::new();
        let mut places = Vec::with_capacity(records.len());
        for record in records {
            let goes = record.dedup.is_none() || let_in.remove(&record.id);
            places.push(if goes { None } else { Some(repeated.len()) });
            if goes { fresh.push(record) } else { repeated.push(record) }
        }
        let seqs = if fresh.is_empty() { HashMap::new() } else { self.insert(connection, &fresh).await? };
        let existing =
            if repeated.is_empty() { HashMap::new() } else { self.existing(connection, &repeated).await? };
        records
            .iter()
            .zip(places)
            .map(|(record, place)| {
                let found = match place {
                    Some(place) => existing.get(&place).copied(),
                    None => seqs.get(&record.id).map(|seq| Enqueued::New { id: record.id, seq: *seq }),
                };
                found.ok_or_else(|| StoreError::new(StoreErrorKind::Other, DOING))
            })
            .collect()
    }
}
