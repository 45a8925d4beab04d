//! The real MTA of these tests, and the mailbox that it delivers into, read by IMAP.

use std::time::{Duration, Instant};

use sink_smtp::SmtpConfig;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// How long the MTA may take to deliver.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where the MTA and the mailbox are.
pub(crate) struct Mta {
    smtp: String,
    submission: String,
    tls: String,
    authority: String,
    pub(crate) user: String,
    pub(crate) password: String,
    imap: String,
}

impl Mta {
    /// None when the environment names none: then the test skips, unless it must not.
    pub(crate) fn found() -> Option<Self> {
        let names = [
            "OUTBOX_TEST_SMTP",
            "OUTBOX_TEST_SMTP_SUBMISSION",
            "OUTBOX_TEST_SMTP_TLS",
            "OUTBOX_TEST_SMTP_CA",
            "OUTBOX_TEST_SMTP_LOGIN",
            "OUTBOX_TEST_IMAP",
        ];
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let Some(values) = names.iter().map(|name| set(name)).collect::<Option<Vec<_>>>() else {
            let needed = set("CI").or(set("OUTBOX_TEST_REQUIRE_SERVICES")).is_some();
            assert!(!needed, "one of {} is not set", names.join(", "));
            eprintln!("SKIPPED: one of {} is not set", names.join(", "));
            return None;
        };
        let [smtp, submission, tls, authority, login, imap] = values.try_into().ok()?;
        let (user, password) = login.split_once(' ')?;
        let (user, password) = (user.to_owned(), password.to_owned());
        let authority = std::fs::read_to_string(authority).unwrap();
        Some(Self { smtp, submission, tls, authority, user, password, imap })
    }

    fn config(&self, server: &str) -> SmtpConfig {
        let (host, port) = server.rsplit_once(':').unwrap();
        SmtpConfig::new(host)
            .with_port(port.parse().unwrap())
            .with_root_certificate(&self.authority)
            .with_hello_name("client.example.test")
    }

    /// STARTTLS, without a login.
    pub(crate) fn starttls(&self) -> SmtpConfig {
        self.config(&self.smtp)
    }

    /// STARTTLS, and no mail without a login.
    pub(crate) fn submission(&self) -> SmtpConfig {
        self.config(&self.submission)
    }

    /// TLS from the first byte, and no mail without a login.
    pub(crate) fn implicit(&self) -> SmtpConfig {
        self.config(&self.tls).with_tls(sink_smtp::Tls::Implicit)
    }

    /// The messages whose header `name` holds this text, once there are `count`, or too much time has passed.
    pub(crate) async fn messages(&self, name: &str, value: &str, count: usize) -> Vec<Vec<u8>> {
        let begun = Instant::now();
        loop {
            let found = self.search(name, value).await;
            if found.len() >= count || begun.elapsed() > PATIENCE {
                return found;
            }
            // real time: the MTA delivers when it does
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// How many messages have a header `name` that holds this text.
    pub(crate) async fn count(&self, name: &str, value: &str) -> usize {
        self.numbers(name, value).await.1.len()
    }

    async fn search(&self, name: &str, value: &str) -> Vec<Vec<u8>> {
        let (mut imap, numbers) = self.numbers(name, value).await;
        if numbers.is_empty() {
            return Vec::new();
        }
        command(&mut imap, &format!("UID FETCH {} (BODY.PEEK[])", numbers.join(","))).await.1
    }

    async fn numbers(&self, name: &str, value: &str) -> (BufReader<TcpStream>, Vec<String>) {
        let mut imap = BufReader::new(TcpStream::connect(&self.imap).await.unwrap());
        let mut greeting = String::new();
        imap.read_line(&mut greeting).await.unwrap();
        command(&mut imap, &format!("LOGIN \"{}\" \"{}\"", self.user, self.password)).await;
        command(&mut imap, "SELECT INBOX").await;
        let (lines, _) = command(&mut imap, &format!("UID SEARCH HEADER {name} \"{value}\"")).await;
        let found = lines.iter().find_map(|line| line.strip_prefix("* SEARCH ")).unwrap_or_default();
        let numbers = found.split_ascii_whitespace().map(str::to_owned).collect();
        (imap, numbers)
    }
}

/// The untagged lines of the answer, and its literals.
async fn command(imap: &mut BufReader<TcpStream>, command: &str) -> (Vec<String>, Vec<Vec<u8>>) {
    imap.get_mut().write_all(format!("t {command}\r\n").as_bytes()).await.unwrap();
    let (mut lines, mut literals) = (Vec::new(), Vec::new());
    loop {
        let mut line = String::new();
        assert!(imap.read_line(&mut line).await.unwrap() > 0, "IMAP ended");
        let line = line.trim_end();
        if let Some(result) = line.strip_prefix("t ") {
            assert!(result.starts_with("OK"), "IMAP: {result}");
            return (lines, literals);
        }
        if let Some((_, size)) = line.strip_suffix('}').and_then(|line| line.rsplit_once('{')) {
            let mut literal = vec![0; size.parse().unwrap()];
            imap.read_exact(&mut literal).await.unwrap();
            literals.push(literal);
        }
        lines.push(line.to_owned());
    }
}
