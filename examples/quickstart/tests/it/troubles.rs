//! Receivers that fail, hang, refuse and go away, with a relay on a SQLite file.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    extract::{Path, State as Shared},
    http::StatusCode,
    routing::post,
};
use outbox_core::{
    NewRecord, Operate, PauseScope, State,
    relay::{Relay, Route},
};
use outbox_sqlite::SqliteStore;
use sink_http::{HttpConfig, HttpSink};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle, time::Instant};

use crate::receiver::{is_done, outbox, stats, until, with_state};

/// Requests by path, and when each was answered.
type Seen = Arc<Mutex<HashMap<String, Vec<Instant>>>>;

/// `/fail/…` answers 500, `/slow/…` takes its time, all else is taken.
async fn receive(Shared(seen): Shared<Seen>, Path(path): Path<String>) -> StatusCode {
    let status = match path.split('/').next() {
        Some("fail") => StatusCode::INTERNAL_SERVER_ERROR,
        Some("slow") => {
            // real time: a receiver that takes long.
            tokio::time::sleep(Duration::from_secs(4)).await;
            StatusCode::OK
        }
        _ => StatusCode::OK,
    };
    seen.lock().unwrap().entry(path).or_default().push(Instant::now());
    status
}

async fn serve(listener: TcpListener, seen: Seen) {
    axum::serve(listener, Router::new().route("/{*path}", post(receive)).with_state(seen)).await.unwrap();
}

struct Desk {
    outbox: SqliteStore,
    seen: Seen,
    url: String,
    _folder: tempfile::TempDir,
}

impl Desk {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let outbox = outbox(&folder.path().join("shop.db")).await;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Seen::default();
        tokio::spawn(serve(listener, Arc::clone(&seen)));
        Self { outbox, seen, url, _folder: folder }
    }

    async fn enqueue(&self, records: impl IntoIterator<Item = NewRecord>) {
        let records: Vec<NewRecord> = records.into_iter().collect();
        let mut tx = self.outbox.pool().begin().await.unwrap();
        for batch in records.chunks(500) {
            self.outbox.enqueue_all(&mut tx, batch).await.unwrap();
        }
        tx.commit().await.unwrap();
    }

    fn to(&self, path: &str) -> NewRecord {
        NewRecord::json("order.placed", &17).unwrap().destination(format!("{}/{path}", self.url))
    }

    fn requests(&self, start: &str) -> usize {
        self.seen
            .lock()
            .unwrap()
            .iter()
            .filter(|(path, _)| path.starts_with(start))
            .map(|(_, at)| at.len())
            .sum()
    }

    fn relay(&self, change: impl FnOnce(Route) -> Route) -> Running {
        let sink = HttpSink::connect(HttpConfig::by_destination().with_plain_http().with_loopback()).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let relay = Relay::new(self.outbox.clone()).route("*", change(Route::to(sink)));
        let task = tokio::spawn(async move {
            let stop = async {
                let _ = stopped.await;
            };
            relay.run(stop).await.unwrap();
        });
        Running { stop, task }
    }
}

struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    async fn stop(self) {
        drop(self.stop);
        self.task.await.unwrap();
    }
}

/// R2: the oldest records always fail, and newer ones flow.
#[tokio::test(flavor = "multi_thread")]
async fn failing_records_in_front_hold_nothing_back() {
    let desk = Desk::open().await;
    desk.enqueue((0..600).map(|n| desk.to(&format!("fail/{}", n % 3)))).await;
    desk.enqueue((0..100).map(|n| desk.to(&format!("fine/{n}")))).await;
    let relay = desk.relay(|route| route);
    until("the good ones", Duration::from_secs(20), async || desk.requests("fine") == 100).await;
    relay.stop().await;
}

/// R1: a receiver that is down costs no attempt; when it is back, everything is sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_was_down_gets_everything() {
    let desk = Desk::open().await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let down =
        |n: usize| NewRecord::json("order.placed", &n).unwrap().destination(format!("http://{address}/x"));
    desk.enqueue((0..300).map(down)).await;
    let relay = desk.relay(|route| route.attempts_max(1));
    // real time: the receiver is away.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(with_state(&desk.outbox, State::Dead).await.is_empty());
    let seen = Seen::default();
    tokio::spawn(serve(TcpListener::bind(address).await.unwrap(), Arc::clone(&seen)));
    until("all sent", Duration::from_secs(30), async || is_done(&desk.outbox).await).await;
    let sent = with_state(&desk.outbox, State::Sent).await;
    assert!(sent.len() == 300 && sent.iter().all(|view| view.attempts == 1));
    relay.stop().await;
}

/// R2: one dead and one slow URL among a hundred: the others go at their usual rate.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_and_a_slow_url_leave_the_others_their_rate() {
    let desk = Desk::open().await;
    let dead = |n: usize| NewRecord::json("order.placed", &n).unwrap().destination("http://127.0.0.1:9/x");
    desk.enqueue((0..3_000).map(dead)).await;
    desk.enqueue((0..300).map(|_| desk.to("slow/one"))).await;
    desk.enqueue((0..1_000).map(|n| desk.to(&format!("fine/{}", n % 100)))).await;
    let relay = desk.relay(|route| route);
    until("the others", Duration::from_secs(20), async || desk.requests("fine") == 1_000).await;
    assert!(with_state(&desk.outbox, State::Dead).await.is_empty());
    relay.stop().await;
}

/// A pause holds, counts nothing and loses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_receiver_gets_everything_after_the_pause() {
    let desk = Desk::open().await;
    let scope = PauseScope::Destination(format!("{}/paused", desk.url));
    desk.outbox.pause(&scope, "maintenance").await.unwrap();
    desk.enqueue((0..50).map(|_| desk.to("paused"))).await;
    desk.enqueue((0..50).map(|_| desk.to("fine"))).await;
    let relay = desk.relay(|route| route);
    until("the others", Duration::from_secs(10), async || desk.requests("fine") == 50).await;
    assert_eq!((desk.requests("paused"), with_state(&desk.outbox, State::Pending).await.len()), (0, 50));
    desk.outbox.resume(&scope).await.unwrap();
    until("all sent", Duration::from_secs(10), async || is_done(&desk.outbox).await).await;
    assert_eq!((desk.requests("paused"), stats(&desk.outbox).await.sent.value), (50, 100));
    relay.stop().await;
}

/// S7: records of one key to several URLs arrive in order, also past one that fails at first.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_keeps_its_order_over_its_urls() {
    let desk = Desk::open().await;
    desk.enqueue((0..60).map(|n| desk.to(&format!("n/{n:02}")).key("k"))).await;
    let relays = [desk.relay(|route| route), desk.relay(|route| route)];
    until("all sent", Duration::from_secs(30), async || is_done(&desk.outbox).await).await;
    let mut arrived: Vec<(Instant, String)> =
        desk.seen.lock().unwrap().iter().map(|(path, at)| (at[0], path.clone())).collect();
    arrived.sort_unstable();
    let paths: Vec<String> = arrived.into_iter().map(|(_, path)| path).collect();
    assert_eq!(paths, (0..60).map(|n| format!("n/{n:02}")).collect::<Vec<_>>());
    for relay in relays {
        relay.stop().await;
    }
}
