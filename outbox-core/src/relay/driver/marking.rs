//! Writing outcomes: gathered, in order, until the store has them.

use tokio::time::Instant;

use super::Driver;
use crate::{
    Mark, MarkReport, Marked, Settlement, Store, StoreError,
    relay::{held::Slot, telemetry},
};

impl<S: Store> Driver<S> {
    /// Puts an outcome in line to be written. The slot is [`usize::MAX`] for a row that is not held.
    pub(super) fn write(&mut self, slot: Slot, mark: Mark, now: Instant) {
        self.marks.push((slot, mark));
        self.marks_since.get_or_insert(now);
    }

    pub(super) fn start_marks(&mut self, now: Instant, hurry: bool) {
        if self.marks.is_empty() || !self.calls.mark.is_idle() || now < self.next_mark_at {
            return;
        }
        let batch = self.mark_batch;
        let lingered = self.marks_since.is_none_or(|since| now >= since + self.config.mark_linger);
        // With nothing else to do there is nothing to wait for.
        let idle = self.lanes.iter().all(|lane| lane.queued == 0 && lane.calls == 0);
        if hurry || lingered || idle || self.marks.len() >= batch {
            let rest = self.marks.split_off(self.marks.len().min(batch));
            let marks = std::mem::replace(&mut self.marks, rest);
            self.marks_since = (!self.marks.is_empty()).then_some(now);
            self.calls.start_mark(marks);
        }
    }

    pub(super) fn marked(&mut self, marks: Vec<(Slot, Mark)>, result: Result<MarkReport, StoreError>) {
        let now = Instant::now();
        let report = match result {
            Ok(report) => report,
            Err(error) => return self.not_marked(marks, &error, now),
        };
        self.store_is_back();
        self.mark_batch = self.mark_batch.saturating_mul(2).min(self.config.mark_batch.get());
        telemetry::lost(report.lost());
        for (place, (slot, mark)) in marks.into_iter().enumerate() {
            let marked = report.marked.get(place).copied().unwrap_or(Marked::Lost);
            if marked == Marked::Lost {
                tracing::debug!(id = %mark.lease.id, fence = mark.lease.fence, "a lease was lost before its outcome was written");
            }
            self.let_go(slot, &mark, marked, now);
        }
    }

    /// The store has the outcome; the record is no longer held.
    fn let_go(&mut self, slot: Slot, mark: &Mark, marked: Marked, now: Instant) {
        let Some(held) = self.held.try_remove(slot) else { return };
        if self.suspect == Some(slot) {
            self.suspect = None;
            // The next one may come.
            self.next_claim_at = now;
        }
        let lane = &mut self.lanes[held.route];
        lane.held -= 1;
        let destination = &mut lane.destinations[held.destination];
        destination.held -= 1;
        if destination.limited {
            destination.limited = false;
            lane.maybe_more = true;
        }
        let metrics = &self.metrics[held.route];
        metrics.held.set(lane.held as f64);
        match &mark.settlement {
            Settlement::Sent { .. } if marked != Marked::Lost => metrics.sent.increment(1),
            Settlement::Retry { after, .. } | Settlement::Deferred { after, .. } => {
                if let Some(due) = now.checked_add(*after) {
                    self.next_claim_at = self.next_claim_at.min(due);
                }
            }
            Settlement::Released => self.next_claim_at = self.next_claim_at.min(now),
            Settlement::Sent { .. } | Settlement::Dead { .. } => {}
        }
        if held.record().key.is_some() {
            // Its key may go on, and with a record of any route.
            for lane in &mut self.lanes {
                lane.maybe_more = true;
            }
        }
    }

    fn not_marked(&mut self, marks: Vec<(Slot, Mark)>, error: &StoreError, now: Instant) {
        let pause = self.store_failed("mark", error);
        self.next_mark_at = now + pause;
        if error.is_retryable() || marks.len() > 1 {
            if !error.is_retryable() {
                // One of them may be at fault. Halves find it, and the others are written.
                self.mark_batch = (marks.len() / 2).max(1);
            }
            // In front, so that the order stays.
            let later = std::mem::replace(&mut self.marks, marks);
            self.marks.extend(later);
        } else {
            for (slot, mark) in &marks {
                tracing::error!(id = %mark.lease.id, %error, "an outcome cannot be written; the record goes out again when its lease ends");
                self.let_go(*slot, mark, Marked::Lost, now);
            }
        }
        self.marks_since.get_or_insert(now);
    }
}
