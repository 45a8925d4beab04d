//! Handing over: which records go to their sinks now.

use std::{collections::VecDeque, sync::Arc};

use tokio::time::{Duration, Instant};

use super::Driver;
use crate::{
    Mark, SendContext, Settlement, Store,
    relay::{
        held::{Chain, Phase, Slot},
        lane::Unit,
        send::{Handover, Link},
    },
};

/// How recent a renewal must be while other relays cannot see this one.
const UNSEEN_TRUST: Duration = Duration::from_millis(500);

impl<S: Store> Driver<S> {
    /// `seen`: whether other relays can see this one.
    pub(super) fn dispatch(&mut self, seen: bool, now: Instant) {
        for route in 0..self.lanes.len() {
            let lane = &mut self.lanes[route];
            lane.wake(now);
            if lane.queued == 0 {
                continue;
            }
            while self.lanes[route].calls < self.lanes[route].concurrency {
                let state = &self.sinks[self.lanes[route].sink];
                let sink_allows = if state.seen_fit { state.breaker.allows(now) } else { 0 };
                if self.lanes[route].calls >= sink_allows {
                    break;
                }
                if !self.hand_over(route, seen, now) {
                    break;
                }
            }
        }
    }

    /// Gathers one call's records and starts it. False when nothing may go.
    fn hand_over(&mut self, route: usize, seen: bool, now: Instant) -> bool {
        let (records_max, bytes_max) = (self.lanes[route].batch_records, self.lanes[route].batch_bytes);
        let mut slots: Vec<Slot> = Vec::with_capacity(records_max.min(64));
        let mut bytes = 0_usize;
        while slots.len() < records_max {
            let Some((destination, mut unit)) = self.lanes[route].pop(now) else { break };
            let Some(slot) = unit.pop_front() else { continue };
            if self.held[slot].lost {
                // A mark for a lost lease changes nothing, and frees its place here.
                unit.push_front(slot);
                self.release(unit, now);
                continue;
            }
            if !self.may_go(slot, seen, now) {
                unit.push_front(slot);
                self.lanes[route].push(destination, unit, true);
                self.renew_now = true;
                break;
            }
            if self.refuse(slot, now) {
                self.go_on(slot, unit, now);
                continue;
            }
            let size = self.held[slot].record().payload.len();
            let alone = self.held[slot].alone;
            if !slots.is_empty() && (alone || bytes.saturating_add(size) > bytes_max) {
                unit.push_front(slot);
                self.lanes[route].push(destination, unit, true);
                break;
            }
            bytes = bytes.saturating_add(size);
            self.take(slot, now);
            slots.push(slot);
            if self.lanes[route].pipelined_keys && !alone {
                // The rest of the run goes along, as far as there is room.
                while slots.len() < records_max
                    && let Some(next) = unit.front().copied()
                {
                    let size = self.held[next].record().payload.len();
                    let next_held = &self.held[next];
                    if bytes.saturating_add(size) > bytes_max || next_held.alone || next_held.lost {
                        break;
                    }
                    unit.pop_front();
                    bytes = bytes.saturating_add(size);
                    self.take(next, now);
                    slots.push(next);
                }
            }
            if let Some(last) = slots.last() {
                self.held[*last].rest = unit;
            }
            if alone {
                break;
            }
        }
        if slots.is_empty() {
            return false;
        }
        let lane = &mut self.lanes[route];
        lane.calls += 1;
        let mut cx = SendContext::new(lane.send_timeout);
        if lane.pipelined_keys {
            cx = cx.with_pipelined_keys();
        }
        let sink = Arc::clone(&self.sinks[lane.sink].sink);
        let handover = Handover { sink, route, cx, board: Arc::clone(&self.board) };
        if let ([slot], false) = (slots.as_slice(), records_max > 1 && !self.held[slots[0]].alone) {
            let (links, chain) = self.chain(*slot, seen);
            self.sends.spawn(handover.run(links, chain, Arc::clone(&self.go)));
        } else {
            let records = slots.iter().map(|slot| self.held[*slot].record().clone()).collect();
            self.sends.spawn(handover.batch(records, slots));
        }
        true
    }

