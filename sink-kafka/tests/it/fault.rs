//! Brokers that go away, come back, refuse, and clients that die of it.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use outbox_core::{ErrorScope, Outcome, Outcomes, SendContext, SendErrorKind, Sink};
use rdkafka::{
    ClientConfig,
    mocking::MockCluster,
    producer::FutureProducer,
    types::{RDKafkaApiKey, RDKafkaRespErr},
};
use sink_kafka::{KafkaConfig, KafkaSink};

use crate::{
    broker::{self, create_topic, record},
    link::{Link, LinkedBroker},
    send::CX,
};

/// For tests whose rule is not about time.
pub(crate) const LONG: SendContext = SendContext::new(Duration::from_secs(20));
const DOWN: (SendErrorKind, ErrorScope) = (SendErrorKind::Unavailable, ErrorScope::Sink);

/// A client of the application's own: without the sink's context it is not told of a lost connection, so that records
/// are handed to it while the broker is down.
fn foreign(brokers: &str) -> ClientConfig {
    let mut client = ClientConfig::new();
    client
        .set("bootstrap.servers", brokers)
        .set("enable.idempotence", "true")
        .set("message.timeout.ms", "2500")
        .set("reconnect.backoff.max.ms", "500");
    client
}

/// K5: what the client holds when the broker goes away is withdrawn, and does not arrive once the broker is back.
#[tokio::test]
async fn no_late_copy_comes_out_of_the_clients_own_queue() {
    let Some(linked) = LinkedBroker::start(&[]).await else { return };
    let topic = create_topic(&linked.address(), "late", 1, &[]).await;
    let client = foreign(&linked.address());
    let producer: FutureProducer = client.create().unwrap();
    let config = KafkaConfig::from_client(&client).with_topic(&topic);
    let sink = KafkaSink::from_producer(producer, config, move || client.create()).unwrap();
    let first = record("1");
    sink.send(&first, &CX).await.unwrap();

    linked.set(Link::Down);
    let late: Vec<_> = (0..100).map(|at| record(at.to_string())).collect();
    let ends = join_all(late.iter().map(|record| sink.send(record, &CX))).await;
    for end in ends {
        let error = end.unwrap_err();
        assert_eq!((error.kind(), error.scope()), DOWN, "{error}");
    }
    linked.set(Link::Open);
    let after = record("2");
    let mut sent = sink.send(&after, &CX).await;
    for _ in 0..5 {
        if sent.is_ok() {
            break;
        }
        sent = sink.send(&after, &CX).await;
    }
    sent.unwrap();
    // real time: a late copy would come within the client's next look at its queue.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let read = broker::read(&linked.address(), &topic).await;
    let ids: Vec<_> = read.iter().filter_map(|message| message.id()).collect();
    assert_eq!(ids, [first.id, after.id]);
}

/// K5: a client of the sink's own is handed nothing while its broker is gone, and goes on when it is back.
#[tokio::test]
async fn the_sink_comes_back_with_its_broker() {
    let Some(linked) = LinkedBroker::start(&[]).await else { return };
    let topic = create_topic(&linked.address(), "back", 1, &[]).await;
    let sink = KafkaSink::connect(KafkaConfig::new(linked.address()).with_topic(&topic)).unwrap();
    let mut sent = Vec::new();
    for round in 0..3 {
        let good = record(round.to_string());
        sink.check().await.unwrap();
        sink.send(&good, &CX).await.unwrap();
        sent.push(good.id);
        linked.set(Link::Down);
        // Once the client knows, the answer comes before the hand-over.
        for _ in 0..2 {
            let error = sink.send(&record("lost"), &CX).await.unwrap_err();
            assert_eq!((error.kind(), error.scope()), DOWN, "{error}");
        }
        assert!(sink.check().await.is_err());
        linked.set(Link::Open);
    }
    let read = broker::read(&linked.address(), &topic).await;
    assert_eq!(read.iter().filter_map(|message| message.id()).collect::<Vec<_>>(), sent);
}

/// R1: who is not let in is told so, without the password, and no record dies of it.
#[tokio::test]
async fn a_cluster_that_does_not_let_us_in_is_a_sink_that_is_down() {
    let Some(linked) = LinkedBroker::start(&["--authentication"]).await else { return };
    let config = KafkaConfig::new(linked.address())
        .with_topic("orders")
        .with_property("security.protocol", "sasl_plaintext")
        .with_property("sasl.mechanism", "PLAIN")
        .with_property("sasl.username", "shop")
        .with_property("sasl.password", "s3cret");
    let sink = KafkaSink::connect(config).unwrap();
    let error = sink.check().await.unwrap_err();
    assert_eq!((error.kind(), error.scope()), DOWN, "{error}");
    assert!(error.to_string().contains("did not let us in"), "{error}");
    let error = sink.send(&record("1"), &CX).await.unwrap_err();
    assert_eq!((error.kind(), error.scope()), DOWN, "{error}");
    assert!(!format!("{error} {error:?} {sink:?}").contains("s3cret"));
}

