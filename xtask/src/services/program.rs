//! Programs that services are made of: found, or installed where that can be done without asking.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Failure, Result};
use crate::run;

/// The folders that commands are looked up in, and two that ordinary users' paths leave out.
fn path() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.into_iter().chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from))
}

/// The first folder, of PATH and then of `more`, that holds all these programs.
pub(super) fn folder_with(programs: &[&str], more: &[PathBuf]) -> Option<PathBuf> {
    let holds = |folder: &PathBuf| programs.iter().all(|program| folder.join(program).is_file());
    path().chain(more.iter().cloned()).find(holds)
}

/// Installs Debian packages as root. Everybody else is told what to do: `variable` names a running server.
pub(super) fn install(what: &str, debian: &[&str], variable: &str) -> Result {
    let can = rustix::process::geteuid().is_root() && Path::new("/usr/bin/apt-get").exists();
    if !can {
        return Err(Failure::new(format!(
            "{what} is not installed: install it (Debian: apt-get install {}), or set {variable} to a running \
             server, or leave out what needs it: cargo xtask test --without {what}",
            debian.join(" ")
        )));
    }
    let apt = || {
        let mut command = Command::new("apt-get");
        // At run level 1 packages do not start their servers.
        command
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("RUNLEVEL", "1")
            .stdin(std::process::Stdio::null());
        command.args(["-qq", "-o", "DPkg::Lock::Timeout=300"]);
        command
    };
    eprintln!("services: installing {}", debian.join(" "));
    run::read(apt().arg("update"))?;
    run::read(apt().args(["install", "-y", "--no-install-recommends"]).args(debian))?;
    Ok(())
}

/// The folder with these programs, after installing them when there is none.
pub(super) fn folder_or_install(
    programs: &[&str],
    more: impl Fn() -> Vec<PathBuf>,
    (what, debian, variable): (&str, &[&str], &str),
) -> Result<PathBuf> {
    if let Some(folder) = folder_with(programs, &more()) {
        return Ok(folder);
    }
    install(what, debian, variable)?;
    folder_with(programs, &more())
        .ok_or_else(|| Failure::new(format!("{} brought no {}", debian.join(" "), programs.join(", "))))
}
