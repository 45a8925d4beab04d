//! The checks that every sink must pass, against a receiver that reads HTTP by itself.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use outbox_core::{
    CloudEvents, Payload, Record, Uuid, async_trait,
    conformance::sink::{Fault, Received, SinkHarness},
};
use sink_http::{HttpConfig, HttpSink};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::receiver::local;

const PAYLOAD: &str = "payload-not-to-be-shown";
const TOKEN: &str = "token-not-to-be-shown";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const QUERY: &str = "query-not-to-be-shown";

/// What the receiver has seen and is told to do.
#[derive(Default)]
struct Book {
    received: Vec<Received>,
    asked: usize,
    fault: Option<Fault>,
    fault_of: HashMap<Uuid, Fault>,
}

/// How the sink under test is configured.
#[derive(Clone, Copy)]
enum Setup {
    FixedUrl,
    ByDestination,
    BinaryEvents,
    StructuredEvents,
}

struct HttpHarness {
    setup: Setup,
    address: SocketAddr,
    book: Arc<Mutex<Book>>,
    /// The listener and its connections; none while it is down.
    serving: Mutex<Option<JoinSet<()>>>,
}

impl HttpHarness {
    async fn new(setup: Setup) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, book) = (listener.local_addr().unwrap(), Arc::default());
        let serving = Mutex::new(Some(serve(listener, Arc::clone(&book))));
        Self { setup, address, book, serving }
    }

    fn url(&self) -> String {
        format!("http://{}/in?{QUERY}", self.address)
    }
}

/// Dropping what it returns closes the listener and every connection.
fn serve(listener: TcpListener, book: Arc<Mutex<Book>>) -> JoinSet<()> {
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(converse(stream, Arc::clone(&book)));
        }
    });
    serving
}

/// Answers the requests of one connection until one of the two has enough.
async fn converse(stream: TcpStream, book: Arc<Mutex<Book>>) {
    let mut stream = BufReader::new(stream);
    while let Some((id, names)) = request(&mut stream).await {
        let fault = {
            let mut book = book.lock().unwrap();
            book.asked += 1;
            let fault = id.and_then(|id| book.fault_of.get(&id)).or(book.fault.as_ref()).copied();
            if fault.is_none() {
                book.received.push(Received::new(id, names));
            }
            fault
        };
        let answer = match fault {
            None => "204 No Content",
            Some(Fault::RefusedForever) => "422 Unprocessable",
            Some(Fault::RefusedForNow) => "500 Oops",
            Some(Fault::Throttled) => "429 Slow Down",
            Some(Fault::Held) => std::future::pending().await,
            Some(_) => return,
        };
        // A 204 has no body, and any other says that it has none.
        let length = if fault.is_some() { "content-length: 0\r\n" } else { "" };
        let answer = format!("HTTP/1.1 {answer}\r\n{length}\r\n");
        if stream.get_mut().write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// One request: its `webhook-id` and the names of its headers. None when the connection ends, or what comes
/// is not a POST of a known length.
async fn request(stream: &mut BufReader<TcpStream>) -> Option<(Option<Uuid>, Vec<String>)> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    if line != format!("POST /in?{QUERY} HTTP/1.1\r\n") {
        return None;
    }
    let (mut id, mut length, mut names) = (None, None, Vec::new());
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        if line == "\r\n" {
            break;
        }
        let (name, value) = line.split_once(':')?;
        match name.to_ascii_lowercase().as_str() {
            "webhook-id" => id = value.trim().parse().ok(),
            "content-length" => length = value.trim().parse().ok(),
            _ => {}
        }
        names.push(name.to_owned());
    }
    let mut body = vec![0; length?];
    stream.read_exact(&mut body).await.ok()?;
    Some((id, names))
}

#[async_trait]
impl SinkHarness for HttpHarness {
    type Sink = HttpSink;

