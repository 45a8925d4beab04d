//! What sends and checks report, and what follows from it for records, destinations and sinks.

use tokio::time::{Duration, Instant};

use super::Driver;
use crate::{
    ErrorScope, Mark, Outcome, SendError, SendErrorKind, Settlement, Store, Timing,
    relay::{
        held::{Ended, How, Phase},
        send,
    },
    settle,
};

impl<S: Store> Driver<S> {
    pub(super) fn take_news(&mut self, now: Instant) {
        let news = self.board.take();
        for ended in news.ended {
            self.ended(ended, now);
        }
        for route in news.calls {
            // After a stop has abandoned its sends, none counts.
            self.lanes[route].calls = self.lanes[route].calls.saturating_sub(1);
        }
        for (sink, result) in news.checked {
            self.checked(sink, result, now);
        }
    }

    fn ended(&mut self, ended: Ended, now: Instant) {
        let Ended { slot, how, progress, took, over, rest: mut unbegun } = ended;
        // An abandoned send may report after all.
        let Some(held) = self.held.get_mut(slot).filter(|held| held.phase == Phase::Sending) else { return };
        held.link = None;
        let (route, destination, alone) = (held.route, held.destination, held.alone);
        // What the task did not begin, and then what it was not given; the last of a chain holds that.
        let last = unbegun.back().copied().unwrap_or(slot);
        for waiting in &unbegun {
            self.held[*waiting].phase = Phase::Queued;
            self.held[*waiting].link = None;
        }
        unbegun.append(&mut self.held[last].rest);
        let rest = unbegun;
        let lane = &mut self.lanes[route];
        if over {
            lane.destinations[destination].sending -= 1;
        }
        lane.pace.ended(now);
        lane.destinations[destination].pace.ended(now);
        lane.make_ready(destination);
        self.metrics[route].send_seconds.record(took);

        let outcome = match how {
            How::Reported(outcome) => outcome,
            How::TimedOut => {
                self.silent(route, destination, now);
                let timeout = self.lanes[route].send_timeout;
                Outcome::Failed(SendError::transient(format!("no answer within {timeout:?}")))
            }
            How::Panicked(text) if !alone && self.lanes[route].batch_records > 1 => {
                // Only one of the call need be at fault: each goes again by itself.
                tracing::error!(panic = text, "a sink panicked; its records go again one by one");
                let held = &mut self.held[slot];
                held.alone = true;
                held.tried = true;
                held.phase = Phase::Queued;
                let mut unit = rest;
                unit.push_front(slot);
                self.lanes[route].push(destination, unit, true);
                return;
            }
            How::Panicked(text) => {
                tracing::error!(panic = text, "a sink panicked");
                Outcome::Failed(SendError::transient(format!("the sink panicked: {text}")))
            }
        };
        self.learn(route, destination, &outcome, now);
        let deferral = self.deferral(route, destination, &outcome, now);
        let held = &self.held[slot];
        let record = held.record();
        let timing = Timing::new(took, deferral);
        let settlement = settle(record, &outcome, &self.lanes[route].policy, &timing, self.random.f64());
        let metrics = &self.metrics[route];
        match &settlement {
            Settlement::Sent { .. } => tracing::trace!(id = %record.id, kind = record.kind, "sent"),
            Settlement::Retry { after, error, .. } => {
                metrics.retried.increment(1);
                tracing::debug!(id = %record.id, kind = record.kind, attempt = record.attempts, ?after, error, "a send failed");
            }
            Settlement::Dead { error, .. } => {
                metrics.dead.increment(1);
                tracing::warn!(id = %record.id, kind = record.kind, attempt = record.attempts, error, "a record is dead");
            }
            Settlement::Deferred { after, error } => {
                metrics.deferred.increment(1);
                tracing::debug!(id = %record.id, kind = record.kind, ?after, error, "a send is put off");
            }
            Settlement::Released => metrics.released.increment(1),
        }
        let mark = Mark::new(record.lease(), settlement).with_progress(progress);
        self.held[slot].phase = Phase::Marking;
        self.write(slot, mark, now);
        self.go_on(slot, rest, now);
    }

    /// How long the record waits if it is deferred.
    fn deferral(&mut self, route: usize, destination: usize, outcome: &Outcome, now: Instant) -> Duration {
        let random = self.random.f64();
        let lane = &self.lanes[route];
        match outcome {
            Outcome::Failed(error) if error.scope() == ErrorScope::Sink => {
                self.sinks[lane.sink].breaker.deferral(now, random)
            }
            // Without destinations of its own the route's sink has one.
            _ if lane.destinations[destination].name.is_none() => {
                self.sinks[lane.sink].breaker.deferral(now, random)
            }
            _ => lane.destinations[destination].breaker.deferral(now, random),
        }
    }

