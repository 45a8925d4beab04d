//! The sink: records in, requests out.

use std::{
    borrow::Cow,
    fmt,
    pin::pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use outbox_core::{ErrorScope, Receipt, Record, SendContext, SendError, Sink, SinkLimits, async_trait};
use reqwest::{
    Certificate, Client, ClientBuilder, Method, Proxy, Request, Url, dns::Resolve, header::HeaderName,
    redirect,
};
use tokio::time::Instant;

use crate::{
    HttpConfig, HttpError, HttpErrorKind, Secret,
    answer::{self, Reading},
    destination,
    error::{self, Failure, Stage},
    guard::{Guard, GuardedResolver, SystemResolver},
    message::Template,
};

/// How long a check may take: it has no context to say so.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long after its timeout a send ends by itself, should nobody have dropped it.
const OVERTIME: Duration = Duration::from_secs(1);

type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;
type SecretsFor = Arc<dyn Fn(&str) -> Vec<Secret> + Send + Sync>;

/// Sends each record as one POST request, a webhook.
///
/// Cloning shares the connections.
///
/// # Contract
///
/// - `Ok` is a status from 200 to 299. Redirects are not followed.
/// - One attempt is one request: neither the sink nor its client tries again by itself, but for a
///   pooled connection that turned out closed before anything was written.
/// - A send that is dropped closes its connection.
#[derive(Clone)]
pub struct HttpSink {
    client: Client,
    template: Arc<Template>,
    guard: Arc<Guard>,
    reading: Arc<Reading>,
    /// The URL of a record that names none, as read and as written.
    url: Option<(Url, Arc<str>)>,
    by_destination: bool,
    allow_plain_http: bool,
    secrets: Arc<[Secret]>,
    secrets_for: Option<SecretsFor>,
    clock: Clock,
    limits: SinkLimits,
}

/// Makes an [`HttpSink`] out of a configuration and what no file can hold.
pub struct HttpSinkBuilder {
    config: HttpConfig,
    client: ClientBuilder,
    resolver: Arc<dyn Resolve>,
    secrets_for: Option<SecretsFor>,
    clock: Clock,
}

impl HttpSink {
    /// Makes the sink. It connects when there is something to send.
    ///
    /// # Errors
    ///
    /// When a setting is out of its range. Nothing in the text is a secret.
    pub fn connect(config: HttpConfig) -> Result<Self, HttpError> {
        Self::builder(config).connect()
    }

    /// To bring along a client builder, a resolver, secrets by destination or a clock.
    pub fn builder(config: HttpConfig) -> HttpSinkBuilder {
        HttpSinkBuilder {
            config,
            client: Client::builder(),
            resolver: Arc::new(SystemResolver),
            secrets_for: None,
            clock: Arc::new(SystemTime::now),
        }
    }

    fn target<'a>(&'a self, record: &'a Record) -> Result<Target<'a>, SendError> {
        if let Some(text) = record.destination.as_deref().filter(|_| self.by_destination) {
            let url = destination::parse(text, self.allow_plain_http, &self.guard);
            return Ok(Target { url: url.map_err(SendError::permanent)?, text, is_configured: false });
        }
        match &self.url {
            Some((url, text)) => Ok(Target { url: url.clone(), text, is_configured: true }),
            None => {
                Err(SendError::permanent("the record names no destination, and no default URL is configured"))
            }
        }
    }

    /// The secrets of a destination. A lookup that finds none must not send unsigned.
    fn secrets(&self, text: &str) -> Result<Cow<'_, [Secret]>, SendError> {
        let found = self.secrets_for.as_ref().map(|lookup| lookup(text));
        match found {
            Some(found) if !found.is_empty() => Ok(found.into()),
            Some(_) if self.secrets.is_empty() => {
                Err(SendError::unavailable("there is no signing secret for the destination"))
            }
            _ => Ok((&*self.secrets).into()),
        }
    }
}

