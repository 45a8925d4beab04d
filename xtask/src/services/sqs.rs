//! SQS, played by moto: in memory, and laxer than AWS about what it takes.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use super::{Service, Start, Started, free_port, place, program, spawn, wait_until};
use crate::failure::{Failure, Result, While};
use crate::run;

const URL: &str = "OUTBOX_TEST_SQS_URL";
const PROGRAM: &str = "moto_server";
const PACKAGE: &str = "moto[server]==5.2.1";

pub(super) const SERVICE: Service = Service {
    name: "sqs",
    variables: &[URL],
    aliases: &[("SQS_URL", URL)],
    needs: &[],
    // It keeps nothing.
    stop: Signal::KILL,
    start,
};

fn start(start: &Start) -> Result<Started> {
    let program = match program::folder_with(&[PROGRAM], &[]) {
        Some(folder) => folder.join(PROGRAM),
        None => install()?,
    };
    let port = free_port()?;
    let mut command = Command::new(&program);
    command.args(["-H", "127.0.0.1", "-p", &port.to_string()]).current_dir(&start.folder);
    let log = start.folder.join("log");
    let mut child = spawn(&mut command, &log)?;
    wait_until(&mut child, &log, || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
    Ok(Started { child, variables: vec![(URL, format!("http://127.0.0.1:{port}"))] })
}

/// Puts it into a virtual environment of its own under `target`, with the packages that it needs.
fn install() -> Result<PathBuf> {
    let set = place::programs()?;
    let _lock = place::lock(&set)?;
    let folder = set.join("moto-5.2.1");
    let program = folder.join("bin").join(PROGRAM);
    let complete = folder.join("complete");
    if complete.exists() {
        return Ok(program);
    }
    if run::read(Command::new("python3").args(["-c", "import ensurepip, venv"])).is_err() {
        program::install(SERVICE.name, &["python3-venv"], URL)?;
    }
    eprintln!("services: installing the Python package {PACKAGE}");
    let mut environment = Command::new("python3");
    environment.args(["-m", "venv", "--clear"]).arg(&folder);
    let mut pip = Command::new(folder.join("bin").join("pip"));
    pip.args(["--disable-pip-version-check", "install", "--quiet", PACKAGE]);
    for command in [&mut environment, &mut pip] {
        run::read(command).map_err(|failure| {
            let instead = format!("set {URL} to a running server, or leave out what needs it");
            Failure::new(format!("{failure}\n{instead}: cargo xtask test --without {}", SERVICE.name))
        })?;
    }
    std::fs::write(&complete, "").or_fail(format_args!("write {}", complete.display()))?;
    Ok(program)
}
