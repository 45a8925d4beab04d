//! What the outbox holds, in numbers that are counted up to a bound.

use std::time::Duration;

use outbox_core::{Count, HeldBecause, HeldKey, Pattern, Stats, StoreError};
use sqlx::{PgConnection, Row};

use crate::{PostgresStore, error::doing, row::Timestamp};

/// The most kinds and keys that are listed.
const LISTED_MAX: usize = 100;

impl PostgresStore {
    pub(crate) async fn stats_once(&self, routed: &[Pattern]) -> Result<Stats, StoreError> {
        let failed = doing("count records");
        let is_routed = |kind: &str| routed.iter().any(|pattern| pattern.matches(kind));
        let mut tx = self.begin().await?;
        let mut stats = Stats::default();
        let unfinished = "o.sent_at IS NULL AND o.dead_at IS NULL";
        stats.pending = {
            let fresh = format!("{unfinished} AND o.owner IS NULL AND o.lapses = 0");
            let unkeyed = self.count(&mut tx, &format!("{fresh} AND o.key IS NULL")).await?;
            let keyed = self.count(&mut tx, &format!("{fresh} AND o.key IS NOT NULL")).await?;
            let suspect =
                format!("{unfinished} AND (o.owner IS NOT NULL OR o.lapses > 0) AND o.owner IS NULL");
            Count::bounded(unkeyed + keyed + self.count(&mut tx, &suspect).await?)
        };
        let claimed =
            format!("{unfinished} AND (o.owner IS NOT NULL OR o.lapses > 0) AND o.owner IS NOT NULL");
        stats.claimed = Count::bounded(self.count(&mut tx, &claimed).await?);
        stats.sent = Count::bounded(self.count(&mut tx, "o.sent_at IS NOT NULL").await?);
        stats.dead = Count::bounded(self.count(&mut tx, "o.dead_at IS NOT NULL").await?);

        let kinds = "SELECT b.kind, count(*) AS value, \
                (extract(epoch FROM statement_timestamp() - min(b.due)) * 1000000)::bigint AS waited \
            FROM (SELECT o.kind, CASE WHEN o.owner IS NULL AND o.send_after <= statement_timestamp() \
                         AND o.send_after > '-infinity' THEN o.send_after END AS due \
                  FROM {outbox} o WHERE o.sent_at IS NULL AND o.dead_at IS NULL LIMIT 100000) b \
            GROUP BY b.kind ORDER BY b.kind";
        for row in self.fetch(&mut tx, kinds).await? {
            let kind: String = row.try_get("kind").map_err(failed)?;
            if is_routed(&kind) {
                let waited: Option<i64> = row.try_get("waited").map_err(failed)?;
                let waited = waited.and_then(|waited| u64::try_from(waited).ok()).map(Duration::from_micros);
                stats.oldest_due = stats.oldest_due.max(waited);
            } else if stats.unrouted.len() < LISTED_MAX {
                let value: i64 = row.try_get("value").map_err(failed)?;
                stats.unrouted.push((kind, Count::bounded(value.unsigned_abs())));
            }
        }
        let held = "SELECT DISTINCT ON (e.key) e.key, e.seq, e.id, e.kind, e.created_at, e.dead_at IS NOT NULL AS dead, \
                e.owner IS NULL AND e.send_after > statement_timestamp() AS waits \
            FROM (SELECT e.* FROM {outbox} e WHERE {line_of_e} ORDER BY e.key, e.seq LIMIT 100000) e \
            WHERE EXISTS (SELECT FROM {outbox} n WHERE n.key = e.key AND n.seq > e.seq AND n.key IS NOT NULL \
                          AND n.sent_at IS NULL AND (n.dead_at IS NULL OR n.blocks_key)) \
            ORDER BY e.key, e.seq";
        for row in self.fetch(&mut tx, held).await? {
            let kind: String = row.try_get("kind").map_err(failed)?;
            let because = if row.try_get("dead").map_err(failed)? {
                HeldBecause::Dead
            } else if !is_routed(&kind) {
                HeldBecause::Unrouted
            } else if row.try_get("waits").map_err(failed)? {
                HeldBecause::Retrying
            } else {
                continue;
            };
            let key: String = row.try_get("key").map_err(failed)?;
            let head = (row.try_get("seq").map_err(failed)?, row.try_get("id").map_err(failed)?, kind);
            let created_at = row.try_get::<Timestamp, _>("created_at").map_err(failed)?.to_time();
            stats.held_keys.push(HeldKey::new(key, head, because, created_at));
            if stats.held_keys.len() == LISTED_MAX {
                break;
            }
        }
        stats.paused = self.read_pauses(&mut tx).await?;
        Ok(stats)
    }

    async fn count(&self, connection: &mut PgConnection, such: &str) -> Result<u64, StoreError> {
        let bound = Count::BOUND + 1;
        let sql =
            format!("SELECT count(*) AS n FROM (SELECT FROM {{outbox}} o WHERE {such} LIMIT {bound}) b");
        let rows = self.fetch(connection, &sql).await?;
        let counted = rows.first().map(|row| row.try_get::<i64, _>("n")).transpose();
        Ok(counted.map_err(doing("count records"))?.unwrap_or_default().unsigned_abs())
    }
}
