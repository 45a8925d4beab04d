//! What brokers do to publishers, and what must come of it.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use outbox_core::{
    ErrorScope, Filter, MemoryStore, NewRecord, Operate, Payload, Record, SendContext, SendErrorKind, Sink,
    State, Store, Uuid, relay::Relay,
};
use sink_nats::{NatsConfig, NatsSink};

use crate::{
    broker::{self, Own, Stream},
    proxy::{Proxy, Weather},
};

const CX: SendContext = SendContext::new(Duration::from_secs(5));

fn record(subject: &str) -> Record {
    let mut record = Record::new(1, Uuid::now_v7(), "order.placed", Payload::Json("17".into()));
    record.destination = Some(subject.into());
    record
}

async fn connected(config: NatsConfig) -> NatsSink {
    let sink = NatsSink::connect(config).await.unwrap();
    for _ in 0..250 {
        if sink.check().await.is_ok() {
            return sink;
        }
        // real time: the client connects.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not connected");
}

/// K6: bad subjects are refused before sending; the connection and its neighbours go on.
#[tokio::test(flavor = "multi_thread")]
async fn bad_subjects_harm_no_neighbour() {
    let Some(url) = broker::url() else { return };
    let stream = Stream::new(broker::client(&url).await).await;
    let sink = connected(NatsConfig::new(&url)).await;
    let mut good = HashSet::new();
    for bad in ["a b", "a\r\nPUB x 1", "a..b", "*", ">"] {
        let error = sink.send(&record(bad), &CX).await.unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::Permanent, "{bad:?}");
        let fine = record(&stream.subject());
        sink.send(&fine, &CX).await.unwrap();
        good.insert(fine.id);
    }
    let received: HashSet<Uuid> = stream.messages().await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(received, good);
}

/// K1, K4: without a stream there is no success, and no death of the record.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_stream_the_destination_is_down() {
    let Some(url) = broker::url() else { return };
    let sink = connected(NatsConfig::new(&url)).await;
    let error = sink.send(&record("nobody.listens"), &CX).await.unwrap_err();
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Unavailable, ErrorScope::Destination));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_stream_than_the_expected_one_is_no_success() {
    let Some(url) = broker::url() else { return };
    let client = broker::client(&url).await;
    let (expected, other) = (Stream::new(client.clone()).await, Stream::new(client).await);
    let sink = connected(NatsConfig::new(&url).with_stream(&expected.name)).await;
    let error = sink.send(&record(&other.subject()), &CX).await.unwrap_err();
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Unavailable, ErrorScope::Destination));
    sink.send(&record(&expected.subject()), &CX).await.unwrap();
    assert!(other.messages().await.is_empty());
}

/// K3: an acknowledgement was lost; the second copy is success, and the stream holds one.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_copy_is_success_and_is_stored_once() {
    let Some(url) = broker::url() else { return };
    let stream = Stream::new(broker::client(&url).await).await;
    let proxy = Proxy::before(&url).await;
    let sink = connected(NatsConfig::new(proxy.url())).await;
    let record = record(&stream.subject());
    proxy.set(Weather::Silent).await;
    let lost = tokio::time::timeout(Duration::from_millis(300), sink.send(&record, &CX)).await;
    assert!(lost.is_err(), "acknowledged through silence");
    proxy.set(Weather::Fair).await;
    let receipt = sink.send(&record, &CX).await.unwrap();
    assert_eq!(receipt.as_str(), Some(format!("{} 1", stream.name).as_str()));
    assert_eq!(stream.messages().await.len(), 1);
}

/// K1: a full stream that discards new messages is no success; once there is room, the record goes.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_stream_takes_the_record_once_it_has_room() {
    let Some(url) = broker::url() else { return };
    let stream = Stream::new(broker::client(&url).await).await;
    let mut config = stream.config();
    config.max_messages = 1;
    stream.set(config).await;
    let sink = connected(NatsConfig::new(&url)).await;
    sink.send(&record(&stream.subject()), &CX).await.unwrap();
    let waiting = record(&stream.subject());
    let error = sink.send(&waiting, &CX).await.unwrap_err();
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Unavailable, ErrorScope::Destination));
    stream.set(stream.config()).await;
    sink.send(&waiting, &CX).await.unwrap();
    assert_eq!(stream.messages().await.len(), 2);
}

/// A1, K5: the server is killed twice in the middle of 20,000 records: none is lost, the stream holds each once,
/// and no attempt is spent but on what was under way.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_and_doubles_nothing() {
    const RECORDS: usize = 20_000;
    let Some(mut server) = Own::start().await else { return };
    let stream = Stream::new(server.client().await).await;
    let store = MemoryStore::new();
    let mut tx = store.begin();
    let mut ids = HashSet::new();
    for n in 0..RECORDS {
        let record = NewRecord::json("order.placed", &n).unwrap().key(format!("k{}", n % 5_000));
        ids.insert(store.enqueue(&mut tx, record).await.unwrap().id());
    }
    tx.commit();
    let sink = connected(NatsConfig::new(server.url()).with_subject(stream.subject())).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let relay = tokio::spawn(Relay::new(store.clone()).route("*", sink).run(async move {
        let _ = stopped.await;
    }));
    let sent = async || store.stats(&[]).await.unwrap().sent.value;
    for at in [2_000, 7_000] {
        while sent().await < at {
            tokio::task::yield_now().await;
        }
        server.kill();
        // real time: the server is away.
        tokio::time::sleep(Duration::from_millis(500)).await;
        server.restart();
    }
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let stats = store.stats(&[]).await.unwrap();
        if stats.pending.value + stats.claimed.value == 0 {
            break;
        }
        assert!(tokio::time::Instant::now() < end, "{} pending", stats.pending.value);
        // real time: the rest is sent.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(stop);
    relay.await.unwrap().unwrap();
    assert_eq!(store.stats(&[]).await.unwrap().dead.value, 0);
    let mut copies: HashMap<Uuid, usize> = HashMap::new();
    for (id, _) in stream.messages().await {
        *copies.entry(id).or_default() += 1;
    }
    assert_eq!(copies.len(), RECORDS);
    assert!(copies.iter().all(|(id, copies)| *copies == 1 && ids.contains(id)));
    let mut attempts = 0_u64;
    let mut after = 0;
    loop {
        let page = store.list(&Filter::state(State::Sent), after, 1_000).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.seq;
        attempts += page.iter().map(|view| u64::from(view.attempts - 1)).sum::<u64>();
    }
    assert!(attempts <= 2 * 1_000, "{attempts} attempts beyond the first");
}
