//! Claims: a look without a lock, and if anything is due, a choice and one write under it.

mod choice;
mod cursor;
mod plan;
mod search;
mod survey;

use std::time::Duration;

use outbox_core::{ClaimBatch, ClaimRequest, PauseScope, StoreError};
use serde_json::Value;
use sqlx::SqliteConnection;

pub(crate) use self::survey::Rotation;
use self::{choice::Choice, plan::Plan, search::Search, survey::Lanes};
use crate::{
    link::{query, retrying, scalar},
    row::{claimed, millis, until},
    store::Shared,
};

/// When to come back after a claim that took nothing because what is in the way has to be put aside first.
const SOON: Duration = Duration::from_millis(1);

impl Shared {
    /// Takes what the request asks for and what is free.
    pub(crate) async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch, StoreError> {
        if request.limit == 0 {
            return Ok(ClaimBatch::default());
        }
        retrying("claim records", self.config.busy_for, || self.try_claim(request)).await
    }

    async fn try_claim(&self, request: &ClaimRequest) -> Result<ClaimBatch, sqlx::Error> {
        let mut look = self.look.acquire().await?;
        let pauses = self.paused(&mut look).await?.into_iter().map(|pause| pause.scope).collect();
        let plan = Plan::new(request, pauses);
        if plan.is_empty() {
            return Ok(ClaimBatch::default());
        }
        let now = self.now(&mut look).await?;
        let mut ready = Search::new(self, &plan, false);
        let mut suspects = Search::new(self, &plan, true);
        let mut due = ready.start(&mut look, now).await?;
        due.append(&mut Lanes::find(self, &mut look, &plan, false).await?.take());
        let mut due_suspects = Vec::new();
        if request.suspect {
            due_suspects = suspects.start(&mut look, now).await?;
            due_suspects.append(&mut Lanes::find(self, &mut look, &plan, true).await?.take());
        }
        if due.is_empty() && due_suspects.is_empty() {
            let mut later = ready.later(&mut look, now).await?;
            if request.suspect {
                later = later.into_iter().chain(suspects.later(&mut look, now).await?).min();
            }
            return Ok(ClaimBatch::new(Vec::new(), later.map(|at| until(at, now).max(SOON))));
        }
        drop(look);

        let mut transaction = self.relay.begin().await?;
        let now = self.now(&mut transaction).await?;
        let mut choice = Choice::new(self, &plan, now);
        while !due_suspects.is_empty() && choice.taken().is_empty() {
            choice.take_suspect(&mut transaction, due_suspects).await?;
            due_suspects = suspects.go_on(&mut transaction, now, choice.was_obstructed()).await?;
        }
        while !due.is_empty() {
            choice.take_ready(&mut transaction, due).await?;
            if choice.is_over() {
                break;
            }
            due = ready.go_on(&mut transaction, now, choice.was_obstructed()).await?;
        }
        ready.rest();
        choice.put_aside(&mut transaction).await?;

        // Before the write: what this claim takes falls due at the end of its own lease.
        let mut later = ready.later(&mut transaction, now).await?;
        if request.suspect {
            later = later.into_iter().chain(suspects.later(&mut transaction, now).await?).min();
        }
        let mut batch = ClaimBatch::default();
        let lease_for = millis(request.lease_for);
        if !choice.taken().is_empty() {
            let seqs = Value::from_iter(choice.taken().iter().copied()).to_string();
            let rows = query(&self.statements.claim)
                .bind(seqs)
                .bind(request.owner.value())
                .bind(now.saturating_add(lease_for))
                .fetch_all(&mut *transaction)
                .await?;
            for row in &rows {
                match claimed(row)? {
                    Ok(record) => batch.records.push(record),
                    Err(undecodable) => batch.undecodable.push(undecodable),
                }
            }
            // SQLite does not promise the order.
            batch.records.sort_unstable_by_key(|record| record.seq);
        }
        if choice.has_written() {
            transaction.commit().await?;
        }

        let took = !choice.taken().is_empty();
        let more = choice.leaves_more() || !ready.is_over();
        batch.next_due = if more && took {
            Some(Duration::ZERO)
        } else if choice.is_spent() {
            Some(SOON)
        } else {
            let own = (took && request.suspect).then_some(now.saturating_add(lease_for));
            later.into_iter().chain(own).min().map(|at| until(at, now).max(SOON))
        };
        Ok(batch)
    }

    async fn now(&self, connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
        scalar(&self.statements.now).fetch_one(connection).await
    }

    /// What operators have paused.
    pub(crate) async fn paused(
        &self,
        connection: &mut SqliteConnection,
    ) -> Result<Vec<outbox_core::Pause>, sqlx::Error> {
        let rows = query(&self.statements.pauses).fetch_all(connection).await?;
        rows.iter().filter_map(|row| crate::operate::pause_of(row).transpose()).collect()
    }
}

/// Whether any of these pauses covers this destination.
fn covers_destination(pauses: &[PauseScope], destination: &str) -> bool {
    pauses.iter().any(|pause| matches!(pause, PauseScope::Destination(paused) if paused == destination))
}
