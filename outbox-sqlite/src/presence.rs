//! How relays see each other's death: each run locks a file of its own in a folder beside the database.
//!
//! The operating system drops the lock of a process that ends in whatever way. A file that is there and not locked is
//! the trace of a dead run. A file that is not there says nothing, and the lease decides.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use outbox_core::{Owner, Presence, StoreError};
use tokio::time::Instant;

use crate::{
    error::store_error,
    link::{Database, query, retrying, scalar},
    store::Shared,
};

/// How often the folder is read.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a run may take from making its file to naming it, and far more than it does.
const UNNAMED_FOR: Duration = Duration::from_secs(60);

/// The relays on one database.
#[derive(Debug)]
pub(crate) struct Relays {
    database: Arc<Database>,
    looked: Mutex<Option<Instant>>,
}

/// A run that has died, with its file. Its lock is ours now.
struct Dead {
    owner: Owner,
    path: PathBuf,
    _file: File,
}

impl Relays {
    pub(crate) fn new(database: &Arc<Database>) -> Self {
        Self { database: Arc::clone(database), looked: Mutex::new(None) }
    }

    /// The folder of the locks: `app.db` has it at `app.db-relays`. A database in memory has none.
    async fn folder(&self) -> Result<Option<PathBuf>, sqlx::Error> {
        let Some(file) = self.database.file().await? else { return Ok(None) };
        let mut folder = file.as_os_str().to_owned();
        folder.push("-relays");
        Ok(Some(folder.into()))
    }

    /// Announces a run.
    pub(crate) async fn enter(&self, owner: Owner) -> Result<Box<dyn Presence>, StoreError> {
        let folder = self.folder().await.map_err(|error| store_error("announce a relay", error))?;
        let Some(folder) = folder else { return Ok(Box::new(Unseen)) };
        match Run::enter(&folder, owner) {
            Ok(run) => Ok(Box::new(run)),
            Err(error) => {
                tracing::warn!(
                    error = %error,
                    "no lock beside the database: the death of this relay shows when its leases end"
                );
                Ok(Box::new(Unseen))
            }
        }
    }

    /// Whether there is the trace of a dead run.
    pub(crate) async fn has_dead(&self) -> bool {
        match self.folder().await {
            Ok(Some(folder)) => !dead_in(&folder).is_empty(),
            _ => false,
        }
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
}

/// Every run whose file is not locked any more.
fn dead_in(folder: &Path) -> Vec<Dead> {
    let Ok(files) = fs::read_dir(folder) else { return Vec::new() };
    files.flatten().filter_map(|file| dead(file.path())).collect()
}

fn dead(path: PathBuf) -> Option<Dead> {
    if path.extension().is_some_and(|extension| extension == "new") {
        let _ = clear(&path);
        return None;
    }
    let name = path.file_name()?.to_str()?.strip_suffix(".lock")?;
    let owner = Owner::from_random(u64::from_str_radix(name, 16).ok()?);
    let file = OpenOptions::new().write(true).open(&path).ok()?;
    match file.try_lock() {
        Ok(()) => Some(Dead { owner, path, _file: file }),
        // Alive, or it cannot be told.
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => None,
    }
}

/// Removes the file of a run that died before it had claimed anything, and was not yet named.
fn clear(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    let is_old = file.metadata()?.modified()?.elapsed().is_ok_and(|age| age > UNNAMED_FOR);
    if is_old && file.try_lock().is_ok() { fs::remove_file(path) } else { Ok(()) }
}

impl Shared {
    /// Makes due what dead relays hold. Looks at most once a second.
    pub(crate) async fn take_from_the_dead(&self) -> Result<(), StoreError> {
        if !self.relays.is_due() {
            return Ok(());
        }
        let doing = "take from a dead relay";
        let folder = self.relays.folder().await.map_err(|error| store_error(doing, error))?;
        let Some(folder) = folder else { return Ok(()) };
        for dead in dead_in(&folder) {
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
            let records = retrying(doing, self.config.busy_for, take).await?;
            tracing::info!(owner = dead.owner.value(), records, "a relay has died; its records are due");
            // Only now, so that a crash of ours in between leaves the trace to the next.
            let _ = fs::remove_file(&dead.path);
            let _ = fs::remove_dir(&folder);
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

/// A run that nobody sees: its leases alone tell of its death.
struct Unseen;

impl Presence for Unseen {
    fn is_held(&self) -> bool {
        true
    }
}