    const FAULTS: &'static [Fault] = &[
        Fault::RefusedForever,
        Fault::RefusedForNow,
        Fault::Throttled,
        Fault::Held,
        Fault::Cut,
        Fault::Down,
    ];
    const FAULTS_OF_ONE: &'static [Fault] =
        &[Fault::RefusedForever, Fault::RefusedForNow, Fault::Throttled, Fault::Held, Fault::Cut];

    async fn sink(&self) -> HttpSink {
        let config = match self.setup {
            Setup::ByDestination => HttpConfig::by_destination(),
            Setup::FixedUrl | Setup::BinaryEvents | Setup::StructuredEvents => HttpConfig::to(self.url()),
        };
        let config = match self.setup {
            Setup::BinaryEvents => config.with_cloud_events(CloudEvents::binary("/orders")),
            Setup::StructuredEvents => config.with_cloud_events(CloudEvents::structured("/orders")),
            Setup::FixedUrl | Setup::ByDestination => config,
        };
        let config = config.with_header("authorization", TOKEN).with_secret(SECRET.parse().unwrap());
        HttpSink::connect(local(config)).unwrap()
    }

    fn record(&self) -> Record {
        let payload = Payload::Json(format!(r#"{{"it":"{PAYLOAD}"}}"#));
        let mut record = Record::new(1, Uuid::now_v7(), "order.placed", payload);
        if let Setup::ByDestination = self.setup {
            record.destination = Some(self.url());
        }
        record
    }

    async fn received(&self) -> Vec<Received> {
        self.book.lock().unwrap().received.clone()
    }

    async fn fail(&self, fault: Fault, of: Option<Uuid>) {
        if fault == Fault::Down {
            let serving = self.serving.lock().unwrap().take();
            if let Some(mut serving) = serving {
                // Waits until the sockets are closed.
                serving.shutdown().await;
            }
            return;
        }
        let mut book = self.book.lock().unwrap();
        match of {
            Some(id) => _ = book.fault_of.insert(id, fault),
            None => book.fault = Some(fault),
        }
    }

    async fn heal(&self) {
        {
            let mut book = self.book.lock().unwrap();
            book.fault = None;
            book.fault_of.clear();
        }
        if self.serving.lock().unwrap().is_none() {
            let listener = TcpListener::bind(self.address).await.unwrap();
            *self.serving.lock().unwrap() = Some(serve(listener, Arc::clone(&self.book)));
        }
    }

    async fn asked(&self) -> Option<usize> {
        Some(self.book.lock().unwrap().asked)
    }

    fn unacceptable(&self) -> Vec<(&'static str, Record)> {
        let mut owned = self.record();
        owned.headers.insert("Content-Length".into(), "0".into());
        let mut records = vec![("a header of the protocol", owned)];
        if let Setup::ByDestination = self.setup {
            for (what, url) in [
                ("an odd scheme", "ftp://hooks.example/query-not-to-be-shown"),
                ("credentials in the URL", "https://me:query-not-to-be-shown@hooks.example/"),
                ("no host", "https:///query-not-to-be-shown"),
                ("cloud metadata", "http://169.254.169.254/query-not-to-be-shown"),
                ("no URL", "query-not-to-be-shown"),
            ] {
                let mut record = self.record();
                record.destination = Some(url.into());
                records.push((what, record));
            }
        }
        records
    }

    fn secrets(&self) -> Vec<String> {
        vec![PAYLOAD.into(), TOKEN.into(), SECRET.into(), QUERY.into()]
    }
}

mod with_a_fixed_url {
    use super::*;
    outbox_core::sink_conformance!(HttpHarness::new(Setup::FixedUrl).await);
}

mod by_destination {
    use super::*;
    outbox_core::sink_conformance!(HttpHarness::new(Setup::ByDestination).await);
}

mod with_binary_events {
    use super::*;
    outbox_core::sink_conformance!(HttpHarness::new(Setup::BinaryEvents).await);
}

mod with_structured_events {
    use super::*;
    outbox_core::sink_conformance!(HttpHarness::new(Setup::StructuredEvents).await);
}
