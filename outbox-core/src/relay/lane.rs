//! What waits and what is under way, by route and destination, and how much more either can take.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    num::NonZeroUsize,
    sync::Arc,
};

use slab::Slab;
use tokio::time::{Duration, Instant};

use super::{RelayConfig, Route, breaker::Breaker, held::Slot, rate::Bucket};
use crate::{Pattern, Policy, RouteDemand, Sink};

/// The stretch of time whose sends are kept in reserve.
const WINDOW: Duration = Duration::from_millis(100);

/// How many records ended in the last whole window, or in this one if that is more.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    since: Instant,
    before: usize,
    now: usize,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self { since: now, before: 0, now: 0 }
    }

    pub(super) fn ended(&mut self, now: Instant) {
        self.turn(now);
        self.now += 1;
    }

    fn turn(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        if passed >= WINDOW {
            self.before = if passed >= 2 * WINDOW { 0 } else { self.now };
            self.now = 0;
            self.since = now;
        }
    }

    fn recent(&mut self, now: Instant) -> usize {
        self.turn(now);
        self.before.max(self.now)
    }
}

/// Records that go one after the other: one, or a run of a key.
pub(super) type Unit = VecDeque<Slot>;

/// One destination of a route; records without a destination share one as well.
pub(super) struct Destination {
    pub(super) name: Option<String>,
    pub(super) queue: VecDeque<Unit>,
    /// Records with the sink.
    pub(super) sending: usize,
    /// Records held, whatever their phase.
    pub(super) held: usize,
    pub(super) breaker: Breaker,
    pub(super) rate: Option<Bucket>,
    pub(super) pace: Pace,
    /// Whether it stands in its route's `ready`.
    pub(super) ready: bool,
    /// When it comes back to `ready` by itself, if only time keeps it away.
    waits_until: Option<Instant>,
    /// Whether the last claim took all that it might for this destination.
    pub(super) limited: bool,
}

impl Destination {
    /// How many more records may go to the sink now.
    fn free(&self, cap: usize, now: Instant) -> usize {
        let cap = if self.name.is_some() { cap } else { usize::MAX };
        let rate = self.rate.as_ref().map_or(usize::MAX, |bucket| bucket.available(now));
        cap.min(self.breaker.allows(now)).saturating_sub(self.sending).min(rate)
    }

    /// When its breaker or its rate may let something through; none when neither is in the way.
    fn free_at(&self, now: Instant) -> Option<Instant> {
        let probe = self.breaker.probe_at().filter(|at| *at > now);
        let rate = self.rate.as_ref().filter(|bucket| bucket.available(now) == 0).map(Bucket::next_at);
        probe.max(rate)
    }
}

/// One sink and whether it is fit.
pub(super) struct SinkState {
    pub(super) sink: Arc<dyn Sink>,
    pub(super) breaker: Breaker,
    /// Whether its check is under way.
    pub(super) checking: bool,
    /// Whether it has ever passed its check.
    pub(super) seen_fit: bool,
    pub(super) last_error: Option<String>,
}

/// One route at work.
pub(super) struct Lane {
    pub(super) pattern: Pattern,
    pub(super) sink: usize,
    pub(super) policy: Policy,
    pub(super) send_timeout: Duration,
    pub(super) pipelined_keys: bool,
    pub(super) concurrency: usize,
    pub(super) batch_records: usize,
    pub(super) batch_bytes: usize,
    prefetch_max: usize,
    destination_cap: usize,
    destination_rate: Option<super::RateLimit>,
    rate_limit: Option<super::RateLimit>,
    breaker: crate::Backoff,
    pub(super) rate: Option<Bucket>,
    pub(super) calls: usize,
    pub(super) held: usize,
    pub(super) queued: usize,
    pub(super) pace: Pace,
    pub(super) destinations: Slab<Destination>,
    by_name: HashMap<Option<String>, usize>,
    pub(super) ready: VecDeque<usize>,
    /// Destinations that only time keeps out of `ready`, the soonest first.
    waiting: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Whether a claim may find more than the last one took.
    pub(super) maybe_more: bool,
}

