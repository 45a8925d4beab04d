//! The journal keeps K1 to K8, by the same suite as every sink of the workspace.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use custom_sink::{JournalSink, PAYLOAD_BYTES_MAX};
use outbox_core::{
    Payload, Record, Uuid, async_trait,
    conformance::sink::{Fault, Received, SinkHarness},
};

struct Journal(tempfile::TempDir);

impl Journal {
    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("journal.jsonl")
    }
}

#[async_trait]
impl SinkHarness for Journal {
    type Sink = JournalSink;

    // A disk takes everything or nothing.
    const FAULTS: &'static [Fault] = &[];
    const FAULTS_OF_ONE: &'static [Fault] = &[];

    async fn sink(&self) -> JournalSink {
        JournalSink::new(self.path())
    }

    fn record(&self) -> Record {
        Record::new(1, Uuid::now_v7(), "order.placed", Payload::Json(r#"{"card":"4111-1111"}"#.into()))
    }

    async fn received(&self) -> Vec<Received> {
        let text = std::fs::read_to_string(self.path()).unwrap_or_default();
        let id = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["id"].as_str().unwrap().parse().unwrap()
        };
        text.lines().map(|line| Received::new(Some(id(line)), [])).collect()
    }

    async fn fail(&self, fault: Fault, _: Option<Uuid>) {
        panic!("{fault:?} is not listed");
    }

    async fn heal(&self) {}

    fn unacceptable(&self) -> Vec<(&'static str, Record)> {
        let with = |payload| {
            let mut record = self.record();
            record.payload = payload;
            record
        };
        vec![
            ("longer than a line may be", with(Payload::Bytes(vec![b'x'; PAYLOAD_BYTES_MAX + 1]))),
            ("no text", with(Payload::Bytes(vec![0xff]))),
        ]
    }

    fn secrets(&self) -> Vec<String> {
        vec!["4111-1111".into()]
    }
}

outbox_core::sink_conformance!(Journal(tempfile::tempdir().unwrap()));