    /// The record in `slot` with the rest of its run, to go through one task without a turn of the
    /// loop in between.
    fn chain(&mut self, slot: Slot, seen: bool) -> (Vec<Link>, Arc<Chain>) {
        let chain = Arc::new(Chain::default());
        let lane = &self.lanes[self.held[slot].route];
        let destination = self.held[slot].destination;
        // A rate is reckoned record by record, and an unseen relay renews before each.
        let by_turns = !seen || lane.rate.is_some() || lane.destinations[destination].rate.is_some();
        let mut run = std::collections::VecDeque::from([slot]);
        if !by_turns {
            let mut rest = std::mem::take(&mut self.held[slot].rest);
            let same = rest
                .iter()
                .take_while(|next| {
                    let next = &self.held[**next];
                    next.destination == destination
                        && !next.alone
                        && !next.lost
                        && next.record().attempts == 1
                })
                .count();
            let later = rest.split_off(same);
            run.append(&mut rest);
            if let Some(last) = run.back() {
                self.held[*last].rest = later;
            }
        }
        let links = run
            .into_iter()
            .enumerate()
            .map(|(place, slot)| {
                let held = &mut self.held[slot];
                held.phase = Phase::Sending;
                held.link = Some((Arc::clone(&chain), place));
                let (batch, at) = (Arc::clone(&held.batch), held.at);
                Link { slot, batch, at, lease_end: held.lease_end }
            })
            .collect();
        (links, chain)
    }

    /// Whether the lease leaves the record its whole send timeout.
    fn may_go(&self, slot: Slot, seen: bool, now: Instant) -> bool {
        let held = &self.held[slot];
        let left = held.lease_end.saturating_duration_since(now);
        left >= self.lanes[held.route].send_timeout && (seen || now < held.leased_at + UNSEEN_TRUST)
    }

    fn take(&mut self, slot: Slot, now: Instant) {
        let held = &mut self.held[slot];
        held.phase = Phase::Sending;
        let lane = &mut self.lanes[held.route];
        let destination = &mut lane.destinations[held.destination];
        destination.sending += 1;
        for bucket in [&mut destination.rate, &mut lane.rate].into_iter().flatten() {
            bucket.take(now);
        }
    }

    /// The record in `slot` is settled; the rest of its run goes on or back, as its settlement says.
    pub(super) fn go_on(&mut self, slot: Slot, rest: Unit, now: Instant) {
        if rest.is_empty() {
            return;
        }
        let (route, destination) = (self.held[slot].route, self.held[slot].destination);
        let stops = self.marks.iter().rev().find(|(marked, _)| *marked == slot).is_some_and(|(_, mark)| {
            match mark.settlement {
                Settlement::Sent { .. } | Settlement::Dead { blocks_key: false, .. } => false,
                Settlement::Dead { .. }
                | Settlement::Retry { .. }
                | Settlement::Deferred { .. }
                | Settlement::Released => true,
            }
        });
        if stops {
            self.release(rest, now);
        } else {
            // The run may change its destination on the way.
            let next = rest.front().map_or(destination, |next| self.held[*next].destination);
            self.lanes[route].push(next, rest, true);
        }
    }

    /// Gives back records that were never handed over. One that was, and of which nothing is known,
    /// fails instead.
    pub(super) fn release(&mut self, unit: Unit, now: Instant) {
        for slot in unit {
            if self.held[slot].tried {
                self.abandon(slot, now);
                continue;
            }
            let held = &mut self.held[slot];
            held.phase = Phase::Marking;
            let mark = Mark::new(held.record().lease(), Settlement::Released);
            self.metrics[held.route].released.increment(1);
            self.write(slot, mark, now);
        }
    }

    /// Gives back everything that waits for one destination of a route, or everything there is.
    pub(super) fn release_queued(&mut self, only: Option<(usize, Option<usize>)>) {
        let now = Instant::now();
        for route in 0..self.lanes.len() {
            let destination = match only {
                None => None,
                Some((of, destination)) if of == route => destination,
                Some(_) => continue,
            };
            let units: VecDeque<Unit> = self.lanes[route].drain(destination).into();
            for unit in units {
                self.release(unit, now);
            }
        }
    }
}
