//! How a `NatsSink` is configured.

use std::num::NonZeroUsize;

use outbox_core::CloudEvents;
use serde::{Deserialize, Serialize};

/// Which servers, which subject, and what is expected of the stream.
///
/// It can be read from a file. Credentials and TLS are options of the client: see
/// [`NatsSink::connect_with`](crate::NatsSink::connect_with).
///
/// ```
/// use sink_nats::NatsConfig;
///
/// let config = NatsConfig::new("nats://127.0.0.1:4222").with_subject("shop.{kind}.{key}").with_stream("SHOP");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct NatsConfig {
    /// Where the servers are found: `nats://host:port`, several of them with commas between. Not for
    /// credentials, which belong into the client's options.
    pub servers: String,
    /// The subject of records that name no destination: a subject, or a template in which `{kind}`
    /// stands for the record's kind, dots and all, and `{key}` for its key as one token. Default: none,
    /// and a record without a destination is dead.
    #[serde(default)]
    pub subject: Option<String>,
    /// The stream that must take the records; one that another stream takes is refused by the server,
    /// and its destination counts as down. Default: whichever stream has the subject.
    #[serde(default)]
    pub stream: Option<String>,
    /// Sends CloudEvents. Default: none, the payload goes as it is.
    #[serde(default)]
    pub cloud_events: Option<CloudEvents>,
    /// How many records may be under way, unless the route says otherwise. Default: 1,000. Few, and
    /// throughput is bound by round trips.
    #[serde(default = "in_flight_max")]
    pub in_flight_max: NonZeroUsize,
}

fn in_flight_max() -> NonZeroUsize {
    NonZeroUsize::MIN.saturating_add(999)
}

impl NatsConfig {
    /// The servers that are found at these addresses.
    pub fn new(servers: impl Into<String>) -> Self {
        Self {
            servers: servers.into(),
            subject: None,
            stream: None,
            cloud_events: None,
            in_flight_max: in_flight_max(),
        }
    }

    /// The subject of records that name no destination, or a template for it.
    #[must_use]
    pub fn with_subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// The stream that must take the records.
    #[must_use]
    pub fn with_stream(mut self, stream: impl Into<String>) -> Self {
        self.stream = Some(stream.into());
        self
    }

    /// Sends CloudEvents.
    #[must_use]
    pub fn with_cloud_events(mut self, cloud_events: CloudEvents) -> Self {
        self.cloud_events = Some(cloud_events);
        self
    }

    /// How many records may be under way.
    #[must_use]
    pub fn with_in_flight_max(mut self, records: NonZeroUsize) -> Self {
        self.in_flight_max = records;
        self
    }
}
