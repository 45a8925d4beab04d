//! Services for one run: they end when it ends, however it ends.
//!
//! A process of its own starts them and waits for the end of its standard input. The pipe closes when the run is
//! over, and as well when it panics, is interrupted, or is killed. Should that process be killed too, the next run
//! finds by their files what it left behind.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use super::background::Entry;
use super::place::{self, Set};
use super::{Service, with_needs};
use crate::failure::{Failure, Result, While};

/// The command of the process that holds services. Of no use at a terminal.
pub(crate) const HOLD: &str = "hold-services";

/// What that process writes when everything runs.
const READY: &str = "ready";

/// The run's end of it. Dropped, it stops the services and waits until they have ended.
#[derive(Debug)]
pub(crate) struct Held {
    holder: Option<(Child, ChildStdin)>,
    variables: BTreeMap<String, String>,
}

impl Held {
    /// Starts these services and returns when they answer. What the environment names is left out.
    pub(crate) fn start(services: &[&Service]) -> Result<Self> {
        let names: Vec<&str> = services.iter().map(|service| service.name).collect();
        let mut held = Self { holder: None, variables: BTreeMap::new() };
        if names.is_empty() {
            return Ok(held);
        }
        let own = std::env::current_exe().or_fail("find this program")?;
        let mut command = Command::new(own);
        // A process group of its own: Ctrl-C is for the tests, the services end after them.
        command.arg(HOLD).args(&names).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().or_fail("start services")?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        held.holder = input.map(|input| (child, input));
        for line in BufReader::new(output.ok_or_else(|| Failure::new("services cannot be heard"))?).lines() {
            let line = line.or_fail("hear from services")?;
            if line == READY {
                return Ok(held);
            }
            if let Some((name, value)) = line.split_once('=') {
                held.variables.insert(name.to_owned(), value.to_owned());
            }
        }
        Err(Failure::new("the services that the tests need did not start"))
    }

    /// What tests find the services by.
    pub(crate) fn variables(&self) -> &BTreeMap<String, String> {
        &self.variables
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((mut child, input)) = self.holder.take() {
            drop(input);
            let _ = child.wait();
        }
    }
}

/// The process that holds services: starts them, says how they are found, and stops them at the end of its input.
pub(crate) fn hold(names: &[&str]) -> Result {
    let folder = place::folder(Set::Test)?;
    let _lock = place::lock(&folder)?;
    let mut running = Running(Vec::new());
    let mut known = BTreeMap::new();
    let mut output = std::io::stdout();
    for service in with_needs(names)? {
        let entry = Entry::new(service, &folder);
        entry.stop()?;
        if service.is_named_by_environment() {
            continue;
        }
        entry.clear()?;
        let (child, variables) = entry.start(&known)?;
        running.0.push((entry, child));
        for (name, value) in &variables {
            writeln!(output, "{name}={value}").or_fail("tell the variables")?;
        }
        known.extend(variables);
    }
    writeln!(output, "{READY}").or_fail("tell that services run")?;
    // Nothing is ever written to it: this returns when its other end has closed.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

/// Stops what runs, last started first, also when a later one could not be started.
struct Running(Vec<(Entry, Child)>);

impl Drop for Running {
    fn drop(&mut self) {
        while let Some((entry, mut child)) = self.0.pop() {
            match entry.stop() {
                Ok(()) => drop(child.wait()),
                Err(failure) => eprintln!("services: {}: {failure}", entry.name()),
            }
        }
    }
}
