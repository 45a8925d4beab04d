//! One sink under test, with short words for what every check does.

use std::{
    error::Error,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::timeout;
use uuid::Uuid;

use super::{Fault, SinkHarness};
use crate::{Outcome, Outcomes, Receipt, Record, SendContext, SendError, Sink};

pub(super) struct Trial<'h, H: SinkHarness> {
    pub(super) harness: &'h H,
    pub(super) sink: H::Sink,
    /// The most that a good send may take.
    pub(super) cx: SendContext,
}

impl<'h, H: SinkHarness> Trial<'h, H> {
    pub(super) async fn new(harness: &'h H) -> Self {
        let cx = SendContext::new(harness.patience() * 20);
        Self { harness, sink: harness.sink().await, cx }
    }

    /// New records for one batch, at most this many and as many as the sink takes.
    pub(super) fn records(&self, at_most: usize) -> Vec<Record> {
        let limit = match self.sink.limits().batch_records.get() {
            1 => at_most,
            limit => limit.min(at_most),
        };
        (1..=limit)
            .map(|seq| {
                let mut record = self.harness.record();
                record.seq = i64::try_from(seq).unwrap();
                record
            })
            .collect()
    }

    /// As many records as asked for, or none when the sink takes fewer in one batch.
    pub(super) fn batch_of(&self, records: usize) -> Option<Vec<Record>> {
        Some(self.records(records)).filter(|batch| batch.len() == records)
    }

    /// Sends, within the time that a good send may take.
    pub(super) async fn send(&self, record: &Record) -> Result<Receipt, SendError> {
        timeout(self.cx.timeout, self.sink.send(record, &self.cx)).await.expect("a send ends in time")
    }

    pub(super) async fn send_batch(&self, records: &[Record]) -> Outcomes {
        let mut outcomes = Outcomes::new(records.len());
        let sending = self.sink.send_batch(records, &self.cx, &mut outcomes);
        timeout(self.cx.timeout, sending).await.expect("a batch ends in time");
        outcomes
    }

    /// Sends a batch that does not end, drops it after a while, and returns the places that were sent by then.
    pub(super) async fn abandon_batch(&self, records: &[Record]) -> Vec<usize> {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&sent);
        let mut outcomes = Outcomes::observed(records.len(), move |at, outcome, _| {
            if let Outcome::Sent(_) = outcome {
                noted.lock().unwrap().push(at);
            }
        });
        let sending = self.sink.send_batch(records, &self.cx, &mut outcomes);
        assert!(timeout(self.harness.patience(), sending).await.is_err(), "a held record did not hold");
        let mut sent = sent.lock().unwrap().clone();
        sent.sort_unstable();
        sent
    }

    /// The ids that the destination has taken, in order.
    pub(super) async fn received(&self) -> Vec<Uuid> {
        let received = self.harness.received().await;
        received.into_iter().map(|message| message.id.expect("the id travels in its own field")).collect()
    }

    /// Waits as long as something that must not happen could take.
    pub(super) async fn settle_down(&self) {
        // real time: that nothing comes can only be waited for.
        tokio::time::sleep(self.harness.patience().min(Duration::from_secs(5))).await;
    }
}

/// Whether the destination can be made to do this to everything.
pub(super) fn can<H: SinkHarness>(fault: Fault) -> bool {
    H::FAULTS.contains(&fault)
}

/// Whether the destination can be made to do this to one record.
pub(super) fn can_to_one<H: SinkHarness>(fault: Fault) -> bool {
    H::FAULTS_OF_ONE.contains(&fault)
}

/// All that a log could show of an error.
pub(super) fn text_of(error: &SendError) -> String {
    let mut text = format!("{error} {error:?}");
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(" {cause} {cause:?}"));
        source = cause.source();
    }
    text
}
