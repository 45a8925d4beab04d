//! The example's own processes, killed and started again, with a broker between them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::print_stderr, reason = "a test that skips says so")]

use std::{
    io::{BufRead, BufReader, Lines, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

const ORDERS: usize = 20;

struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(what: &str, file: &Path, brokers: &str, topic: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_order-events"))
            .arg(what)
            .arg(file)
            .env("KAFKA_BROKERS", brokers)
            .env("ORDERS_TOPIC", topic)
            .env("LISTEN", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    /// SIGKILL. Returns what it had still to say.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.lines.by_ref().map(Result::unwrap).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The status of the answer.
fn place(shop: &str, item: &str) -> String {
    let mut stream = TcpStream::connect(shop).unwrap();
    let body = format!(r#"{{"customer": "ann", "item": "{item}"}}"#);
    write!(
        stream,
        "POST /orders HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().to_owned()
}

/// A1: every committed order is billed once and in order, whatever dies when, and one that is rolled back
/// never.
#[test]
fn each_order_is_billed_once_whatever_dies() {
    let Ok(brokers) = std::env::var("OUTBOX_TEST_KAFKA_BROKERS") else {
        let required = ["CI", "OUTBOX_TEST_REQUIRE_SERVICES"].map(std::env::var);
        assert!(
            !required.iter().flatten().any(|value| value == "true" || value == "1"),
            "OUTBOX_TEST_KAFKA_BROKERS is not set, and services are required"
        );
        eprintln!("SKIPPED: OUTBOX_TEST_KAFKA_BROKERS is not set; `cargo xtask test` sets it");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let topic = format!("orders-{}-{}", std::process::id(), since.as_nanos());
    let start = |what: &str| Process::start(what, &folder.path().join(what), &brokers, &topic);

    let mut shop = start("shop");
    let address = shop.line().split("//").nth(1).unwrap().to_owned();
    for at in 0..ORDERS {
        assert_eq!(place(&address, "book"), "201");
        if at == ORDERS / 2 {
            assert_eq!(place(&address, ""), "422");
        }
    }
    drop(shop);
    let _shop = start("shop");

    let mut billed = Vec::new();
    for orders in [ORDERS / 2, ORDERS] {
        let mut billing = start("billing");
        while billed.len() < orders {
            note(&mut billed, &billing.line());
        }
        for line in billing.kill() {
            note(&mut billed, &line);
        }
    }
    assert_eq!(billed.len(), ORDERS);
    assert!(billed.is_sorted_by(|one, next| one < next), "{billed:?}");
}

fn note(billed: &mut Vec<usize>, line: &str) {
    // The other line is for an event that has come before, and was dropped by its id.
    if line.ends_with("is billed") {
        billed.push(line.split(' ').nth(1).unwrap().parse().unwrap());
    }
}
