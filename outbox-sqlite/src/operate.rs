//! Operators' calls.

use std::{fmt::Write, num::NonZeroU32, time::Duration};

use outbox_core::{
    Filter, Operate, Pattern, Pause, PauseScope, Payload, RecordView, State, StoreError, Uuid, async_trait,
};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Row, SqliteConnection, sqlite::SqliteRow};

use crate::{
    link::{query, retrying, scalar},
    row::{date, id_text, millis_of, payload, view},
    store::{Shared, SqliteStore},
};

/// The most records that one call lists.
const LISTED_MAX: usize = 1_000;
/// How many records one transaction makes pending again.
const REVIVED_MAX: usize = 1_000;

const COLUMNS: &str = "seq, id, kind, destination, key, content_type, headers, send_after, attempts, lapses, owner, \
     blocks_key, created_at, sent_at, dead_at, last_error, receipt";

#[async_trait]
impl Operate for SqliteStore {
    async fn list(
        &self,
        filter: &Filter,
        after_seq: i64,
        limit: usize,
    ) -> Result<Vec<RecordView>, StoreError> {
        let shared = &self.shared;
        let list = || async {
            let mut side = shared.side.acquire().await?;
            let rows = shared.find(&mut side, COLUMNS, filter, after_seq, limit.min(LISTED_MAX)).await?;
            rows.iter().map(view).collect()
        };
        retrying("list records", shared.config.busy_for, list).await
    }

    async fn show(&self, id: Uuid) -> Result<Option<(RecordView, Payload)>, StoreError> {
        let shared = &self.shared;
        let show = || async {
            let mut side = shared.side.acquire().await?;
            let row = query(&shared.statements.show).bind(id_text(id)).fetch_optional(&mut *side).await?;
            row.map(|row| {
                let payload = payload(&row).map_err(|reason| sqlx::Error::Decode(reason.into()))?;
                Ok((view(&row)?, payload))
            })
            .transpose()
        };
        retrying("show a record", shared.config.busy_for, show).await
    }

    async fn redrive(&self, ids: &[Uuid]) -> Result<u64, StoreError> {
        let shared = &self.shared;
        let mut redriven = 0;
        for ids in ids.chunks(REVIVED_MAX) {
            let redrive = || async {
                let mut transaction = shared.side.begin().await?;
                let now: i64 = scalar(&shared.statements.now).fetch_one(&mut *transaction).await?;
                let mut chosen = Vec::with_capacity(ids.len());
                for id in ids {
                    if let Some(row) = query(&shared.statements.show)
                        .bind(id_text(*id))
                        .fetch_optional(&mut *transaction)
                        .await?
                    {
                        chosen.push(json!([row.try_get::<i64, _>("seq")?, now]));
                    }
                }
                let written = query(&shared.statements.redrive)
                    .bind(Value::Array(chosen).to_string())
                    .execute(&mut *transaction)
                    .await?;
                transaction.commit().await?;
                Ok(written.rows_affected())
            };
            redriven += retrying("redrive", shared.config.busy_for, redrive).await?;
        }
        self.wake();
        Ok(redriven)
    }

    async fn redrive_filtered(
        &self,
        filter: &Filter,
        per_second: Option<NonZeroU32>,
        limit: usize,
    ) -> Result<u64, StoreError> {
        self.revive("redrive", State::Dead, filter, per_second, limit).await
    }

    async fn discard(&self, ids: &[Uuid], reason: &str) -> Result<u64, StoreError> {
        let shared = &self.shared;
        let ids: Vec<String> = ids.iter().copied().map(id_text).collect();
        let mut discarded = 0;
        for ids in ids.chunks(REVIVED_MAX) {
            let discard = || async {
                let mut transaction = shared.side.begin().await?;
                let now: i64 = scalar(&shared.statements.now).fetch_one(&mut *transaction).await?;
                let rows = query(&shared.statements.discard)
                    .bind(Value::from(ids.to_vec()).to_string())
                    .bind(now)
                    .bind(reason.to_owned())
                    .fetch_all(&mut *transaction)
                    .await?;
                let mut keys = Vec::new();
                for row in &rows {
                    keys.extend(row.try_get_unchecked::<Option<Vec<u8>>, _>("key")?);
                }
                shared.free_heads(&mut transaction, keys).await?;
                transaction.commit().await?;
                Ok(rows.len() as u64)
            };
            discarded += retrying("discard", shared.config.busy_for, discard).await?;
        }
        self.wake();
        Ok(discarded)
    }