impl Lane {
    pub(super) fn new(
        pattern: Pattern,
        route: &Route,
        sink: usize,
        config: &RelayConfig,
        now: Instant,
    ) -> Result<Self, String> {
        let limits = route.sink.limits();
        let concurrency = match route.concurrency {
            None => limits.batches_in_flight,
            Some(calls) => {
                NonZeroUsize::new(calls).ok_or_else(|| format!("route {pattern}: its concurrency is zero"))?
            }
        };
        let send_timeout = route.send_timeout.unwrap_or(config.send_timeout);
        config.check_timeout(&format!("route {pattern}: its send_timeout"), send_timeout)?;
        Ok(Self {
            sink,
            policy: route.policy.clone(),
            send_timeout,
            pipelined_keys: route.pipelined_keys,
            concurrency: concurrency.get(),
            batch_records: limits.batch_records.get(),
            batch_bytes: limits.batch_bytes,
            prefetch_max: config.prefetch_max,
            destination_cap: route.destination_cap(concurrency).saturating_mul(limits.batch_records.get()),
            destination_rate: route.destination_rate_limit,
            rate_limit: route.rate_limit,
            breaker: config.breaker,
            rate: route.rate_limit.map(|limit| Bucket::new(limit, now)),
            calls: 0,
            held: 0,
            queued: 0,
            pace: Pace::new(now),
            destinations: Slab::new(),
            by_name: HashMap::new(),
            ready: VecDeque::new(),
            waiting: BinaryHeap::new(),
            maybe_more: true,
            pattern,
        })
    }

    /// The place of the destination of this name, new ones included.
    pub(super) fn destination(&mut self, name: Option<&str>, now: Instant) -> usize {
        let name = name.map(str::to_owned);
        if let Some(&at) = self.by_name.get(&name) {
            return at;
        }
        let at = self.destinations.insert(Destination {
            name: name.clone(),
            queue: VecDeque::new(),
            sending: 0,
            held: 0,
            breaker: Breaker::new(self.breaker),
            // The route's own limit holds for records without a destination.
            rate: self.destination_rate.filter(|_| name.is_some()).map(|limit| Bucket::new(limit, now)),
            pace: Pace::new(now),
            ready: false,
            waits_until: None,
            limited: false,
        });
        self.by_name.insert(name, at);
        at
    }

    /// Forgets destinations about which there is nothing to remember.
    pub(super) fn forget_idle(&mut self, now: Instant) {
        let by_name = &mut self.by_name;
        self.destinations.retain(|_, destination| {
            let idle = destination.held == 0
                && !destination.ready
                && destination.breaker.is_past(now)
                && destination.rate.as_ref().is_none_or(|bucket| bucket.is_full(now));
            if idle {
                by_name.remove(&destination.name);
            }
            !idle
        });
    }

    /// Puts a unit in line, in front when it goes on with a run.
    pub(super) fn push(&mut self, destination: usize, unit: Unit, in_front: bool) {
        self.queued += unit.len();
        let queue = &mut self.destinations[destination].queue;
        if in_front {
            queue.push_front(unit)
        } else {
            queue.push_back(unit)
        }
        self.make_ready(destination);
    }

    pub(super) fn make_ready(&mut self, destination: usize) {
        let waiting = &mut self.destinations[destination];
        if !waiting.ready && !waiting.queue.is_empty() {
            waiting.ready = true;
            self.ready.push_back(destination);
        }
    }

    /// Looks again at every destination with something in line.
    pub(super) fn make_all_ready(&mut self) {
        let waiting: Vec<usize> = self.destinations.iter().map(|(at, _)| at).collect();
        for at in waiting {
            self.make_ready(at);
        }
    }

