//! What the outbox holds, in numbers, at a cost that does not grow with it.

use std::collections::{BTreeMap, BTreeSet};

use outbox_core::{Count, HeldBecause, HeldKey, Pattern, Stats, StoreError};
use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};

use crate::{
    link::{query, retrying, scalar},
    row::{date, id_of, until},
    schema::Statement,
    store::Shared,
};

/// The most kinds and keys that are listed.
const LISTED_MAX: usize = 100;
/// How many kinds, and how many keys of each sort, are looked at.
const LOOKED_AT_MAX: i64 = 2_000;
/// One more than the bound tells that there are more.
const COUNTED_MAX: i64 = Count::BOUND as i64 + 1;

impl Shared {
    pub(crate) async fn stats(&self, routed: &[Pattern]) -> Result<Stats, StoreError> {
        retrying("count", self.config.busy_for, || self.try_stats(routed)).await
    }

    async fn try_stats(&self, routed: &[Pattern]) -> Result<Stats, sqlx::Error> {
        let is_routed = |kind: &str| routed.iter().any(|pattern| pattern.matches(kind));
        let mut side = self.side.acquire().await?;
        let now: i64 = scalar(&self.statements.now).fetch_one(&mut *side).await?;
        let mut stats = self.counts(&mut side).await?;

        let mut oldest = None::<i64>;
        let mut unrouted = BTreeMap::<String, i64>::new();
        let mut note = |kind: &str, due: Option<i64>| {
            if is_routed(kind) {
                oldest = oldest.into_iter().chain(due.filter(|due| *due <= now)).min();
            } else if unrouted.len() < LISTED_MAX || unrouted.contains_key(kind) {
                unrouted.entry(kind.to_owned()).or_default();
            }
        };
        for suspect in [false, true] {
            for (kind, first) in self.kinds(&mut side, suspect, now).await? {
                note(&kind, first.filter(|_| !suspect));
            }
            for (kind, first) in self.lane_kinds(&mut side, suspect).await? {
                note(&kind, first);
            }
        }
        let behind = query(&self.statements.oldest_behind).bind(COUNTED_MAX).fetch_all(&mut *side).await?;
        for row in &behind {
            note(&text(row, 0)?, row.try_get(2)?);
        }
        stats.oldest_due = oldest.map(|due| until(now, due));
        for (kind, held) in &mut unrouted {
            for row in &behind {
                if text(row, 0)? == *kind {
                    *held = row.try_get(1)?;
                }
            }
            *held += self.count_of(&mut side, kind).await?;
        }
        stats.unrouted = unrouted
            .into_iter()
            .map(|(kind, count)| (kind, Count::bounded(u64::try_from(count).unwrap_or(0))))
            .collect();
        stats.held_keys = self.held_keys(&mut side, now, &is_routed).await?;
        stats.paused = self.paused(&mut side).await?;
        Ok(stats)
    }

    async fn counts(&self, side: &mut SqliteConnection) -> Result<Stats, sqlx::Error> {
        let statements = &self.statements;
        let (mut pending, mut claimed) = (0_i64, 0_i64);
        let parts = [
            query(&statements.count_due).bind(false),
            query(&statements.count_due).bind(true),
            query(&statements.count_lanes),
            query(&statements.count_behind),
        ];
        for part in parts {
            let row = part.bind(COUNTED_MAX).fetch_one(&mut *side).await?;
            pending += row.try_get::<i64, _>(0)?;
            claimed += row.try_get::<i64, _>(1)?;
        }
        let count = |counted: i64| Count::bounded(u64::try_from(counted).unwrap_or(0));
        let mut stats = Stats::default();
        stats.pending = count(pending);
        stats.claimed = count(claimed);
        stats.sent = count(self.counted(side, &statements.count_sent).await?);
        stats.dead = count(self.counted(side, &statements.count_dead).await?);
        Ok(stats)
    }

    async fn counted(&self, side: &mut SqliteConnection, statement: &Statement) -> Result<i64, sqlx::Error> {
        scalar(statement).bind(COUNTED_MAX).fetch_one(side).await
    }

