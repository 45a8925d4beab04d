//! R1, R3: what each outcome of a send does to its record.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use outbox_core::{
    Backoff, ErrorScope, Operate, SendError, State,
    relay::{RateLimit, Relay, Route},
};

use crate::world::*;

/// R1: sent, with what the destination answered.
#[tokio::test(start_paused = true)]
async fn an_acknowledged_record_is_sent_with_its_receipt() {
    let (store, sink) = (outbox(), TestSink::accepting());
    let ids = enqueue(&store, [record("a")]).await;
    let relay = start(Relay::new(store.clone()).route("*", sink.clone()));
    all_sent(&store, 1, SECOND).await;
    let view = view(&store, ids[0]).await;
    assert_eq!((view.attempts, view.receipt.as_deref()), (1, Some("receipt 1")));
    relay.stop().await.unwrap();
}

/// R1: what can never be accepted is dead after one attempt, with the reason.
#[tokio::test(start_paused = true)]
async fn a_permanent_refusal_is_dead_at_once() {
    let store = outbox();
    let sink = TestSink::new(|_| Do::Fail(Duration::ZERO, SendError::permanent("too large")));
    let ids = enqueue(&store, [record("a")]).await;
    let relay = start(Relay::new(store.clone()).route("*", sink.clone()));
    assert!(within(SECOND, async || count(&store, State::Dead).await == 1).await);
    let view = view(&store, ids[0]).await;
    assert_eq!((view.attempts, view.last_error.as_deref()), (1, Some("too large")));
    pass(60 * SECOND).await;
    assert_eq!(sink.sends(), 1);
    relay.stop().await.unwrap();
}

/// R1: a destination that is down costs no attempt, however long; few probes go out meanwhile, and all is
/// sent when it is back.
#[tokio::test(start_paused = true)]
async fn half_an_hour_without_the_destination_kills_nothing() {
    let store = outbox();
    let begun = tokio::time::Instant::now();
    let back_at = begun + 1_800 * SECOND;
    let sink = TestSink::new(move |_| {
        if tokio::time::Instant::now() < back_at {
            Do::Fail(MILLI, SendError::unavailable("connection refused").with_scope(ErrorScope::Sink))
        } else {
            Do::Accept(MILLI)
        }
    });
    enqueue(&store, (0..500).map(|_| record("a"))).await;
    let route = Route::to(sink.clone()).attempts_max(5);
    let relay = start(Relay::new(store.clone()).seed(7).route("*", route));
    pass(1_800 * SECOND).await;
    assert_eq!(count(&store, State::Pending).await + count(&store, State::Claimed).await, 500);
    // The first burst was under way when the first of it failed; after that, one at a time, 30 s apart at most.
    assert!(sink.sends() < 64 + 150, "{} sends while down", sink.sends());
    all_sent(&store, 500, 60 * SECOND).await;
    assert!(sink.log().iter().all(|sent| sent.attempts == 1));
    relay.stop().await.unwrap();
}

/// R1: what a sink says nothing about is a counted attempt, tried again.
#[tokio::test(start_paused = true)]
async fn a_batch_that_fails_in_part_settles_each_record_by_itself() {
    let store = outbox();
    let sink = TestSink::new(|record| match (record.seq, record.attempts) {
        (1..=3, _) => Do::Accept(Duration::ZERO),
        (4..=6, _) => Do::Fail(Duration::ZERO, SendError::permanent("no")),
        (_, 1) => Do::Forget,
        _ => Do::Accept(Duration::ZERO),
    })
    .in_batches(10);
    let ids = enqueue(&store, (0..10).map(|_| record("a"))).await;
    let relay = start(Relay::new(store.clone()).route("*", sink.clone()));
    assert!(within(60 * SECOND, async || count(&store, State::Sent).await == 7).await);
    assert_eq!(count(&store, State::Dead).await, 3);
    assert_eq!(sink.log()[0].together, 10);
    let attempts: Vec<u32> = {
        let mut attempts = Vec::new();
        for id in &ids {
            attempts.push(view(&store, *id).await.attempts);
        }
        attempts
    };
    assert_eq!(attempts, [1, 1, 1, 1, 1, 1, 2, 2, 2, 2]);
    relay.stop().await.unwrap();
}

/// R3: attempts end in dead with the last error kept, and the waits stay under their ceilings.
#[tokio::test(start_paused = true)]
async fn attempts_max_ends_in_dead_with_the_last_error() {
    let store = outbox();
    let sink = TestSink::new(|record| {
        Do::Fail(Duration::ZERO, SendError::transient(format!("failure {}", record.attempts)))
    });
    let ids = enqueue(&store, [record("a")]).await;
    let backoff = Backoff::new(SECOND, 8 * SECOND);
    let route = Route::to(sink.clone()).attempts_max(6).backoff(backoff);
    let relay = start(Relay::new(store.clone()).seed(3).route("*", route));
    assert!(within(120 * SECOND, async || count(&store, State::Dead).await == 1).await);
    let log = sink.log();
    assert_eq!(log.len(), 6);
    for (pair, attempt) in log.windows(2).zip(1..) {
        let wait = pair[1].begun - pair[0].begun;
        assert!(wait <= backoff.ceiling(attempt) + 10 * MILLI, "{wait:?} after attempt {attempt}");
    }
    let error = view(&store, ids[0]).await.last_error.unwrap();
    assert_eq!(error, "attempts_max of 6 reached: failure 6");
    relay.stop().await.unwrap();
}

