//! R4, R8, R9: leases while sending, and what follows a relay's death.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use outbox_core::{
    SendError, State,
    relay::{Relay, Route},
};
use tokio::sync::Notify;

use crate::world::*;

/// R4: sends that together take much longer than a lease are not doubled, since leases are renewed.
#[tokio::test(start_paused = true)]
async fn a_slow_batch_is_renewed_and_sent_once() {
    let store = outbox();
    let sink = TestSink::new(|_| Do::Accept(300 * MILLI));
    enqueue(&store, (0..40).map(|_| record("a"))).await;
    let config = config().with_lease_for(SECOND).with_send_timeout(500 * MILLI);
    let route = Route::to(sink.clone()).concurrency(1);
    let relays: Vec<_> = (0..2)
        .map(|seed| {
            start(Relay::new(store.clone()).config(config.clone()).seed(seed).route("*", route.clone()))
        })
        .collect();
    all_sent(&store, 40, 60 * SECOND).await;
    assert_eq!(sink.sends(), 40);
    for relay in relays {
        relay.stop().await.unwrap();
    }
}

/// R4: a send without an answer is abandoned at its timeout, and tried again.
#[tokio::test(start_paused = true)]
async fn a_hanging_send_is_abandoned_and_tried_again() {
    let store = outbox();
    let sink = TestSink::new(|record| match record.attempts {
        1 => Do::Hang,
        _ => Do::Accept(Duration::ZERO),
    });
    let ids = enqueue(&store, [record("a")]).await;
    let relay = start(Relay::new(store.clone()).route("*", sink.clone()));
    all_sent(&store, 1, 20 * SECOND).await;
    let view = view(&store, ids[0]).await;
    assert_eq!((view.attempts, view.lapses), (2, 0));
    assert_eq!(view.last_error.as_deref(), Some("no answer within 5s"));
    relay.stop().await.unwrap();
}

/// R8: what a killed relay held goes out again within one lease, under the same id.
#[tokio::test(start_paused = true)]
async fn what_a_killed_relay_held_goes_out_within_one_lease() {
    let store = outbox();
    let slow = TestSink::new(|_| Do::Accept(4 * SECOND));
    let ids = enqueue(&store, (0..20).map(|_| record("a"))).await;
    let relay = start(Relay::new(store.clone()).route("*", slow.clone()));
    assert!(within(SECOND, async || slow.sends() == 20).await);
    relay.kill().await;

    let sink = TestSink::accepting();
    let relay = start(Relay::new(store.clone()).route("*", sink.clone()));
    all_sent(&store, 20, 11 * SECOND).await;
    assert_eq!(sink.copies().len(), 20);
    for id in ids {
        let view = view(&store, id).await;
        assert_eq!((view.attempts, view.lapses), (1, 1), "a lapse refunds its attempt");
    }
    relay.stop().await.unwrap();
}

/// R9: a record that kills its relay each time dies by its lapses, with `attempts_max` at its lowest; of the
/// five hundred around it, those of its key among them, all are sent.
#[tokio::test(start_paused = true)]
async fn only_the_record_that_kills_relays_dies() {
    let store = outbox();
    let mut records: Vec<_> = (0..500).map(|_| record("good")).collect();
    records.insert(250, record("fatal").key("k"));
    records.push(record("good").key("k"));
    let ids = enqueue(&store, records).await;
    let killed = Arc::new(Notify::new());
    let crashes = Arc::new(Mutex::new(0));
    let sink = {
        let (killed, crashes) = (Arc::clone(&killed), Arc::clone(&crashes));
        TestSink::new(move |record| match record.kind.as_str() {
            "fatal" => {
                *crashes.lock().unwrap() += 1;
                killed.notify_one();
                Do::Hang
            }
            _ => Do::Accept(MILLI),
        })
    };
    let route = Route::to(sink.clone()).attempts_max(1).on_dead(outbox_core::OnDead::Skip);
    for seed in 0..100 {
        let relay = start(Relay::new(store.clone()).seed(seed).route("*", route.clone()));
        let over = async {
            all_sent(&store, 501, 3_600 * SECOND).await;
        };
        tokio::select! {
            () = killed.notified() => relay.kill().await,
            () = over => {
                relay.stop().await.unwrap();
                break;
            }
        }
    }
    let dead = in_state(&store, State::Dead).await;
    assert_eq!(dead.iter().map(|view| view.id).collect::<Vec<_>>(), [ids[250]]);
    assert_eq!(dead[0].last_error.as_deref(), Some("5 claims in a row ended with a dead or silent relay"));
    assert_eq!(*crashes.lock().unwrap(), 5);
    assert_eq!(count(&store, State::Sent).await, 501);
}

/// R9: records that have lapsed are sent alone, one at a time.
#[tokio::test(start_paused = true)]
async fn records_that_lapsed_are_sent_one_at_a_time() {
    let store = outbox();
    let first = TestSink::new(|_| Do::Hang);
    enqueue(&store, (0..30).map(|_| record("a"))).await;
    let relay = start(Relay::new(store.clone()).route("*", first.clone()));
    assert!(within(SECOND, async || first.sends() == 30).await);
    relay.kill().await;

    let sink = TestSink::new(|_| Do::Accept(100 * MILLI)).in_batches(10);
    let relay = start(Relay::new(store.clone()).route("*", sink.clone()));
    all_sent(&store, 30, 60 * SECOND).await;
    assert_eq!(sink.most_under_way(), 1);
    assert!(sink.log().iter().all(|sent| sent.together == 1));
    relay.stop().await.unwrap();
}

/// R2, R9: fresh records do not wait for those that have lapsed.
#[tokio::test(start_paused = true)]
async fn fresh_records_do_not_wait_for_lapsed_ones() {
    let store = outbox();
    let hanging = TestSink::new(|_| Do::Hang);
    enqueue(&store, (0..50).map(|_| record("old"))).await;
    let relay = start(Relay::new(store.clone()).route("*", hanging.clone()));
    assert!(within(SECOND, async || hanging.sends() == 50).await);
    relay.kill().await;
    pass(20 * SECOND).await;

    enqueue(&store, (0..500).map(|_| record("new"))).await;
    let sink = TestSink::new(|record| match record.kind.as_str() {
        "old" => Do::Fail(SECOND, SendError::transient("odd")),
        _ => Do::Accept(MILLI),
    });
    let relay = start(Relay::new(store.clone()).route("*", sink.clone()));
    all_sent(&store, 500, 2 * SECOND).await;
    relay.kill().await;
}
