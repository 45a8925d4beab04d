//! A relay that sends through the sink.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use axum::{body::Body, http::Response};
use outbox_core::{MemoryStore, NewRecord, Operate, State, Uuid, relay::Relay};
use sink_http::{HttpConfig, HttpSink};

use crate::receiver::{Receiver, local};

async fn enqueue(outbox: &MemoryStore, destination: &str) -> Uuid {
    let record = NewRecord::json("hook", "o-17").unwrap().destination(destination);
    let id = record.id;
    let mut tx = outbox.begin();
    outbox.enqueue(&mut tx, record).await.unwrap();
    tx.commit();
    id
}

async fn until(mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(20), "not in time");
        // real time: the receiver is on another thread.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn each_destination_fares_by_itself() {
    let good = Receiver::accepting().await;
    let answers = std::sync::Arc::new(AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&answers);
    let flaky = Receiver::start(move |_| {
        let status = if count.fetch_add(1, Ordering::SeqCst) == 0 { 500 } else { 204 };
        Response::builder().status(status).body(Body::empty()).unwrap()
    })
    .await;
    let gone = Receiver::answering(410, &[]).await;

    let outbox = MemoryStore::new();
    let retried = enqueue(&outbox, &flaky.url()).await;
    let dead = enqueue(&outbox, &gone.url()).await;
    // Nobody listens there, and the guard lets nobody go there.
    let down = enqueue(&outbox, "http://127.0.0.1:1/").await;
    let refused = enqueue(&outbox, "http://169.254.169.254/").await;
    for _ in 0..50 {
        enqueue(&outbox, &good.url()).await;
    }
    let sink = HttpSink::connect(local(HttpConfig::by_destination())).unwrap();
    let done =
        until(|| good.arrived().len() == 50 && flaky.arrived().len() == 2 && gone.arrived().len() == 1);
    Relay::new(outbox.clone()).route("hook", sink).run(done).await.unwrap();

    // The same id at both attempts.
    assert!(flaky.arrived().iter().all(|arrived| arrived.header("webhook-id") == retried.to_string()));
    for (id, state, error) in [
        (retried, State::Sent, None),
        (dead, State::Dead, Some("answered 410")),
        (refused, State::Dead, Some("the address guard refuses link-local addresses")),
    ] {
        let (view, _) = outbox.show(id).await.unwrap().unwrap();
        assert_eq!(view.state, state);
        if error.is_some() {
            assert_eq!(view.last_error.as_deref(), error);
        }
    }
    // Down is no fault of the record: no attempt is counted.
    let (view, _) = outbox.show(down).await.unwrap().unwrap();
    assert_eq!((view.state, view.attempts), (State::Pending, 0));
}

#[tokio::test]
async fn retry_after_is_waited_for() {
    let started = Instant::now();
    let times = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let note = std::sync::Arc::clone(&times);
    let busy = Receiver::start(move |_| {
        let mut times = note.lock().unwrap();
        times.push(started.elapsed());
        let status = if times.len() == 1 { 429 } else { 204 };
        Response::builder().status(status).header("retry-after", "3").body(Body::empty()).unwrap()
    })
    .await;
    let outbox = MemoryStore::new();
    let id = enqueue(&outbox, &busy.url()).await;
    let sink = HttpSink::connect(local(HttpConfig::by_destination())).unwrap();
    let done = until(|| busy.arrived().len() == 2);
    Relay::new(outbox.clone()).route("hook", sink).run(done).await.unwrap();
    let times = times.lock().unwrap().clone();
    assert!(times[1] - times[0] >= Duration::from_secs(3), "{times:?}");
    let (view, _) = outbox.show(id).await.unwrap().unwrap();
    assert_eq!((view.state, view.attempts), (State::Sent, 1));
}
