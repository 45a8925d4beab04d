//! The checks that every sink passes, against a real broker behind a link that can be cut.

use outbox_core::{
    Payload, Record, Sink, Uuid, async_trait,
    conformance::sink::{Fault, Received, SinkHarness},
};
use sink_kafka::{KafkaConfig, KafkaSink};

use crate::{
    broker::{self, create_topic},
    link::{Link, LinkedBroker},
};

const PASSWORD: &str = "password-not-to-be-shown";
const PAYLOAD: &str = "payload-not-to-be-shown";

struct KafkaHarness {
    broker: LinkedBroker,
    topic: String,
}

impl KafkaHarness {
    async fn start() -> Option<Self> {
        let broker = LinkedBroker::start(&[]).await?;
        // One partition, so that what arrives has one order.
        let topic = create_topic(&broker.address(), "conformance", 1, &[]).await;
        Some(Self { broker, topic })
    }
}

#[async_trait]
impl SinkHarness for KafkaHarness {
    type Sink = KafkaSink;

    const FAULTS: &'static [Fault] = &[Fault::Held, Fault::Cut, Fault::Down];
    // The client puts the records of a moment into one request: none has an answer of its own.
    const FAULTS_OF_ONE: &'static [Fault] = &[];

    async fn sink(&self) -> KafkaSink {
        let config = KafkaConfig::new(self.broker.address())
            .with_topic("unused")
            .with_property("sasl.username", "shop")
            .with_property("sasl.password", PASSWORD);
        let sink = KafkaSink::connect(config).unwrap().for_topic(&self.topic).unwrap();
        sink.check().await.unwrap();
        sink
    }

    fn record(&self) -> Record {
        let payload = Payload::Json(format!("\"{PAYLOAD}\""));
        let mut record = Record::new(1, Uuid::now_v7(), "order.placed", payload);
        record.destination = Some(self.topic.clone());
        record
    }

    async fn received(&self) -> Vec<Received> {
        let read = broker::read(&self.broker.address(), &self.topic).await;
        let received = |message: &broker::Read| {
            let names = message.headers.iter().map(|(name, _)| name.clone());
            Received::new(message.id(), names)
        };
        read.iter().map(received).collect()
    }

    async fn fail(&self, fault: Fault, of: Option<Uuid>) {
        assert_eq!(of, None, "one record alone cannot fail");
        self.broker.set(match fault {
            Fault::Held => Link::Held,
            Fault::Cut => Link::Cut,
            Fault::Down => Link::Down,
            other => panic!("{other:?} is not among the faults"),
        });
    }

    async fn heal(&self) {
        self.broker.set(Link::Open);
    }

    fn unacceptable(&self) -> Vec<(&'static str, Record)> {
        let mut large = self.record();
        large.payload = Payload::Json(format!("\"{PAYLOAD}{}\"", "x".repeat(2_000_000)));
        let mut nowhere = self.record();
        nowhere.destination = Some("no topic".into());
        let mut forged = self.record();
        forged.headers.insert("outbox-id".into(), Uuid::nil().to_string());
        vec![("too large", large), ("to what is no topic", nowhere), ("with an id of its own", forged)]
    }

    fn secrets(&self) -> Vec<String> {
        vec![PASSWORD.to_owned(), PAYLOAD.to_owned()]
    }
}

outbox_core::sink_conformance!(match KafkaHarness::start().await {
    Some(harness) => harness,
    None => return,
});