/// R1: the client's fatal error costs no record an attempt, and another client takes its place.
#[tokio::test]
async fn a_dead_client_is_made_anew() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    let sink =
        KafkaSink::connect(KafkaConfig::new(cluster.bootstrap_servers()).with_topic("orders")).unwrap();
    sink.send(&record("1"), &CX).await.unwrap();
    for _ in 0..2 {
        cluster.request_errors(
            RDKafkaApiKey::Produce,
            &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER],
        );
        let error = sink.send(&record("2"), &CX).await.unwrap_err();
        assert_eq!((error.kind(), error.scope()), DOWN, "{error}");
        sink.send(&record("3"), &CX).await.unwrap();
    }
    let read = broker::read(&cluster.bootstrap_servers(), "orders").await;
    assert_eq!(read.len(), 3);
}

/// K4: the record that a client dies of is the only one that dies.
#[tokio::test]
async fn a_record_that_kills_the_client_is_dead_and_others_are_not() {
    let Some(brokers) = broker::limited_brokers() else { return };
    let topic = create_topic(&brokers, "gapless", 1, &[("max.message.bytes", "100000")]).await;
    let config =
        KafkaConfig::new(&brokers).with_topic(&topic).with_property("enable.gapless.guarantee", "true");
    let sink = KafkaSink::connect(config).unwrap();
    let large = record(format!("\"{}\"", "x".repeat(500_000)));
    for _ in 0..2 {
        let error = sink.send(&large, &LONG).await.unwrap_err();
        assert_eq!((error.kind(), error.scope()), (SendErrorKind::Permanent, ErrorScope::Record), "{error}");
        sink.send(&record("1"), &LONG).await.unwrap();
    }
}

/// R1: a foreign client that dies is replaced by what the factory makes.
#[tokio::test]
async fn a_dead_foreign_client_is_replaced_by_the_factory() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    let client = foreign(&cluster.bootstrap_servers());
    let producer: FutureProducer = client.create().unwrap();
    let made = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let config = KafkaConfig::from_client(&client).with_topic("orders");
    let counted = Arc::clone(&made);
    let sink = KafkaSink::from_producer(producer.clone(), config, move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        client.create()
    })
    .unwrap();
    sink.send(&record("1"), &CX).await.unwrap();
    let errors = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER];
    cluster.request_errors(RDKafkaApiKey::Produce, &errors);
    assert_eq!(sink.send(&record("2"), &CX).await.unwrap_err().kind(), SendErrorKind::Unavailable);
    sink.send(&record("3"), &CX).await.unwrap();
    assert_eq!(made.load(std::sync::atomic::Ordering::Relaxed), 1);
    sink.close(Duration::from_secs(1)).await;
}

/// R1: each answer of a broker that may pass leaves the record pending or is counted; none kills it.
#[tokio::test]
async fn what_a_broker_cannot_do_now_kills_no_record() {
    use RDKafkaRespErr::*;
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    let sink =
        KafkaSink::connect(KafkaConfig::new(cluster.bootstrap_servers()).with_topic("orders")).unwrap();
    sink.send(&record("1"), &CX).await.unwrap();
    cluster.request_errors(RDKafkaApiKey::Produce, &[RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED]);
    let error = sink.send(&record("2"), &CX).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.scope()),
        (SendErrorKind::Unavailable, ErrorScope::Destination),
        "{error}"
    );
    sink.send(&record("3"), &CX).await.unwrap();

    // The client itself tries these again, and they pass unseen.
    cluster.request_errors(
        RDKafkaApiKey::Produce,
        &[RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION],
    );
    sink.send(&record("4"), &CX).await.unwrap();

    cluster.topic_error("orders", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART).unwrap();
    let error = sink.check().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.scope()),
        (SendErrorKind::Unavailable, ErrorScope::Destination),
        "{error}"
    );
    cluster.topic_error("orders", RD_KAFKA_RESP_ERR_NO_ERROR).unwrap();
    sink.check().await.unwrap();
    // The client believes in a topic that is back once half a second has passed.
    let mut sent = sink.send(&record("5"), &CX).await;
    while let Err(error) = &sent {
        assert_eq!((error.kind(), error.scope()), (SendErrorKind::Unavailable, ErrorScope::Destination));
        // real time: the client's own.
        tokio::time::sleep(Duration::from_millis(50)).await;
        sent = sink.send(&record("5"), &CX).await;
    }
}

