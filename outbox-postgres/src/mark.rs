//! The end of claims: fenced marks and renewals.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use outbox_core::{Lease, Mark, MarkReport, Marked, Settlement, StoreError};
use sqlx::Row;
use uuid::Uuid;

use crate::{PostgresStore, error::doing, row::micros};

/// How a row stands that a mark did not change.
struct Settled {
    id: Uuid,
    fence: i64,
    state: String,
    last_error: Option<String>,
}

/// One mark in the terms of the statement.
struct Written<'m> {
    what: &'static str,
    after: Duration,
    text: Option<&'m str>,
    age: Duration,
    blocks_key: bool,
}

fn written(settlement: &Settlement) -> Written<'_> {
    let plain = Written {
        what: "released",
        after: Duration::ZERO,
        text: None,
        age: Duration::ZERO,
        blocks_key: false,
    };
    match settlement {
        Settlement::Sent { receipt } => Written { what: "sent", text: receipt.as_deref(), ..plain },
        Settlement::Retry { after, error, age } => {
            Written { what: "retry", after: *after, text: Some(error), age: *age, ..plain }
        }
        Settlement::Dead { error, blocks_key } => {
            Written { what: "dead", text: Some(error), blocks_key: *blocks_key, ..plain }
        }
        Settlement::Deferred { after, error } => {
            Written { what: "deferred", after: *after, text: error.as_deref(), ..plain }
        }
        _ => plain,
    }
}

/// Text columns hold no NUL, and what a destination answers may.
fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

impl PostgresStore {
    pub(crate) async fn mark_once(&self, marks: &[Mark]) -> Result<MarkReport, StoreError> {
        let failed = doing("mark records");
        let mut seen = HashSet::with_capacity(marks.len());
        let mut firsts: Vec<&Mark> = marks.iter().filter(|mark| seen.insert(mark.lease.seq)).collect();
        if firsts.is_empty() {
            return Ok(MarkReport::default());
        }
        firsts.sort_unstable_by_key(|mark| mark.lease.seq);
        let rows: Vec<Written<'_>> = firsts.iter().map(|mark| written(&mark.settlement)).collect();
        let mut tx = self.begin().await?;
        let applied = self
            .query(&self.shared.sql.mark)
            .bind(firsts.iter().map(|mark| mark.lease.seq).collect::<Vec<_>>())
            .bind(firsts.iter().map(|mark| mark.lease.id).collect::<Vec<_>>())
            .bind(firsts.iter().map(|mark| mark.lease.fence).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.what).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| micros(row.after)).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.text.map(storable)).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| micros(row.age)).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.blocks_key).collect::<Vec<_>>())
            .bind(
                firsts.iter().map(|mark| mark.progress.as_ref().map(ToString::to_string)).collect::<Vec<_>>(),
            )
            .fetch_all(&mut *tx)
            .await
            .map_err(failed)?;
        let applied: HashSet<i64> =
            applied.iter().map(|row| row.try_get("seq")).collect::<Result<_, _>>().map_err(failed)?;
        let mut settled = HashMap::new();
        if applied.len() < marks.len() {
            let rows = self
                .query(&self.shared.sql.settled)
                .bind(firsts.iter().map(|mark| mark.lease.seq).collect::<Vec<_>>())
                .fetch_all(&mut *tx)
                .await
                .map_err(failed)?;
            for row in rows {
                let read = || -> Result<(i64, Settled), sqlx::Error> {
                    let (id, fence) = (row.try_get("id")?, row.try_get("fence")?);
                    let (state, last_error) = (row.try_get("state")?, row.try_get("last_error")?);
                    Ok((row.try_get("seq")?, Settled { id, fence, state, last_error }))
                };
                let (seq, found) = read().map_err(failed)?;
                settled.insert(seq, found);
            }
        }
        tx.commit().await.map_err(failed)?;

        let mut unused = applied;
        let report = marks.iter().map(|mark| {
            let lease = mark.lease;
            let first = firsts.binary_search_by_key(&lease.seq, |mark| mark.lease.seq).map(|at| firsts[at]);
            if first.is_ok_and(|first| std::ptr::eq(first, mark)) && unused.remove(&lease.seq) {
                return Marked::Applied;
            }
            let Some(Settled { id, fence, state, last_error }) = settled.get(&lease.seq) else {
                return Marked::Lost;
            };
            let same = match &mark.settlement {
                Settlement::Sent { .. } => state == "sent",
                Settlement::Dead { error, .. } => {
                    state == "dead" && last_error.as_deref() == Some(storable(error).as_str())
                }
                _ => state == "pending",
            };
            if same && *id == lease.id && *fence == lease.fence + 1 {
                Marked::AlreadyApplied
            } else {
                Marked::Lost
            }
        });
        Ok(MarkReport::new(report.collect()))
    }

    pub(crate) async fn renew_once(
        &self,
        leases: &[Lease],
        lease_for: Duration,
    ) -> Result<Vec<Lease>, StoreError> {
        let failed = doing("renew leases");
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let seqs: Vec<i64> = leases.iter().map(|lease| lease.seq).collect();
        let mut tx = self.begin().await?;
        // A lease that has run out may meet a claim of its key: one of the two goes first.
        self.query(&self.shared.sql.lock_lapsed)
            .bind(seqs.clone())
            .bind(self.shared.lock_base)
            .fetch_all(&mut *tx)
            .await
            .map_err(failed)?;
        let rows = self
            .query(&self.shared.sql.renew)
            .bind(seqs)
            .bind(leases.iter().map(|lease| lease.id).collect::<Vec<_>>())
            .bind(leases.iter().map(|lease| lease.fence).collect::<Vec<_>>())
            .bind(micros(lease_for))
            .fetch_all(&mut *tx)
            .await
            .map_err(failed)?;
        tx.commit().await.map_err(failed)?;
        let held: HashSet<i64> =
            rows.iter().map(|row| row.try_get("seq")).collect::<Result<_, _>>().map_err(failed)?;
        Ok(leases.iter().filter(|lease| !held.contains(&lease.seq)).copied().collect())
    }
}
