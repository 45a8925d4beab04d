//! What a broker refuses, and for which record.

use std::time::Duration;

use outbox_core::{ErrorScope, Outcome, Outcomes, SendErrorKind, Sink};
use sink_kafka::{KafkaConfig, KafkaSink};

use crate::{
    broker::{self, create_topic, record},
    fault::LONG,
    send::CX,
};

fn large(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes - 2))
}

/// K4: a record too large is dead after one attempt, and the reason names its size: by the client's own limit, and by
/// the topic's.
#[tokio::test]
async fn a_record_too_large_is_permanent_and_names_its_size() {
    let Some(brokers) = broker::limited_brokers() else { return };
    let topic = create_topic(&brokers, "small", 1, &[("max.message.bytes", "100000")]).await;
    for client_limit in ["1000000", "8000000"] {
        let config =
            KafkaConfig::new(&brokers).with_topic(&topic).with_property("message.max.bytes", client_limit);
        let sink = KafkaSink::connect(config).unwrap();
        let error = sink.send(&record(large(2_000_000)), &LONG).await.unwrap_err();
        assert_eq!((error.kind(), error.scope()), (SendErrorKind::Permanent, ErrorScope::Record), "{error}");
        assert!(error.to_string().contains("a message of 20000"), "{error}");
        sink.send(&record("1"), &LONG).await.unwrap();
    }
}

/// K2: a batch that the broker refuses for its size costs no record that fits by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_too_large_kills_only_the_record_that_is() {
    let Some(brokers) = broker::limited_brokers() else { return };
    let topic = create_topic(&brokers, "batch", 1, &[("max.message.bytes", "100000")]).await;
    // A long linger puts everything into one batch, which is far beyond the topic's limit.
    let config = KafkaConfig::new(&brokers).with_topic(&topic).with_property("linger.ms", "200");
    let sink = KafkaSink::connect(config).unwrap();
    sink.check().await.unwrap();
    let records: Vec<_> = (0..20).map(|at| record(large(if at == 7 { 200_000 } else { 30_000 }))).collect();
    let mut outcomes = Outcomes::new(records.len());
    sink.send_batch(&records, &LONG, &mut outcomes).await;
    for at in 0..records.len() {
        match outcomes.outcome(at) {
            Outcome::Sent(_) if at != 7 => {}
            Outcome::Failed(error) if at == 7 => assert_eq!(error.kind(), SendErrorKind::Permanent),
            other => panic!("record {at}: {other:?}"),
        }
    }
    let read = broker::read(&brokers, &topic).await;
    let mut found: Vec<_> = read.iter().filter_map(|message| message.id()).collect();
    let mut sent: Vec<_> = records.iter().map(|record| record.id).collect();
    sent.remove(7);
    found.sort_unstable();
    sent.sort_unstable();
    assert_eq!(found, sent);
}

/// K8: a record that fails in the middle of its key holds back the rest, and other keys go on.
#[tokio::test]
async fn a_key_keeps_its_order_when_one_of_its_records_fails() {
    let Some(brokers) = broker::limited_brokers() else { return };
    let topic = create_topic(&brokers, "key", 3, &[("max.message.bytes", "100000")]).await;
    let sink = KafkaSink::connect(KafkaConfig::new(&brokers).with_topic(&topic)).unwrap();
    let mut records: Vec<_> = (0..9).map(|at| record(at.to_string())).collect();
    for (at, record) in records.iter_mut().enumerate() {
        record.key = Some(["k", "l", "m"][at % 3].to_owned());
    }
    records[3].payload = outbox_core::Payload::Json(large(500_000));
    let mut outcomes = Outcomes::new(records.len());
    sink.send_batch(&records, &LONG, &mut outcomes).await;
    let ends: Vec<_> = (0..records.len())
        .map(|at| match outcomes.outcome(at) {
            Outcome::Sent(_) => 's',
            Outcome::Failed(_) => 'f',
            Outcome::NotAttempted => 'n',
            _ => '?',
        })
        .collect();
    assert_eq!(ends.iter().collect::<String>(), "sssfssnss");

    // The relay has marked it dead with `OnDead::Skip`, or an operator has discarded it.
    sink.send(&records[6], &LONG).await.unwrap();
    let read = broker::read(&brokers, &topic).await;
    for key in ["k", "l", "m"] {
        let found: Vec<_> = read
            .iter()
            .filter(|message| message.key.as_deref() == Some(key.as_bytes()))
            .filter_map(|message| message.id())
            .collect();
        let sent: Vec<_> = records
            .iter()
            .enumerate()
            .filter(|(at, record)| *at != 3 && record.key.as_deref() == Some(key))
            .map(|(_, record)| record.id)
            .collect();
        assert_eq!(found, sent, "{key}");
    }
}

/// R1: no broker is a sink that is down, and nothing waits in the client for one to come.
#[tokio::test]
async fn without_a_broker_nothing_is_handed_to_the_client() {
    let config =
        KafkaConfig::new("127.0.0.1:1").with_topic("orders").with_send_timeout(Duration::from_secs(3));
    let sink = KafkaSink::connect(config).unwrap();
    let error = sink.check().await.unwrap_err();
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Unavailable, ErrorScope::Sink), "{error}");
    let error = sink.send(&record("1"), &CX).await.unwrap_err();
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Unavailable, ErrorScope::Sink), "{error}");
}

/// K5: a send that could not be withdrawn in time is not begun.
#[tokio::test]
async fn a_send_timeout_shorter_than_the_sinks_is_refused() {
    let sink = KafkaSink::connect(KafkaConfig::new("127.0.0.1:1").with_topic("orders")).unwrap();
    let short = outbox_core::SendContext::new(Duration::from_secs(3));
    let error = sink.send(&record("1"), &short).await.unwrap_err();
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Unavailable, ErrorScope::Sink));
    assert!(error.to_string().contains("send_timeout"), "{error}");
}