/// R1: a partition without a leader makes its records wait, not count, while others of the topic go.
#[tokio::test]
async fn a_partition_without_a_leader_costs_no_attempt() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 2, 1).unwrap();
    let config = KafkaConfig::new(cluster.bootstrap_servers()).with_topic("orders");
    let sink = KafkaSink::connect(config).unwrap();
    // The mock broker does not survive a request for a partition that has lost its leader meanwhile.
    cluster.partition_leader("orders", 0, None).unwrap();
    sink.check().await.unwrap();
    // One key of each partition.
    let keyed = |key: &str| {
        let mut keyed = record("1");
        keyed.key = Some(key.into());
        keyed
    };
    let records = ["a", "b", "c", "d", "e", "f"].map(keyed);
    let ends = join_all(records.iter().map(|record| sink.send(record, &CX))).await;
    assert!(ends.iter().any(Result::is_ok));
    let errors: Vec<_> = ends.into_iter().filter_map(Result::err).collect();
    assert!(!errors.is_empty());
    for error in errors {
        assert_eq!(
            (error.kind(), error.scope()),
            (SendErrorKind::Unavailable, ErrorScope::Record),
            "{error}"
        );
    }
    cluster.partition_leader("orders", 1, None).unwrap();
    let error = sink.check().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.scope()),
        (SendErrorKind::Unavailable, ErrorScope::Destination),
        "{error}"
    );
}

/// A full queue of the client makes records wait, and fails none.
#[tokio::test]
async fn a_full_queue_is_waited_for() {
    let Some(brokers) = broker::brokers() else { return };
    let topic = create_topic(&brokers, "full", 1, &[]).await;
    let config =
        KafkaConfig::new(&brokers).with_topic(&topic).with_property("queue.buffering.max.messages", "10");
    let sink = KafkaSink::connect(config).unwrap();
    let records: Vec<_> = (0..500).map(|at| record(at.to_string())).collect();
    let cx = SendContext::new(Duration::from_secs(20));
    for end in join_all(records.iter().map(|record| sink.send(record, &cx))).await {
        end.unwrap();
    }
    assert_eq!(broker::read(&brokers, &topic).await.len(), 500);
}

/// R5: closing waits for what was handed over.
#[tokio::test]
async fn closing_waits_for_acknowledgements() {
    let Some(brokers) = broker::brokers() else { return };
    let topic = create_topic(&brokers, "close", 1, &[]).await;
    let config = KafkaConfig::new(&brokers).with_topic(&topic).with_property("linger.ms", "500");
    let sink = KafkaSink::connect(config).unwrap();
    sink.check().await.unwrap();
    let last = record("1");
    let (sent, ()) = tokio::join!(sink.send(&last, &CX), async {
        tokio::task::yield_now().await;
        sink.close(Duration::from_secs(3)).await;
    });
    sent.unwrap();
    assert_eq!(sink.send(&record("2"), &CX).await.unwrap_err().kind(), SendErrorKind::Unavailable);
    assert_eq!(broker::read(&brokers, &topic).await.len(), 1);
}

/// K5: within a batch too, a record that could no longer be withdrawn in time is not begun, and costs no attempt.
#[tokio::test]
async fn a_batch_begins_no_record_that_it_has_no_time_for() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    let config = KafkaConfig::new(cluster.bootstrap_servers()).with_topic("orders");
    let sink = KafkaSink::connect(config).unwrap();
    sink.send(&record("1"), &CX).await.unwrap();
    cluster.broker_round_trip_time(1, Duration::from_millis(700)).unwrap();
    let mut records = [record("1"), record("2"), record("3"), record("4")];
    for record in &mut records {
        record.key = Some("k".into());
    }
    let mut outcomes = Outcomes::new(records.len());
    sink.send_batch(&records, &CX, &mut outcomes).await;
    // A message may take 3 s and the client's look at its queue 1 s: the hand-over of the third would be after 1.4 s.
    assert!(matches!(outcomes.outcome(0), Outcome::Sent(_)), "{outcomes:?}");
    assert!(matches!(outcomes.outcome(2), Outcome::NotAttempted), "{outcomes:?}");
    assert!(matches!(outcomes.outcome(3), Outcome::NotAttempted), "{outcomes:?}");
    cluster.broker_round_trip_time(1, Duration::ZERO).unwrap();
    sink.send(&records[2], &CX).await.unwrap();
}

/// A broker that has forgotten the client costs no record anything: each goes out again through another.
#[tokio::test]
async fn a_client_that_the_broker_forgot_is_made_anew_unseen() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    // All of them in one request.
    let config =
        KafkaConfig::new(cluster.bootstrap_servers()).with_topic("orders").with_property("linger.ms", "200");
    let sink = KafkaSink::connect(config).unwrap();
    sink.send(&record("1"), &CX).await.unwrap();
    let forgotten = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_PRODUCER_FENCED];
    cluster.request_errors(RDKafkaApiKey::Produce, &forgotten);
    let records: Vec<_> = (0..200).map(|at| record(at.to_string())).collect();
    for end in join_all(records.iter().map(|record| sink.send(record, &LONG))).await {
        end.unwrap();
    }
    assert_eq!(broker::read(&cluster.bootstrap_servers(), "orders").await.len(), 201);
}
