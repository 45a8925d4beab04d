//! The account that servers run under. Started by root, those that refuse to be root get another.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::failure::{Failure, Result, While};
use crate::run;

/// Whom a server runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Account {
    /// Whoever runs xtask.
    Own,
    Other {
        user: u32,
        group: u32,
    },
}

impl Account {
    /// Root's servers run as `postgres`, or as `nobody` where there is no such user.
    pub(super) fn unprivileged() -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::Own);
        }
        let found =
            ["postgres", "nobody"].into_iter().find_map(|name| Some((id("-u", name)?, id("-g", name)?)));
        let (user, group) =
            found.ok_or_else(|| Failure::new("there is neither a user postgres nor nobody"))?;
        Ok(Self::Other { user, group })
    }

    /// A command that this account runs.
    pub(super) fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Self::Other { user, group } = self {
            command.uid(user).gid(group);
        }
        command
    }

    pub(super) fn give(self, path: &Path) -> Result {
        match self {
            Self::Own => Ok(()),
            Self::Other { user, group } => {
                chown(path, Some(user), Some(group)).or_fail(format_args!("hand over {}", path.display()))
            }
        }
    }

    /// Whether the account can reach what lies in this folder: homes are often closed to others.
    pub(super) fn reaches(self, folder: &Path) -> bool {
        self == Self::Own
            || self
                .command(Path::new("test"))
                .arg("-x")
                .arg(folder)
                .status()
                .is_ok_and(|status| status.success())
    }
}

fn id(which: &str, name: &str) -> Option<u32> {
    run::read(Command::new("id").args([which, name])).ok()?.trim().parse().ok()
}
