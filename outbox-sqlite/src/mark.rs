//! The end of claims: marks and renewals, each of which must name the newest fence.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use outbox_core::{Lease, Mark, MarkReport, Marked, Settlement, State, StoreError};
use serde_json::{Value, json};
use sqlx::{Row, SqliteConnection};

use crate::{
    link::{query, retrying, scalar},
    row::{id_of, id_text, millis, state},
    store::Shared,
};

impl Shared {
    /// Writes outcomes in one transaction, and sets free the keys that they end.
    pub(crate) async fn mark(&self, marks: &[Mark]) -> Result<MarkReport, StoreError> {
        if marks.is_empty() {
            return Ok(MarkReport::default());
        }
        let marked = retrying("mark", self.config.busy_for, || self.try_mark(marks)).await?;
        Ok(MarkReport::new(marked))
    }

    async fn try_mark(&self, marks: &[Mark]) -> Result<Vec<Marked>, sqlx::Error> {
        // Of two marks for one lease the first counts.
        let mut firsts = HashMap::with_capacity(marks.len());
        for (at, mark) in marks.iter().enumerate() {
            firsts.entry(mark.lease).or_insert(at);
        }
        let is_first = |at: usize, mark: &Mark| firsts.get(&mark.lease) == Some(&at);
        let entries = marks
            .iter()
            .enumerate()
            .filter(|(at, mark)| is_first(*at, mark))
            .map(|(_, mark)| entry(mark))
            .collect::<Result<Vec<Value>, _>>()?;

        let mut transaction = self.relay.begin().await?;
        let now: i64 = scalar(&self.statements.now).fetch_one(&mut *transaction).await?;
        let written = query(&self.statements.mark)
            .bind(Value::Array(entries).to_string())
            .bind(now)
            .fetch_all(&mut *transaction)
            .await?;
        let mut applied = BTreeSet::new();
        let mut keys = BTreeSet::new();
        for row in &written {
            applied.insert(row.try_get::<i64, _>("seq")?);
            keys.extend(row.try_get_unchecked::<Option<Vec<u8>>, _>("key")?);
        }
        let mut marked = Vec::with_capacity(marks.len());
        for (at, mark) in marks.iter().enumerate() {
            // One seq has one newest fence, so what was applied to it is the first mark of the newest lease.
            marked.push(if applied.contains(&mark.lease.seq) && is_first(at, mark) {
                Marked::Applied
            } else {
                self.why_not(&mut transaction, mark).await?
            });
        }
        self.free_heads(&mut transaction, keys).await?;
        transaction.commit().await?;
        Ok(marked)
    }

    /// Whether a mark that changed nothing had been written before.
    async fn why_not(&self, connection: &mut SqliteConnection, mark: &Mark) -> Result<Marked, sqlx::Error> {
        let lease = mark.lease;
        let found = query(&self.statements.check_lost).bind(lease.seq).fetch_optional(connection).await?;
        let Some(row) = found else { return Ok(Marked::Lost) };
        let set = |column| row.try_get::<Option<i64>, _>(column).map(|value| value.is_some());
        if id_of(&row)? != lease.id || row.try_get::<i64, _>("fence")? != lease.fence.saturating_add(1) {
            return Ok(Marked::Lost);
        }
        let again = match (&mark.settlement, state(set("owner")?, set("sent_at")?, set("dead_at")?)) {
            (Settlement::Sent { .. }, State::Sent) => true,
            (Settlement::Dead { error, .. }, State::Dead) => {
                row.try_get_unchecked::<Option<Vec<u8>>, _>("last_error")?.as_deref()
                    == Some(error.as_bytes())
            }
            (
                Settlement::Retry { .. } | Settlement::Deferred { .. } | Settlement::Released,
                State::Pending,
            ) => true,
            _ => false,
        };
        Ok(if again { Marked::AlreadyApplied } else { Marked::Lost })
    }

    /// Sets free the present heads of these keys. A key that is not UTF-8 is left to the sweep.
    pub(crate) async fn free_heads(
        &self,
        connection: &mut SqliteConnection,
        keys: impl IntoIterator<Item = Vec<u8>>,
    ) -> Result<u64, sqlx::Error> {
        let keys: Vec<String> = keys.into_iter().filter_map(|key| String::from_utf8(key).ok()).collect();
        if keys.is_empty() {
            return Ok(0);
        }
        let keys = Value::from(keys).to_string();
        Ok(query(&self.statements.free_heads).bind(keys).execute(connection).await?.rows_affected())
    }

    /// Extends leases, and returns those that are lost.
    pub(crate) async fn renew(
        &self,
        leases: &[Lease],
        lease_for: Duration,
    ) -> Result<Vec<Lease>, StoreError> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        retrying("renew leases", self.config.busy_for, || self.try_renew(leases, lease_for)).await
    }

    async fn try_renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, sqlx::Error> {
        let entries: Vec<Value> =
            leases.iter().map(|lease| json!([lease.seq, id_text(lease.id), lease.fence])).collect();
        let mut transaction = self.relay.begin().await?;
        let now: i64 = scalar(&self.statements.now).fetch_one(&mut *transaction).await?;
        let renewed = query(&self.statements.renew)
            .bind(Value::Array(entries).to_string())
            .bind(now)
            .bind(now.saturating_add(millis(lease_for)))
            .fetch_all(&mut *transaction)
            .await?;
        transaction.commit().await?;
        // By seq the newest fence: an older lease on the same row is lost all the same.
        let mut newest: BTreeMap<i64, i64> = BTreeMap::new();
        for row in &renewed {
            newest.insert(row.try_get("seq")?, row.try_get("fence")?);
        }
        let is_lost = |lease: &&Lease| newest.get(&lease.seq) != Some(&lease.fence);
        Ok(leases.iter().filter(is_lost).copied().collect())
    }
}

/// A mark as `mark.sql` reads it.
fn entry(mark: &Mark) -> Result<Value, sqlx::Error> {
    let Lease { seq, id, fence } = mark.lease;
    let (outcome, wait, text, age, blocks) = match &mark.settlement {
        Settlement::Sent { receipt } => ("sent", 0, receipt.as_deref(), 0, false),
        Settlement::Retry { after, error, age } => {
            ("retry", millis(*after), Some(error.as_str()), millis(*age), false)
        }
        Settlement::Dead { error, blocks_key } => ("dead", 0, Some(error.as_str()), 0, *blocks_key),
        Settlement::Deferred { after, error } => ("deferred", millis(*after), error.as_deref(), 0, false),
        Settlement::Released => ("released", 0, None, 0, false),
        _ => {
            return Err(sqlx::Error::InvalidArgument("the settlement is of a newer release".to_owned()));
        }
    };
    let progress = mark.progress.as_ref().map(Value::to_string);
    Ok(json!([seq, id_text(id), fence, outcome, wait, text, age, blocks, progress]))
}