/// R3: a destination's `retry_after` is kept, and capped by configuration.
#[tokio::test(start_paused = true)]
async fn retry_after_is_kept_up_to_its_cap() {
    for (asked, kept) in [(120, 120), (10 * 365 * 24 * 3600, 3600)] {
        let store = outbox();
        let sink = TestSink::new(move |record| match record.attempts {
            1 => Do::Fail(
                Duration::ZERO,
                SendError::transient("busy").with_retry_after(Duration::from_secs(asked)),
            ),
            _ => Do::Accept(Duration::ZERO),
        });
        enqueue(&store, [record("a")]).await;
        let relay = start(Relay::new(store.clone()).route("*", sink.clone()));
        all_sent(&store, 1, 2 * 3600 * SECOND).await;
        let log = sink.log();
        let waited = log[1].begun - log[0].begun;
        assert!(waited >= kept * SECOND && waited < (kept + 2) * SECOND, "{waited:?}");
        relay.stop().await.unwrap();
    }
}

/// R3: `age_max` leaves out the time that a record was paused or put off.
#[tokio::test(start_paused = true)]
async fn a_pause_does_not_age_a_record() {
    let store = outbox();
    let failures = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&failures);
    let sink = TestSink::new(move |_| match counted.fetch_add(1, Ordering::Relaxed) {
        0 => Do::Fail(Duration::ZERO, SendError::transient("odd")),
        _ => Do::Accept(Duration::ZERO),
    });
    enqueue(&store, [record("a")]).await;
    let route = Route::to(sink.clone()).age_max(60 * SECOND);
    let relay = start(Relay::new(store.clone()).route("*", route));
    assert!(within(SECOND, async || failures.load(Ordering::Relaxed) == 1).await);
    store.pause(&outbox_core::PauseScope::All, "maintenance").await.unwrap();
    pass(3_600 * SECOND).await;
    assert_eq!(sink.accepted(), 0);
    store.resume(&outbox_core::PauseScope::All).await.unwrap();
    all_sent(&store, 1, 5 * SECOND).await;
    assert_eq!(sink.log()[1].attempts, 2);
    relay.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn raising_attempts_max_leaves_the_dead_alone() {
    let store = outbox();
    let sink = TestSink::new(|_| Do::Fail(Duration::ZERO, SendError::transient("odd")));
    enqueue(&store, [record("a")]).await;
    let relay = start(Relay::new(store.clone()).route("*", Route::to(sink.clone()).attempts_max(1)));
    assert!(within(SECOND, async || count(&store, State::Dead).await == 1).await);
    relay.stop().await.unwrap();

    let relay = start(Relay::new(store.clone()).route("*", Route::to(sink.clone()).attempts_max(50)));
    pass(600 * SECOND).await;
    assert_eq!((sink.sends(), count(&store, State::Dead).await), (1, 1));
    relay.stop().await.unwrap();
}

/// R3: twelve relays try one failing record as often as one relay does.
#[tokio::test(start_paused = true)]
async fn many_relays_retry_a_record_as_often_as_one() {
    async fn attempts(relays: u64) -> usize {
        let store = outbox();
        let sink = TestSink::new(|_| Do::Fail(Duration::ZERO, SendError::transient("odd")));
        enqueue(&store, [record("a")]).await;
        let route = Route::to(sink.clone()).attempts_max(1_000).backoff(Backoff::new(SECOND, SECOND));
        let relays: Vec<_> = (0..relays)
            .map(|seed| start(Relay::new(store.clone()).seed(seed).route("*", route.clone())))
            .collect();
        pass(600 * SECOND).await;
        for relay in relays {
            relay.stop().await.unwrap();
        }
        sink.sends()
    }
    let (one, twelve) = (attempts(1).await, attempts(12).await);
    assert!(twelve.abs_diff(one) < one / 4, "{one} attempts by one relay, {twelve} by twelve");
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_holds_from_the_first_record() {
    let (store, sink) = (outbox(), TestSink::accepting());
    enqueue(&store, (0..300).map(|_| record("a"))).await;
    let limit = RateLimit::per_second(NonZeroU32::new(50).unwrap());
    let relay = start(Relay::new(store.clone()).route("*", Route::to(sink.clone()).rate_limit(limit)));
    pass(2 * SECOND).await;
    assert!((95..=106).contains(&sink.sends()), "{} in two seconds", sink.sends());
    all_sent(&store, 300, 5 * SECOND).await;
    relay.stop().await.unwrap();
}