    async fn resend(
        &self,
        filter: &Filter,
        per_second: Option<NonZeroU32>,
        limit: usize,
    ) -> Result<u64, StoreError> {
        self.revive("resend", State::Sent, filter, per_second, limit).await
    }

    async fn pause(&self, scope: &PauseScope, reason: &str) -> Result<(), StoreError> {
        let shared = &self.shared;
        let (covers, name) = written(scope);
        let pause = || async {
            let mut side = shared.side.acquire().await?;
            let pause =
                query(&shared.statements.pause).bind(covers).bind(name.clone()).bind(reason.to_owned());
            pause.execute(&mut *side).await.map(|_| ())
        };
        retrying("pause", shared.config.busy_for, pause).await
    }

    async fn resume(&self, scope: &PauseScope) -> Result<bool, StoreError> {
        let shared = &self.shared;
        let (covers, name) = written(scope);
        let resume = || async {
            let mut side = shared.side.acquire().await?;
            let resume = query(&shared.statements.resume).bind(covers).bind(name.clone());
            Ok(resume.execute(&mut *side).await?.rows_affected() > 0)
        };
        let resumed = retrying("resume", shared.config.busy_for, resume).await?;
        self.wake();
        Ok(resumed)
    }

    async fn pauses(&self) -> Result<Vec<Pause>, StoreError> {
        let shared = &self.shared;
        let pauses = || async {
            let mut side = shared.side.acquire().await?;
            shared.paused(&mut side).await
        };
        retrying("list pauses", shared.config.busy_for, pauses).await
    }
}

impl SqliteStore {
    /// Makes records of this state pending again, due one after the other, a bounded part a transaction.
    async fn revive(
        &self,
        doing: &'static str,
        from: State,
        filter: &Filter,
        per_second: Option<NonZeroU32>,
        limit: usize,
    ) -> Result<u64, StoreError> {
        if filter.state.is_some_and(|state| state != from) {
            return Ok(0);
        }
        let shared = &self.shared;
        let mut filter = filter.clone();
        filter.state = Some(from);
        let statement =
            if from == State::Dead { &shared.statements.redrive } else { &shared.statements.resend };
        let apart = per_second.map_or(Duration::ZERO, |rate| Duration::from_secs(1) / rate.get());
        let mut revived = 0_u32;
        let mut after_seq = i64::MIN;
        let mut start: Option<i64> = None;
        loop {
            let left = limit.saturating_sub(revived as usize).min(REVIVED_MAX);
            if left == 0 {
                break;
            }
            let part = || async {
                let mut transaction = shared.side.begin().await?;
                let now: i64 = match start {
                    Some(start) => start,
                    None => scalar(&shared.statements.now).fetch_one(&mut *transaction).await?,
                };
                let found = shared.find(&mut transaction, "seq", &filter, after_seq, left).await?;
                let mut last = after_seq;
                let mut chosen = Vec::with_capacity(found.len());
                for (place, row) in (revived..).zip(&found) {
                    last = row.try_get("seq")?;
                    let wait = i64::try_from(apart.saturating_mul(place).as_millis()).unwrap_or(i64::MAX);
                    chosen.push(json!([last, now.saturating_add(wait)]));
                }
                query(statement).bind(Value::Array(chosen).to_string()).execute(&mut *transaction).await?;
                transaction.commit().await?;
                Ok((found.len(), last, now))
            };
            let (found, last, now) = retrying(doing, shared.config.busy_for, part).await?;
            revived = revived.saturating_add(u32::try_from(found).unwrap_or(u32::MAX));
            (after_seq, start) = (last, Some(now));
            if found < left {
                break;
            }
        }
        self.wake();
        Ok(revived.into())
    }
}

