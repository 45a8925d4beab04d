//! One call of a sink, in a task of its own: a panic or a hang in it stays in it.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use super::held::{Board, Ended, How, Slot};
use crate::{Outcomes, Record, SendContext, Sink};

/// The records of one call.
pub(super) enum Load {
    /// One record, where its claim left it.
    One(Arc<Vec<Record>>, usize),
    /// Several, gathered.
    Many(Vec<Record>),
}

impl Load {
    fn records(&self) -> &[Record] {
        match self {
            Self::One(batch, at) => batch.get(*at).map(std::slice::from_ref).unwrap_or_default(),
            Self::Many(records) => records,
        }
    }
}

/// Hands `load` to `sink` and reports the end of each record, as soon as it is known, for `slots`.
pub(super) async fn send(
    sink: Arc<dyn Sink>,
    load: Load,
    slots: Vec<Slot>,
    route: usize,
    cx: SendContext,
    board: Arc<Board>,
) {
    let begun = Instant::now();
    let records = load.records();
    let mut outcomes = {
        let (board, slots) = (Arc::clone(&board), slots.clone());
        Outcomes::observed(records.len(), move |at, outcome, progress| {
            let Some(&slot) = slots.get(at) else { return };
            let took = begun.elapsed();
            board.tell(|news| {
                news.ended.push(Ended { slot, how: How::Reported(outcome), progress, took });
            });
        })
    };
    let span = match records {
        [record] => tracing::debug_span!(
            "send",
            sink = sink.name(),
            id = %record.id,
            kind = record.kind,
            attempt = record.attempts,
            traceparent = record.headers.get("traceparent"),
        ),
        _ => tracing::debug_span!("send_batch", sink = sink.name(), records = records.len()),
    };
    let sending = sink.send_batch(records, &cx, &mut outcomes).instrument(span);
    let result = AssertUnwindSafe(timeout(cx.timeout, sending)).catch_unwind().await;

    let took = begun.elapsed();
    let silent: Vec<usize> = outcomes.unsettled().collect();
    board.tell(|news| {
        for at in silent {
            let Some(&slot) = slots.get(at) else { continue };
            let (outcome, progress) = outcomes.take(at);
            let how = match &result {
                Ok(Ok(())) => How::Reported(outcome),
                Ok(Err(_)) => How::TimedOut,
                Err(panic) => How::Panicked(text_of(panic.as_ref())),
            };
            news.ended.push(Ended { slot, how, progress, took });
        }
        news.calls.push(route);
    });
}

/// Asks `sink` whether it is fit, and reports it under its place.
pub(super) async fn check(
    sink: Arc<dyn Sink>,
    place: usize,
    within: tokio::time::Duration,
    board: Arc<Board>,
) {
    use crate::SendError;
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
