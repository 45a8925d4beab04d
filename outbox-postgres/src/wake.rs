//! Hints that there is something to claim: within this process by a bell, across processes by NOTIFY.

use std::time::Duration;

use outbox_core::{StoreError, Wake};
use sqlx::{
    PgPool,
    postgres::{PgListener, PgPoolOptions},
};
use tokio::{
    sync::{Mutex, Notify},
    time::{Instant, timeout},
};

use crate::{PostgresStore, error::doing};

/// A wait shorter than this is not worth opening a connection for.
const WORTH_LISTENING: Duration = Duration::from_millis(100);
/// How long after a listener failed another is tried; polling finds the records meanwhile.
const LISTEN_AGAIN_AFTER: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct Bell {
    rung: Notify,
    ear: Mutex<Ear>,
}

#[derive(Default)]
struct Ear {
    listener: Option<PgListener>,
    failed_at: Option<Instant>,
}

impl Ear {
    /// Waits for a NOTIFY; without a listener it waits for ever. Safe to drop half-way.
    async fn hear(&mut self, pool: &PgPool, channel: &str) {
        if self.listener.is_none() && self.failed_at.is_none_or(|at| at.elapsed() >= LISTEN_AGAIN_AFTER) {
            match listen(pool, channel).await {
                Ok(listener) => self.listener = Some(listener),
                Err(error) => self.fail(&error),
            }
        }
        if let Some(listener) = &mut self.listener {
            match listener.recv().await {
                Ok(_) => return,
                Err(error) => self.fail(&error),
            }
        }
        std::future::pending().await
    }

    fn fail(&mut self, error: &sqlx::Error) {
        tracing::warn!(%error, "wake-ups of other processes are not heard; polling finds the records");
        self.listener = None;
        self.failed_at = Some(Instant::now());
    }
}

/// On a connection of its own, so that none of the application's pool is held.
async fn listen(pool: &PgPool, channel: &str) -> Result<PgListener, sqlx::Error> {
    let options = pool.connect_options().as_ref().clone();
    let own =
        PgPoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None).connect_with(options);
    let mut listener = PgListener::connect_with(&own.await?).await?;
    listener.listen(channel).await?;
    Ok(listener)
}

impl PostgresStore {
    /// Wakes a relay that waits on this store, after a commit. A hint: nothing is lost without it.
    pub fn wake(&self) {
        self.shared.bell.rung.notify_one();
    }

    /// Wakes the relays of every process, by one NOTIFY outside any transaction of the application's. A
    /// hint, like [`wake`](Self::wake); call it after the commit, never inside the transaction.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Unavailable`](outbox_core::StoreErrorKind::Unavailable) when the database cannot be reached;
    /// there is no need to try again.
    pub async fn wake_all(&self) -> Result<(), StoreError> {
        self.wake();
        let query = sqlx::query("SELECT pg_catalog.pg_notify($1, '')").persistent(false);
        let done = query.bind(self.channel()).execute(&self.shared.pool).await;
        done.map(|_| ()).map_err(doing("wake the relays"))
    }

    fn channel(&self) -> String {
        format!("outbox_{:x}", self.shared.lock_base)
    }

    pub(crate) async fn wait_for_hint(&self, at_most: Duration) -> Wake {
        let bell = &self.shared.bell;
        let heard = async {
            if !self.shared.config.listen || at_most < WORTH_LISTENING {
                return std::future::pending().await;
            }
            bell.ear.lock().await.hear(&self.shared.pool, &self.channel()).await;
        };
        let hint = async {
            tokio::select! {
                () = bell.rung.notified() => {}
                () = heard => {}
            }
        };
        match timeout(at_most, hint).await {
            Ok(()) => Wake::Hint,
            Err(_) => Wake::Timeout,
        }
    }
}
