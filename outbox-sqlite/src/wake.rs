//! Waiting for a hint: a bell in this process, and a look at the file for what other connections have written.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use outbox_core::{StoreError, Wake};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

use crate::{
    config::SqliteConfig,
    link::{Database, Link, scalar},
    schema::Statements,
    store::Shared,
};

/// Looks become this many times rarer the longer nothing is written.
const SLOWEST: u32 = 4;
/// How long nothing must have been written before they do.
const QUIET: Duration = Duration::from_secs(1);
/// How often a change that added no record is a hint: it may have set a key free, or resumed a destination.
const OTHER_CHANGES: Duration = Duration::from_millis(100);
/// How often a waiting relay looks for relays that have died.
const DEATHS: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Watch {
    bell: Notify,
    /// How often the bell has rung, and how much of that has been heard.
    rung: AtomicU64,
    heard: AtomicU64,
    database: Arc<Database>,
    link: Link,
    statements: Arc<Statements>,
    interval: Duration,
    seen: Mutex<Seen>,
}

/// What the last look found.
#[derive(Debug, Default)]
struct Seen {
    version: Option<i64>,
    newest: i64,
    changed: Option<Instant>,
    hinted: Option<Instant>,
    /// Whether a change that added no record has not been hinted yet.
    owes: bool,
}

impl Watch {
    pub(crate) fn new(database: &Arc<Database>, statements: &Arc<Statements>, config: &SqliteConfig) -> Self {
        Self {
            bell: Notify::new(),
            rung: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            database: Arc::clone(database),
            link: Link::for_operators(database, statements),
            statements: Arc::clone(statements),
            interval: config.watch_interval,
            seen: Mutex::default(),
        }
    }

    /// Wakes every relay of this process that waits, or else the next that does.
    pub(crate) fn ring(&self) {
        self.rung.fetch_add(1, Ordering::Release);
        self.bell.notify_waiters();
    }

    async fn rings(&self) {
        let ring = self.bell.notified();
        let rung = self.rung.load(Ordering::Acquire);
        if self.heard.swap(rung, Ordering::AcqRel) < rung {
            return;
        }
        ring.await;
        self.heard.store(self.rung.load(Ordering::Acquire), Ordering::Release);
    }

    /// Whether somebody has written what is worth a claim. A failing look hints at nothing: the relay polls.
    async fn look(&self) -> bool {
        let Ok(mut connection) = self.link.acquire().await else { return false };
        let version = match self.database.file().await {
            Ok(Some(_)) => sqlx::query_scalar("PRAGMA data_version").fetch_one(&mut *connection).await.ok(),
            // The version tells of other connections alone, and in memory this may be the only one.
            _ => scalar(&self.statements.newest).fetch_one(&mut *connection).await.ok(),
        };
        let now = Instant::now();
        if !self.seen().notes(version, now) {
            return false;
        }
        let newest = scalar(&self.statements.newest).fetch_one(&mut *connection).await.unwrap_or(0);
        self.seen().hints(newest, now)
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long until the next look.
    fn rest(&self) -> Duration {
        let quiet = self.seen().changed.is_none_or(|changed| changed.elapsed() > QUIET);
        if quiet { self.interval * SLOWEST } else { self.interval }
    }
}

impl Seen {
    /// Whether the database has changed, or a change is still to be hinted.
    fn notes(&mut self, version: Option<i64>, now: Instant) -> bool {
        let first = self.version.is_none();
        if version.is_some() && version != self.version {
            self.version = version;
            self.owes |= !first;
            self.changed = Some(now);
            return true;
        }
        self.owes
    }

    /// Whether that is worth a hint: at once for new records, and now and then for whatever else.
    fn hints(&mut self, newest: i64, now: Instant) -> bool {
        let added = newest > self.newest;
        self.newest = newest;
        let rested = self.hinted.is_none_or(|hinted| now.duration_since(hinted) >= OTHER_CHANGES);
        let hint = added || (self.owes && rested);
        if hint {
            self.hinted = Some(now);
            self.owes = false;
        }
        hint
    }
}

impl Shared {
    /// Ends at a ring, at a change of the file, at the death of a relay, or at its time.
    ///
    /// May be dropped at any point: what was seen is kept for the next wait.
    pub(crate) async fn wait(&self, at_most: Duration) -> Result<Wake, StoreError> {
        let watched = async {
            let mut deaths = Instant::now();
            loop {
                if self.watch.look().await {
                    // Others wait as well, and only one looks first.
                    self.watch.ring();
                }
                if deaths.elapsed() >= DEATHS {
                    deaths = Instant::now();
                    if self.relays.has_dead().await {
                        self.watch.ring();
                    }
                }
                sleep(self.watch.rest()).await;
            }
        };
        let hint = async {
            tokio::select! {
                biased;
                () = self.watch.rings() => {}
                () = watched => {}
            }
        };
        Ok(timeout(at_most, hint).await.map_or(Wake::Timeout, |()| Wake::Hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_record_is_a_hint_at_once_and_other_changes_now_and_then() {
        let now = Instant::now();
        let mut seen = Seen::default();
        assert!(seen.notes(Some(1), now) && !seen.hints(0, now), "an empty outbox is no hint");
        assert!(!seen.notes(Some(1), now), "nothing has changed");
        assert!(seen.notes(Some(2), now) && seen.hints(1, now), "a record was added");
        assert!(seen.notes(Some(3), now) && !seen.hints(1, now), "something else, a moment later");
        let later = now + OTHER_CHANGES;
        assert!(seen.notes(Some(3), later) && seen.hints(1, later), "it is hinted in the end");
        assert!(!seen.notes(Some(3), later), "and once");
        assert!(seen.notes(Some(4), later) && seen.hints(2, later), "a record is a hint at once");
    }
}
