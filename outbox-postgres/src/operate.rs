//! Operators' calls.

use std::{num::NonZeroU32, time::Duration};

use async_trait::async_trait;
use outbox_core::{Filter, Operate, Pattern, Pause, PauseScope, Payload, RecordView, State, StoreError};
use sqlx::{AssertSqlSafe, PgConnection, Row, postgres::PgRow};
use uuid::Uuid;

use crate::{
    PostgresStore,
    error::doing,
    row::{self, Timestamp, micros},
    schema::fill,
};

/// What a [`Filter`] asks of a row, in the parameters from the second on.
pub(crate) const FILTER: &str = "($2::text IS NULL OR $2 = CASE WHEN o.sent_at IS NOT NULL THEN 'sent' \
        WHEN o.dead_at IS NOT NULL THEN 'dead' WHEN o.owner IS NOT NULL THEN 'claimed' ELSE 'pending' END) \
    AND ($3::text IS NULL OR o.kind = $3) AND ($4::text IS NULL OR starts_with(o.kind, $4)) \
    AND ($5::text IS NULL OR o.destination = $5) AND ($6::text IS NULL OR o.key = $6) \
    AND ($7::timestamptz IS NULL OR coalesce(o.sent_at, o.dead_at, o.created_at) >= $7) \
    AND ($8::timestamptz IS NULL OR coalesce(o.sent_at, o.dead_at, o.created_at) < $8)";

/// The most records that one call lists.
const LISTED_MAX: usize = 1_000;

#[async_trait]
impl Operate for PostgresStore {
    async fn list(
        &self,
        filter: &Filter,
        after_seq: i64,
        limit: usize,
    ) -> Result<Vec<RecordView>, StoreError> {
        let mut tx = self.begin().await?;
        let rows = self.find(&mut tx, filter, filter.state, after_seq, limit.min(LISTED_MAX)).await?;
        rows.iter().map(row::view).collect()
    }

    async fn show(&self, id: Uuid) -> Result<Option<(RecordView, Payload)>, StoreError> {
        let failed = doing("show a record");
        let mut tx = self.begin().await?;
        let found =
            self.query(&self.shared.sql.show).bind(id).fetch_optional(&mut *tx).await.map_err(failed)?;
        found.map(|found| Ok((row::view(&found)?, row::payload(&found).map_err(failed)?))).transpose()
    }

    async fn redrive(&self, ids: &[Uuid]) -> Result<u64, StoreError> {
        let failed = doing("redrive records");
        let mut tx = self.begin().await?;
        let sql = fill("SELECT o.seq FROM {outbox} o WHERE o.id = ANY ($1)", &self.shared.config);
        let rows = self.query(&sql.into()).bind(ids.to_vec()).fetch_all(&mut *tx).await.map_err(failed)?;
        let revived = self.revive(&mut tx, &rows, State::Dead, None).await?;
        tx.commit().await.map_err(failed)?;
        self.wake();
        Ok(revived)
    }

    async fn redrive_filtered(
        &self,
        filter: &Filter,
        per_second: Option<NonZeroU32>,
        limit: usize,
    ) -> Result<u64, StoreError> {
        self.revive_filtered(filter, State::Dead, per_second, limit).await
    }

    async fn discard(&self, ids: &[Uuid], reason: &str) -> Result<u64, StoreError> {
        let failed = doing("discard records");
        let mut tx = self.begin().await?;
        let done = self
            .query(&self.shared.sql.discard)
            .bind(ids.to_vec())
            .bind(reason.replace('\0', "\u{fffd}"))
            .execute(&mut *tx)
            .await
            .map_err(failed)?;
        tx.commit().await.map_err(failed)?;
        self.wake();
        Ok(done.rows_affected())
    }

    async fn resend(
        &self,
        filter: &Filter,
        per_second: Option<NonZeroU32>,
        limit: usize,
    ) -> Result<u64, StoreError> {
        self.revive_filtered(filter, State::Sent, per_second, limit).await
    }

    async fn pause(&self, scope: &PauseScope, reason: &str) -> Result<(), StoreError> {
        let failed = doing("pause");
        let (what, name) = written(scope);
        let sql = "INSERT INTO {pause} (scope, name, reason) VALUES ($1, $2, $3) \
                   ON CONFLICT (scope, name) DO UPDATE SET reason = excluded.reason";
        let sql = fill(sql, &self.shared.config);
        let mut tx = self.begin().await?;
        let bound = self.query(&sql.into()).bind(what).bind(name).bind(reason.to_owned());
        bound.execute(&mut *tx).await.map_err(failed)?;
        tx.commit().await.map_err(failed)
    }

