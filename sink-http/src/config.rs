//! How an `HttpSink` is configured.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    num::NonZeroUsize,
    time::Duration,
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use outbox_core::CloudEvents;
use serde::Deserialize;

use crate::Secret;

/// Where webhooks go, what they carry and what an answer means.
///
/// It can be read from a file. It cannot be written to one, since it holds secrets: its `Debug`
/// shows neither secrets nor header values, and of a URL no more than scheme and host.
///
/// # Examples
///
/// ```
/// use sink_http::HttpConfig;
///
/// let config = HttpConfig::to("https://hooks.example/orders")
///     .with_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?)
///     .with_header("authorization", "Bearer …");
/// assert!(!format!("{config:?}").contains("Bearer"));
/// # Ok::<(), sink_http::InvalidSecret>(())
/// ```
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct HttpConfig {
    /// Where a record goes that names no destination, or every record unless
    /// [`by_destination`](Self::by_destination) is on.
    pub url: Option<String>,
    /// Whether a record's destination is the URL to send it to. Off: the destination is not read.
    /// Default: off.
    pub by_destination: bool,
    /// Whether `http://` URLs are sent to as well. Default: off, since whoever is on the way reads
    /// and changes what goes over them.
    pub allow_plain_http: bool,
    /// Networks that the address guard lets through though they are not the public internet, such
    /// as `10.1.0.0/16`. Default: none.
    pub allowed_networks: Vec<IpNet>,
    /// Turns the address guard off. Default: it is on. Off, whoever chooses a URL can reach whatever
    /// this process can: databases on loopback, cloud metadata, the office network.
    pub allow_all_addresses: bool,
    /// Headers of every request, such as `authorization`. A record cannot set or replace them.
    pub headers: BTreeMap<String, String>,
    /// What requests are signed with: several at once while a secret is exchanged for another. None:
    /// requests are not signed, and a receiver cannot tell who sent them.
    pub secrets: Vec<Secret>,
    /// Sends CloudEvents. Default: none, the payload goes as it is.
    pub cloud_events: Option<CloudEvents>,
    /// Statuses that no further attempt can change: the record is dead at once. Default: 400, 404,
    /// 410, 413 and 422. Too many, and a receiver's bad deployment kills records.
    pub permanent_statuses: BTreeSet<u16>,
    /// The longest time for name resolution, TCP and TLS together. Default: 3 s. Too low, and a packet
    /// lost on the way counts as a destination that is down; too high, and one that is down keeps its
    /// requests in flight for that long.
    pub connect_timeout: Duration,
    /// How long an idle connection is kept. Default: 60 s. Longer than the receiver keeps it, and a
    /// request now and then meets a closing connection and is tried again.
    pub idle_timeout: Duration,
    /// How many idle connections are kept for each host. Default: 64. Fewer than are in flight, and
    /// connections are made anew all the time.
    pub idle_per_host_max: usize,
    /// How many requests may be under way, unless the route says otherwise. Default: 64.
    pub in_flight_max: NonZeroUsize,
    /// How many bytes of a failure's response body go into the error, at most 1,024. Default: 0,
    /// since receivers like to repeat the payload in them.
    pub error_body_bytes_max: usize,
    /// A response header whose value is kept in the receipt, such as `x-request-id`. Default: none.
    pub receipt_header: Option<String>,
    /// A forward proxy to send everything through, such as `http://egress.internal:3128`. Trusted,
    /// because it then resolves the names: what they resolve to is for it to check. The address guard
    /// still checks URLs whose host is an address. Proxies in the environment are never used.
    pub trusted_proxy: Option<String>,
    /// Certificate authorities in PEM that are trusted besides the system's. Default: none.
    pub root_certificates: Vec<String>,
}

