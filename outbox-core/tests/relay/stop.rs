//! R5: a stop ends within its grace, writes what is known and gives back what was never handed over.

use std::time::Duration;

use outbox_core::{
    State,
    relay::{Relay, Route},
};
use tokio::time::Instant;

use crate::world::*;

/// R5: forty routes send and one hangs: the stop ends within one grace, nothing more is claimed, what
/// finished is marked, and what hangs is not given back before its lease ends.
#[tokio::test(start_paused = true)]
async fn a_stop_ends_within_one_grace() {
    let store = outbox();
    let mut relay = Relay::new(store.clone()).config(config().with_grace(4 * SECOND));
    let sink = TestSink::new(|_| Do::Accept(500 * MILLI));
    for n in 0..40 {
        relay = relay.route(&format!("kind{n}"), Route::to(sink.clone()).concurrency(1));
        enqueue(&store, (0..10).map(|_| record(&format!("kind{n}")))).await;
    }
    let hanging = TestSink::new(|_| Do::Hang);
    relay = relay.route("hang", Route::to(hanging.clone()).concurrency(1));
    let hangs = enqueue(&store, (0..3).map(|_| record("hang"))).await;
    let relay = start(relay);
    assert!(within(SECOND, async || sink.sends() == 40 && hanging.sends() == 1).await);

    let begun = Instant::now();
    relay.stop().await.unwrap();
    assert!(begun.elapsed() <= 4 * SECOND, "{:?}", begun.elapsed());
    assert_eq!((sink.sends(), count(&store, State::Sent).await), (40, 40));
    assert_eq!(count(&store, State::Claimed).await, 0);
    for waiting in in_state(&store, State::Pending).await {
        let attempts = u32::from(waiting.id == hangs[0]);
        assert_eq!(waiting.attempts, attempts, "{}", waiting.seq);
    }

    // What hung may have been sent: it waits for the end of its lease.
    let (fine, begun) = (TestSink::accepting(), Instant::now());
    let relay = start(Relay::new(store.clone()).route("*", fine.clone()));
    all_sent(&store, 403, 12 * SECOND).await;
    let again = fine.log().into_iter().find(|sent| sent.id == hangs[0]).unwrap();
    assert!(again.begun - begun > 3 * SECOND, "{:?}", again.begun - begun);
    relay.stop().await.unwrap();
}

/// R5: a run of a key stops after the record that is with the sink; the rest was never handed over.
#[tokio::test(start_paused = true)]
async fn a_stop_in_a_run_gives_back_its_rest_uncounted() {
    let store = outbox();
    let sink = TestSink::new(|_| Do::Accept(200 * MILLI));
    enqueue(&store, (0..100).map(|_| record("a").key("k"))).await;
    let relay = start(Relay::new(store.clone()).route("*", sink.clone()));
    assert!(within(2 * SECOND, async || sink.accepted() == 3).await);
    let begun = Instant::now();
    relay.stop().await.unwrap();
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
    let sent = count(&store, State::Sent).await;
    assert!((3..=5).contains(&sent), "{sent}");
    let waiting = in_state(&store, State::Pending).await;
    assert_eq!(waiting.len(), 100 - sent);
    assert!(waiting.iter().all(|view| view.attempts == 0 && view.lapses == 0));
}

#[tokio::test(start_paused = true)]
async fn an_idle_relay_stops_at_once() {
    let store = outbox();
    let relay = start(Relay::new(store).route("*", TestSink::accepting()));
    pass(5 * SECOND).await;
    let begun = Instant::now();
    relay.stop().await.unwrap();
    assert!(begun.elapsed() <= Duration::from_millis(10), "{:?}", begun.elapsed());
}
