//! Where services keep their files.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::account::Account;
use crate::failure::{Failure, Result, While};
use crate::workspace::root;

/// Which of the two sets of services: they may run beside each other.
#[derive(Debug, Clone, Copy)]
pub(super) enum Set {
    /// For one run of the tests, and emptied before each.
    Test,
    /// Kept running, and its data kept, until told otherwise.
    Background,
}

/// The folder of a set, made when missing: `target/services/…`, or one in the system's temporary folder when the
/// account that servers run under cannot get there.
pub(super) fn folder(set: Set) -> Result<PathBuf> {
    let name = match set {
        Set::Test => "test",
        Set::Background => "background",
    };
    let folder = in_target(name)?;
    if Account::unprivileged()?.reaches(&folder) {
        return Ok(folder);
    }
    let mut hasher = DefaultHasher::new();
    folder.hash(&mut hasher);
    let folder = std::env::temp_dir().join(format!("outbox-services-{:x}", hasher.finish()));
    make(&folder)?;
    // The name can be guessed, and others may write in that folder.
    let found = fs::symlink_metadata(&folder).or_fail(format_args!("look at {}", folder.display()))?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        return Err(Failure::new(format!("{} belongs to somebody else", folder.display())));
    }
    let folder = folder.join(name);
    make(&folder)?;
    Ok(folder)
}

/// Programs that were installed for services, whatever their set.
pub(super) fn programs() -> Result<PathBuf> {
    in_target("programs")
}

fn in_target(name: &str) -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let folder = root().join(target).join("services").join(name);
    make(&folder)?;
    Ok(folder)
}

fn make(folder: &Path) -> Result {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o755).create(folder).or_fail(format_args!("make {}", folder.display()))
}

/// Waits until no other run uses this folder. The lock ends with the process that holds it, however that ends.
pub(super) fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("lock");
    let file = File::options().create(true).append(true).open(&path);
    let file = file.or_fail(format_args!("open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => eprintln!("services: waiting for another run to end"),
        Err(TryLockError::Error(error)) => {
            return Err(error).or_fail(format_args!("lock {}", path.display()));
        }
    }
    file.lock().or_fail(format_args!("lock {}", path.display()))?;
    Ok(file)
}
