//! The loop itself: one task that owns all state, and reacts to what calls and timers tell it.

mod dispatch;
mod intake;
mod leases;
mod marking;
mod outcome;

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use slab::Slab;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Duration, Instant, sleep_until, timeout},
};

use super::{
    Health, RelayConfig, RelayError, Route, RouteHealth,
    breaker::Breaker,
    held::{Board, Held, Slot},
    lane::{Lane, SinkState},
    store_calls::StoreCalls,
    telemetry::{self, RouteMetrics},
};
use crate::{Mark, Owner, Presence, Router, Sink, Store, StoreError, StoreErrorKind, Wake};

pub(super) struct Driver<S> {
    config: RelayConfig,
    calls: StoreCalls<S>,
    owner: Owner,
    presence: Option<Box<dyn Presence>>,
    random: fastrand::Rng,
    /// The place of each kind's route in `lanes`.
    router: Router<usize>,
    lanes: Vec<Lane>,
    metrics: Vec<RouteMetrics>,
    sinks: Vec<SinkState>,
    held: Slab<Held>,
    /// The one record held that has lapsed before.
    suspect: Option<Slot>,
    board: Arc<Board>,
    /// Whether runs under way may go on to their next record.
    go: Arc<AtomicBool>,
    sends: JoinSet<()>,
    /// Outcomes to be written, in order.
    marks: Vec<(Slot, Mark)>,
    marks_since: Option<Instant>,
    /// When to claim again although nothing hints at it.
    next_claim_at: Instant,
    /// The most outcomes to write at once: fewer while one that the store refuses is looked for.
    mark_batch: usize,
    next_mark_at: Instant,
    next_renew_at: Instant,
    next_enter_at: Instant,
    next_sweep_at: Option<Instant>,
    next_stats_at: Option<Instant>,
    /// Set when something waits for a renewal before it may be handed over.
    renew_now: bool,
    hinted: bool,
    store_failures: u32,
    /// Whether the store has ever answered a claim.
    started: bool,
    unrouted_told: std::collections::BTreeSet<String>,
    health: watch::Sender<Health>,
}

/// How far a stop has come.
enum Stage {
    Running,
    /// No claims; what is with a sink may finish until then.
    Finishing(Instant),
    /// Nothing is with a sink; outcomes are written until then.
    Writing(Instant),
}

impl<S: Store> Driver<S> {
    pub(super) fn new(
        store: Arc<S>,
        config: RelayConfig,
        routes: &Router<Route>,
        mut random: fastrand::Rng,
        health: watch::Sender<Health>,
    ) -> Result<Self, RelayError> {
        config.check().map_err(RelayError::Config)?;
        let now = Instant::now();
        let mut router = Router::default();
        let (mut lanes, mut metrics, mut sinks) = (Vec::new(), Vec::new(), Vec::<SinkState>::new());
        for (at, (pattern, route)) in routes.entries().iter().enumerate() {
            // Patterns are unique already.
            let _ = router.insert(pattern.clone(), at);
            let sink = sinks.iter().position(|known| Arc::ptr_eq(&known.sink, &route.sink));
            let sink = sink.unwrap_or_else(|| {
                sinks.push(SinkState {
                    sink: Arc::clone(&route.sink),
                    breaker: Breaker::new(config.breaker),
                    checking: false,
                    seen_fit: false,
                    last_error: None,
                });
                sinks.len() - 1
            });
            lanes.push(Lane::new(pattern.clone(), route, sink, &config, now).map_err(RelayError::Config)?);
            metrics.push(RouteMetrics::new(&pattern.to_string()));
        }
        if lanes.is_empty() {
            return Err(RelayError::Config("it has no route".into()));
        }
        Ok(Self {
            calls: StoreCalls::new(store),
            owner: Owner::from_random(random.u64(..)),
            presence: None,
            random,
            router,
            lanes,
            metrics,
            sinks,
            held: Slab::new(),
            suspect: None,
            board: Arc::default(),
            go: Arc::default(),
            sends: JoinSet::new(),
            marks: Vec::new(),
            marks_since: None,
            next_claim_at: now,
            mark_batch: config.mark_batch.get(),
            next_mark_at: now,
            next_renew_at: now + config.renew_after(),
            next_enter_at: now,
            next_sweep_at: config.sweep_every.map(|every| now + every),
            next_stats_at: config.stats_every.map(|every| now + every),
            renew_now: false,
            hinted: false,
            store_failures: 0,
            started: false,
            unrouted_told: std::collections::BTreeSet::new(),
            health,
            config,
        })
    }

