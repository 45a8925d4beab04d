//! The checks that every sink must pass: against a server that fails as it is told, and against one that does not.

use std::sync::Mutex;

use outbox_core::{
    Record, Uuid, async_trait,
    conformance::sink::{Fault, Received, SinkHarness},
};
use sink_sqs::{SqsSink, aws_sdk_sqs::types::MessageSystemAttributeName};

use crate::{
    scripted::{SECRET, Scripted},
    service::{OwnQueue, attribute, record, said},
};

const PAYLOAD: &str = "payload-not-to-be-shown";

fn records_never_taken() -> Vec<(&'static str, Record)> {
    let changed = |what, change: fn(&mut Record)| {
        let mut record = record(format!("\"{PAYLOAD}\""));
        change(&mut record);
        (what, record)
    };
    vec![
        changed("too large", |record| {
            record.payload = outbox_core::Payload::Json(format!("\"{PAYLOAD}{}\"", "x".repeat(1_048_576)));
        }),
        changed("a character that SQS refuses", |record| {
            record.payload = outbox_core::Payload::Json(format!("\"{PAYLOAD}\u{1}\""));
        }),
        changed("empty", |record| record.payload = outbox_core::Payload::Json(String::new())),
        changed("a header that is no attribute", |record| {
            _ = record.headers.insert("a b".into(), "1".into())
        }),
        changed("a header of the sink's own", |record| {
            _ = record.headers.insert("Outbox-Id".into(), "1".into());
        }),
        changed("too many headers", |record| {
            record.headers.extend((0..10).map(|n| (format!("h{n}"), "1".to_owned())));
        }),
        changed("a destination that is no queue", |record| record.destination = Some("or ders".into())),
    ]
}

struct ScriptedHarness {
    server: Scripted,
    queue: &'static str,
}

#[async_trait]
impl SinkHarness for ScriptedHarness {
    type Sink = SqsSink;

    const FAULTS: &'static [Fault] = &[
        Fault::RefusedForever,
        Fault::RefusedForNow,
        Fault::Throttled,
        Fault::Held,
        Fault::Cut,
        Fault::Down,
    ];
    const FAULTS_OF_ONE: &'static [Fault] = &[Fault::RefusedForever, Fault::RefusedForNow, Fault::Throttled];

    async fn sink(&self) -> SqsSink {
        SqsSink::connect(self.server.config(self.queue)).unwrap()
    }

    fn record(&self) -> Record {
        record(format!("\"{PAYLOAD}\""))
    }

    async fn received(&self) -> Vec<Received> {
        self.server.book.lock().unwrap().received.clone()
    }

    async fn fail(&self, fault: Fault, of: Option<Uuid>) {
        if fault == Fault::Down {
            self.server.down().await;
            return;
        }
        let mut book = self.server.book.lock().unwrap();
        match of {
            Some(id) => _ = book.fault_of.insert(id, fault),
            None => book.fault = Some(fault),
        }
    }

    async fn heal(&self) {
        {
            let mut book = self.server.book.lock().unwrap();
            book.fault = None;
            book.fault_of.clear();
        }
        self.server.up().await;
    }

    async fn asked(&self) -> Option<usize> {
        Some(self.server.book.lock().unwrap().batches.len())
    }

    fn unacceptable(&self) -> Vec<(&'static str, Record)> {
        records_never_taken()
    }

    fn secrets(&self) -> Vec<String> {
        vec![PAYLOAD.into(), SECRET.into(), "AKIDEXAMPLE".into()]
    }
}

/// A server written by others: it shows what arrives, and fails nothing.
struct ServiceHarness {
    queue: OwnQueue,
    taken: Mutex<Vec<Received>>,
}

impl ServiceHarness {
    async fn new(is_fifo: bool) -> Option<Self> {
        Some(Self { queue: OwnQueue::new(is_fifo).await?, taken: Mutex::default() })
    }
}

#[async_trait]
impl SinkHarness for ServiceHarness {
    type Sink = SqsSink;

    const FAULTS: &'static [Fault] = &[];
    const FAULTS_OF_ONE: &'static [Fault] = &[];

    async fn sink(&self) -> SqsSink {
        SqsSink::connect(self.queue.config(&self.queue.name)).unwrap()
    }

    fn record(&self) -> Record {
        record(format!("\"{PAYLOAD}\""))
    }

    async fn received(&self) -> Vec<Received> {
        for message in self.queue.take().await {
            let id = said(&message, MessageSystemAttributeName::MessageDeduplicationId)
                .or_else(|| attribute(&message, "outbox-id"))
                .and_then(|id| id.parse().ok());
            let names = message.message_attributes.unwrap_or_default().into_keys();
            self.taken.lock().unwrap().push(Received::new(id, names));
        }
        self.taken.lock().unwrap().clone()
    }

    async fn fail(&self, fault: Fault, _: Option<Uuid>) {
        panic!("this server does not fail: {fault:?}");
    }

    async fn heal(&self) {}

    fn unacceptable(&self) -> Vec<(&'static str, Record)> {
        records_never_taken()
    }

    fn secrets(&self) -> Vec<String> {
        vec![PAYLOAD.into(), SECRET.into()]
    }
}

mod failing_standard {
    use super::*;
    outbox_core::sink_conformance!(ScriptedHarness { server: Scripted::start().await, queue: "orders" });
}

mod failing_fifo {
    use super::*;
    outbox_core::sink_conformance!(ScriptedHarness { server: Scripted::start().await, queue: "orders.fifo" });
}

mod standard {
    use super::*;
    outbox_core::sink_conformance!(match ServiceHarness::new(false).await {
        Some(harness) => harness,
        None => return,
    });
}

mod fifo {
    use super::*;
    outbox_core::sink_conformance!(match ServiceHarness::new(true).await {
        Some(harness) => harness,
        None => return,
    });
}
