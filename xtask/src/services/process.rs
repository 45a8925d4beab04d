//! Processes known by a file: whether they still run, and how they are ended.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::failure::{Failure, Result, While};

/// How long a server may take to end in order before it is killed.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process, told apart from a later one of the same number by when it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    id: u32,
    begun: String,
}

impl Process {
    /// `None` when no process has this number, or only a dead one that nobody has waited for.
    pub(super) fn running(id: u32) -> Option<Self> {
        begun(id).map(|begun| Self { id, begun })
    }

    /// What an earlier run wrote to this file, if that process still runs.
    pub(super) fn of_file(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let (id, begun) = text.trim_end().split_once(' ')?;
        let process = Self { id: id.parse().ok()?, begun: begun.to_owned() };
        process.runs().then_some(process)
    }

    pub(super) fn write(&self, path: &Path) -> Result {
        let text = format!("{} {}\n", self.id, self.begun);
        fs::write(path, text).or_fail(format_args!("write {}", path.display()))
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    fn runs(&self) -> bool {
        begun(self.id).as_ref() == Some(&self.begun)
    }

    /// Asks the process to end, waits until it has, and kills it when it does not.
    pub(super) fn stop(&self, signal: Signal) -> Result {
        for signal in [signal, Signal::KILL] {
            self.send(signal)?;
            let asked = Instant::now();
            while asked.elapsed() < PATIENCE {
                if !self.runs() {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Err(Failure::new(format!("process {} does not end", self.id)))
    }

    fn send(&self, signal: Signal) -> Result {
        let id = i32::try_from(self.id).ok().and_then(Pid::from_raw);
        let id = id.ok_or_else(|| Failure::new(format!("{} is no process id", self.id)))?;
        match kill_process(id, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error).or_fail(format_args!("end process {}", self.id)),
        }
    }
}

/// When a process began, in whatever unit the system tells.
fn begun(id: u32) -> Option<String> {
    if Path::new("/proc/self/stat").exists() {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        return begun_in(&stat);
    }
    let output = Command::new("ps").args(["-o", "state=,lstart=", "-p", &id.to_string()]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let (state, begun) = text.split_once(' ')?;
    (!state.starts_with('Z')).then(|| begun.trim().to_owned())
}

/// Field 22 of Linux's `/proc/PID/stat`, counted behind the name, which may contain anything.
fn begun_in(stat: &str) -> Option<String> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    (state != "Z").then(|| fields.nth(18).map(str::to_owned))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_process_that_nobody_waited_for_does_not_run() {
        let check = |stat: &str, expected: Option<&str>| assert_eq!(begun_in(stat).as_deref(), expected);
        let rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        check(&format!("7 (a) b) S {rest}"), Some("4242"));
        check(&format!("7 (a) b) Z {rest}"), None);
        check("7 (a) S 1", None);
    }

    #[test]
    fn a_number_that_went_to_another_process_is_not_ours() {
        let folder = std::env::temp_dir().join(format!("outbox-xtask-pid-{}", std::process::id()));
        let own = Process::running(std::process::id()).unwrap();
        own.write(&folder).unwrap();
        assert_eq!(Process::of_file(&folder), Some(own.clone()));
        Process { begun: "long ago".into(), ..own }.write(&folder).unwrap();
        assert_eq!(Process::of_file(&folder), None);
        fs::remove_file(&folder).unwrap();
    }

    #[test]
    fn a_process_that_has_ended_may_be_stopped_again() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::running(child.id()).unwrap();
        process.stop(Signal::TERM).unwrap();
        assert!(!child.wait().unwrap().success());
        process.stop(Signal::TERM).unwrap();
    }
}
