//! Services that keep running until told otherwise: `cargo xtask services up|down|status`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;

use super::place::{self, Set};
use super::process::Process;
use super::{ALL, Service, Start, with_needs};
use crate::failure::{Failure, Result, While};

/// One service in its folder. Whether it runs, and how it is found, stands in files there.
pub(super) struct Entry {
    service: &'static Service,
    folder: PathBuf,
}

impl Entry {
    pub(super) fn new(service: &'static Service, set: &Path) -> Self {
        Self { service, folder: set.join(service.name) }
    }

    pub(super) fn name(&self) -> &'static str {
        self.service.name
    }

    fn process(&self) -> Option<Process> {
        Process::of_file(&self.folder.join("process"))
    }

    /// What it is found by, as far as it has been started.
    fn variables(&self) -> BTreeMap<String, String> {
        let text = fs::read_to_string(self.folder.join("variables")).unwrap_or_default();
        let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        text.lines().filter_map(pair).collect()
    }

    pub(super) fn clear(&self) -> Result {
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder).or_fail(format_args!("empty {}", self.folder.display()))?;
        }
        Ok(())
    }

    pub(super) fn start(
        &self,
        known: &BTreeMap<String, String>,
    ) -> Result<(Child, BTreeMap<String, String>)> {
        let Self { service, folder } = self;
        fs::create_dir_all(folder).or_fail(format_args!("make {}", folder.display()))?;
        let start = Start { folder: folder.clone(), known: known.clone() };
        let started = (service.start)(&start)
            .map_err(|failure| Failure::new(format!("failed to start {}: {failure}", service.name)))?;
        let process = Process::running(started.child.id());
        let process = process.ok_or_else(|| Failure::new(format!("{} ended at once", service.name)))?;
        process.write(&folder.join("process"))?;
        let variables = started.variables.into_iter().map(|(name, value)| (name.to_owned(), value));
        let variables: BTreeMap<String, String> = variables.collect();
        let text: String = variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        fs::write(folder.join("variables"), text).or_fail(format_args!("write in {}", folder.display()))?;
        eprintln!(
            "services: {} runs as process {}, files in {}",
            self.name(),
            process.id(),
            folder.display()
        );
        Ok((started.child, variables))
    }

    /// Stops it if it runs.
    pub(super) fn stop(&self) -> Result {
        if let Some(process) = self.process() {
            process.stop(self.service.stop)?;
        }
        Ok(())
    }
}

/// Starts these services, or all, and leaves them running. Prints what to export, and nothing else, to standard output.
pub(crate) fn up(names: &[&str]) -> Result {
    let folder = place::folder(Set::Background)?;
    let _lock = place::lock(&folder)?;
    let mut known = BTreeMap::new();
    for service in with_needs(names)? {
        if service.is_named_by_environment() {
            eprintln!("services: {} is named by the environment", service.name);
            continue;
        }
        let entry = Entry::new(service, &folder);
        let mut variables = entry.variables();
        if entry.process().is_none() {
            // Not waited for: it outlives this process.
            (_, variables) = entry.start(&known)?;
        }
        for (alias, name) in service.aliases {
            variables.extend(variables.get(*name).cloned().map(|value| ((*alias).to_owned(), value)));
        }
        for (name, value) in &variables {
            println!("export {name}={}", quoted(value));
        }
        known.extend(variables);
    }
    Ok(())
}

/// Stops these services, or all, and what needs them.
pub(crate) fn down(names: &[&str]) -> Result {
    with_needs(names)?;
    let folder = place::folder(Set::Background)?;
    let _lock = place::lock(&folder)?;
    for service in ALL.iter().rev() {
        let asked = |name: &&str| names.is_empty() || names.contains(name);
        if asked(&service.name) || service.needs.iter().any(asked) {
            Entry::new(service, &folder).stop()?;
        }
    }
    Ok(())
}

/// Prints a line for each of these services, or all.
pub(crate) fn status(names: &[&str]) -> Result {
    with_needs(names)?;
    let folder = place::folder(Set::Background)?;
    for service in ALL.iter().filter(|service| names.is_empty() || names.contains(&service.name)) {
        let entry = Entry::new(service, &folder);
        match entry.process() {
            Some(process) => {
                let variables = entry.variables();
                let first = service.variables.first().and_then(|name| variables.get(*name));
                println!("{}: process {}, {}", entry.name(), process.id(), first.map_or("", String::as_str));
            }
            None => println!("{}: not running", entry.name()),
        }
    }
    Ok(())
}

/// For a shell.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_reaches_the_shell_as_it_is() {
        assert_eq!(quoted("a b$c"), "'a b$c'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