    async fn count_of(&self, side: &mut SqliteConnection, kind: &str) -> Result<i64, sqlx::Error> {
        scalar(&self.statements.count_kind).bind(kind.to_owned()).bind(COUNTED_MAX).fetch_one(side).await
    }

    /// The first kinds that have rows which nothing holds, each with its oldest.
    async fn kinds(
        &self,
        side: &mut SqliteConnection,
        suspect: bool,
        now: i64,
    ) -> Result<Vec<(String, Option<i64>)>, sqlx::Error> {
        let rows = query(&self.statements.kinds)
            .bind(suspect)
            .bind("")
            // Every blob sorts behind every text.
            .bind(Vec::new())
            .bind(now)
            .bind(LOOKED_AT_MAX)
            .fetch_all(side)
            .await?;
        rows.iter().map(|row| Ok((text(row, 0)?, row.try_get(1)?))).collect()
    }

    /// The first kinds that have lanes, each with the oldest row of them.
    async fn lane_kinds(
        &self,
        side: &mut SqliteConnection,
        suspect: bool,
    ) -> Result<Vec<(String, Option<i64>)>, sqlx::Error> {
        let kinds = query(&self.statements.lane_kinds)
            .bind(suspect)
            .bind("")
            .bind(LISTED_MAX as i64)
            .fetch_all(&mut *side)
            .await?;
        let mut found = Vec::with_capacity(kinds.len());
        for row in &kinds {
            let kind = text(row, 0)?;
            let lanes = query(&self.statements.lanes)
                .bind(suspect)
                .bind(kind.clone())
                .bind("")
                .bind(LOOKED_AT_MAX)
                .fetch_all(&mut *side)
                .await?;
            let mut first = None::<i64>;
            for lane in &lanes {
                first = first.into_iter().chain(lane.try_get::<Option<i64>, _>("first")?).min();
            }
            found.push((kind, first));
        }
        Ok(found)
    }

    /// Keys whose head does not go: those of dead heads, those with held rows, and the first of all others.
    async fn held_keys(
        &self,
        side: &mut SqliteConnection,
        now: i64,
        is_routed: &(impl Fn(&str) -> bool + Sync),
    ) -> Result<Vec<HeldKey>, sqlx::Error> {
        let mut held = Vec::new();
        let mut seen = BTreeSet::new();
        let sources = [
            query(&self.statements.dead_heads),
            query(&self.statements.waiting_keys).bind(""),
            query(&self.statements.line_keys).bind(""),
        ];
        for source in sources {
            for row in &source.bind(LOOKED_AT_MAX).fetch_all(&mut *side).await? {
                let key = text(row, 0)?;
                if held.len() >= LISTED_MAX || !seen.insert(key.clone()) {
                    continue;
                }
                let line = query(&self.statements.head).bind(key.clone()).fetch_all(&mut *side).await?;
                if let [head, _] = line.as_slice() {
                    held.extend(held_key(key, head, now, is_routed)?);
                }
            }
        }
        Ok(held)
    }
}

fn held_key(
    key: String,
    head: &SqliteRow,
    now: i64,
    is_routed: &impl Fn(&str) -> bool,
) -> Result<Option<HeldKey>, sqlx::Error> {
    let kind = text(head, 2)?;
    let is_claimed = head.try_get::<Option<i64>, _>("owner")?.is_some();
    let because = if head.try_get::<Option<i64>, _>("dead_at")?.is_some() {
        HeldBecause::Dead
    } else if !is_routed(&kind) {
        HeldBecause::Unrouted
    } else if !is_claimed && head.try_get::<i64, _>("send_after")? > now {
        HeldBecause::Retrying
    } else {
        return Ok(None);
    };
    let named = (head.try_get("seq")?, id_of(head)?, kind);
    Ok(Some(HeldKey::new(key, named, because, date(head.try_get("created_at")?))))
}

fn text(row: &SqliteRow, at: usize) -> Result<String, sqlx::Error> {
    Ok(String::from_utf8_lossy(row.try_get_unchecked(at)?).into_owned())
}
