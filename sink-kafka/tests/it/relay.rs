//! The relay, the sink and a broker that goes away in the middle.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use outbox_core::{Filter, MemoryStore, NewRecord, Operate, State, Store, relay::Relay};
use sink_kafka::{KafkaConfig, KafkaSink};
use tokio::time::Instant;

use crate::{
    broker::{self, create_topic},
    link::{Link, LinkedBroker},
};

const RECORDS: usize = 20_000;
const KEYS: usize = 5_000;

/// Sends 20,000 records of 5,000 keys through a relay, and away it goes: `disturb` is called twice in their middle. None
/// may be lost or die, each key arrives in order, and no attempt is spent but on what was under way.
async fn send_through(brokers: &str, mut disturb: impl AsyncFnMut()) {
    let topic = create_topic(brokers, "relay", 4, &[]).await;
    let store = MemoryStore::new();
    let mut tx = store.begin();
    let mut place = HashMap::new();
    for at in 0..RECORDS {
        let record = NewRecord::json("order.placed", &at).unwrap().key(format!("k{}", at % KEYS));
        place.insert(store.enqueue(&mut tx, record).await.unwrap().id(), at);
    }
    tx.commit();
    let sink = KafkaSink::connect(KafkaConfig::new(brokers).with_topic(&topic)).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let relay = tokio::spawn(Relay::new(store.clone()).route("*", sink).run(async move {
        let _ = stopped.await;
    }));
    for at in [2_000, 7_000] {
        while store.stats(&[]).await.unwrap().sent.value < at {
            tokio::task::yield_now().await;
        }
        disturb().await;
    }
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let stats = store.stats(&[]).await.unwrap();
        if stats.pending.value + stats.claimed.value == 0 {
            assert_eq!(stats.dead.value, 0);
            break;
        }
        assert!(Instant::now() < end, "{} pending", stats.pending.value);
        // real time: the rest is sent.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(stop);
    relay.await.unwrap().unwrap();

    let mut seen = HashSet::new();
    let mut last_of_key = HashMap::new();
    for message in broker::read(brokers, &topic).await {
        let at = place[&message.id().unwrap()];
        if seen.insert(at) {
            let last = last_of_key.insert(at % KEYS, at);
            assert!(last.is_none_or(|last| last < at), "{at} came after {last:?} of its key");
        }
    }
    assert_eq!(seen.len(), RECORDS);
    let (mut after, mut attempts) = (0, 0);
    loop {
        let page = store.list(&Filter::state(State::Sent), after, 1_000).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.seq;
        attempts += page.iter().map(|view| u64::from(view.attempts - 1)).sum::<u64>();
    }
    assert!(attempts <= 2 * 1_000, "{attempts} attempts beyond the first");
}

/// A1, K8: the broker is out of reach in the middle, once for longer than a send may take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_goes_away_loses_nothing() {
    let Some(linked) = LinkedBroker::start(&[]).await else { return };
    let mut away = [500, 6_000].map(Duration::from_millis).into_iter();
    send_through(&linked.address(), async || {
        linked.set(Link::Down);
        // real time: the broker is out of reach.
        tokio::time::sleep(away.next().unwrap()).await;
        linked.set(Link::Open);
    })
    .await;
}
