//! The example's own processes, killed and doubled, with a real MTA and its mailbox.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::print_stderr, reason = "a test that skips says so")]

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use mailbox::Mta;
use mailparse::MailHeaderMap;

#[allow(dead_code, reason = "shared with the tests of sink-smtp, which use all of it")]
#[path = "../../../sink-smtp/tests/it/mailbox.rs"]
mod mailbox;

/// A text in the addresses of one test and of no other.
fn tag() -> String {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    format!("{}-{}", std::process::id(), since.as_nanos())
}

fn start(task: &str, file: &Path, hello: &str) -> Child {
    let server = std::env::var("OUTBOX_TEST_SMTP").unwrap();
    let authority = std::env::var("OUTBOX_TEST_SMTP_CA").unwrap();
    Command::new(env!("CARGO_BIN_EXE_signup-mail"))
        .arg(task)
        .arg(file)
        .env("SMTP_SERVER", server)
        .env("SMTP_CA", authority)
        .env("SMTP_HELLO_NAME", hello)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Signs up these and returns the process, which still runs, once all are committed.
fn signed_up(file: &Path, addresses: &[String]) -> Child {
    let mut form = start("form", file, "form.example.test");
    let mut input = form.stdin.take().unwrap();
    let mut lines = BufReader::new(form.stdout.take().unwrap()).lines();
    for address in addresses {
        writeln!(input, "{address}").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), format!("{address} signed up"));
    }
    // Its end would end the form.
    form.stdin = Some(input);
    form
}

/// Ends a relay in order.
fn end(mut relay: Child) {
    let id = rustix::process::Pid::from_child(&relay);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert!(relay.wait().unwrap().success());
}

/// A1: what was committed before a SIGKILL is in the mailbox after a restart, once.
#[tokio::test]
async fn a_process_killed_right_after_the_commit_has_its_mail_sent_once() {
    let Some(mta) = Mta::found() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("signup.db");
    let address = format!("killed-{}@example.test", tag());
    let mut form = signed_up(&file, std::slice::from_ref(&address));
    form.kill().unwrap();
    form.wait().unwrap();
    assert_eq!(mta.count("To", &address).await, 0);

    let relay = start("relay", &file, "relay.example.test");
    assert_eq!(mta.messages("To", &address, 1).await.len(), 1);
    end(relay);
    // Started again, it finds nothing to send.
    let relay = start("relay", &file, "relay.example.test");
    // real time: longer than a relay needs for its first claim
    tokio::time::sleep(Duration::from_secs(1)).await;
    end(relay);
    assert_eq!(mta.count("To", &address).await, 1);
}

/// A1: a sign-up that fails sends nothing.
#[tokio::test]
async fn a_rolled_back_sign_up_sends_nothing() {
    let Some(mta) = Mta::found() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("signup.db");
    let address = format!("twice-{}@example.test", tag());
    let mut both = start("both", &file, "both.example.test");
    let mut input = both.stdin.take().unwrap();
    // The second breaks the key of the users' table; the last cannot be mailed to.
    write!(input, "{address}\n{address}\nno address\n").unwrap();
    drop(input);
    let lines: Vec<String> =
        BufReader::new(both.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    assert!(both.wait().unwrap().success());
    assert_eq!(lines[0], format!("{address} signed up"));
    assert!(lines[1].starts_with(&format!("{address} did not: ")), "{}", lines[1]);
    assert_eq!(lines[2], "no address did not: to[0] is no address");
    assert_eq!(mta.messages("To", &address, 1).await.len(), 1);
}

/// S2: two relays send each of a thousand mails once, and both have a part in it.
#[tokio::test]
async fn two_relays_send_each_of_a_thousand_mails_once() {
    const MAILS: usize = 1_000;
    let Some(mta) = Mta::found() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("signup.db");
    let tag = tag();
    let addresses: Vec<String> = (0..MAILS).map(|n| format!("r{n}-{tag}@example.test")).collect();
    let mut form = signed_up(&file, &addresses);
    drop(form.stdin.take());
    assert!(form.wait().unwrap().success());

    let relays = ["one", "two"].map(|name| start("relay", &file, &format!("{name}-{tag}.example.test")));
    let begun = Instant::now();
    while mta.count("To", &tag).await < MAILS {
        assert!(begun.elapsed() < Duration::from_secs(120), "{} mails", mta.count("To", &tag).await);
        // real time: the MTA delivers when it does
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for relay in relays {
        end(relay);
    }
    let messages = mta.messages("To", &tag, MAILS).await;
    let header = |message: &[u8], name: &str| {
        mailparse::parse_headers(message).unwrap().0.get_first_value(name).unwrap()
    };
    let ids: BTreeSet<String> = messages.iter().map(|message| header(message, "Message-ID")).collect();
    assert_eq!((messages.len(), ids.len()), (MAILS, MAILS));
    for name in ["one", "two"] {
        let by =
            messages.iter().filter(|message| header(message, "Received").contains(&format!("{name}-{tag}")));
        assert!(by.count() > 0, "relay {name} sent nothing");
    }
}
