//! The sink itself: publishes to JetStream and waits for the stream's acknowledgement.

use std::{fmt, pin::pin, time::Duration};

use async_nats::{
    Client, ConnectOptions,
    connection::State,
    jetstream::{self, context::ContextBuilder, message::PublishMessage},
};
use async_trait::async_trait;
use outbox_core::{Receipt, Record, SendContext, SendError, Sink, SinkLimits};
use serde::Deserialize;
use tokio::time::timeout;

use crate::{
    NatsConfig, NatsError,
    error::{all_down, connection_lost, of_publish},
    message::Template,
};

/// Where JetStream says whether it is there for this account.
const ACCOUNT_INFO: &str = "$JS.API.INFO";

/// How often a send that waits for its acknowledgement looks whether it still has a connection.
const GLANCE: Duration = Duration::from_millis(250);

#[derive(Deserialize)]
struct AccountInfo {
    error: Option<Refused>,
}

#[derive(Deserialize)]
struct Refused {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

/// Publishes each record to NATS JetStream.
///
/// Clones share one connection.
#[derive(Clone)]
pub struct NatsSink {
    client: Client,
    jetstream: jetstream::Context,
    template: Template,
    limits: SinkLimits,
}

impl fmt::Debug for NatsSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSink").field("template", &self.template).finish_non_exhaustive()
    }
}

impl NatsSink {
    /// A sink with the client's default options.
    ///
    /// It does not wait for the servers: until they answer, the sink counts as down and nothing is lost.
    ///
    /// # Errors
    ///
    /// When the settings cannot hold.
    pub async fn connect(config: NatsConfig) -> Result<Self, NatsError> {
        Self::connect_with(config, ConnectOptions::new()).await
    }

    /// A sink with options of the client: credentials, nkeys, TLS, timeouts.
    ///
    /// The client goes on reconnecting whatever `max_reconnects` says before.
    ///
    /// # Errors
    ///
    /// When the settings cannot hold.
    pub async fn connect_with(config: NatsConfig, options: ConnectOptions) -> Result<Self, NatsError> {
        // Checked before anything is connected.
        Template::new(&config)?;
        let servers: Vec<String> = config.servers.split(',').map(|server| server.trim().to_owned()).collect();
        let client = options
            .retry_on_initial_connect()
            .max_reconnects(None)
            .connect(servers)
            .await
            .map_err(NatsError::client)?;
        Self::from_client(client, config)
    }

    /// A sink on a client that the application has; `config.servers` is not used.
    ///
    /// # Errors
    ///
    /// When the settings cannot hold.
    pub fn from_client(client: Client, config: NatsConfig) -> Result<Self, NatsError> {
        let template = Template::new(&config)?;
        // The relay abandons a send by itself; this only bounds what an abandoned one leaves behind.
        let jetstream = ContextBuilder::new()
            .timeout(Duration::from_secs(60))
            .ack_timeout(Duration::from_secs(60))
            .max_ack_inflight(config.in_flight_max.get().saturating_mul(8))
            .build(client.clone());
        let limits = SinkLimits::default().with_batches_in_flight(config.in_flight_max);
        Ok(Self { client, jetstream, template, limits })
    }

    /// The client queues what it is given while it is not connected, and cannot withdraw it.
    fn connected(&self) -> Result<(), SendError> {
        match self.client.connection_state() {
            State::Connected => Ok(()),
            State::Pending | State::Disconnected => Err(all_down("no connection to a server")),
        }
    }
}

#[async_trait]
impl Sink for NatsSink {
    async fn send(&self, record: &Record, _: &SendContext) -> Result<Receipt, SendError> {
        let message = self.template.message(record)?;
        self.connected()?;
        let publish = PublishMessage::build().payload(message.payload.into()).headers(message.headers);
        let acknowledgement = self
            .jetstream
            .send_publish(message.subject, publish)
            .await
            .map_err(|error| of_publish(&error))?;
        let mut acknowledgement = pin!(acknowledgement.into_future());
        let acknowledgement = loop {
            match timeout(GLANCE, &mut acknowledgement).await {
                Ok(answer) => break answer.map_err(|error| of_publish(&error))?,
                // The client would wait on, also for an answer that went down with its connection.
                Err(_) if self.connected().is_err() => return Err(connection_lost()),
                Err(_) => {}
            }
        };
        // A duplicate is what an earlier attempt has stored: its sequence is the first one's.
        Ok(Receipt::new(format!("{} {}", acknowledgement.stream, acknowledgement.sequence)))
    }

    fn limits(&self) -> SinkLimits {
        self.limits
    }

    /// Asks the server that a publish would go to; with an expected stream, for that stream.
    async fn check(&self) -> Result<(), SendError> {
        self.connected()?;
        let why =
            |why: &dyn fmt::Display| all_down(&format!("JetStream does not answer as it should: {why}"));
        if let Some(stream) = self.template.stream() {
            return self.jetstream.get_stream(stream).await.map(drop).map_err(|error| why(&error));
        }
        // Read by hand: what else the answer holds differs from server to server.
        let answer =
            self.client.request(ACCOUNT_INFO, Default::default()).await.map_err(|error| why(&error))?;
        match serde_json::from_slice::<AccountInfo>(&answer.payload) {
            Ok(AccountInfo { error: None }) => Ok(()),
            Ok(AccountInfo { error: Some(refused) }) => {
                Err(why(&format_args!("{} (error code {})", refused.description, refused.err_code)))
            }
            Err(error) => Err(why(&error)),
        }
    }

    /// Flushes what abandoned sends have left; what was acknowledged needs none. The relay bounds the
    /// time.
    async fn close(&self, _: Duration) {
        if self.connected().is_ok()
            && let Err(error) = self.client.flush().await
        {
            tracing::debug!(%error, "failed to flush the NATS client");
        }
    }

    fn name(&self) -> &str {
        "nats"
    }
}
