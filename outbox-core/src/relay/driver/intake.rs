//! Claiming: when, how much, and what becomes of what comes back.

use std::{collections::VecDeque, sync::Arc};

use tokio::time::{Duration, Instant};

use super::Driver;
use crate::{
    ClaimBatch, ClaimRequest, Mark, OnDead, Settlement, Store, StoreError, before_send,
    relay::{
        RelayError,
        held::{Held, Phase, Slot},
        store_calls::Asked,
    },
};

impl<S: Store> Driver<S> {
    pub(super) fn start_claim(&mut self, now: Instant) {
        if self.presence.is_none() || !self.calls.claim.is_idle() {
            return;
        }
        if now >= self.next_claim_at {
            for lane in &mut self.lanes {
                lane.maybe_more = true;
                lane.forget_idle(now);
            }
        }
        if !self.lanes.iter().any(|lane| lane.maybe_more) {
            return;
        }
        // While the store is away, only the timer counts.
        if self.store_failures > 0 && now < self.next_claim_at {
            return;
        }
        let sinks = &self.sinks;
        let demands: Vec<_> = self
            .lanes
            .iter_mut()
            .map(|lane| {
                let state = &sinks[lane.sink];
                let allows = if state.seen_fit { state.breaker.allows(now) } else { 0 };
                lane.demand(allows, now)
            })
            .collect();
        let wanted =
            self.lanes.iter().zip(&demands).any(|(lane, demand)| lane.maybe_more && demand.limit > 0);
        if !wanted {
            // A full route asks again when something of it ends.
            if now >= self.next_claim_at {
                self.next_claim_at = now + self.config.poll_interval;
            }
            return;
        }
        let limits: Vec<usize> = demands.iter().map(|demand| demand.limit).collect();
        let room = limits.iter().fold(0_usize, |sum, limit| sum.saturating_add(*limit));
        let limit = room.min(self.config.claim_batch.get());
        let mut request = ClaimRequest::new(self.owner, self.config.lease_for, limit, demands);
        request.suspect = self.suspect.is_none();
        request.run_max = self.config.run_max;
        self.next_claim_at = now + self.config.poll_interval;
        self.calls.start_claim(Asked { at: now, limits, limit, request: Arc::new(request) });
    }

    pub(super) fn claimed(
        &mut self,
        asked: Asked,
        result: Result<ClaimBatch, StoreError>,
    ) -> Result<(), RelayError> {
        let now = Instant::now();
        let batch = match result {
            Ok(batch) => batch,
            Err(error) => {
                self.next_claim_at = now + self.store_failed("claim", &error);
                return self.hopeless(error);
            }
        };
        self.started = true;
        self.store_is_back();
        let full = batch.records.len() + batch.undecodable.len() >= asked.limit;
        // A claim that took nothing has nothing more, whatever it says: a loop must not spin on it.
        let due_now = batch.next_due == Some(Duration::ZERO) && !batch.records.is_empty();
        if let Some(due) = batch.next_due.filter(|due| !due.is_zero()) {
            // A millisecond is what the timer can tell apart.
            self.next_claim_at = self.next_claim_at.min(now + due.max(Duration::from_millis(1)));
        }

        for row in batch.undecodable {
            let route = self.router.get(&row.kind).copied();
            let blocks_key = route.is_some_and(|route| self.lanes[route].policy.on_dead == OnDead::Block);
            tracing::warn!(id = %row.lease.id, kind = row.kind, reason = row.reason, "a row cannot be read; it is dead");
            let settlement = Settlement::Dead { error: row.reason, blocks_key };
            self.write(usize::MAX, Mark::new(row.lease, settlement), now);
        }

        let mut counts = vec![0_usize; self.lanes.len()];
        let records = Arc::new(batch.records);
        // The run of each key, as the place of its first record.
        let mut runs: std::collections::HashMap<&str, Slot> = std::collections::HashMap::new();
        let mut units: Vec<(usize, usize, Slot)> = Vec::with_capacity(records.len());
        for (at, record) in records.iter().enumerate() {
            let Some(&route) = self.router.get(&record.kind) else {
                // The store was not asked for it: it goes back untouched.
                tracing::error!(id = %record.id, kind = record.kind, "the store gave a record without a route");
                self.write(usize::MAX, Mark::new(record.lease(), Settlement::Released), now);
                continue;
            };
            counts[route] += 1;
            let lane = &mut self.lanes[route];
            let destination = lane.destination(record.destination.as_deref(), now);
            lane.held += 1;
            lane.destinations[destination].held += 1;
            let slot = self.held.insert(Held {
                batch: Arc::clone(&records),
                at,
                route,
                destination,
                lease_end: asked.at + self.config.lease_for,
                leased_at: asked.at,
                phase: Phase::Queued,
                alone: record.lapses > 0,
                tried: false,
                lost: false,
                rest: VecDeque::new(),
                link: None,
            });
            if record.lapses > 0 {
                self.suspect = Some(slot);
            }
            match record.key.as_deref() {
                Some(key) => match runs.get(key) {
                    Some(&first) => self.held[first].rest.push_back(slot),
                    None => {
                        runs.insert(key, slot);
                        units.push((route, destination, slot));
                    }
                },
                None => units.push((route, destination, slot)),
            }
        }
        drop(runs);
        for (route, destination, slot) in units {
            let mut unit = VecDeque::with_capacity(1 + self.held[slot].rest.len());
            unit.push_back(slot);
            unit.append(&mut self.held[slot].rest);
            self.lanes[route].push(destination, unit, false);
        }
        for (route, count) in counts.into_iter().enumerate() {
            let lane = &mut self.lanes[route];
            self.metrics[route].claimed.increment(count as u64);
            self.metrics[route].held.set(lane.held as f64);
            if asked.limits[route] > 0 {
                lane.maybe_more = full || due_now || count >= asked.limits[route];
                let Some(demand) = asked.request.routes.get(route) else { continue };
                for (_, destination) in &mut lane.destinations {
                    if let Some(name) = &destination.name {
                        // What is held now came partly with this claim; erring towards one more look.
                        destination.limited |= destination.held >= demand.limit_for(Some(name));
                    }
                }
            }
        }
        Ok(())
    }

    /// Settles a record before it is sent, where its past forbids another attempt.
    pub(super) fn refuse(&mut self, slot: Slot, now: Instant) -> bool {
        let held = &self.held[slot];
        let record = held.record();
        let Some(settlement) = before_send(record, &self.lanes[held.route].policy) else { return false };
        if let Settlement::Dead { error, .. } = &settlement {
            tracing::warn!(id = %record.id, kind = record.kind, error, "a record is dead");
        }
        let mark = Mark::new(record.lease(), settlement);
        self.metrics[held.route].dead.increment(1);
        self.held[slot].phase = Phase::Marking;
        self.write(slot, mark, now);
        true
    }
}
