//! What a consumer finds of what the sink sent.

use std::time::Duration;

use outbox_core::{CloudEvents, ErrorScope, Payload, SendContext, SendErrorKind, Sink};
use sink_kafka::{KafkaConfig, KafkaSink};

use crate::broker::{self, create_topic, record, topic_name};

pub(crate) const CX: SendContext = SendContext::new(Duration::from_secs(5));

/// K1, K3: what is acknowledged is in the topic byte for byte, with its id.
#[tokio::test]
async fn a_record_arrives_byte_for_byte_with_its_headers() {
    let Some(brokers) = broker::brokers() else { return };
    let topic = create_topic(&brokers, "plain", 1, &[]).await;
    let sink = KafkaSink::connect(KafkaConfig::new(&brokers).with_topic(&topic)).unwrap();
    let payload = r#"{"n":18446744073709551615,"x":1.10,"e":1e400,"z":"\u0000","b":1,"b":2}"#;
    let mut first = record(payload);
    first.headers.insert("traceparent".into(), "00-1".into());
    first.key = Some("o-17".into());
    let receipt = sink.send(&first, &CX).await.unwrap();
    assert_eq!(receipt.as_str(), Some(format!("{topic}[0]@0").as_str()));
    let mut empty = record("");
    empty.payload = Payload::Bytes(Vec::new());
    empty.content_type = "application/octet-stream".into();
    sink.send(&empty, &CX).await.unwrap();

    let read = broker::read(&brokers, &topic).await;
    assert_eq!(read.len(), 2);
    assert_eq!(read[0].value.as_deref(), Some(payload.as_bytes()));
    assert_eq!(read[0].id(), Some(first.id));
    assert_eq!(read[0].header("outbox-kind"), Some("order.placed"));
    assert_eq!(read[0].header("content-type"), Some("application/json"));
    assert_eq!(read[0].header("traceparent"), Some("00-1"));
    assert_eq!(read[0].key.as_deref(), Some(&b"o-17"[..]));
    // No payload is no tombstone.
    assert_eq!(read[1].value.as_deref(), Some(&b""[..]));
    assert_eq!(read[1].key, None);
}

#[tokio::test]
async fn cloud_events_arrive_as_headers_or_as_an_envelope() {
    let Some(brokers) = broker::brokers() else { return };
    let topic = create_topic(&brokers, "events", 1, &[]).await;
    let sent = record(r#"{"total": 1.10}"#);
    for events in [CloudEvents::binary("/orders"), CloudEvents::structured("/orders")] {
        let config = KafkaConfig::new(&brokers).with_topic(&topic).with_cloud_events(events);
        KafkaSink::connect(config).unwrap().send(&sent, &CX).await.unwrap();
    }
    let read = broker::read(&brokers, &topic).await;
    assert_eq!(read[0].header("ce_id"), Some(sent.id.to_string().as_str()));
    assert_eq!(read[0].header("ce_type"), Some("order.placed"));
    assert_eq!(read[0].value.as_deref(), Some(sent.payload.as_bytes()));
    assert_eq!(read[1].header("content-type"), Some("application/cloudevents+json; charset=UTF-8"));
    let envelope: serde_json::Value = serde_json::from_slice(read[1].value.as_deref().unwrap()).unwrap();
    assert_eq!(envelope["source"], "/orders");
    assert_eq!(read[1].id(), Some(sent.id));
}

#[tokio::test]
async fn one_connection_serves_the_topics_of_many_routes() {
    let Some(brokers) = broker::brokers() else { return };
    let orders = create_topic(&brokers, "orders", 1, &[]).await;
    let audit = create_topic(&brokers, "audit", 1, &[]).await;
    let first = KafkaSink::connect(KafkaConfig::new(&brokers).with_topic(&orders)).unwrap();
    let second = first.for_topic(&audit).unwrap();
    first.close(Duration::from_secs(1)).await;
    assert_eq!(first.send(&record("1"), &CX).await.unwrap_err().kind(), SendErrorKind::Unavailable);
    second.check().await.unwrap();
    second.send(&record("2"), &CX).await.unwrap();
    let mut named = record("3");
    named.destination = Some(orders.clone());
    second.send(&named, &CX).await.unwrap();
    second.close(Duration::from_secs(1)).await;
    assert_eq!(broker::read(&brokers, &orders).await[0].id(), Some(named.id));
    assert_eq!(broker::read(&brokers, &audit).await.len(), 1);
}

/// R1: a topic that is missing is a destination that is down: visible at once, and no attempt is counted.
#[tokio::test]
async fn a_missing_topic_is_a_destination_that_is_down() {
    let Some(brokers) = broker::brokers() else { return };
    let topic = topic_name("missing");
    let sink = KafkaSink::connect(
        KafkaConfig::new(&brokers).with_topic(&topic).with_property("allow.auto.create.topics", "false"),
    )
    .unwrap();
    for _ in 0..2 {
        let error = sink.send(&record("1"), &CX).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.scope()),
            (SendErrorKind::Unavailable, ErrorScope::Destination),
            "{error}"
        );
    }
    assert!(sink.check().await.is_err());
}

#[tokio::test]
async fn a_sink_without_one_topic_checks_the_cluster() {
    for brokers in [broker::brokers(), broker::limited_brokers()].into_iter().flatten() {
        for config in [KafkaConfig::new(&brokers), KafkaConfig::new(&brokers).with_topic("shop.{kind}")] {
            KafkaSink::connect(config).unwrap().check().await.unwrap();
        }
    }
}

/// Where brokers make topics by themselves, the first record of a new one arrives as any other.
#[tokio::test]
async fn a_topic_that_the_broker_makes_takes_its_first_record() {
    let Some(brokers) = broker::brokers() else { return };
    let sink = KafkaSink::connect(KafkaConfig::new(&brokers)).unwrap();
    let mut first = record("1");
    first.destination = Some(topic_name("made"));
    sink.send(&first, &CX).await.unwrap();
    let read = broker::read(&brokers, first.destination.as_deref().unwrap()).await;
    assert_eq!(read[0].id(), Some(first.id));
}
