//! A Kafka broker that holds topics to `max.message.bytes`, which the one for ordinary tests does not.

use std::net::TcpStream;
use std::process::Command;

use rustix::process::Signal;

use super::python::Package;
use super::{Service, Start, Started, free_port, spawn, wait_until};
use crate::failure::{Result, While};

const BROKERS: &str = "OUTBOX_TEST_KAFKA_LIMITED_BROKERS";

const NOIDA: Package = Package { name: "noida-db", version: "0.2.3", program: "noida_db/noida-db" };

pub(super) const SERVICE: Service = Service {
    name: "kafka-limited",
    variables: &[BROKERS],
    aliases: &[],
    needs: &[],
    stop: Signal::TERM,
    start,
};

fn start(start: &Start) -> Result<Started> {
    let program = NOIDA.program_or_install(SERVICE.name, BROKERS)?;
    let port = free_port()?;
    let data = start.folder.join("data");
    std::fs::create_dir_all(&data).or_fail(format_args!("make {}", data.display()))?;
    let mut command = Command::new(program);
    command.current_dir(&start.folder).args(["start", "--only", "kafka", "--kafka-port", &port.to_string()]);
    command.arg("--data-dir").arg(&data);
    let log = start.folder.join("log");
    let mut child = spawn(&mut command, &log)?;
    wait_until(&mut child, &log, || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
    Ok(Started { child, variables: vec![(BROKERS, format!("127.0.0.1:{port}"))] })
}
