//! The checks that every sink must pass, against a scripted server; an independent parser reads what it takes.

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{Arc, Mutex},
};

use mailparse::MailHeaderMap;
use outbox_core::{
    Record, Uuid, async_trait,
    conformance::sink::{Fault, Received, SinkHarness},
};
use sink_smtp::{Credentials, SmtpSink};

use crate::scripted::{Act, At, Scripted, email, record};

const TEXT: &str = "text-not-to-be-shown";
const RECIPIENT: &str = "recipient-not-to-be-shown";
const PASSWORD: &str = "password-not-to-be-shown";

/// What the server is told to do.
#[derive(Default)]
struct Faults {
    of_all: Option<Fault>,
    of_one: HashMap<Uuid, Fault>,
}

impl Faults {
    fn act(&self, at: &At) -> Act {
        if at.point != "DOT" {
            return Act::Usual;
        }
        let fault = id(&at.line).and_then(|id| self.of_one.get(&id)).or(self.of_all.as_ref());
        match fault {
            None => Act::Usual,
            Some(Fault::RefusedForever) => {
                Act::Say("554 5.7.1 recipient-not-to-be-shown@example.com refused")
            }
            Some(Fault::RefusedForNow) => Act::Say("451 4.3.0 recipient-not-to-be-shown@example.com put off"),
            Some(Fault::Held) => Act::Hang,
            Some(_) => Act::Cut,
        }
    }
}

fn id(message: &str) -> Option<Uuid> {
    let (headers, _) = mailparse::parse_headers(message.as_bytes()).unwrap();
    let id = headers.get_first_value("Message-ID")?;
    id.strip_prefix('<')?.split('@').next()?.parse().ok()
}

struct SmtpHarness {
    server: Scripted,
    faults: Arc<Mutex<Faults>>,
}

impl SmtpHarness {
    async fn new() -> Self {
        let faults = Arc::new(Mutex::new(Faults::default()));
        let told = faults.clone();
        Self { server: Scripted::start(move |at| told.lock().unwrap().act(at)).await, faults }
    }
}

#[async_trait]
impl SinkHarness for SmtpHarness {
    type Sink = SmtpSink;

    // A server says that it wants less at MAIL and at no record's expense; the replies' own tests show it.
    const FAULTS: &'static [Fault] =
        &[Fault::RefusedForever, Fault::RefusedForNow, Fault::Held, Fault::Cut, Fault::Down];
    const FAULTS_OF_ONE: &'static [Fault] =
        &[Fault::RefusedForever, Fault::RefusedForNow, Fault::Held, Fault::Cut];

    async fn sink(&self) -> SmtpSink {
        let config = self
            .server
            .config()
            .with_credentials(Credentials::password("user", PASSWORD))
            .with_plain_credentials_allowed()
            .with_connections_max(NonZeroUsize::new(16).unwrap());
        SmtpSink::connect(config).unwrap()
    }

    fn record(&self) -> Record {
        record(&email(&[&format!("{RECIPIENT}@example.com")]).text(TEXT))
    }

    async fn received(&self) -> Vec<Received> {
        let taken = self.server.taken();
        let acknowledged = taken.iter().filter(|taken| taken.acknowledged);
        let received = |message: &str| {
            let (headers, _) = mailparse::parse_headers(message.as_bytes()).unwrap();
            Received::new(id(message), headers.iter().map(|header| header.get_key()))
        };
        acknowledged.map(|taken| received(&taken.message)).collect()
    }

    async fn fail(&self, fault: Fault, of: Option<Uuid>) {
        if fault == Fault::Down {
            return self.server.down().await;
        }
        let mut faults = self.faults.lock().unwrap();
        match of {
            Some(id) => _ = faults.of_one.insert(id, fault),
            None => faults.of_all = Some(fault),
        }
    }

    async fn heal(&self) {
        *self.faults.lock().unwrap() = Faults::default();
        self.server.up().await;
    }

    async fn asked(&self) -> Option<usize> {
        Some(self.server.said("DOT").len())
    }

    fn unacceptable(&self) -> Vec<(&'static str, Record)> {
        let nobody = record(&email(&[]).text(TEXT));
        let mut injected = email(&[&format!("{RECIPIENT}@example.com")]).text(TEXT);
        injected.subject = format!("a\r\nBcc: {RECIPIENT}@example.com");
        let mut other = self.record();
        other.content_type = "text/plain".into();
        vec![
            ("no recipient", nobody),
            ("a line break in the subject", record(&injected)),
            ("neither an email nor a message", other),
        ]
    }

    fn secrets(&self) -> Vec<String> {
        vec![TEXT.into(), RECIPIENT.into(), PASSWORD.into()]
    }
}

outbox_core::sink_conformance!(SmtpHarness::new().await);
