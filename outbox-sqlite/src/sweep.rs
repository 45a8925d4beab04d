//! Retention, a bounded batch at a time, and mending what hand-written SQL left behind.

use outbox_core::{Retention, StoreError, Swept};
use serde_json::Value;
use sqlx::Row;

use crate::{
    link::{query, retrying, scalar},
    row::millis,
    schema::Statement,
    store::Shared,
};

/// How many keys with held rows, and how many held rows, one sweep looks at.
const LOOKED_AT_MAX: i64 = 10_000;

impl Shared {
    pub(crate) async fn sweep(&self, retention: &Retention) -> Result<Swept, StoreError> {
        let mut swept = retrying("sweep", self.config.busy_for, || self.try_sweep(retention)).await?;
        swept.mended = retrying("mend", self.config.busy_for, || self.mend()).await?;
        Ok(swept)
    }

    async fn try_sweep(&self, retention: &Retention) -> Result<Swept, sqlx::Error> {
        let mut transaction = self.relay.begin().await?;
        let now: i64 = scalar(&self.statements.now).fetch_one(&mut *transaction).await?;
        let mut left = u64::try_from(retention.batch.get()).unwrap_or(u64::MAX);
        let mut swept = Swept::default();
        let age = |kept_for: Option<std::time::Duration>| {
            kept_for.map(|kept_for| now.saturating_sub(millis(kept_for)))
        };
        let parts: [(&Statement, Option<i64>, &mut u64); 4] = [
            (&self.statements.sweep_sent, age(retention.sent_for), &mut swept.sent),
            (&self.statements.sweep_dead, age(retention.dead_for), &mut swept.dead),
            (&self.statements.sweep_inbox, age(retention.inbox_for), &mut swept.inbox),
            (&self.statements.sweep_dedup, Some(now), &mut swept.dedup),
        ];
        for (statement, until, count) in parts {
            let Some(until) = until.filter(|_| left > 0) else { continue };
            let deleted = query(statement)
                .bind(until)
                .bind(i64::try_from(left).unwrap_or(i64::MAX))
                .execute(&mut *transaction)
                .await?
                .rows_affected();
            *count = deleted;
            left -= deleted.min(left);
        }
        if swept != Swept::default() {
            transaction.commit().await?;
        }
        swept.more = left == 0;
        Ok(swept)
    }

    /// Sets free what is held without ground. It looks without the lock, a part of the keys at a time.
    async fn mend(&self) -> Result<u64, sqlx::Error> {
        let mut side = self.side.acquire().await?;
        let from = self.rotation.mended();
        let rows =
            query(&self.statements.waiting_keys).bind(from).bind(LOOKED_AT_MAX).fetch_all(&mut *side).await?;
        let mut keys = Vec::with_capacity(rows.len());
        for row in &rows {
            keys.push(String::from_utf8_lossy(row.try_get_unchecked(0)?).into_owned());
        }
        let came_round = (rows.len() as i64) < LOOKED_AT_MAX;
        let next = keys.last().filter(|_| !came_round).map(|key| format!("{key}\0")).unwrap_or_default();
        let wrong: Vec<Vec<u8>> = query(&self.statements.wrongly_held)
            .bind(Value::from(keys).to_string())
            .fetch_all(&mut *side)
            .await?
            .iter()
            .map(|row| row.try_get_unchecked::<Vec<u8>, _>(0))
            .collect::<Result<_, _>>()?;
        drop(side);
        self.rotation.set_mended(next);

        let mut transaction = self.relay.begin().await?;
        let mut mended = self.free_heads(&mut transaction, wrong).await?;
        mended += query(&self.statements.mend)
            .bind(LOOKED_AT_MAX)
            .execute(&mut *transaction)
            .await?
            .rows_affected();
        if mended > 0 {
            transaction.commit().await?;
        }
        Ok(mended)
    }
}
