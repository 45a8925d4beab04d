//! Servers that tests and examples talk to: one file each, all of the same shape.
//!
//! A service finds its program or installs it, starts it on a free port of the loopback interface, waits until it
//! answers, and says by which environment variables it is found. What a variable of the environment already names
//! is used as it is, and nothing is started.

mod account;
mod background;
mod dovecot;
mod held;
mod kafka;
mod kafka_limited;
mod nats;
mod pgbouncer;
mod place;
mod postfix;
mod postgres;
mod process;
mod program;
mod python;
mod sqs;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) use background::{down, status, up};
pub(crate) use held::{HOLD, Held, hold};

use crate::failure::{Failure, Result, While};

/// Every service, those first that others need.
const ALL: &[&Service] = &[
    &postgres::SERVICE,
    &pgbouncer::SERVICE,
    &kafka::SERVICE,
    &kafka_limited::SERVICE,
    &nats::SERVICE,
    &sqs::SERVICE,
    &dovecot::SERVICE,
    &postfix::SERVICE,
];

/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// What there is to know about a server before it runs.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: &'static str,
    /// What tests read. The first, when the environment sets it, names a server that is used instead of a new one.
    variables: &'static [&'static str],
    /// Names by which examples know what tests call otherwise.
    aliases: &'static [(&'static str, &'static str)],
    /// Services that must run before.
    needs: &'static [&'static str],
    /// What asks it to end at once and in order.
    stop: rustix::process::Signal,
    start: fn(&Start) -> Result<Started>,
}

/// What a service is started with.
struct Start {
    /// Its own, empty but for what an earlier run in the background has left.
    folder: PathBuf,
    /// The variables of the services before it.
    known: BTreeMap<String, String>,
}

/// A server that answers.
struct Started {
    child: Child,
    variables: Vec<(&'static str, String)>,
}

impl Service {
    fn is_named_by_environment(&self) -> bool {
        let named = |name: &&str| std::env::var(name).is_ok_and(|value| !value.is_empty());
        self.variables.first().is_some_and(named)
    }
}

pub(crate) fn by_name(name: &str) -> Option<&'static Service> {
    ALL.iter().copied().find(|service| service.name == name)
}

/// The services whose variables these texts name.
pub(crate) fn needed_by<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> Vec<&'static Service> {
    let names = |service: &&Service| {
        let mut texts = texts.clone();
        texts.any(|text| service.variables.iter().any(|variable| text.contains(variable)))
    };
    ALL.iter().copied().filter(names).collect()
}

/// These services and those that they need, in the order in which they start; all of them when none is named.
fn with_needs(names: &[&str]) -> Result<Vec<&'static Service>> {
    if let Some(unknown) = names.iter().find(|name| by_name(name).is_none()) {
        let known: Vec<_> = ALL.iter().map(|service| service.name).collect();
        return Err(Failure::new(format!("there is no service named {unknown}, but {}", known.join(", "))));
    }
    let mut wanted: Vec<&str> = names.to_vec();
    for service in ALL.iter().rev() {
        if wanted.contains(&service.name) && !service.is_named_by_environment() {
            wanted.extend(service.needs);
        }
    }
    let wanted = |service: &&Service| names.is_empty() || wanted.contains(&service.name);
    Ok(ALL.iter().copied().filter(wanted).collect())
}

/// A port of the loopback interface that nothing listens on.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).or_fail("find a free port")?;
    Ok(listener.local_addr().or_fail("find a free port")?.port())
}

/// Starts a server in a process group of its own, so that Ctrl-C does not end it before those that talk to it, with
/// its output in `log`.
fn spawn(command: &mut Command, log: &Path) -> Result<Child> {
    use std::os::unix::process::CommandExt;
    let output = File::options().create(true).append(true).open(log);
    let output = output.or_fail(format_args!("open {}", log.display()))?;
    let errors = output.try_clone().or_fail(format_args!("open {}", log.display()))?;
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
    command.spawn().or_fail(format_args!("start {program}"))
}

/// Waits until a server answers. Ends early when its process does; both failures end with the end of its log.
fn wait_until(child: &mut Child, log: &Path, answers: impl Fn() -> bool) -> Result {
    let begun = Instant::now();
    let failed = loop {
        if answers() {
            return Ok(());
        }
        match child.try_wait() {
            Ok(Some(status)) => break format!("the server ended: {status}"),
            _ if begun.elapsed() > PATIENCE => break format!("no answer in {} s", PATIENCE.as_secs()),
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let _ = child.kill();
    let _ = child.wait();
    let said = fs::read_to_string(log).unwrap_or_default();
    let end: Vec<&str> = said.lines().rev().take(10).collect();
    let end: Vec<&str> = end.into_iter().rev().collect();
    Err(Failure::new(format!("{failed}; end of {}:\n{}", log.display(), end.join("\n"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(services: &[&Service]) -> Vec<&'static str> {
        services.iter().map(|service| service.name).collect()
    }

    #[test]
    fn a_service_starts_after_what_it_needs() {
        for (place, service) in ALL.iter().enumerate() {
            for need in service.needs {
                assert!(names(&ALL[..place]).contains(need), "{} needs {need}", service.name);
            }
        }
        assert_eq!(names(&with_needs(&["pgbouncer"]).unwrap()), ["postgres", "pgbouncer"]);
        assert_eq!(names(&with_needs(&["postgres"]).unwrap()), ["postgres"]);
        assert_eq!(with_needs(&[]).unwrap().len(), ALL.len());
        assert!(with_needs(&["oracle"]).is_err());
    }

    #[test]
    fn only_what_the_code_names_is_needed() {
        let check = |text: &str, expected: &[&str]| {
            assert_eq!(names(&needed_by([text].into_iter())), expected);
        };
        check("let url = env(\"OUTBOX_TEST_POSTGRES_URL\");", &["postgres"]);
        check("fn main() {}", &[]);
    }

    #[test]
    fn a_server_that_ends_is_not_waited_for() {
        let log = std::env::temp_dir().join(format!("outbox-xtask-{}", std::process::id()));
        let mut child = spawn(Command::new("sh").args(["-c", "echo no such option; exit 3"]), &log).unwrap();
        let failure = wait_until(&mut child, &log, || false).unwrap_err().to_string();
        fs::remove_file(&log).unwrap();
        assert!(failure.contains("exit status: 3") && failure.contains("no such option"), "{failure}");
    }
}
