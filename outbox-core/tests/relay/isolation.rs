//! R2: what fails or is slow holds back nothing else.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use outbox_core::{
    ErrorScope, Operate, PauseScope, SendError, State,
    relay::{Relay, Route},
};

use crate::world::*;

/// R2: the oldest records always fail, and newer ones flow.
#[tokio::test(start_paused = true)]
async fn failing_records_in_front_hold_nothing_back() {
    let store = outbox();
    let sink = TestSink::new(|record| match record.kind.as_str() {
        "bad" => Do::Fail(MILLI, SendError::transient("odd")),
        _ => Do::Accept(MILLI),
    });
    enqueue(&store, (0..1_000).map(|_| record("bad"))).await;
    enqueue(&store, (0..100).map(|_| record("good"))).await;
    let relay = start(Relay::new(store.clone()).route("*", sink.clone()));
    all_sent(&store, 100, 5 * SECOND).await;
    relay.stop().await.unwrap();
}

/// R2: a panic is a failed attempt with its text, and not a dead relay.
#[tokio::test(start_paused = true)]
async fn a_panic_of_the_sink_is_a_failed_attempt() {
    let store = outbox();
    let sink = TestSink::new(|record| match record.kind.as_str() {
        "bad" => Do::Panic("index out of bounds"),
        _ => Do::Accept(Duration::ZERO),
    });
    let ids = enqueue(&store, [record("bad"), record("good"), record("good")]).await;
    let route = Route::to(sink.clone()).attempts_max(3);
    let relay = start(Relay::new(store.clone()).route("*", route));
    all_sent(&store, 2, SECOND).await;
    assert!(within(60 * SECOND, async || count(&store, State::Dead).await == 1).await);
    let bad = view(&store, ids[0]).await;
    assert_eq!(bad.attempts, 3);
    assert!(bad.last_error.unwrap().contains("the sink panicked: index out of bounds"));
    assert_eq!(sink.log().iter().filter(|sent| sent.kind == "bad").count(), 3);
    relay.stop().await.unwrap();
}

/// R2: after a panic in a batch the records of which nothing is known go again one by one.
#[tokio::test(start_paused = true)]
async fn after_a_panic_in_a_batch_only_its_cause_fails() {
    let store = outbox();
    let sink = TestSink::new(|record| match record.seq {
        5 => Do::Panic("index out of bounds"),
        _ => Do::Accept(Duration::ZERO),
    })
    .in_batches(10);
    let ids = enqueue(&store, (0..10).map(|_| record("a"))).await;
    let route = Route::to(sink.clone()).attempts_max(1);
    let relay = start(Relay::new(store.clone()).route("*", route));
    all_sent(&store, 9, SECOND).await;
    assert_eq!(view(&store, ids[4]).await.state, State::Dead);
    assert_eq!(sink.copies().len(), 9);
    relay.stop().await.unwrap();
}

/// R2: one route hangs, the others go on.
#[tokio::test(start_paused = true)]
async fn a_hanging_sink_holds_back_no_other_route() {
    let store = outbox();
    let (hanging, fine) = (TestSink::new(|_| Do::Hang), TestSink::accepting());
    enqueue(&store, (0..1_000).map(|_| record("slow.a"))).await;
    enqueue(&store, (0..100).map(|_| record("fast.a"))).await;
    let relay = start(Relay::new(store.clone()).route("slow.*", hanging).route("fast.*", fine));
    all_sent(&store, 100, SECOND).await;
    relay.kill().await;
}

/// R2: one dead and one slow destination among many of a route; the others go at their usual rate, and what
/// the dead one costs is a few probes.
#[tokio::test(start_paused = true)]
async fn a_dead_and_a_slow_destination_leave_the_others_their_rate() {
    let store = outbox();
    let sink = TestSink::new(|record| match record.destination.as_deref() {
        Some("dead") => Do::Fail(MILLI, SendError::unavailable("connection refused")),
        Some("slow") => Do::Accept(4 * SECOND),
        _ => Do::Accept(MILLI),
    });
    enqueue(&store, (0..5_000).map(|_| record("dead").destination("dead"))).await;
    enqueue(&store, (0..500).map(|_| record("slow").destination("slow"))).await;
    enqueue(&store, (0..1_000).map(|n| record("fine").destination(format!("host {}", n % 100)))).await;
    let relay = start(Relay::new(store.clone()).seed(1).route("*", sink.clone()));
    let fine = || sink.log().iter().filter(|sent| sent.kind == "fine" && sent.accepted).count();
    assert!(within(3 * SECOND, async || fine() == 1_000).await, "{} of 1000", fine());
    pass(600 * SECOND).await;
    let dead = sink.log().iter().filter(|sent| sent.kind == "dead").count();
    assert!(dead < 80, "{dead} sends to the dead destination in ten minutes");
    assert_eq!(count(&store, State::Dead).await, 0);
    relay.kill().await;
}

