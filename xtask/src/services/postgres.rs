//! PostgreSQL: a cluster of its own with the durability of a real one, reached by TCP alone.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::account::Account;
use super::{Service, Start, Started, free_port, program, spawn, wait_until};
use crate::failure::{Result, While};
use crate::run;

pub(super) const URL: &str = "OUTBOX_TEST_POSTGRES_URL";
/// The folder of `initdb`, `pg_ctl`, `pg_dump`, for tests that need a cluster of their own.
const PROGRAMS: &str = "OUTBOX_TEST_POSTGRES_BIN";
/// Where the server writes its log, for tests that look for deadlocks.
const LOG: &str = "OUTBOX_TEST_POSTGRES_LOG";

pub(super) const SERVICE: Service = Service {
    name: "postgres",
    variables: &[URL, PROGRAMS, LOG],
    aliases: &[("DATABASE_URL", URL)],
    needs: &[],
    stop: Signal::INT,
    start,
};

fn start(start: &Start) -> Result<Started> {
    let programs = program::folder_or_install(
        &["initdb", "postgres", "pg_ctl", "pg_dump"],
        folders,
        (SERVICE.name, &["postgresql"], URL),
    )?;
    let account = Account::unprivileged()?;
    let data = start.folder.join("data");
    if !data.join("PG_VERSION").exists() {
        fs::create_dir_all(&data).or_fail(format_args!("make {}", data.display()))?;
        account.give(&data)?;
        init(account, &programs, &data)?;
    }
    let port = free_port()?;
    let log = start.folder.join("log");
    let mut command = account.command(&programs.join("postgres"));
    command.current_dir(&data).arg("-D").arg(&data).args(["-p", &port.to_string()]);
    // Without a socket file there is no limit to how deep the folder may lie.
    for setting in ["listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=200"] {
        command.args(["-c", setting]);
    }
    let mut child = spawn(&mut command, &log)?;
    let state = data.join("postmaster.pid");
    wait_until(&mut child, &log, || is_ready(&fs::read_to_string(&state).unwrap_or_default(), port))?;
    let variables = vec![
        (URL, format!("postgres://postgres@127.0.0.1:{port}/postgres")),
        (PROGRAMS, programs.display().to_string()),
        (LOG, log.display().to_string()),
    ];
    Ok(Started { child, variables })
}

/// Makes a cluster whose text sorts as people do, as most that run in production do: what relies on the order of
/// bytes without saying so shows. Builds without ICU get the order of bytes.
fn init(account: Account, programs: &Path, data: &Path) -> Result {
    let base = || {
        let mut command = account.command(&programs.join("initdb"));
        command.current_dir(data).arg("-D").arg(data);
        command.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
        command
    };
    run::read(base().args(["--locale-provider=icu", "--icu-locale=en-US"]))
        .or_else(|_| run::read(&mut base()))
        .map(|_| ())
}

/// The last line of `postmaster.pid` is what `pg_ctl` goes by.
fn is_ready(state: &str, port: u16) -> bool {
    let mut lines = state.lines().map(str::trim);
    lines.nth(3) == Some(port.to_string().as_str()) && lines.next_back() == Some("ready")
}

/// Where packages put what is not on PATH, newest major first.
fn folders() -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for (parent, prefix) in [
        ("/usr/lib/postgresql", ""),
        ("/usr", "pgsql-"),
        ("/opt/homebrew/opt", "postgresql@"),
        ("/usr/local/opt", "postgresql@"),
    ] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(Ok(major)) = name.strip_prefix(prefix).map(str::parse) {
                found.push((major, entry.path().join("bin")));
            }
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, folder)| folder).collect()
}

/// Splits `postgres://user@host:port/database` as this service writes it.
pub(super) fn port_of(url: &str) -> Option<u16> {
    url.rsplit_once(':')?.1.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_still_recovers_is_not_ready() {
        let state = |last: &str| format!("81\n/data\n1764\n5433\n\n127.0.0.1\n  4456  7\n{last}\n");
        assert!(is_ready(&state("ready   "), 5433));
        assert!(!is_ready(&state("starting"), 5433));
        assert!(!is_ready(&state("ready   "), 5432), "left by another server");
        assert!(!is_ready("81\n", 5433));
    }

    #[test]
    fn the_port_is_found_in_the_url() {
        assert_eq!(port_of("postgres://postgres@127.0.0.1:5433/postgres"), Some(5433));
        assert_eq!(port_of("postgres://postgres@127.0.0.1/postgres"), None);
    }
}
