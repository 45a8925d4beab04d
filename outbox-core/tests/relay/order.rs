//! S7 and K8 through the relay: records of one key arrive in order.

use std::{collections::HashMap, sync::Mutex};

use outbox_core::{
    Dedup, Operate, SendError, State,
    relay::{Relay, Route},
};

use crate::world::*;

/// S7: one key, a thousand records, two relays, sends that take from nothing to 50 ms.
#[tokio::test(start_paused = true)]
async fn a_key_arrives_in_order_whatever_the_relays_and_the_latency() {
    let store = outbox();
    let random = Mutex::new(fastrand::Rng::with_seed(11));
    let sink = TestSink::new(move |_| Do::Accept(random.lock().unwrap().u32(0..=50) * MILLI));
    let ids = enqueue(&store, (0..1_000).map(|_| record("a").key("k"))).await;
    let relays: Vec<_> =
        (0..2).map(|seed| start(Relay::new(store.clone()).seed(seed).route("*", sink.clone()))).collect();
    all_sent(&store, 1_000, 120 * SECOND).await;
    let received: Vec<_> = sink.log().iter().map(|sent| sent.id).collect();
    assert_eq!(received, ids);
    assert_eq!(sink.most_under_way(), 1);
    for relay in relays {
        relay.stop().await.unwrap();
    }
}

/// S7: a record that fails holds back its key and nothing else.
#[tokio::test(start_paused = true)]
async fn a_failing_record_holds_back_its_key_alone() {
    let store = outbox();
    let sink = TestSink::new(|record| match (record.kind.as_str(), record.attempts) {
        ("bad", 1..=3) => Do::Fail(MILLI, SendError::transient("odd")),
        _ => Do::Accept(MILLI),
    });
    enqueue(&store, [record("bad").key("k"), record("a").key("k"), record("a").key("other"), record("a")])
        .await;
    let relay = start(Relay::new(store.clone()).seed(5).route("*", sink.clone()));
    all_sent(&store, 4, 60 * SECOND).await;
    let log = sink.log();
    let seqs: Vec<i64> = log.iter().map(|sent| sent.seq).collect();
    assert_eq!(seqs.iter().filter(|seq| **seq == 1).count(), 4);
    assert_eq!(seqs.last(), Some(&2), "{seqs:?}");
    assert!(log.iter().filter(|sent| sent.seq > 2).all(|sent| sent.begun - log[0].begun < SECOND));
    relay.stop().await.unwrap();
}

/// S7: a dead record holds back its key until an operator decides, unless its route lets keys go on.
#[tokio::test(start_paused = true)]
async fn a_dead_record_blocks_its_key_until_it_is_discarded() {
    let store = outbox();
    let sink = TestSink::new(|record| match record.kind.as_str() {
        "bad" => Do::Fail(MILLI, SendError::permanent("no")),
        _ => Do::Accept(MILLI),
    });
    let ids = enqueue(&store, [record("bad").key("k"), record("a").key("k")]).await;
    let relay = start(Relay::new(store.clone()).route("*", sink.clone()));
    pass(600 * SECOND).await;
    assert_eq!(sink.sends(), 1);
    store.discard(&ids[..1], "not needed").await.unwrap();
    all_sent(&store, 1, 2 * SECOND).await;
    relay.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_key_goes_on_after_a_dead_record_where_the_route_says_so() {
    let store = outbox();
    let sink = TestSink::new(|record| match record.kind.as_str() {
        "bad" => Do::Fail(MILLI, SendError::permanent("no")),
        _ => Do::Accept(MILLI),
    });
    enqueue(&store, [record("bad").key("k"), record("a").key("k")]).await;
    let route = Route::to(sink.clone()).on_dead(outbox_core::OnDead::Skip);
    let relay = start(Relay::new(store.clone()).route("*", route));
    all_sent(&store, 1, 2 * SECOND).await;
    relay.stop().await.unwrap();
}

/// S7: a reminder of the next hour holds nothing back; once it is backing off, nothing overtakes it.
#[tokio::test(start_paused = true)]
async fn a_scheduled_record_is_overtaken_and_a_backing_off_one_is_not() {
    let store = outbox();
    let sink = TestSink::new(|record| match (record.kind.as_str(), record.attempts) {
        ("reminder", 1..=2) => Do::Fail(MILLI, SendError::transient("odd").with_retry_after(60 * SECOND)),
        _ => Do::Accept(MILLI),
    });
    let later = 3_600 * SECOND;
    enqueue(&store, [record("reminder").key("k").delay(later), record("order").key("k")]).await;
    let relay = start(Relay::new(store.clone()).seed(2).route("*", sink.clone()));
    all_sent(&store, 1, SECOND).await;
    pass(later).await;
    assert!(within(2 * SECOND, async || sink.sends() == 2).await);
    enqueue(&store, [record("order").key("k")]).await;
    all_sent(&store, 3, 300 * SECOND).await;
    let log = sink.log();
    let kinds: Vec<_> = log.iter().map(|sent| sent.kind.as_str()).collect();
    assert_eq!(kinds, ["order", "reminder", "reminder", "reminder", "order"]);
    assert!(log[2].begun - log[1].begun >= 60 * SECOND, "a wait is never shortened");
    relay.stop().await.unwrap();
}

/// S7: keys go side by side, each in order, also across kinds of several routes.
#[tokio::test(start_paused = true)]
async fn many_keys_go_side_by_side_and_each_in_order() {
    let store = outbox();
    let random = Mutex::new(fastrand::Rng::with_seed(4));
    let sink = TestSink::new(move |_| Do::Accept(random.lock().unwrap().u32(1..=20) * MILLI));
    let records = (0..3_000).map(|n| {
        record(if n % 3 == 0 { "a.x" } else { "b.x" })
            .key(format!("k{}", n % 50))
            .dedup(Dedup::new(format!("{n}")))
    });
    enqueue(&store, records).await;
    let begun = tokio::time::Instant::now();
    let relay =
        start(Relay::new(store.clone()).seed(9).route("a.*", sink.clone()).route("b.*", sink.clone()));
    all_sent(&store, 3_000, 60 * SECOND).await;
    let took = begun.elapsed();
    assert!(took < 6 * SECOND, "{took:?} for 32 s of sends");
    let mut last: HashMap<String, i64> = HashMap::new();
    for sent in sink.log() {
        let before = last.insert(sent.key.unwrap(), sent.seq).unwrap_or(0);
        assert!(before < sent.seq, "{before} before {}", sent.seq);
    }
    relay.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_a_sink_holds_one_record_of_a_key() {
    let store = outbox();
    let sink = TestSink::accepting().in_batches(10);
    enqueue(&store, (0..40).map(|n| record("a").key(format!("k{}", n % 4)))).await;
    let relay = start(Relay::new(store.clone()).route("*", Route::to(sink.clone()).concurrency(1)));
    all_sent(&store, 40, 5 * SECOND).await;
    let mut calls: HashMap<(tokio::time::Instant, usize), Vec<String>> = HashMap::new();
    let mut log = sink.log().into_iter();
    while let Some(first) = log.next() {
        let mut keys = vec![first.key.unwrap()];
        for _ in 1..first.together {
            keys.push(log.next().unwrap().key.unwrap());
        }
        calls.insert((first.begun, calls.len()), keys);
    }
    for keys in calls.values() {
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len(), "{keys:?}");
    }
    assert_eq!(count(&store, State::Sent).await, 40);
    assert!(calls.values().any(|keys| keys.len() > 1));
    relay.stop().await.unwrap();
}