    pub(super) async fn run(mut self, shutdown: impl Future<Output = ()> + Send) -> Result<(), RelayError> {
        tokio::pin!(shutdown);
        let begun = Instant::now();
        let board = Arc::clone(&self.board);
        let store = self.calls.store();
        let mut stage = Stage::Running;
        let mut waiting = Box::pin(wait(Arc::clone(&store), Duration::ZERO, self.config.poll_interval));
        self.start_checks(begun);
        self.tell_health();
        tracing::info!(owner = self.owner.value(), routes = self.lanes.len(), "relay starts");

        loop {
            let now = Instant::now();
            while self.sends.try_join_next().is_some() {}
            self.take_news(now);
            let seen = self.presence.as_ref().is_some_and(|presence| presence.is_held());
            self.go.store(seen && matches!(stage, Stage::Running), Ordering::Relaxed);
            match stage {
                Stage::Running => {
                    self.start_checks(now);
                    self.start_enter(now);
                    self.start_upkeep(now);
                    self.dispatch(seen, now);
                    self.start_claim(now);
                }
                Stage::Finishing(until) => {
                    // Runs whose first record has just ended.
                    self.release_queued(None);
                    if self.calls.claim.is_idle() && self.nothing_sending() {
                        stage = Stage::Writing(now + self.writing_reserve());
                        continue;
                    } else if now >= until {
                        self.abandon_sends(now);
                        stage = Stage::Writing(now + self.writing_reserve());
                        continue;
                    }
                }
                Stage::Writing(until) => {
                    if (self.marks.is_empty() && self.calls.mark.is_idle()) || now >= until {
                        break;
                    }
                }
            }
            self.start_marks(now, !matches!(stage, Stage::Running));
            self.start_renew(now);
            let running = matches!(stage, Stage::Running);
            let timer = match stage {
                Stage::Running => self.next_timer(now),
                Stage::Finishing(until) | Stage::Writing(until) => until.min(self.next_timer(now)),
            };

            // In this order always, so that a seeded run can be replayed.
            tokio::select! {
                biased;
                () = &mut shutdown, if running => {
                    tracing::info!("relay stops");
                    stage = Stage::Finishing(Instant::now() + self.config.grace - 2 * self.writing_reserve());
                    self.release_queued(None);
                    self.health.send_modify(|health| health.running = false);
                }
                () = board.told() => {}
                ((), result) = self.calls.enter.ended() => self.entered(result)?,
                (asked, result) = self.calls.claim.ended() => {
                    self.claimed(asked, result)?;
                    if !running {
                        self.release_queued(None);
                    }
                }
                ((marks,), result) = self.calls.mark.ended() => self.marked(marks, result),
                (renewing, result) = self.calls.renew.ended() => self.renewed(renewing, result),
                ((), result) = self.calls.sweep.ended() => self.swept(result),
                ((), result) = self.calls.stats.ended() => self.counted(result),
                hinted = &mut waiting, if running => {
                    self.hinted |= hinted == Ok(true);
                    let pause = if hinted.is_err() { self.config.poll_interval } else { Duration::ZERO };
                    waiting = Box::pin(wait(Arc::clone(&store), pause, self.config.poll_interval));
                }
                () = sleep_until(timer) => {}
            }
            if self.hinted {
                self.hinted = false;
                self.next_claim_at = Instant::now();
            }
        }

        let left = self.writing_reserve();
        let closing = self.sinks.iter().map(|state| state.sink.close(left));
        if timeout(left, futures_util::future::join_all(closing)).await.is_err() {
            tracing::warn!("a sink did not close in time");
        }
        if !self.marks.is_empty() {
            tracing::warn!(records = self.marks.len(), "outcomes not written: they go out again");
        }
        tracing::info!("relay stopped");
        Ok(())
    }

    /// How much of the grace is kept for writing outcomes, and as much again for closing the sinks.
    fn writing_reserve(&self) -> Duration {
        (self.config.grace / 5).min(Duration::from_secs(2))
    }

    fn nothing_sending(&self) -> bool {
        self.lanes.iter().all(|lane| lane.calls == 0)
    }

    fn next_timer(&mut self, now: Instant) -> Instant {
        let mut next = now + self.config.poll_interval;
        let mut sooner = |at: Instant| next = next.min(at);
        if self.presence.is_none() && self.calls.enter.is_idle() {
            sooner(self.next_enter_at);
        }
        if self.calls.claim.is_idle() && self.presence.is_some() && self.next_claim_at > now {
            sooner(self.next_claim_at);
        }
        if !self.marks.is_empty() && self.calls.mark.is_idle() {
            let linger = self.marks_since.unwrap_or(now) + self.config.mark_linger;
            sooner(linger.max(self.next_mark_at));
        }
        if !self.held.is_empty() && self.calls.renew.is_idle() {
            sooner(self.next_renew_at);
        }
        for at in [self.next_sweep_at, self.next_stats_at].into_iter().flatten() {
            if at > now {
                sooner(at);
            }
        }
        for lane in &self.lanes {
            if let Some(at) = lane.look_again_at(now) {
                sooner(at);
            }
        }
        for state in &self.sinks {
            if let Some(at) = state.breaker.probe_at().filter(|at| *at > now) {
                sooner(at);
            }
        }
        next
    }

    /// Announces the run to the store, again and again while the store is away.
    fn start_enter(&mut self, now: Instant) {
        if self.presence.is_none() && self.calls.enter.is_idle() && now >= self.next_enter_at {
            self.calls.start_enter(self.owner);
        }
    }