/// R2: what is in flight for one destination stays under its cap.
#[tokio::test(start_paused = true)]
async fn one_destination_takes_a_quarter_of_its_route_at_most() {
    let store = outbox();
    let sink = TestSink::new(|_| Do::Accept(SECOND));
    enqueue(&store, (0..200).map(|_| record("a").destination("one"))).await;
    let relay = start(Relay::new(store.clone()).route("*", Route::to(sink.clone()).concurrency(40)));
    all_sent(&store, 200, 60 * SECOND).await;
    assert_eq!(sink.most_under_way(), 10);
    relay.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_route_keeps_its_concurrency_full_and_never_passes_it() {
    let store = outbox();
    let sink = TestSink::new(|_| Do::Accept(SECOND));
    enqueue(&store, (0..200).map(|_| record("a"))).await;
    let relay = start(Relay::new(store.clone()).route("*", Route::to(sink.clone()).concurrency(20)));
    all_sent(&store, 200, 11 * SECOND).await;
    assert_eq!(sink.most_under_way(), 20);
    relay.stop().await.unwrap();
}

/// R2: one sink of five is misconfigured: the other four run, and the health says which does not.
#[tokio::test(start_paused = true)]
async fn a_misconfigured_sink_is_told_and_stops_no_other() {
    let store = outbox();
    let mut relay = Relay::new(store.clone());
    for n in 0..5 {
        let sink = TestSink::accepting();
        let sink = if n == 3 { sink.unfit("access refused") } else { sink };
        relay = relay.route(&format!("kind{n}.*"), sink);
        enqueue(&store, (0..10).map(|_| record(&format!("kind{n}.a")))).await;
    }
    let health = relay.health();
    let relay = start(relay);
    all_sent(&store, 40, SECOND).await;
    let now = health.now();
    assert!(now.running && !now.is_ready());
    let errors: Vec<_> = now.routes.iter().map(|route| route.sink_error.as_deref()).collect();
    assert_eq!(errors, [None, None, None, Some("access refused"), None]);
    let waiting = in_state(&store, State::Pending).await;
    assert!(waiting.len() == 10 && waiting.iter().all(|view| view.attempts == 0));
    relay.stop().await.unwrap();
    assert!(!health.now().running);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_was_unfit_is_used_once_it_is_fit() {
    let store = outbox();
    let fit = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&fit);
    let sink = TestSink::new(move |_| match seen.load(Ordering::Relaxed) {
        true => Do::Accept(Duration::ZERO),
        false => {
            Do::Fail(Duration::ZERO, SendError::permanent("password expired").with_scope(ErrorScope::Sink))
        }
    });
    enqueue(&store, (0..50).map(|_| record("a"))).await;
    let relay = Relay::new(store.clone()).route("*", sink.clone());
    let mut health = relay.health();
    let relay = start(relay);
    assert!(health.wait_for(|health| health.routes.iter().any(|route| route.sink_error.is_some())).await);
    pass(300 * SECOND).await;
    assert_eq!(count(&store, State::Dead).await, 0);
    fit.store(true, Ordering::Relaxed);
    all_sent(&store, 50, 60 * SECOND).await;
    assert!(health.wait_for(outbox_core::relay::Health::is_ready).await);
    relay.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_paused_destination_held_back_is_sent_after_the_pause() {
    let (store, sink) = (outbox(), TestSink::accepting());
    let scope = PauseScope::Destination("host".into());
    store.pause(&scope, "maintenance").await.unwrap();
    enqueue(&store, (0..20).map(|_| record("a").destination("host"))).await;
    enqueue(&store, (0..20).map(|_| record("a").destination("other"))).await;
    let relay = start(Relay::new(store.clone()).route("*", sink.clone()));
    all_sent(&store, 20, SECOND).await;
    pass(600 * SECOND).await;
    let waiting = in_state(&store, State::Pending).await;
    assert!(waiting.len() == 20 && waiting.iter().all(|view| view.attempts == 0));
    store.resume(&scope).await.unwrap();
    all_sent(&store, 40, 2 * SECOND).await;
    relay.stop().await.unwrap();
}