impl Shared {
    /// Rows that pass the filter, in the order of `seq`.
    async fn find(
        &self,
        connection: &mut SqliteConnection,
        columns: &str,
        filter: &Filter,
        after_seq: i64,
        limit: usize,
    ) -> Result<Vec<SqliteRow>, sqlx::Error> {
        let sql = self.statements.assemble(&select(columns, filter));
        let (kind, kind_end) = match &filter.kind {
            Some(Pattern::Exact(kind)) => (Some(kind.clone()), None),
            // The prefix ends in a dot, and a slash comes after it.
            Some(Pattern::Prefix(prefix)) => {
                (Some(prefix.clone()), prefix.strip_suffix('.').map(|stem| format!("{stem}/")))
            }
            Some(Pattern::Default) | None => (None, None),
        };
        sqlx::query(AssertSqlSafe(sql))
            .bind(after_seq)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(kind)
            .bind(kind_end)
            .bind(filter.destination.clone())
            .bind(filter.key.clone())
            .bind(filter.since.map(millis_of))
            .bind(filter.until.map(millis_of))
            .fetch_all(connection)
            .await
    }
}

/// The rows of a state, by the index that has the fewest others. Sent rows are most rows, and need none.
fn rows_of(state: Option<State>) -> &'static str {
    match state {
        None | Some(State::Sent) => "{outbox} AS record",
        Some(State::Dead) => "{outbox} AS record INDEXED BY {outbox}_dead",
        Some(_) => {
            "(
        SELECT seq AS at FROM {outbox} INDEXED BY {outbox}_due_of_all
        WHERE suspect IN (0, 1) AND held IS NULL AND sent_at IS NULL AND dead_at IS NULL
        UNION ALL
        SELECT seq FROM {outbox} INDEXED BY {outbox}_lanes
        WHERE held = 'destination' AND sent_at IS NULL AND dead_at IS NULL
        UNION ALL
        SELECT seq FROM {outbox} INDEXED BY {outbox}_behind WHERE held = 'key'
    ) AS unfinished CROSS JOIN {outbox} AS record ON record.seq = unfinished.at"
        }
    }
}

/// A statement of only those tests that are set, so that an index can serve them.
fn select(columns: &str, filter: &Filter) -> String {
    let mut sql = format!("SELECT {columns} FROM {} WHERE seq > ?1", rows_of(filter.state));
    let mut test = |test: &str| {
        // Writing to a string cannot fail.
        let _ = write!(sql, "\n    AND {test}");
    };
    match filter.state {
        Some(State::Sent) => test("sent_at IS NOT NULL"),
        Some(State::Dead) => test("dead_at IS NOT NULL AND sent_at IS NULL"),
        Some(State::Claimed) => test("owner IS NOT NULL AND sent_at IS NULL AND dead_at IS NULL"),
        Some(_) => test("owner IS NULL AND sent_at IS NULL AND dead_at IS NULL"),
        None => {}
    }
    match filter.kind {
        Some(Pattern::Exact(_)) => test("kind = ?3"),
        Some(Pattern::Prefix(_)) => test("kind >= ?3 AND kind < ?4"),
        Some(Pattern::Default) | None => {}
    }
    if filter.destination.is_some() {
        test("destination = ?5");
    }
    if filter.key.is_some() {
        test("key = ?6");
    }
    if filter.since.is_some() {
        test("coalesce(sent_at, dead_at, created_at) >= ?7");
    }
    if filter.until.is_some() {
        test("coalesce(sent_at, dead_at, created_at) < ?8");
    }
    sql.push_str("\nORDER BY seq LIMIT ?2");
    sql
}

/// A scope as the table holds it.
fn written(scope: &PauseScope) -> (&'static str, String) {
    match scope {
        PauseScope::Kind(pattern) => ("kind", pattern.to_string()),
        PauseScope::Destination(destination) => ("destination", destination.clone()),
        _ => ("all", String::new()),
    }
}

/// A row of the pauses. A pattern that is none pauses nothing.
pub(crate) fn pause_of(row: &SqliteRow) -> Result<Option<Pause>, sqlx::Error> {
    let name: String = row.try_get("name")?;
    let scope = match row.try_get::<&str, _>("covers")? {
        "all" => PauseScope::All,
        "destination" => PauseScope::Destination(name),
        _ => match name.parse() {
            Ok(pattern) => PauseScope::Kind(pattern),
            Err(_) => return Ok(None),
        },
    };
    Ok(Some(Pause::new(scope, row.try_get::<String, _>("reason")?, date(row.try_get("since")?))))
}
