//! One call of a sink, in a task of its own: a panic or a hang in it stays in it.

use std::{
    collections::VecDeque,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use super::held::{Board, Chain, Ended, How, Slot};
use crate::{Outcome, Outcomes, Record, SendContext, SendError, Sink};

/// What one call of a sink, or a run of calls, leaves to its task.
pub(super) struct Handover {
    pub(super) sink: Arc<dyn Sink>,
    pub(super) route: usize,
    pub(super) cx: SendContext,
    pub(super) board: Arc<Board>,
}

/// One record of a run.
pub(super) struct Link {
    pub(super) slot: Slot,
    pub(super) batch: Arc<Vec<Record>>,
    pub(super) at: usize,
    pub(super) lease_end: Instant,
}

impl Handover {
    /// Sends a run, one record after the other, each once the one before it is acknowledged. It stops at
    /// the first that is not, when a lease runs short or is lost, and when `go` is taken back; the loop
    /// decides what becomes of the rest.
    pub(super) async fn run(self, links: Vec<Link>, chain: Arc<Chain>, go: Arc<AtomicBool>) {
        let mut links = links.into_iter();
        while let Some(link) = links.next() {
            let Some(record) = link.batch.get(link.at) else { break };
            chain.begun.fetch_add(1, Ordering::Relaxed);
            let begun = Instant::now();
            let mut outcomes = Outcomes::new(1);
            let result = self.call(std::slice::from_ref(record), &mut outcomes).await;
            let (outcome, progress) = outcomes.take(0);
            let how = match result {
                _ if outcomes.is_settled(0) => How::Reported(outcome),
                Ok(()) => How::Reported(outcome),
                Err(how) => how,
            };
            let now = Instant::now();
            let goes_on = matches!(how, How::Reported(Outcome::Sent(_)))
                && go.load(Ordering::Relaxed)
                && !chain.stopped.load(Ordering::Relaxed)
                && links
                    .as_slice()
                    .first()
                    .is_some_and(|next| next.lease_end.saturating_duration_since(now) >= self.cx.timeout);
            let rest = if goes_on {
                VecDeque::new()
            } else {
                links.as_slice().iter().map(|link| link.slot).collect()
            };
            let ended = Ended { slot: link.slot, how, progress, took: now - begun, over: !goes_on, rest };
            self.board.tell(|news| {
                news.ended.push(ended);
                if !goes_on {
                    news.calls.push(self.route);
                }
            });
            if !goes_on {
                return;
            }
        }
    }

    /// Sends several records in one call, and reports the end of each as soon as it is known.
    pub(super) async fn batch(self, records: Vec<Record>, slots: Vec<Slot>) {
        let begun = Instant::now();
        let mut outcomes = {
            let (board, slots) = (Arc::clone(&self.board), slots.clone());
            Outcomes::observed(records.len(), move |at, outcome, progress| {
                let Some(&slot) = slots.get(at) else { return };
                let ended = Ended::alone(slot, How::Reported(outcome), progress, begun.elapsed());
                board.tell(|news| news.ended.push(ended));
            })
        };
        let result = self.call(&records, &mut outcomes).await;
        let silent: Vec<usize> = outcomes.unsettled().collect();
        self.board.tell(|news| {
            for at in silent {
                let Some(&slot) = slots.get(at) else { continue };
                let (outcome, progress) = outcomes.take(at);
                let how = match &result {
                    Ok(()) => How::Reported(outcome),
                    Err(How::Panicked(text)) => How::Panicked(text.clone()),
                    Err(_) => How::TimedOut,
                };
                news.ended.push(Ended::alone(slot, how, progress, begun.elapsed()));
            }
            news.calls.push(self.route);
        });
    }

    async fn call(&self, records: &[Record], outcomes: &mut Outcomes) -> Result<(), How> {
        let sink = self.sink.name();
        let span = match records {
            [record] => tracing::debug_span!(
                "send",
                sink,
                id = %record.id,
                kind = record.kind,
                attempt = record.attempts,
                traceparent = record.headers.get("traceparent"),
            ),
            _ => tracing::debug_span!("send_batch", sink, records = records.len()),
        };
        let sending = self.sink.send_batch(records, &self.cx, outcomes).instrument(span);
        match AssertUnwindSafe(timeout(self.cx.timeout, sending)).catch_unwind().await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(How::TimedOut),
            Err(panic) => Err(How::Panicked(text_of(panic.as_ref()))),
        }
    }
}

/// Asks `sink` whether it is fit, and reports it under its place.
pub(super) async fn check(
    sink: Arc<dyn Sink>,
    place: usize,
    within: tokio::time::Duration,
    board: Arc<Board>,
) {
    let result = AssertUnwindSafe(timeout(within, sink.check())).catch_unwind().await;
    let result = match result {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(SendError::unavailable(format!("its check had no end within {within:?}"))),
        Err(panic) => Err(SendError::unavailable(format!("its check panicked: {}", text_of(panic.as_ref())))),
    };
    board.tell(|news| news.checked.push((place, result)));
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no text".to_owned())
}
