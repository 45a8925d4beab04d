//! What the relay holds: claimed records on their way, and what their sends have reported.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize},
    },
};

use tokio::{
    sync::Notify,
    time::{Duration, Instant},
};

use crate::{Outcome, Record, SendError};

/// The place of a held record in the relay's slab.
pub(super) type Slot = usize;

/// One claimed record, from its claim to the writing of its outcome.
pub(super) struct Held {
    /// The claim's records; shared, so that a send borrows its record without a copy.
    pub(super) batch: Arc<Vec<Record>>,
    /// The record's place in `batch`.
    pub(super) at: usize,
    pub(super) route: usize,
    /// The destination's place in its route.
    pub(super) destination: usize,
    /// When the lease ends, reckoned from before it was asked for.
    pub(super) lease_end: Instant,
    /// When the lease was last asked for.
    pub(super) leased_at: Instant,
    pub(super) phase: Phase,
    /// Whether it must not share a call with other records.
    pub(super) alone: bool,
    /// Whether it has been with its sink under this claim, without a word about it.
    pub(super) tried: bool,
    /// Whether the store has said that its claim is over.
    pub(super) lost: bool,
    /// The later records of its run, which go after it.
    pub(super) rest: VecDeque<Slot>,
    /// Its place in the chain that it was handed over with.
    pub(super) link: Option<(Arc<Chain>, usize)>,
}

/// A run under way in one task, record after record.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// How many of its records have been given to the sink.
    pub(super) begun: AtomicUsize,
    /// Set when the claim of one of its records is over: it goes no further.
    pub(super) stopped: AtomicBool,
}

impl Held {
    pub(super) fn record(&self) -> &Record {
        // `at` is a place in `batch` by construction.
        &self.batch[self.at]
    }
}

/// Where a held record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for its turn.
    Queued,
    /// With its sink.
    Sending,
    /// Its outcome waits to be written, or is being written.
    Marking,
}

/// How one send ended.
pub(super) struct Ended {
    pub(super) slot: Slot,
    pub(super) how: How,
    pub(super) progress: Option<serde_json::Value>,
    pub(super) took: Duration,
    /// Whether the sink is done with what this record was handed over with: a run goes on to its next.
    pub(super) over: bool,
    /// What was handed over with it and not begun, when it is over.
    pub(super) rest: VecDeque<Slot>,
}

impl Ended {
    /// The end of a record that no other waits for.
    pub(super) fn alone(slot: Slot, how: How, progress: Option<serde_json::Value>, took: Duration) -> Self {
        Self { slot, how, progress, took, over: true, rest: VecDeque::new() }
    }
}

/// What is known of a send that is over.
pub(super) enum How {
    /// The sink reported it.
    Reported(Outcome),
    /// The sink's time was over.
    TimedOut,
    /// The sink panicked, with this text.
    Panicked(String),
}

/// What tasks tell the relay's loop. Bounded by what is under way: each send reports once.
#[derive(Default)]
pub(super) struct Board {
    news: Mutex<News>,
    pinned: Notify,
}

/// What has been told since the loop last looked.
#[derive(Default)]
pub(super) struct News {
    pub(super) ended: Vec<Ended>,
    /// Calls that are over, by route.
    pub(super) calls: Vec<usize>,
    /// Checks that are over, by sink.
    pub(super) checked: Vec<(usize, Result<(), SendError>)>,
}

impl Board {
    pub(super) fn tell(&self, tell: impl FnOnce(&mut News)) {
        tell(&mut self.news.lock().unwrap_or_else(PoisonError::into_inner));
        self.pinned.notify_one();
    }

    pub(super) fn take(&self) -> News {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until something is told that has not been taken, or has been taken just now.
    pub(super) async fn told(&self) {
        self.pinned.notified().await;
    }
}
