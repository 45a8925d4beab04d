//! How many records a second the sink sends, beside the client library alone with the same settings, and through a
//! relay: `OUTBOX_TEST_KAFKA_BROKERS=… cargo bench -p sink-kafka`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a measurement fails by panicking and prints what it found"
)]

use std::{
    future::Future,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use outbox_core::{
    Headers, MemoryStore, NewRecord, Payload, Record, SendContext, Sink, Store, Uuid, relay::Relay,
};
use rdkafka::{
    ClientConfig,
    message::{Header, OwnedHeaders},
    producer::{FutureProducer, FutureRecord},
};
use sink_kafka::{KafkaConfig, KafkaSink};

const RECORDS: usize = 100_000;
const IN_FLIGHT: usize = 1_000;
const PAYLOAD_BYTES: usize = 1_024;

fn record(at: usize) -> Record {
    let payload = Payload::Bytes(vec![b'x'; PAYLOAD_BYTES]);
    let mut record = Record::new(1, Uuid::now_v7(), "order.placed", payload);
    record.key = Some(format!("k{}", at % 5_000));
    record.headers = Headers::from([("traceparent".into(), "00-1".into())]);
    record
}

async fn measure(name: &str, sending: impl Future<Output = ()>) -> f64 {
    let begun = Instant::now();
    sending.await;
    let rate = RECORDS as f64 / begun.elapsed().as_secs_f64();
    println!("{name:24} {rate:>9.0} records/s");
    rate
}

async fn bare(brokers: &str, topic: &str, records: &[Record]) {
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("partitioner", "murmur2_random")
        .set("linger.ms", "1")
        .set("statistics.interval.ms", "10000")
        .create()
        .unwrap();
    let sends = records.iter().map(|record| {
        let headers = [
            ("outbox-id", record.id.to_string()),
            ("outbox-kind", record.kind.clone()),
            ("content-type", record.content_type.clone()),
            ("traceparent", "00-1".to_owned()),
        ];
        let headers = headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
            headers.insert(Header { key, value: Some(value) })
        });
        let message = FutureRecord::to(topic)
            .key(record.key.as_deref().unwrap_or_default())
            .payload(record.payload.as_bytes())
            .headers(headers);
        async { assert!(producer.send(message, Duration::from_secs(5)).await.is_ok()) }
    });
    stream::iter(sends).buffer_unordered(IN_FLIGHT).for_each(|()| async {}).await;
}

async fn through_sink(sink: &KafkaSink, records: &[Record]) {
    let cx = SendContext::new(Duration::from_secs(5));
    let sends = records.iter().map(|record| async { assert!(sink.send(record, &cx).await.is_ok()) });
    stream::iter(sends).buffer_unordered(IN_FLIGHT).for_each(|()| async {}).await;
}

async fn through_relay(sink: KafkaSink, store: MemoryStore) {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let relay = tokio::spawn(Relay::new(store.clone()).route("*", sink).run(async move {
        let _ = stopped.await;
    }));
    while store.stats(&[]).await.unwrap().pending.value > 0
        || store.stats(&[]).await.unwrap().claimed.value > 0
    {
        // real time: records are being sent.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(stop);
    relay.await.unwrap().unwrap();
}

#[tokio::main]
async fn main() {
    let Ok(brokers) = std::env::var("OUTBOX_TEST_KAFKA_BROKERS") else {
        println!("OUTBOX_TEST_KAFKA_BROKERS is not set: nothing is measured");
        return;
    };
    let records: Vec<_> = (0..RECORDS).map(record).collect();
    for round in 1..=3 {
        println!("round {round}");
        let topic = format!("rate-{}", Uuid::now_v7());
        let sink = KafkaSink::connect(KafkaConfig::new(&brokers).with_topic(&topic)).unwrap();
        sink.check().await.unwrap();
        let alone = measure("client library alone", bare(&brokers, &topic, &records)).await;
        let through = measure("sink", through_sink(&sink, &records)).await;
        let store = MemoryStore::new();
        let mut tx = store.begin();
        for record in &records {
            let mut new = NewRecord::bytes("order.placed", "application/json", vec![b'x'; PAYLOAD_BYTES]);
            new.key = record.key.clone();
            store.enqueue(&mut tx, new).await.unwrap();
        }
        tx.commit();
        let relayed = measure("relay, store in memory", through_relay(sink, store)).await;
        println!("sink/alone {:.2}, relay/alone {:.2}", through / alone, relayed / alone);
    }
}
