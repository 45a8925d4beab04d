//! Which records of a call may go now, and in which requests.

use std::collections::{HashMap, VecDeque};

use outbox_core::{Outcomes, Record, SendContext, SendError};

use crate::{message::Message, queue::Queue};

/// The most entries of a request.
pub(crate) const ENTRIES_MAX: usize = 10;

/// The places of a call's records, those behind each other in one lane that must go one after the other.
///
/// Only the first of a lane may be on the wire. So a request holds one record of a key, which on a FIFO queue
/// is one of a group.
#[derive(Debug)]
pub(crate) struct Lanes(Vec<VecDeque<usize>>);

/// A record on its way.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) lane: usize,
    pub(crate) at: usize,
    pub(crate) message: Message,
}

impl Lanes {
    /// `queue_of` says to which queue a record goes. On FIFO queues keys are never pipelined: the order of two
    /// records of a group is only known once the first is acknowledged.
    pub(crate) fn new<'r>(
        records: &'r [Record],
        cx: &SendContext,
        queue_of: impl Fn(&'r Record) -> Option<bool>,
    ) -> Self {
        let mut lanes: Vec<VecDeque<usize>> = Vec::with_capacity(records.len());
        let mut lane_of = HashMap::new();
        for (at, record) in records.iter().enumerate() {
            let is_alone = cx.pipelined_keys && queue_of(record) == Some(false);
            match record.key.as_deref().filter(|_| !is_alone) {
                Some(key) => {
                    let lane = *lane_of.entry(key).or_insert_with(|| {
                        lanes.push(VecDeque::new());
                        lanes.len() - 1
                    });
                    lanes[lane].push_back(at);
                }
                None => lanes.push(VecDeque::from([at])),
            }
        }
        Self(lanes)
    }

    pub(crate) fn all(&self) -> Vec<usize> {
        (0..self.0.len()).collect()
    }

    /// The record that is first in this lane, taken out.
    pub(crate) fn next(&mut self, lane: usize) -> Option<usize> {
        self.0.get_mut(lane)?.pop_front()
    }

    /// The record that went is not acknowledged: those behind it stay.
    pub(crate) fn stop(&mut self, lane: usize, outcomes: &mut Outcomes) {
        while let Some(at) = self.next(lane) {
            outcomes.not_attempted(at);
        }
    }

    /// The record failed, and those behind it are not attempted.
    pub(crate) fn fail(&mut self, lane: usize, at: usize, error: SendError, outcomes: &mut Outcomes) {
        outcomes.failed(at, error);
        self.stop(lane, outcomes);
    }
}

/// Requests of one queue each, at most [`ENTRIES_MAX`] entries and `bytes_max` bytes in one.
pub(crate) fn requests(
    ready: Vec<(Queue, Entry)>,
    bytes_max: usize,
) -> impl Iterator<Item = (Queue, Vec<Entry>)> {
    let mut requests: Vec<(Queue, Vec<Entry>, usize)> = Vec::new();
    // The last request of each queue: the one that may have room.
    let mut open: HashMap<Queue, usize> = HashMap::new();
    for (queue, entry) in ready {
        let bytes = entry.message.bytes;
        match open.get(&queue).and_then(|at| requests.get_mut(*at)) {
            Some((_, entries, taken)) if entries.len() < ENTRIES_MAX && *taken + bytes <= bytes_max => {
                *taken += bytes;
                entries.push(entry);
            }
            _ => {
                open.insert(queue.clone(), requests.len());
                requests.push((queue, vec![entry], bytes));
            }
        }
    }
    requests.into_iter().map(|(queue, entries, _)| (queue, entries))
}