    fn entered(&mut self, result: Result<Box<dyn Presence>, StoreError>) -> Result<(), RelayError> {
        match result {
            Ok(presence) => {
                self.presence = Some(presence);
                self.next_claim_at = Instant::now();
                self.store_is_back();
                self.health.send_modify(|health| health.running = true);
                Ok(())
            }
            Err(error) => {
                self.next_enter_at = Instant::now() + self.store_failed("enter", &error);
                self.hopeless(error)
            }
        }
    }

    /// An error that waiting does not mend ends a relay that has not started yet. Later the relay waits
    /// all the same: someone may be in the middle of a migration.
    fn hopeless(&self, error: StoreError) -> Result<(), RelayError> {
        use StoreErrorKind::{Config, Denied, Schema};
        match error.kind() {
            Schema | Denied | Config if !self.started => Err(RelayError::Store(error)),
            _ => Ok(()),
        }
    }

    /// Notes an error of the store and says how long to wait.
    fn store_failed(&mut self, call: &'static str, error: &StoreError) -> Duration {
        self.store_failures = self.store_failures.saturating_add(1);
        let pause = self.config.store_backoff.ceiling(self.store_failures);
        let pause = pause / 2 + (pause / 2).mul_f64(self.random.f64());
        let source = std::error::Error::source(error).map(ToString::to_string);
        if self.store_failures == 1 {
            tracing::warn!(call, %error, source, ?pause, "the store failed; the relay waits and tries again");
        } else {
            tracing::debug!(call, %error, source, ?pause, failures = self.store_failures, "the store failed again");
        }
        self.health.send_modify(|health| health.store_error = Some(error.to_string()));
        pause
    }

    fn store_is_back(&mut self) {
        if self.store_failures > 0 {
            tracing::info!(failures = self.store_failures, "the store answers again");
            self.store_failures = 0;
            self.health.send_modify(|health| health.store_error = None);
        }
    }

    /// Retention, and counting for the metrics.
    fn start_upkeep(&mut self, now: Instant) {
        if self.presence.is_none() {
            return;
        }
        if self.next_sweep_at.is_some_and(|at| now >= at) && self.calls.sweep.is_idle() {
            self.next_sweep_at = self.config.sweep_every.map(|every| now + every);
            self.calls.start_sweep(self.config.retention.clone());
        }
        if self.next_stats_at.is_some_and(|at| now >= at) && self.calls.stats.is_idle() {
            self.next_stats_at = self.config.stats_every.map(|every| now + every);
            let routed = self.lanes.iter().map(|lane| lane.pattern.clone()).collect();
            self.calls.start_stats(routed);
        }
    }

    fn swept(&mut self, result: Result<crate::Swept, StoreError>) {
        match result {
            Ok(swept) => {
                if swept != crate::Swept::default() {
                    tracing::debug!(?swept, "swept");
                }
                if swept.mended > 0 {
                    self.hinted = true;
                }
                if swept.more {
                    self.next_sweep_at = Some(Instant::now());
                }
            }
            Err(error) => tracing::warn!(%error, "failed to sweep"),
        }
    }

    fn counted(&mut self, result: Result<crate::Stats, StoreError>) {
        match result {
            Ok(stats) => {
                telemetry::stats(&stats);
                for (kind, count) in &stats.unrouted {
                    // Kinds come from rows that anyone may write: the memory of them has a bound.
                    if self.unrouted_told.len() < 1_000 && self.unrouted_told.insert(kind.clone()) {
                        tracing::warn!(kind, records = count.value, "records without a route are left alone");
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "failed to count what the store holds"),
        }
    }

    fn tell_health(&self) {
        let routes = self
            .lanes
            .iter()
            .zip(&self.metrics)
            .map(|(lane, metrics)| {
                let state = &self.sinks[lane.sink];
                let sink_error = match (&state.last_error, state.breaker.is_closed() && state.seen_fit) {
                    (_, true) => None,
                    (Some(error), false) => Some(error.clone()),
                    (None, false) => Some("not checked yet".to_owned()),
                };
                metrics.sink_down.set(if sink_error.is_some() { 1.0 } else { 0.0 });
                RouteHealth { pattern: lane.pattern.clone(), sink: state.sink.name().to_owned(), sink_error }
            })
            .collect();
        self.health.send_if_modified(|health| {
            let changed = health.routes != routes;
            health.routes = routes;
            changed
        });
    }
}

/// Waits for a hint after a pause; an error is told so that the caller pauses.
async fn wait<S: Store>(store: Arc<S>, pause: Duration, at_most: Duration) -> Result<bool, ()> {
    tokio::time::sleep(pause).await;
    match store.wait(at_most).await {
        Ok(Wake::Hint) => Ok(true),
        Ok(Wake::Timeout) => Ok(false),
        Err(error) => {
            tracing::debug!(%error, "no hints from the store; polling goes on");
            Err(())
        }
    }
}
