//! How relays see each other's death: each run locks a file of its own in a folder beside the database.
//!
//! The operating system drops the lock of a process that ends in whatever way. A file that is there and not locked is
//! the trace of a dead run. A file that is not there says nothing, and the lease decides.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use outbox_core::{Owner, Presence, StoreError, StoreErrorKind};
use tokio::time::Instant;

use crate::{
    link::{query, retrying, scalar},
    store::Shared,
};

/// How often the folder is read.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The folder in which relays on one database lock their files.
#[derive(Debug)]
pub(crate) struct Relays {
    folder: PathBuf,
    looked: Mutex<Option<Instant>>,
}

/// A run that has died, with its file. Its lock is ours now.
struct Dead {
    owner: Owner,
    path: PathBuf,
    _file: File,
}

impl Relays {
    /// `app.db` has its folder at `app.db-relays`.
    pub(crate) fn beside(database: &Path) -> Self {
        let mut folder = database.as_os_str().to_owned();
        folder.push("-relays");
        Self { folder: folder.into(), looked: Mutex::new(None) }
    }

    /// Announces a run. Where files cannot be locked the run goes unseen, and its lease alone tells of its death.
    pub(crate) fn enter(&self, owner: Owner) -> Result<Box<dyn Presence>, StoreError> {
        let run = Run::enter(&self.folder, owner).map_err(|error| {
            StoreError::new(StoreErrorKind::Unavailable, "lock a file beside the database").with_source(error)
        })?;
        Ok(Box::new(run))
    }

    /// Whether there is the trace of a dead run.
    pub(crate) fn has_dead(&self) -> bool {
        !self.dead().is_empty()
    }

    /// Whether it is time to look again.
    fn is_due(&self) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let due = looked.is_none_or(|looked| looked.elapsed() >= LOOK_INTERVAL);
        if due {
            *looked = Some(Instant::now());
        }
        due
    }

    /// Every run whose file is not locked any more.
    fn dead(&self) -> Vec<Dead> {
        let Ok(files) = fs::read_dir(&self.folder) else { return Vec::new() };
        files.flatten().filter_map(|file| dead(file.path())).collect()
    }
}

fn dead(path: PathBuf) -> Option<Dead> {
    let name = path.file_name()?.to_str()?.strip_suffix(".lock")?;
    let owner = Owner::from_random(u64::from_str_radix(name, 16).ok()?);
    let file = OpenOptions::new().write(true).open(&path).ok()?;
    match file.try_lock() {
        Ok(()) => Some(Dead { owner, path, _file: file }),
        // Alive, or it cannot be told.
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => None,
    }
}

impl Shared {
    /// Makes due what dead relays hold. Looks at most once a second.
    pub(crate) async fn take_from_the_dead(&self) -> Result<(), StoreError> {
        let Some(relays) = self.relays.as_ref().filter(|relays| relays.is_due()) else { return Ok(()) };
        for dead in relays.dead() {
            let take = || async {
                let mut transaction = self.relay.begin().await?;
                let now: i64 = scalar(&self.statements.now).fetch_one(&mut *transaction).await?;
                let taken = query(&self.statements.take_from_dead)
                    .bind(dead.owner.value())
                    .bind(now)
                    .execute(&mut *transaction)
                    .await?;
                transaction.commit().await?;
                Ok(taken.rows_affected())
            };
            let records = retrying("take from a dead relay", self.config.busy_for, take).await?;
            tracing::info!(owner = dead.owner.value(), records, "a relay has died; its records are due");
            // Only now, so that a crash of ours in between leaves the trace to the next.
            let _ = fs::remove_file(&dead.path);
            let _ = fs::remove_dir(&relays.folder);
        }
        Ok(())
    }
}

/// A run of a relay in this process.
struct Run {
    path: PathBuf,
    folder: PathBuf,
    _file: File,
}

impl Run {
    fn enter(folder: &Path, owner: Owner) -> io::Result<Self> {
        // The last run to leave removes the folder, perhaps just now.
        let mut tries_left = 10;
        loop {
            match Self::lock(folder, owner) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries_left > 0 => tries_left -= 1,
                entered => return entered,
            }
        }
    }

    fn lock(folder: &Path, owner: Owner) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let name = format!("{:016x}", owner.value().cast_unsigned());
        // Locked before it has its name: under that name it is never seen unlocked while the run lives.
        let unnamed = folder.join(format!("{name}.new"));
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&unnamed)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::other("another run has the same number"),
            TryLockError::Error(error) => error,
        })?;
        let path = folder.join(format!("{name}.lock"));
        fs::rename(&unnamed, &path)?;
        Ok(Self { path, folder: folder.to_owned(), _file: file })
    }
}

impl Presence for Run {
    fn is_held(&self) -> bool {
        // As long as the process lives. Were the file deleted, nobody would conclude anything from that.
        true
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // A clean end is no death: what may have been sent waits for the end of its lease.
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_dir(&self.folder);
    }
}

struct Unseen;

impl Presence for Unseen {
    fn is_held(&self) -> bool {
        true
    }
}

/// A run on a database in memory, which no other process shares.
pub(crate) fn unseen() -> Box<dyn Presence> {
    Box::new(Unseen)
}