    /// The next unit that may go, from the destinations in turn. It leaves the line.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(usize, Unit)> {
        if self.rate.as_ref().is_some_and(|bucket| bucket.available(now) == 0) {
            return None;
        }
        while let Some(at) = self.ready.pop_front() {
            let destination = &mut self.destinations[at];
            destination.ready = false;
            if destination.free(self.destination_cap, now) == 0 {
                // It comes back when something of it ends, or by a timer.
                if let Some(free_at) = destination.free_at(now)
                    && destination.waits_until.is_none_or(|until| free_at < until)
                {
                    destination.waits_until = Some(free_at);
                    self.waiting.push(Reverse((free_at, at)));
                }
                continue;
            }
            let Some(unit) = destination.queue.pop_front() else { continue };
            self.queued -= unit.len();
            self.make_ready(at);
            return Some((at, unit));
        }
        None
    }

    /// Takes everything out of line for one destination, or for all.
    pub(super) fn drain(&mut self, destination: Option<usize>) -> Vec<Unit> {
        let mut units = Vec::new();
        for (at, waiting) in &mut self.destinations {
            if destination.is_none_or(|only| only == at) {
                units.extend(waiting.queue.drain(..));
            }
        }
        self.queued -= units.iter().map(VecDeque::len).sum::<usize>();
        units
    }

    /// Looks again at the destinations whose time has come.
    pub(super) fn wake(&mut self, now: Instant) {
        while let Some(&Reverse((until, at))) = self.waiting.peek()
            && until <= now
        {
            self.waiting.pop();
            if let Some(destination) = self.destinations.get_mut(at) {
                destination.waits_until = destination.waits_until.filter(|later| *later > now);
                self.make_ready(at);
            }
        }
    }

    /// When something in line that only time keeps back deserves another look.
    pub(super) fn look_again_at(&self, now: Instant) -> Option<Instant> {
        let own = self
            .rate
            .as_ref()
            .filter(|bucket| self.queued > 0 && bucket.available(now) == 0)
            .map(Bucket::next_at);
        let waiting = self.waiting.peek().map(|Reverse((until, _))| *until);
        [own, waiting].into_iter().flatten().filter(|at| *at > now).min()
    }

    /// What a claim may take for this route. `sink_allows`: how many records its sink may be given.
    pub(super) fn demand(&mut self, sink_allows: usize, now: Instant) -> RouteDemand {
        let under_way = self.concurrency.saturating_mul(self.batch_records);
        let reserve = |pace: &mut Pace, least: usize, most: usize| pace.recent(now).min(most).max(least);
        let mut capacity = under_way.saturating_add(reserve(
            &mut self.pace,
            under_way.min(self.prefetch_max),
            self.prefetch_max,
        ));
        if let Some(limit) = self.rate_limit {
            // No more than goes out in a second or so.
            capacity = capacity.min(limit.in_a_second());
        }
        capacity = capacity.min(sink_allows);
        let room = capacity.saturating_sub(self.held);
        // A few records at a time are not worth a claim while others are in line.
        let limit = if self.queued > 0 && room < capacity.div_ceil(4) { 0 } else { room };

        let mut demand = RouteDemand::new(self.pattern.clone(), limit);
        let fresh = self.destination_cap.saturating_mul(2);
        demand.destination_limit = fresh;
        for (_, destination) in &mut self.destinations {
            let Some(name) = &destination.name else {
                continue;
            };
            let mut most = self.destination_cap.saturating_add(reserve(
                &mut destination.pace,
                self.destination_cap,
                self.prefetch_max.max(self.destination_cap),
            ));
            if let Some(limit) = self.destination_rate {
                most = most.min(limit.in_a_second());
            }
            let most = most.min(destination.breaker.allows(now)).saturating_sub(destination.held);
            if most != fresh {
                demand.destinations.insert(name.clone(), most);
            }
        }
        demand
    }
}