impl HttpConfig {
    /// Sends every record to one URL.
    pub fn to(url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..Self::default() }
    }

    /// Sends each record to the URL that is its destination; one without is dead.
    pub fn by_destination() -> Self {
        Self { by_destination: true, ..Self::default() }
    }

    /// Where a record goes that names no destination.
    #[must_use]
    pub fn with_default_url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Sends to `http://` URLs as well.
    #[must_use]
    pub fn with_plain_http(mut self) -> Self {
        self.allow_plain_http = true;
        self
    }

    /// Lets the address guard pass these networks, besides those allowed before.
    #[must_use]
    pub fn with_allowed_networks(mut self, networks: impl IntoIterator<Item = IpNet>) -> Self {
        self.allowed_networks.extend(networks);
        self
    }

    /// Lets the address guard pass `127.0.0.0/8` and `::1`, for a receiver on this machine.
    #[must_use]
    pub fn with_loopback(self) -> Self {
        use std::net::{Ipv4Addr, Ipv6Addr};
        self.with_allowed_networks([
            IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
            IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
        ])
    }

    /// Turns the address guard off; see [`allow_all_addresses`](Self::allow_all_addresses).
    #[must_use]
    pub fn with_all_addresses(mut self) -> Self {
        self.allow_all_addresses = true;
        self
    }

    /// Adds a header to every request.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Signs with this secret too.
    #[must_use]
    pub fn with_secret(mut self, secret: Secret) -> Self {
        self.secrets.push(secret);
        self
    }

    /// Sends CloudEvents.
    #[must_use]
    pub fn with_cloud_events(mut self, cloud_events: CloudEvents) -> Self {
        self.cloud_events = Some(cloud_events);
        self
    }

    /// The statuses that no further attempt can change, in the place of the default ones.
    #[must_use]
    pub fn with_permanent_statuses(mut self, statuses: impl IntoIterator<Item = u16>) -> Self {
        self.permanent_statuses = statuses.into_iter().collect();
        self
    }

    /// The longest time to connect.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long an idle connection is kept.
    #[must_use]
    pub fn with_idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// How many idle connections are kept for each host.
    #[must_use]
    pub fn with_idle_per_host_max(mut self, connections: usize) -> Self {
        self.idle_per_host_max = connections;
        self
    }

    /// How many requests may be under way.
    #[must_use]
    pub fn with_in_flight_max(mut self, requests: NonZeroUsize) -> Self {
        self.in_flight_max = requests;
        self
    }

    /// Keeps this many bytes of a failure's response body in the error.
    #[must_use]
    pub fn with_error_body_bytes_max(mut self, bytes: usize) -> Self {
        self.error_body_bytes_max = bytes;
        self
    }

    /// Keeps this response header in the receipt.
    #[must_use]
    pub fn with_receipt_header(mut self, name: impl Into<String>) -> Self {
        self.receipt_header = Some(name.into());
        self
    }

    /// Sends through this proxy; see [`trusted_proxy`](Self::trusted_proxy) for what it is trusted with.
    #[must_use]
    pub fn with_trusted_proxy(mut self, url: impl Into<String>) -> Self {
        self.trusted_proxy = Some(url.into());
        self
    }

    /// Trusts this certificate authority too; the text is PEM and may hold several.
    #[must_use]
    pub fn with_root_certificate(mut self, pem: impl Into<String>) -> Self {
        self.root_certificates.push(pem.into());
        self
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        const IN_FLIGHT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);
        Self {
            url: None,
            by_destination: false,
            allow_plain_http: false,
            allowed_networks: Vec::new(),
            allow_all_addresses: false,
            headers: BTreeMap::new(),
            secrets: Vec::new(),
            cloud_events: None,
            permanent_statuses: BTreeSet::from([400, 404, 410, 413, 422]),
            connect_timeout: Duration::from_secs(3),
            idle_timeout: Duration::from_secs(60),
            idle_per_host_max: IN_FLIGHT.get(),
            in_flight_max: IN_FLIGHT,
            error_body_bytes_max: 0,
            receipt_header: None,
            trusted_proxy: None,
            root_certificates: Vec::new(),
        }
    }
}

/// Shows what a URL's path, its query, a header's value or a proxy's password may not: nothing of them.
impl fmt::Debug for HttpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConfig")
            .field("url", &self.url.as_deref().map(origin))
            .field("by_destination", &self.by_destination)
            .field("allow_plain_http", &self.allow_plain_http)
            .field("allowed_networks", &self.allowed_networks)
            .field("allow_all_addresses", &self.allow_all_addresses)
            .field("headers", &self.headers.keys())
            .field("secrets", &self.secrets)
            .field("cloud_events", &self.cloud_events)
            .field("permanent_statuses", &self.permanent_statuses)
            .field("connect_timeout", &self.connect_timeout)
            .field("idle_timeout", &self.idle_timeout)
            .field("idle_per_host_max", &self.idle_per_host_max)
            .field("in_flight_max", &self.in_flight_max)
            .field("error_body_bytes_max", &self.error_body_bytes_max)
            .field("receipt_header", &self.receipt_header)
            .field("trusted_proxy", &self.trusted_proxy.as_deref().map(origin))
            .field("root_certificates", &self.root_certificates.len())
            .finish()
    }
}

/// Scheme, host and port.
fn origin(url: &str) -> String {
    reqwest::Url::parse(url).map_or_else(|_| "…".into(), |url| url.origin().ascii_serialization())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K7: a configuration shows no secret.
    #[test]
    fn debug_shows_no_secret() {
        let config = HttpConfig::to("https://user:s3cret@hooks.example/s3cret?token=s3cret")
            .with_header("authorization", "s3cret")
            .with_trusted_proxy("http://me:s3cret@proxy.example:3128/")
            .with_root_certificate("s3cret")
            .with_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap());
        let shown = format!("{config:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("MfKQ"), "{shown}");
        assert!(shown.contains("https://hooks.example") && shown.contains("http://proxy.example:3128"));
    }

    #[test]
    fn a_file_can_hold_it() {
        let config: HttpConfig = serde_json::from_str(
            r#"{
                "url": "https://hooks.example/in",
                "allowed_networks": ["10.1.0.0/16"],
                "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
                "cloud_events": {"source": "/orders", "mode": "structured"}
            }"#,
        )
        .unwrap();
        assert_eq!(config.secrets.len(), 1);
        assert_eq!(config.permanent_statuses, BTreeSet::from([400, 404, 410, 413, 422]));
        assert_eq!(config.cloud_events, Some(CloudEvents::structured("/orders")));
    }

    /// K7: what a file gets wrong is not repeated.
    #[test]
    fn a_typing_error_is_refused_and_a_bad_secret_is_not_shown() {
        assert!(serde_json::from_str::<HttpConfig>(r#"{"ulr": "https://hooks.example"}"#).is_err());
        let error = serde_json::from_str::<HttpConfig>(r#"{"secrets": ["whsec_c2VjcmV0"]}"#).unwrap_err();
        assert!(!error.to_string().contains("c2VjcmV0"), "{error}");
    }
}
