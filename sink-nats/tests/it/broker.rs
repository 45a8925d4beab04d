//! Servers for the tests: the one that `cargo xtask test` has started, and some that may be killed.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use outbox_core::Uuid;
use sink_nats::async_nats::{
    self, Client,
    jetstream::{
        self,
        stream::{Config, DiscardPolicy},
    },
};

/// The value of a variable that `cargo xtask test` sets. Without it the test skips, and fails where every test
/// must run.
fn required(name: &str) -> Option<String> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty());
    if value.is_none() {
        let must = ["CI", "OUTBOX_TEST_REQUIRE_SERVICES"].iter().any(|name| std::env::var_os(name).is_some());
        assert!(!must, "{name} is not set, and every test must run: use `cargo xtask test`");
        eprintln!("skipped: {name} is not set; `cargo xtask test` starts a server");
    }
    value
}

pub(crate) fn url() -> Option<String> {
    required("OUTBOX_TEST_NATS_URL")
}

/// A server of the test's own.
pub(crate) struct Own {
    child: Child,
    program: String,
    folder: tempfile::TempDir,
    port: u16,
}

impl Own {
    pub(crate) async fn start() -> Option<Self> {
        let program = required("OUTBOX_TEST_NATS_PROGRAM")?;
        let folder = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let child = run(&program, folder.path(), port);
        let own = Self { child, program, folder, port };
        own.client().await;
        Some(own)
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(crate) async fn client(&self) -> Client {
        client(&self.url()).await
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.child = run(&self.program, self.folder.path(), self.port);
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(program: &str, folder: &Path, port: u16) -> Child {
    Command::new(program)
        .args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--jetstream", "--store_dir"])
        .arg(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// A client that waits until its server answers.
pub(crate) async fn client(url: &str) -> Client {
    for _ in 0..200 {
        if let Ok(client) = async_nats::connect(url).await {
            return client;
        }
        // real time: a server starts.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no server at {url}");
}

/// A stream of a test's own, on the server and not through what the test puts before it.
pub(crate) struct Stream {
    pub(crate) jetstream: jetstream::Context,
    pub(crate) name: String,
}

impl Stream {
    pub(crate) async fn new(client: Client) -> Self {
        let name = format!("T{}", Uuid::now_v7().simple());
        let stream = Self { jetstream: jetstream::new(client), name };
        stream.jetstream.create_stream(stream.config()).await.unwrap();
        stream
    }

    pub(crate) fn config(&self) -> Config {
        Config {
            name: self.name.clone(),
            subjects: vec![format!("{}.>", self.name)],
            max_message_size: 100_000,
            discard: DiscardPolicy::New,
            ..Config::default()
        }
    }

    pub(crate) fn subject(&self) -> String {
        format!("{}.orders", self.name)
    }

    pub(crate) async fn set(&self, config: Config) {
        self.jetstream.update_stream(config).await.unwrap();
    }

    /// The ids and header names of what the stream holds, in order.
    pub(crate) async fn messages(&self) -> Vec<(Uuid, Vec<String>)> {
        use futures_util::StreamExt;
        let mut stream = self.jetstream.get_stream(&self.name).await.unwrap();
        let last = stream.info().await.unwrap().state.messages;
        if last == 0 {
            return Vec::new();
        }
        let consumer =
            stream.create_consumer(jetstream::consumer::pull::OrderedConfig::default()).await.unwrap();
        let messages = consumer.messages().await.unwrap().take(usize::try_from(last).unwrap());
        messages
            .map(|message| {
                let message = message.unwrap();
                let headers = message.headers.as_ref().unwrap();
                let id = headers.get("Nats-Msg-Id").unwrap().as_str().parse().unwrap();
                (id, headers.iter().map(|(name, _)| name.to_string()).collect())
            })
            .collect()
            .await
    }
}
