//! Retention: what is kept no longer goes, a bounded batch at a time.

use std::time::Duration;

use outbox_core::{Retention, StoreError, Swept};

use crate::{PostgresStore, error::doing, row::micros};

impl PostgresStore {
    pub(crate) async fn sweep_once(&self, retention: &Retention) -> Result<Swept, StoreError> {
        let failed = doing("sweep the outbox");
        let batch = u64::try_from(retention.batch.get()).unwrap_or(u64::MAX).min(1_000_000);
        let mut left = batch;
        let mut swept = Swept::default();
        let sql = &self.shared.sql;
        let mut tx = self.begin().await?;
        for (statement, kept_for, count) in [
            (&sql.sweep_sent, retention.sent_for, &mut swept.sent),
            (&sql.sweep_dead, retention.dead_for, &mut swept.dead),
            (&sql.sweep_inbox, retention.inbox_for, &mut swept.inbox),
            (&sql.sweep_dedup, Some(Duration::ZERO), &mut swept.dedup),
        ] {
            let Some(kept_for) = kept_for else { continue };
            if left == 0 {
                break;
            }
            let limit = i64::try_from(left).unwrap_or(i64::MAX);
            let done = self.query(statement).bind(micros(kept_for)).bind(limit).execute(&mut *tx).await;
            *count = done.map_err(failed)?.rows_affected();
            left = left.saturating_sub(*count);
        }
        tx.commit().await.map_err(failed)?;
        swept.more = left == 0;
        Ok(swept)
    }
}
