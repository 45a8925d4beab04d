//! Where the brokers are, and what tests ask of them beside the sink.

use std::{collections::BTreeMap, time::Duration};

use outbox_core::{Payload, Record, Uuid};
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
    message::Headers,
};

const WITHIN: Duration = Duration::from_secs(10);
const AT_ONCE: Duration = Duration::from_millis(200);

/// The value of an environment variable that `cargo xtask test` sets; without it the test is skipped, unless
/// services are required.
pub(crate) fn service(variable: &str) -> Option<String> {
    let found = std::env::var(variable).ok().filter(|value| !value.is_empty());
    let is_set = |name: &str, to: &str| std::env::var(name).is_ok_and(|value| value == to);
    if found.is_none() {
        assert!(
            !is_set("CI", "true") && !is_set("OUTBOX_TEST_REQUIRE_SERVICES", "1"),
            "{variable} is not set, and services are required"
        );
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("SKIPPED: {variable} is not set; `cargo xtask test` sets it\n"),
        );
    }
    found
}

/// Brokers for ordinary tests.
pub(crate) fn brokers() -> Option<String> {
    service("OUTBOX_TEST_KAFKA_BROKERS")
}

/// Brokers that hold topics to a `max.message.bytes`.
pub(crate) fn limited_brokers() -> Option<String> {
    service("OUTBOX_TEST_KAFKA_LIMITED_BROKERS")
}

/// A name that no other test has.
pub(crate) fn topic_name(of: &str) -> String {
    format!("{of}-{}", Uuid::now_v7())
}

pub(crate) async fn create_topic(
    brokers: &str,
    of: &str,
    partitions: i32,
    config: &[(&str, &str)],
) -> String {
    let name = topic_name(of);
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", brokers).create().unwrap();
    let mut topic = NewTopic::new(&name, partitions, TopicReplication::Fixed(1));
    for (key, value) in config {
        topic = topic.set(key, value);
    }
    let created = admin.create_topics([&topic], &AdminOptions::new().operation_timeout(Some(WITHIN))).await;
    created.unwrap().remove(0).unwrap();
    name
}

/// A message as a consumer reads it.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) partition: i32,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(String, String)>,
}

impl Read {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn id(&self) -> Option<Uuid> {
        self.header("outbox-id").and_then(|id| id.parse().ok())
    }
}

/// Everything in a topic, partition by partition.
pub(crate) async fn read(brokers: &str, topic: &str) -> Vec<Read> {
    let (brokers, topic) = (brokers.to_owned(), topic.to_owned());
    tokio::task::spawn_blocking(move || read_blocking(&brokers, &topic)).await.unwrap()
}

fn read_blocking(brokers: &str, topic: &str) -> Vec<Read> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", topic_name("reader"))
        .set("enable.auto.commit", "false")
        .set("check.crcs", "true")
        .create()
        .unwrap();
    let metadata = consumer.fetch_metadata(Some(topic), WITHIN).unwrap();
    let mut left = BTreeMap::new();
    let mut assignment = TopicPartitionList::new();
    for partition in metadata.topics()[0].partitions() {
        let (low, high) = consumer.fetch_watermarks(topic, partition.id(), WITHIN).unwrap();
        if high > low {
            left.insert(partition.id(), high);
            assignment.add_partition_offset(topic, partition.id(), Offset::Beginning).unwrap();
        }
    }
    consumer.assign(&assignment).unwrap();
    let mut read = Vec::new();
    loop {
        // One of the brokers calls the start of the last batch the end of the topic: what is behind it comes at once.
        let message = match consumer.poll(if left.is_empty() { AT_ONCE } else { WITHIN }) {
            Some(Ok(message)) => message,
            // The link has only just come up again.
            Some(Err(KafkaError::MessageConsumption(
                RDKafkaErrorCode::BrokerTransportFailure | RDKafkaErrorCode::AllBrokersDown,
            ))) => continue,
            Some(Err(error)) => panic!("{error}"),
            None if left.is_empty() => break,
            None => panic!("no message in time"),
        };
        let headers = message.headers().map_or_else(Vec::new, |headers| {
            headers
                .iter()
                .map(|header| {
                    let value = String::from_utf8_lossy(header.value.unwrap_or_default());
                    (header.key.to_owned(), value.into_owned())
                })
                .collect()
        });
        read.push(Read {
            partition: message.partition(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers,
        });
        if left.get(&message.partition()).is_some_and(|high| message.offset() + 1 >= *high) {
            left.remove(&message.partition());
        }
    }
    read.sort_by_key(|message| message.partition);
    read
}

/// A record with a new id.
pub(crate) fn record(payload: impl Into<String>) -> Record {
    Record::new(1, Uuid::now_v7(), "order.placed", Payload::Json(payload.into()))
}
