//! Running other programs, cargo above all.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use crate::failure::{Failure, Result, While};
use crate::workspace::root;

/// A cargo command in the root of the workspace.
///
/// Cargo tells this program about its own package by environment variables. Handed on, they would change the
/// fingerprints of build scripts that watch them, and build those again for nothing.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.args(args).current_dir(root()).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") || text == "OUT_DIR" {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs a command whose output people see.
pub(crate) fn see(command: &mut Command) -> Result {
    let line = shown(command);
    eprintln!("$ {line}");
    let status = command.status().or_fail(format_args!("run `{line}`"))?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("`{line}` failed: {status}"))) }
}

/// Runs a command and returns what it wrote to its standard output.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let line = shown(command);
    let output = command.stderr(Stdio::piped()).output().or_fail(format_args!("run `{line}`"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Failure::new(format!("`{line}` failed: {}\n{}", output.status, said.trim_end())))
    }
}

/// The command as a person would type it.
fn shown(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let name = program.rsplit('/').next().unwrap_or(&program).to_owned();
    let args = command.get_args().map(|arg| arg.to_string_lossy());
    std::iter::once(name.into()).chain(args).collect::<Vec<_>>().join(" ")
}
