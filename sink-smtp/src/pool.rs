//! The connections to the server: how many, which are kept, and which are good for another mail.

use std::{
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, timeout_at},
};

use crate::{
    SmtpConfig,
    dialogue::{Connection, Server, after},
    error::{Cause, Failure, Stage},
};

pub(crate) struct Pool {
    pub(crate) server: Server,
    slots: Semaphore,
    idle: Mutex<Vec<Idle>>,
    idle_max: Duration,
    mails_max: NonZeroU32,
}

struct Idle {
    connection: Connection,
    since: Instant,
    mails: u32,
}

/// A connection in use. Dropped without [`Pool::put_back`], it is closed: what was said on it may
/// have been cut anywhere.
pub(crate) struct InUse<'p> {
    pub(crate) connection: Connection,
    /// Whether it was idle before, so that the server may have closed it.
    pub(crate) was_idle: bool,
    mails: u32,
    slot: SemaphorePermit<'p>,
}

impl Pool {
    pub(crate) fn new(server: Server, config: &SmtpConfig) -> Self {
        Self {
            server,
            slots: Semaphore::new(config.connections_max.get().min(Semaphore::MAX_PERMITS)),
            idle: Mutex::default(),
            idle_max: config.idle_max,
            mails_max: config.mails_per_connection_max,
        }
    }

    /// A connection that was idle, else a new one.
    pub(crate) async fn take(&self, deadline: Instant) -> Result<InUse<'_>, Failure> {
        let slot = self.slot(deadline).await?;
        let now = Instant::now();
        let kept = self.locked(|idle| {
            // The one used last is the least likely to be closed.
            idle.retain(|idle| now.saturating_duration_since(idle.since) < self.idle_max);
            idle.pop()
        });
        match kept {
            Some(idle) => Ok(InUse { connection: idle.connection, was_idle: true, mails: idle.mails, slot }),
            None => self.open(slot, deadline).await,
        }
    }

    /// A new connection in the place of one that was dead.
    pub(crate) async fn replace<'p>(
        &'p self,
        dead: InUse<'p>,
        deadline: Instant,
    ) -> Result<InUse<'p>, Failure> {
        let InUse { connection, slot, .. } = dead;
        drop(connection);
        self.open(slot, deadline).await
    }

    /// Keeps the connection for the next mail, unless it has served its number.
    pub(crate) fn put_back(&self, used: InUse<'_>, mails: u32) {
        let mails = used.mails.saturating_add(mails);
        if mails < self.mails_max.get() && !self.slots.is_closed() {
            let idle = Idle { connection: used.connection, since: Instant::now(), mails };
            self.locked(|kept| kept.push(idle));
        }
        drop(used.slot);
    }

    /// Says goodbye on idle connections; no connection is given out afterwards.
    pub(crate) async fn close(&self, grace: Duration) {
        let deadline = after(grace);
        self.slots.close();
        for idle in self.locked(std::mem::take) {
            idle.connection.quit(deadline).await;
        }
    }

    async fn open<'p>(&'p self, slot: SemaphorePermit<'p>, deadline: Instant) -> Result<InUse<'p>, Failure> {
        let connection = Connection::open(&self.server, deadline).await?;
        Ok(InUse { connection, was_idle: false, mails: 0, slot })
    }

    async fn slot(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, Failure> {
        match timeout_at(deadline, self.slots.acquire()).await {
            Ok(Ok(slot)) => Ok(slot),
            _ => Err(Failure::new(Stage::Connect, Cause::NoneFree)),
        }
    }

    fn locked<T>(&self, change: impl FnOnce(&mut Vec<Idle>) -> T) -> T {
        change(&mut self.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
