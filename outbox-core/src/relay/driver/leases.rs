//! Renewing what is held, and giving up what is lost.

use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::Driver;
use crate::{
    Lease, Mark, Outcome, SendError, Settlement, Store, StoreError, Timing,
    relay::{
        held::{Phase, Slot},
        store_calls::Renewing,
        telemetry,
    },
    settle,
};

impl<S: Store> Driver<S> {
    pub(super) fn start_renew(&mut self, now: Instant) {
        if !self.calls.renew.is_idle() || (now < self.next_renew_at && !self.renew_now) {
            return;
        }
        // While the store is away, only the timer counts.
        if self.store_failures > 0 && now < self.next_renew_at {
            return;
        }
        let due = self.config.renew_after() / 2;
        // What is about to be marked is left alone: its claim is ending.
        let (slots, leases): (Vec<Slot>, Vec<Lease>) = self
            .held
            .iter()
            .filter(|(_, held)| held.phase != Phase::Marking)
            .filter(|(_, held)| self.renew_now || now >= held.leased_at + due)
            .map(|(slot, held)| (slot, held.record().lease()))
            .unzip();
        self.renew_now = false;
        self.next_renew_at = now + due;
        if !slots.is_empty() {
            self.calls.start_renew(Renewing { at: now, slots }, leases, self.config.lease_for);
        }
    }

    pub(super) fn renewed(&mut self, renewing: Renewing, result: Result<Vec<Lease>, StoreError>) {
        let lost = match result {
            Ok(lost) => lost,
            Err(error) => {
                self.next_renew_at = Instant::now() + self.store_failed("renew", &error);
                return;
            }
        };
        self.store_is_back();
        self.renew_now = false;
        telemetry::lost(lost.len());
        let lost: std::collections::HashSet<Lease> = lost.into_iter().collect();
        let mut gone = Vec::new();
        for slot in renewing.slots {
            // The slot may hold another record by now, whose lease is younger.
            let Some(held) = self.held.get_mut(slot).filter(|held| held.leased_at <= renewing.at) else {
                continue;
            };
            if lost.contains(&held.record().lease()) {
                held.lost = true;
                if let Some((chain, _)) = &held.link {
                    chain.stopped.store(true, Ordering::Relaxed);
                }
                gone.push(slot);
            } else {
                held.leased_at = renewing.at;
                held.lease_end = renewing.at + self.config.lease_for;
            }
        }
        self.give_up(&gone);
        for lane in &mut self.lanes {
            lane.make_all_ready();
        }
    }

    /// Somebody else has these records. What is with a sink ends by itself, and its mark will be lost;
    /// what waits is dropped, and the rest of its run given back. What follows a record that is with its sink is marked as lost, and not handed over.
    fn give_up(&mut self, gone: &[Slot]) {
        if gone.is_empty() {
            return;
        }
        let now = Instant::now();
        tracing::warn!(records = gone.len(), "leases lost");
        for route in 0..self.lanes.len() {
            let destinations: Vec<usize> = self.lanes[route].destinations.iter().map(|(at, _)| at).collect();
            for destination in destinations {
                for unit in self.lanes[route].drain(Some(destination)) {
                    match unit.iter().position(|slot| gone.contains(slot)) {
                        None => self.lanes[route].push(destination, unit, false),
                        // A mark for a lost lease changes nothing, and frees its place here.
                        Some(_) => self.release(unit, now),
                    }
                }
            }
        }
    }

    /// The grace is over. What was with a sink may have been sent, so it is not given back before its
    /// lease would have ended.
    pub(super) fn abandon_sends(&mut self, now: Instant) {
        self.sends.abort_all();
        let sending: Vec<Slot> =
            self.held.iter().filter(|(_, held)| held.phase == Phase::Sending).map(|(slot, _)| slot).collect();
        tracing::warn!(records = sending.len(), "sends abandoned: the grace is over");
        for slot in sending {
            let held = &mut self.held[slot];
            held.phase = Phase::Marking;
            let rest = std::mem::take(&mut held.rest);
            let begun =
                held.link.as_ref().is_none_or(|(chain, place)| *place < chain.begun.load(Ordering::Relaxed));
            if !begun {
                self.release([slot].into(), now);
                self.release(rest, now);
                continue;
            }
            self.abandon(slot, now);
            self.release(rest, now);
        }
        for lane in &mut self.lanes {
            lane.calls = 0;
        }
    }

    /// Settles a record that was with its sink and of which nothing is known: it may have been sent, so
    /// it waits as long as its lease would have lasted.
    pub(super) fn abandon(&mut self, slot: Slot, now: Instant) {
        let random = self.random.f64();
        let held = &mut self.held[slot];
        held.phase = Phase::Marking;
        let lease_left = held.lease_end.saturating_duration_since(now);
        let lane = &self.lanes[held.route];
        let outcome = Outcome::Failed(SendError::transient("abandoned by the relay: it may have been sent"));
        let timing = Timing::new(lane.send_timeout, lease_left);
        let mut settlement = settle(held.record(), &outcome, &lane.policy, &timing, random);
        if let Settlement::Retry { after, .. } = &mut settlement {
            // Whatever the policy caps.
            *after = lease_left.max(*after);
        }
        let mark = Mark::new(held.record().lease(), settlement);
        self.write(slot, mark, now);
    }
}
