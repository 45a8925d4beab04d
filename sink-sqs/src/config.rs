//! How an `SqsSink` is configured.

use std::{fmt, num::NonZeroUsize, time::Duration};

use serde::Deserialize;

/// The most bytes of one message, and of all messages of one request, attributes included: 1 MiB.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1_048_576;

/// Where records go and how they are written into messages.
///
/// It can be read from a file. Its `Debug` shows no credential.
///
/// # Examples
///
/// ```
/// use sink_sqs::{SqsConfig, SqsCredentials};
///
/// let config = SqsConfig::new("orders.fifo")
///     .with_region("eu-central-1")
///     .with_endpoint("http://127.0.0.1:5000")
///     .with_credentials(SqsCredentials::new("AKIDEXAMPLE", "wJalrXUtnFEMI"));
/// assert!(!format!("{config:?}").contains("wJalr"));
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SqsConfig {
    /// The queue of a record that names no destination, by name or by URL. None: such a record is dead.
    pub queue: Option<String>,
    /// The endpoint of the API, such as a local server's. Default: the region's, or what the
    /// environment and the profile say. A queue's URL names the queue, never the endpoint.
    pub endpoint: Option<String>,
    /// The region, such as `eu-central-1`. Default: what the environment, the profile or the machine says.
    pub region: Option<String>,
    /// The credentials. Default: the SDK's own chain of environment, profile, web identity, container and
    /// instance.
    pub credentials: Option<SqsCredentials>,
    /// The most bytes of a message, and of a request, with attributes. From 1,024 to 1,048,576. Default:
    /// 1,048,576, what AWS takes since 2025. More than the queue takes, and a record that is too large is
    /// refused by the queue instead of here; less, and records die that the queue would have taken.
    pub message_bytes_max: usize,
    /// How payloads of bytes travel. Default: [`BytesAs::Base64`].
    pub bytes_as: BytesAs,
    /// How a record's headers travel. Default: [`HeadersAs::Attributes`].
    pub headers_as: HeadersAs,
    /// How long the queue hides each message, in whole seconds up to 15 minutes; not for FIFO queues, which
    /// know only a delay of their own. Default: none, the queue's setting rules.
    pub delay: Option<Duration>,
    /// The longest time for name resolution, TCP and TLS together. Default: 3 s.
    pub connect_timeout: Duration,
    /// How many calls of up to ten records may be under way, unless the route says otherwise. Default: 16.
    pub in_flight_max: NonZeroUsize,
}

/// How a payload of bytes becomes the text that a message is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum BytesAs {
    /// As base64, with the attribute `outbox-encoding` of value `base64`. A third larger.
    #[default]
    Base64,
    /// As the UTF-8 text that they are; a record whose payload is none is dead.
    Text,
}

/// How headers become attributes, of which a message has ten at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum HeadersAs {
    /// One attribute each. A record with more headers than there is room for is dead.
    #[default]
    Attributes,
    /// All in the attribute `outbox-headers`, a JSON object of texts: any number, any name.
    Json,
}

/// Credentials that are given instead of looked up.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SqsCredentials {
    /// Names the key.
    pub access_key_id: String,
    /// Signs requests.
    pub secret_access_key: String,
    /// Belongs to temporary credentials, which are not renewed.
    #[serde(default)]
    pub session_token: Option<String>,
}

impl SqsCredentials {
    /// A key without a session.
    pub fn new(access_key_id: impl Into<String>, secret_access_key: impl Into<String>) -> Self {
        Self {
            access_key_id: access_key_id.into(),
            secret_access_key: secret_access_key.into(),
            session_token: None,
        }
    }

    /// Adds the token of temporary credentials.
    #[must_use]
    pub fn with_session_token(mut self, token: impl Into<String>) -> Self {
        self.session_token = Some(token.into());
        self
    }
}

/// Shows nothing of them.
impl fmt::Debug for SqsCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SqsCredentials(…)")
    }
}

impl SqsConfig {
    /// Sends records that name no destination to this queue, given by name or by URL.
    pub fn new(queue: impl Into<String>) -> Self {
        Self { queue: Some(queue.into()), ..Self::default() }
    }

    /// Sends each record to the queue that is its destination; one without is dead.
    pub fn by_destination() -> Self {
        Self::default()
    }

    /// Talks to this endpoint.
    #[must_use]
    pub fn with_endpoint(mut self, url: impl Into<String>) -> Self {
        self.endpoint = Some(url.into());
        self
    }

    /// Talks to this region.
    #[must_use]
    pub fn with_region(mut self, region: impl Into<String>) -> Self {
        self.region = Some(region.into());
        self
    }

    /// Signs with these credentials.
    #[must_use]
    pub fn with_credentials(mut self, credentials: SqsCredentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// The most bytes of a message, and of a request.
    #[must_use]
    pub fn with_message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes;
        self
    }

    /// How payloads of bytes travel.
    #[must_use]
    pub fn with_bytes_as(mut self, bytes_as: BytesAs) -> Self {
        self.bytes_as = bytes_as;
        self
    }

    /// How headers travel.
    #[must_use]
    pub fn with_headers_as(mut self, headers_as: HeadersAs) -> Self {
        self.headers_as = headers_as;
        self
    }

    /// How long the queue hides each message.
    #[must_use]
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// The longest time to connect.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How many calls may be under way.
    #[must_use]
    pub fn with_in_flight_max(mut self, calls: NonZeroUsize) -> Self {
        self.in_flight_max = calls;
        self
    }
}

impl Default for SqsConfig {
    fn default() -> Self {
        Self {
            queue: None,
            endpoint: None,
            region: None,
            credentials: None,
            message_bytes_max: MESSAGE_BYTES_MAX,
            bytes_as: BytesAs::default(),
            headers_as: HeadersAs::default(),
            delay: None,
            connect_timeout: Duration::from_secs(3),
            in_flight_max: NonZeroUsize::MIN.saturating_add(15),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K7: a configuration shows no secret.
    #[test]
    fn debug_shows_no_secret() {
        let credentials = SqsCredentials::new("s3cret-id", "s3cret").with_session_token("s3cret");
        let shown = format!("{:?}", SqsConfig::new("orders").with_credentials(credentials));
        assert!(!shown.contains("s3cret") && shown.contains("orders"), "{shown}");
    }

    #[test]
    fn a_file_can_hold_it_and_a_typing_error_is_refused() {
        let config: SqsConfig = serde_json::from_str(
            r#"{"queue": "orders.fifo", "bytes_as": "text", "headers_as": "json",
                "credentials": {"access_key_id": "a", "secret_access_key": "b"}}"#,
        )
        .unwrap();
        assert_eq!((config.bytes_as, config.headers_as), (BytesAs::Text, HeadersAs::Json));
        assert_eq!(config.message_bytes_max, 1_048_576);
        assert!(serde_json::from_str::<SqsConfig>(r#"{"qeue": "orders"}"#).is_err());
    }
}