    /// Tells the breakers what an outcome says about the destination and the sink.
    fn learn(&mut self, route: usize, destination: usize, outcome: &Outcome, now: Instant) {
        let error = match outcome {
            Outcome::Sent(_) => return self.answered(route, destination, true),
            Outcome::Unknown | Outcome::NotAttempted => return,
            Outcome::Failed(error) => error,
        };
        let asked = error.retry_after().unwrap_or_default().min(self.lanes[route].policy.retry_after_max);
        match (error.kind(), error.scope()) {
            // It answered, if only about this record.
            (SendErrorKind::Permanent, ErrorScope::Record) => self.answered(route, destination, false),
            // A record that fails, or that alone was put off, says nothing about the others.
            (_, ErrorScope::Record) => {}
            (_, ErrorScope::Destination) => {
                let random = self.random.f64();
                let state = &mut self.lanes[route].destinations[destination];
                if state.name.is_none() {
                    return self.sink_failed(route, error, asked, now);
                }
                if state.breaker.failed(now, asked, random) {
                    tracing::warn!(destination = host_of(state.name.as_deref()), %error, "a destination is down");
                    self.release_queued(Some((route, Some(destination))));
                }
            }
            (_, ErrorScope::Sink) => self.sink_failed(route, error, asked, now),
        }
    }

    fn answered(&mut self, route: usize, destination: usize, sent: bool) {
        let lane = &mut self.lanes[route];
        let state = &mut lane.destinations[destination];
        if state.breaker.succeeded() {
            tracing::info!(destination = host_of(state.name.as_deref()), "a destination answers again");
            lane.maybe_more = true;
        }
        let sink = &mut self.sinks[lane.sink];
        if sent && sink.breaker.succeeded() {
            sink.last_error = None;
            self.sink_is_back(self.lanes[route].sink);
        }
    }

    fn silent(&mut self, route: usize, destination: usize, now: Instant) {
        let random = self.random.f64();
        let state = &mut self.lanes[route].destinations[destination];
        if state.name.is_none() {
            let sink = self.lanes[route].sink;
            if self.sinks[sink].breaker.silent(now, random) {
                self.sink_is_down(sink, "no answer to any send");
            }
        } else if state.breaker.silent(now, random) {
            tracing::warn!(destination = host_of(state.name.as_deref()), "a destination does not answer");
            self.release_queued(Some((route, Some(destination))));
        }
    }

    fn sink_failed(&mut self, route: usize, error: &SendError, asked: Duration, now: Instant) {
        let random = self.random.f64();
        let sink = self.lanes[route].sink;
        if self.sinks[sink].breaker.failed(now, asked, random) {
            self.sink_is_down(sink, &error.to_string());
        }
    }

    fn sink_is_down(&mut self, sink: usize, why: &str) {
        tracing::warn!(sink = self.sinks[sink].sink.name(), error = why, "a sink is down");
        self.sinks[sink].last_error = Some(why.to_owned());
        for route in 0..self.lanes.len() {
            if self.lanes[route].sink == sink {
                self.release_queued(Some((route, None)));
            }
        }
        self.tell_health();
    }

    fn sink_is_back(&mut self, sink: usize) {
        tracing::info!(sink = self.sinks[sink].sink.name(), "a sink is fit");
        for lane in self.lanes.iter_mut().filter(|lane| lane.sink == sink) {
            lane.maybe_more = true;
            lane.make_all_ready();
        }
        self.tell_health();
    }

    /// Asks sinks that are new, or whose pause is over, whether they are fit.
    pub(super) fn start_checks(&mut self, now: Instant) {
        for place in 0..self.sinks.len() {
            let state = &mut self.sinks[place];
            let due = match state.breaker.probe_at() {
                Some(at) => now >= at,
                None => !state.seen_fit,
            };
            if due && !state.checking {
                state.checking = true;
                let (sink, within) = (std::sync::Arc::clone(&state.sink), self.config.send_timeout);
                self.sends.spawn(send::check(sink, place, within, std::sync::Arc::clone(&self.board)));
            }
        }
    }

    fn checked(&mut self, place: usize, result: Result<(), SendError>, now: Instant) {
        let random = self.random.f64();
        let state = &mut self.sinks[place];
        state.checking = false;
        match result {
            Ok(()) if !state.seen_fit => {
                state.seen_fit = true;
                state.last_error = None;
                state.breaker.succeeded();
                self.sink_is_back(place);
            }
            Ok(()) => {
                // Fit by its own word; one record shows it.
                state.breaker.half_open();
                for lane in self.lanes.iter_mut().filter(|lane| lane.sink == place) {
                    lane.maybe_more = true;
                }
            }
            Err(error) => {
                let lanes = self.lanes.iter().filter(|lane| lane.sink == place);
                let most = lanes.map(|lane| lane.policy.retry_after_max).max().unwrap_or_default();
                let asked = error.retry_after().unwrap_or_default().min(most);
                if state.breaker.failed(now, asked, random) {
                    self.sink_is_down(place, &error.to_string());
                }
            }
        }
    }
}

/// A destination without what a URL may hide: for logs.
fn host_of(destination: Option<&str>) -> String {
    let Some(text) = destination else { return "(none)".to_owned() };
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}")
}

#[cfg(test)]
mod tests {
    use super::host_of;

    #[test]
    fn a_logged_destination_shows_no_secret() {
        assert_eq!(
            host_of(Some("https://user:pw@example.test:8443/hook?token=x")),
            "https://example.test:8443"
        );
        assert_eq!(host_of(Some("orders")), "orders");
        assert_eq!(host_of(None), "(none)");
    }
}