/// Where one record goes.
struct Target<'a> {
    url: Url,
    /// The URL as it is written in the record or the configuration.
    text: &'a str,
    is_configured: bool,
}

#[async_trait]
impl Sink for HttpSink {
    async fn send(&self, record: &Record, cx: &SendContext) -> Result<Receipt, SendError> {
        let started = Instant::now();
        let target = self.target(record)?;
        let secrets = self.secrets(target.text)?;
        let now = (self.clock)();
        let (request, progress) = self.template.request(target.url, record, &secrets, now)?;
        let failed = |error| error::of_request(&error, progress.stage(), target.is_configured);

        // Slightly before the timeout, while it can still be said that nothing was written.
        let deadline = started + cx.timeout - (cx.timeout / 20).min(Duration::from_millis(250));
        let mut answer = pin!(self.client.execute(request));
        let response = match tokio::time::timeout_at(deadline, &mut answer).await {
            Ok(result) => result.map_err(failed)?,
            Err(_) if progress.stage() == Stage::Unwritten => {
                return Err(Failure::Timeout.into_send_error(Stage::Unwritten, ""));
            }
            // Silence after that is for the relay to see: it drops the send, and counts.
            Err(_) => match tokio::time::timeout_at(started + cx.timeout + OVERTIME, answer).await {
                Ok(result) => result.map_err(failed)?,
                Err(_) => return Err(Failure::Timeout.into_send_error(Stage::Written, "")),
            },
        };
        answer::outcome(response, &self.reading, now, deadline).await
    }

    fn limits(&self) -> SinkLimits {
        self.limits
    }

    /// Asks the configured URL with `HEAD`, which changes nothing there. Any answer counts: what it
    /// says about `HEAD` says nothing about `POST`. With URLs by destination there is nothing to ask.
    async fn check(&self) -> Result<(), SendError> {
        let Some((url, _)) = self.url.as_ref().filter(|_| !self.by_destination) else { return Ok(()) };
        let mut request = Request::new(Method::HEAD, url.clone());
        *request.headers_mut() = self.template.headers().clone();
        match tokio::time::timeout(CHECK_TIMEOUT, self.client.execute(request)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                Err(error::of_request(&error, Stage::Unwritten, true).with_scope(ErrorScope::Sink))
            }
            Err(_) => Err(SendError::unavailable("no answer in time").with_scope(ErrorScope::Sink)),
        }
    }

    fn name(&self) -> &str {
        "http"
    }
}

impl fmt::Debug for HttpSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSink")
            .field("url", &self.url.as_ref().map(|(url, _)| url.origin().ascii_serialization()))
            .field("by_destination", &self.by_destination)
            .field("secrets", &self.secrets)
            .finish_non_exhaustive()
    }
}

impl HttpSinkBuilder {
    /// Starts from this client builder: its TLS identity, keepalive, local address and the like.
    ///
    /// A finished [`Client`] is not taken, since neither its resolver nor its redirects can be seen or
    /// changed: the address guard would be off, and a followed redirect would turn POST into GET and
    /// pass for success. The sink sets resolver, redirects, proxy, retries, compression, HTTP version,
    /// timeouts and pool. What the builder overrides beneath them, such as
    /// [`resolve`](ClientBuilder::resolve) or a connector layer, the guard does not see.
    #[must_use]
    pub fn client(mut self, client: ClientBuilder) -> Self {
        self.client = client;
        self
    }