    async fn resume(&self, scope: &PauseScope) -> Result<bool, StoreError> {
        let failed = doing("resume");
        let (what, name) = written(scope);
        let sql = fill("DELETE FROM {pause} WHERE scope = $1 AND name = $2", &self.shared.config);
        let mut tx = self.begin().await?;
        let done = self.query(&sql.into()).bind(what).bind(name).execute(&mut *tx).await.map_err(failed)?;
        tx.commit().await.map_err(failed)?;
        self.wake();
        Ok(done.rows_affected() > 0)
    }

    async fn pauses(&self) -> Result<Vec<Pause>, StoreError> {
        let mut tx = self.begin().await?;
        self.read_pauses(&mut tx).await
    }
}

fn written(scope: &PauseScope) -> (&'static str, String) {
    match scope {
        PauseScope::Kind(pattern) => ("kind", pattern.to_string()),
        PauseScope::Destination(name) => ("destination", name.clone()),
        _ => ("all", String::new()),
    }
}

impl PostgresStore {
    pub(crate) async fn read_pauses(&self, connection: &mut PgConnection) -> Result<Vec<Pause>, StoreError> {
        let failed = doing("read what is paused");
        let sql =
            fill("SELECT scope, name, reason, since FROM {pause} ORDER BY scope, name", &self.shared.config);
        let rows = self.query(&sql.into()).fetch_all(connection).await.map_err(failed)?;
        let mut pauses = Vec::with_capacity(rows.len());
        for row in rows {
            let name: String = row.try_get("name").map_err(failed)?;
            let scope = match row.try_get::<&str, _>("scope").map_err(failed)? {
                "all" => Some(PauseScope::All),
                "kind" => name.parse::<Pattern>().ok().map(PauseScope::Kind),
                _ => Some(PauseScope::Destination(name)),
            };
            let since = row.try_get::<Timestamp, _>("since").map_err(failed)?.to_time();
            let reason: String = row.try_get("reason").map_err(failed)?;
            pauses.extend(scope.map(|scope| Pause::new(scope, reason, since)));
        }
        Ok(pauses)
    }

    async fn find(
        &self,
        connection: &mut PgConnection,
        filter: &Filter,
        state: Option<State>,
        after_seq: i64,
        limit: usize,
    ) -> Result<Vec<PgRow>, StoreError> {
        let (exact, prefix) = match &filter.kind {
            Some(Pattern::Exact(kind)) => (Some(kind.clone()), None),
            Some(Pattern::Prefix(prefix)) => (None, Some(prefix.clone())),
            Some(Pattern::Default) | None => (None, None),
        };
        self.query(&self.shared.sql.list)
            .bind(after_seq)
            .bind(state.map(|state| state.to_string()))
            .bind(exact)
            .bind(prefix)
            .bind(filter.destination.clone())
            .bind(filter.key.clone())
            .bind(filter.since.map(Timestamp::from_time))
            .bind(filter.until.map(Timestamp::from_time))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(connection)
            .await
            .map_err(doing("find records"))
    }

    async fn revive_filtered(
        &self,
        filter: &Filter,
        from: State,
        per_second: Option<NonZeroU32>,
        limit: usize,
    ) -> Result<u64, StoreError> {
        if filter.state.is_some_and(|state| state != from) {
            return Ok(0);
        }
        let mut tx = self.begin().await?;
        let rows = self.find(&mut tx, filter, Some(from), i64::MIN, limit).await?;
        let revived = self.revive(&mut tx, &rows, from, per_second).await?;
        tx.commit().await.map_err(doing("redrive records"))?;
        self.wake();
        Ok(revived)
    }

    /// Makes those of the rows that are in this state pending, due one after the other.
    async fn revive(
        &self,
        connection: &mut PgConnection,
        rows: &[PgRow],
        from: State,
        per_second: Option<NonZeroU32>,
    ) -> Result<u64, StoreError> {
        let failed = doing("redrive records");
        let seqs: Vec<i64> =
            rows.iter().map(|row| row.try_get("seq")).collect::<Result<_, _>>().map_err(failed)?;
        let apart = per_second.map_or(Duration::ZERO, |rate| Duration::from_secs(1) / rate.get());
        let bound =
            self.query(&self.shared.sql.revive).bind(seqs).bind(from == State::Dead).bind(micros(apart));
        bound.execute(connection).await.map(|done| done.rows_affected()).map_err(failed)
    }

    /// Runs a statement that is written where it is used.
    pub(crate) async fn fetch(
        &self,
        connection: &mut PgConnection,
        sql: &str,
    ) -> Result<Vec<PgRow>, StoreError> {
        let sql = fill(sql, &self.shared.config);
        let query = sqlx::query(AssertSqlSafe(sql)).persistent(self.shared.config.named_statements);
        query.fetch_all(connection).await.map_err(doing("count records"))
    }
}
