//! The harness of the sink in memory, which is also the example of one.

use async_trait::async_trait;
use uuid::Uuid;

use super::sink::{Fault, Received, SinkHarness};
use crate::{MemorySink, Payload, Record, Scripted, SendError};

/// What stands in every payload.
const PAYLOAD: &str = "payload-not-to-be-shown";

/// Runs the checks against [`MemorySink`], which is its own destination.
#[derive(Debug)]
pub struct MemorySinkHarness {
    sink: MemorySink,
}

impl MemorySinkHarness {
    /// A harness with a sink of its own.
    pub fn new() -> Self {
        Self { sink: MemorySink::new().with_payload_bytes_max(1_000) }
    }
}

impl Default for MemorySinkHarness {
    fn default() -> Self {
        Self::new()
    }
}

const EVERY: &[Fault] =
    &[Fault::RefusedForever, Fault::RefusedForNow, Fault::Throttled, Fault::Held, Fault::Cut, Fault::Down];

#[async_trait]
impl SinkHarness for MemorySinkHarness {
    type Sink = MemorySink;

    const FAULTS: &'static [Fault] = EVERY;
    const FAULTS_OF_ONE: &'static [Fault] = EVERY;

    async fn sink(&self) -> MemorySink {
        self.sink.clone()
    }

    fn record(&self) -> Record {
        Record::new(1, Uuid::now_v7(), "order.placed", Payload::Json(format!(r#"{{"it":"{PAYLOAD}"}}"#)))
    }

    async fn received(&self) -> Vec<Received> {
        let received = self.sink.received().into_iter();
        received.map(|record| Received::new(Some(record.id), record.headers.into_keys())).collect()
    }

    async fn fail(&self, fault: Fault, of: Option<Uuid>) {
        let does = match fault {
            Fault::RefusedForever => Scripted::Fail(|| SendError::permanent("refused")),
            Fault::RefusedForNow => Scripted::Fail(|| SendError::transient("try again")),
            Fault::Throttled => Scripted::Fail(|| SendError::throttled("too many")),
            Fault::Held => Scripted::Hang,
            Fault::Cut => Scripted::Fail(|| SendError::transient("the connection was closed")),
            Fault::Down => Scripted::Fail(|| SendError::unavailable("cannot be reached")),
        };
        match of {
            None => self.sink.set_default(does),
            Some(id) => self.sink.next_of(id, [does; 100]),
        }
    }

    async fn heal(&self) {
        self.sink.heal();
    }

    async fn asked(&self) -> Option<usize> {
        usize::try_from(self.sink.calls()).ok()
    }

    fn unacceptable(&self) -> Vec<(&'static str, Record)> {
        let mut large = self.record();
        large.payload = Payload::Bytes(vec![b'x'; 1_001]);
        vec![("a payload of 1,001 bytes", large)]
    }

    fn secrets(&self) -> Vec<String> {
        vec![PAYLOAD.to_owned()]
    }
}