    /// Resolves names by this in the place of the system's resolver. The address guard judges what
    /// comes out of it.
    #[must_use]
    pub fn resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.resolver = resolver;
        self
    }

    /// Finds the secrets of a destination by its URL as it is written there; for receivers that hold secrets of their own.
    ///
    /// It is called for every send and must not block: look up in memory. What it finds takes the place
    /// of the configured secrets. When it finds none and none are configured, the destination counts as
    /// down: nothing is sent unsigned.
    #[must_use]
    pub fn secrets_for(mut self, lookup: impl Fn(&str) -> Vec<Secret> + Send + Sync + 'static) -> Self {
        self.secrets_for = Some(Arc::new(lookup));
        self
    }

    /// Reads the time of an attempt, `webhook-timestamp`, from here. Default: the system's clock.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Makes the sink.
    ///
    /// # Errors
    ///
    /// As [`HttpSink::connect`].
    pub fn connect(self) -> Result<HttpSink, HttpError> {
        let setting = |message: String| HttpError::new(HttpErrorKind::Setting, message);
        let config = &self.config;
        let guard = Arc::new(Guard {
            allow_all: config.allow_all_addresses,
            allowed: config.allowed_networks.clone(),
        });
        let url = match &config.url {
            Some(text) => {
                let url = destination::parse(text, config.allow_plain_http, &guard)
                    .map_err(|reason| HttpError::new(HttpErrorKind::Url, reason))?;
                Some((url, text.as_str().into()))
            }
            None if config.by_destination => None,
            None => {
                return Err(HttpError::new(
                    HttpErrorKind::Url,
                    "there is no URL, and URLs by destination are off",
                ));
            }
        };
        if let Some(status) = config.permanent_statuses.iter().find(|status| !(300..=599).contains(*status)) {
            return Err(setting(format!("the permanent status {status} is not from 300 to 599")));
        }
        let receipt_header = match &config.receipt_header {
            Some(name) => Some(name.parse::<HeaderName>().map_err(|_| {
                HttpError::new(HttpErrorKind::Header, format!("receipt header {name:?} is no header name"))
            })?),
            None => None,
        };
        Ok(HttpSink {
            template: Arc::new(Template::new(config)?),
            reading: Arc::new(Reading {
                permanent_statuses: config.permanent_statuses.clone(),
                error_body_bytes_max: config.error_body_bytes_max,
                receipt_header,
            }),
            url,
            by_destination: config.by_destination,
            allow_plain_http: config.allow_plain_http,
            secrets: config.secrets.clone().into(),
            limits: SinkLimits::default().with_batches_in_flight(config.in_flight_max),
            client: client(self.client, config, Arc::clone(&guard), self.resolver)?,
            guard,
            secrets_for: self.secrets_for,
            clock: self.clock,
        })
    }
}

impl fmt::Debug for HttpSinkBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSinkBuilder").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The client. Whatever another crate of the build turns on in it, such as compression or proxies from
/// the environment, is turned off here.
fn client(
    builder: ClientBuilder,
    config: &HttpConfig,
    guard: Arc<Guard>,
    inner: Arc<dyn Resolve>,
) -> Result<Client, HttpError> {
    let mut builder = builder
        .tls_backend_rustls()
        .http1_only()
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy()
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .no_hickory_dns()
        .connect_timeout(config.connect_timeout)
        .pool_idle_timeout(config.idle_timeout)
        .pool_max_idle_per_host(config.idle_per_host_max);
    let mut proxy_host = None;
    if let Some(text) = &config.trusted_proxy {
        let unreadable = |_| HttpError::new(HttpErrorKind::Setting, "the proxy's URL cannot be read");
        let url = Url::parse(text).map_err(|error| unreadable(error.to_string()))?;
        proxy_host = url.host_str().map(str::to_owned);
        builder = builder.proxy(Proxy::all(text).map_err(|error| unreadable(error.to_string()))?);
    }
    for pem in &config.root_certificates {
        let unreadable = || HttpError::new(HttpErrorKind::Tls, "a root certificate cannot be read as PEM");
        let certificates = Certificate::from_pem_bundle(pem.as_bytes()).map_err(|_| unreadable())?;
        if certificates.is_empty() {
            return Err(unreadable());
        }
        builder = certificates.into_iter().fold(builder, |builder, one| builder.add_root_certificate(one));
    }
    builder.dns_resolver(Arc::new(GuardedResolver { guard, inner, proxy_host })).build().map_err(|error| {
        HttpError::new(HttpErrorKind::Tls, format!("the HTTP client cannot be made: {error}"))
    })
}
