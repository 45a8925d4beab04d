//! A relay that sends through the sink.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use outbox_core::{
    Backoff, MemoryStore, Operate, State, Uuid,
    relay::{Relay, Route},
};

use crate::scripted::{Act, Scripted, email, usual};

async fn enqueue(outbox: &MemoryStore, to: &[&str]) -> Uuid {
    let record = email(to).record("mail.test").unwrap();
    let id = record.id;
    let mut tx = outbox.begin();
    outbox.enqueue(&mut tx, record).await.unwrap();
    tx.commit();
    id
}

async fn until(mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(30), "not in time");
        // real time: the relay waits for servers that are down
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A server that is down kills nothing, and when it is back everything goes out, once.
#[tokio::test]
async fn mail_for_a_server_that_is_down_waits_and_goes_out_after() {
    let server = Arc::new(Scripted::start(usual).await);
    server.down().await;
    let outbox = MemoryStore::new();
    let mut ids = Vec::new();
    for n in 0..20 {
        ids.push(enqueue(&outbox, &[&format!("r{n}@example.com")]).await);
    }
    let back = server.clone();
    let done = async move {
        // real time: long enough for several tries
        tokio::time::sleep(Duration::from_secs(2)).await;
        back.up().await;
        until(|| back.taken().len() == 20).await;
    };
    // With one attempt each, a counted one would be the death of a record.
    let route = Route::to(server.sink()).attempts_max(1);
    Relay::new(outbox.clone()).route("mail.*", route).run(done).await.unwrap();
    for id in ids {
        let (view, _) = outbox.show(id).await.unwrap().unwrap();
        assert_eq!((view.state, view.attempts), (State::Sent, 1));
    }
    assert_eq!(server.taken().len(), 20);
}

/// K2: what one attempt leaves of a record is what the next one sends.
#[tokio::test]
async fn a_put_off_recipient_is_mailed_alone_by_a_later_attempt() {
    let tries = Arc::new(AtomicUsize::new(0));
    let count = tries.clone();
    let server = Scripted::start(move |at| match at.point.as_str() {
        "RCPT" if at.line.contains("<gone") => Act::Say("550 5.1.1 no such user"),
        "RCPT" if at.line.contains("<later") && count.load(Ordering::SeqCst) < 2 => {
            Act::Say("451 4.2.0 later")
        }
        "DATA" => {
            count.fetch_add(1, Ordering::SeqCst);
            Act::Usual
        }
        _ => Act::Usual,
    })
    .await;
    let outbox = MemoryStore::new();
    let id = enqueue(&outbox, &["ok@example.com", "gone@example.com", "later@example.com"]).await;
    let backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(50));
    let route = Route::to(server.sink()).backoff(backoff);
    let done = until(|| server.taken().len() == 2);
    Relay::new(outbox.clone()).route("mail.*", route).run(done).await.unwrap();
    let to: Vec<Vec<String>> = server.taken().into_iter().map(|taken| taken.to).collect();
    assert_eq!(to, [["ok@example.com"], ["later@example.com"]]);
    let (view, _) = outbox.show(id).await.unwrap().unwrap();
    assert_eq!((view.state, view.attempts), (State::Sent, 2));
    assert!(view.receipt.unwrap().contains("recipient 2: 550 5.1.1 no such user"));
}
