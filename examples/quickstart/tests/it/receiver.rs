//! The other side of the tests, and short words for what they do to the outbox.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use outbox_core::{Filter, NewRecord, Operate, RecordView, State as RecordState, Stats, Store, Uuid};
use outbox_sqlite::{SqliteConfig, SqliteStore};

/// What has arrived, by id, and whether answers are held back.
#[derive(Clone, Default)]
pub(crate) struct Arrived {
    pub(crate) copies: Arc<Mutex<HashMap<Uuid, usize>>>,
    holds_answers: Arc<std::sync::atomic::AtomicBool>,
}

impl Arrived {
    pub(crate) async fn listen(&self) -> String {
        async fn receive(State(arrived): State<Arrived>, headers: HeaderMap) -> StatusCode {
            let id = headers.get("webhook-id").unwrap().to_str().unwrap().parse().unwrap();
            *arrived.copies.lock().unwrap().entry(id).or_default() += 1;
            if arrived.holds_answers.load(std::sync::atomic::Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            StatusCode::NO_CONTENT
        }
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let app = Router::new().route("/", post(receive)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        url
    }

    pub(crate) fn hold_answers(&self, hold: bool) {
        self.holds_answers.store(hold, std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn ids(&self) -> usize {
        self.copies.lock().unwrap().len()
    }

    pub(crate) fn second_copies(&self) -> usize {
        self.copies.lock().unwrap().values().map(|copies| copies - 1).sum()
    }
}

pub(crate) async fn until(what: &str, time: Duration, mut test: impl AsyncFnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !test().await {
        assert!(begun.elapsed() < time, "{what}: not within {time:?}");
        // real time: other processes work.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    begun.elapsed()
}

pub(crate) async fn outbox(file: &Path) -> SqliteStore {
    SqliteStore::connect(file, SqliteConfig::new()).await.unwrap()
}

pub(crate) async fn enqueue(outbox: &SqliteStore, records: usize) {
    let mut tx = outbox.pool().begin().await.unwrap();
    let records: Vec<_> = (0..records).map(|n| NewRecord::json("order.placed", &n).unwrap()).collect();
    for batch in records.chunks(1_000) {
        outbox.enqueue_all(&mut tx, batch).await.unwrap();
    }
    tx.commit().await.unwrap();
}

pub(crate) async fn stats(outbox: &SqliteStore) -> Stats {
    outbox.stats(&[]).await.unwrap()
}

pub(crate) async fn is_done(outbox: &SqliteStore) -> bool {
    let stats = stats(outbox).await;
    stats.pending.value + stats.claimed.value == 0
}

pub(crate) async fn with_state(outbox: &SqliteStore, state: RecordState) -> Vec<RecordView> {
    outbox.list(&Filter::state(state), 0, 1_000).await.unwrap()
}
