//! The other side: verifies each webhook, books it once, and misbehaves twice to show what follows.

use std::{
    future::IntoFuture,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use outbox_core::Uuid;
use outbox_sqlite::{SqliteConfig, SqliteStore};
use standardwebhooks::Webhook;
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{Error, Timeline};

/// What both sides know. A real one comes from the configuration of both.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// What the order that is rolled back holds; it must never arrive.
pub(crate) const ROLLED_BACK: &str = "an order that never was";

/// What the receiver has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) booked: u64,
    pub(crate) refused: u64,
    pub(crate) dropped: u64,
    pub(crate) rolled_back: bool,
}

#[derive(Clone)]
struct Desk {
    /// The receiver's own database; only the inbox in it is used.
    inbox: SqliteStore,
    seen: Arc<Mutex<Seen>>,
    timeline: Timeline,
}

pub(crate) struct Receiver {
    url: String,
    seen: Arc<Mutex<Seen>>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Receiver {
    pub(crate) async fn start(file: PathBuf, timeline: Timeline) -> Result<Self, Error> {
        let inbox = SqliteStore::connect(&file, SqliteConfig::new()).await?;
        let seen = Arc::<Mutex<Seen>>::default();
        let desk = Desk { inbox, seen: Arc::clone(&seen), timeline };
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}/orders", listener.local_addr()?);
        let (stop, stopped) = oneshot::channel::<()>();
        let app = Router::new().route("/orders", post(receive)).with_state(desk);
        let server = axum::serve(listener, app).with_graceful_shutdown(async {
            let _ = stopped.await;
        });
        let task = tokio::spawn(server.into_future());
        Ok(Self { url, seen, stop, task })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) async fn stop(self) -> Result<Seen, Error> {
        drop(self.stop);
        self.task.await??;
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(seen)
    }
}

async fn receive(State(desk): State<Desk>, headers: HeaderMap, body: Bytes) -> StatusCode {
    match desk.book(&headers, &body).await {
        Ok(status) => status,
        Err(error) => {
            desk.timeline.say("receiver", &format!("cannot book: {error}"));
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

impl Desk {
    async fn book(&self, headers: &HeaderMap, body: &[u8]) -> Result<StatusCode, Error> {
        if Webhook::new(SECRET)?.verify(body, headers).is_err() {
            return Ok(StatusCode::UNAUTHORIZED);
        }
        let id: Uuid = headers.get("webhook-id").ok_or("no webhook-id")?.to_str()?.parse()?;
        if self.is_first(|seen| &mut seen.refused) {
            self.timeline.say("receiver", &format!("{id} refused: busy just now"));
            return Ok(StatusCode::INTERNAL_SERVER_ERROR);
        }

        // The receiver's own work and the memory of the id are one transaction.
        let mut tx = self.inbox.pool().begin().await?;
        let is_new = self.inbox.accept(&mut tx, "bookkeeping", id).await?;
        tx.commit().await?;
        let order = String::from_utf8_lossy(body);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.rolled_back |= order.contains(ROLLED_BACK);
        if !is_new {
            seen.dropped += 1;
            self.timeline.say("receiver", &format!("{id} is a second copy: dropped"));
            return Ok(StatusCode::OK);
        }
        seen.booked += 1;
        if seen.booked == 2 {
            self.timeline.say("receiver", &format!("{id} booked: {order}; the answer is lost on the way"));
            return Ok(StatusCode::INTERNAL_SERVER_ERROR);
        }
        self.timeline.say("receiver", &format!("{id} booked: {order}"));
        Ok(StatusCode::OK)
    }

    fn is_first(&self, count: impl Fn(&mut Seen) -> &mut u64) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let count = count(&mut seen);
        let is_first = *count == 0;
        *count += u64::from(is_first);
        is_first
    }
}
