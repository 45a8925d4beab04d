//! How an `SmtpSink` is configured.

use std::{
    fmt,
    num::{NonZeroU32, NonZeroUsize},
    time::Duration,
};

use outbox_core::async_trait;
use serde::Deserialize;

use crate::DkimConfig;

/// Which server takes the mail, and how it is spoken to.
///
/// It can be read from a file. It cannot be written to one, since it holds secrets; its `Debug` shows
/// none of them.
///
/// # Examples
///
/// ```
/// use sink_smtp::{Credentials, SmtpConfig};
///
/// let config = SmtpConfig::new("smtp.example.com")
///     .with_credentials(Credentials::password("shop@example.com", "s3cret"))
///     .with_hello_name("app-1.example.com");
/// assert!(!format!("{config:?}").contains("s3cret"));
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SmtpConfig {
    /// The server: a name, or an address. With TLS its certificate must be valid for it.
    pub host: String,
    /// The port. Default: 587 with [`Tls::StartTls`], 465 with [`Tls::Implicit`], 25 with [`Tls::Off`].
    #[serde(default)]
    pub port: Option<u16>,
    /// How the connection is protected. Default: [`Tls::StartTls`], and no mail without it.
    #[serde(default)]
    pub tls: Tls,
    /// Who logs in. Default: nobody.
    #[serde(default)]
    pub credentials: Option<Credentials>,
    /// Whether credentials may go over a connection without TLS. Default: no.
    #[serde(default)]
    pub allow_plain_credentials: bool,
    /// Certificate authorities in PEM that are trusted besides the system's. Default: none.
    #[serde(default)]
    pub root_certificates: Vec<String>,
    /// The name given in `EHLO`. Default: the host's name. Servers on the internet expect one that
    /// resolves to this host, and hold another against the mail.
    #[serde(default)]
    pub hello_name: Option<String>,
    /// Signs every mail. Default: no signature.
    #[serde(default)]
    pub dkim: Option<DkimConfig>,
    /// How many connections may be open, which is how many mails are under way. Default: 4. Too few,
    /// and mails wait for one another; more than the server allows, and it refuses with 421.
    #[serde(default = "default_connections_max")]
    pub connections_max: NonZeroUsize,
    /// How long a connection without a mail is kept. Default: 30 s. Longer than the server keeps it,
    /// and a mail now and then finds it closed and costs a new connection at that attempt.
    #[serde(default = "default_idle_max")]
    pub idle_max: Duration,
    /// Mails after which a connection is closed. Default: 100. More than the server allows, and it
    /// closes by itself, which costs no more than a new connection.
    #[serde(default = "default_mails_per_connection_max")]
    pub mails_per_connection_max: NonZeroU32,
    /// The longest time for name resolution, TCP, greeting, TLS and login together. Default: 3 s, below
    /// the relay's send timeout of 5 s: a server that does not answer is then known to be down, and
    /// costs no attempt. Higher, the send timeout must rise with it.
    #[serde(default = "default_connect_timeout")]
    pub connect_timeout: Duration,
    /// The largest mail in bytes, attachments as encoded. A larger one is dead without a connection
    /// being made. Default: 25 MiB. The limit that the server names is checked besides.
    #[serde(default = "default_message_bytes_max")]
    pub message_bytes_max: usize,
    /// The most recipients in one transaction; a mail to more goes in several. Default: 100, which
    /// every server takes.
    #[serde(default = "default_recipients_max")]
    pub recipients_max: NonZeroUsize,
    /// What becomes of a record of which some recipients have the mail and the others are refused for
    /// good. Default: [`OnRefused::Report`].
    #[serde(default)]
    pub on_refused: OnRefused,
}

const fn default_connections_max() -> NonZeroUsize {
    NonZeroUsize::MIN.saturating_add(3)
}

const fn default_idle_max() -> Duration {
    Duration::from_secs(30)
}

const fn default_mails_per_connection_max() -> NonZeroU32 {
    NonZeroU32::MIN.saturating_add(99)
}

const fn default_connect_timeout() -> Duration {
    Duration::from_secs(3)
}

const fn default_message_bytes_max() -> usize {
    25 * 1024 * 1024
}

const fn default_recipients_max() -> NonZeroUsize {
    NonZeroUsize::MIN.saturating_add(99)
}

impl SmtpConfig {
    /// Sends through the server `host`, with STARTTLS and without a login.
    pub fn new(host: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            port: None,
            tls: Tls::default(),
            credentials: None,
            allow_plain_credentials: false,
            root_certificates: Vec::new(),
            hello_name: None,
            dkim: None,
            connections_max: default_connections_max(),
            idle_max: default_idle_max(),
            mails_per_connection_max: default_mails_per_connection_max(),
            connect_timeout: default_connect_timeout(),
            message_bytes_max: default_message_bytes_max(),
            recipients_max: default_recipients_max(),
            on_refused: OnRefused::default(),
        }
    }

    /// Uses this port.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Protects the connection like this.
    #[must_use]
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Logs in.
    #[must_use]
    pub fn with_credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// Lets credentials go over a connection without TLS.
    #[must_use]
    pub fn with_plain_credentials_allowed(mut self) -> Self {
        self.allow_plain_credentials = true;
        self
    }

    /// Trusts this certificate authority, in PEM, besides the system's.
    #[must_use]
    pub fn with_root_certificate(mut self, pem: impl Into<String>) -> Self {
        self.root_certificates.push(pem.into());
        self
    }

    /// The name given in `EHLO`.
    #[must_use]
    pub fn with_hello_name(mut self, name: impl Into<String>) -> Self {
        self.hello_name = Some(name.into());
        self
    }

    /// Signs every mail.
    #[must_use]
    pub fn with_dkim(mut self, dkim: DkimConfig) -> Self {
        self.dkim = Some(dkim);
        self
    }

    /// How many connections may be open.
    #[must_use]
    pub fn with_connections_max(mut self, connections: NonZeroUsize) -> Self {
        self.connections_max = connections;
        self
    }

    /// How long a connection without a mail is kept.
    #[must_use]
    pub fn with_idle_max(mut self, idle: Duration) -> Self {
        self.idle_max = idle;
        self
    }

    /// Mails after which a connection is closed.
    #[must_use]
    pub fn with_mails_per_connection_max(mut self, mails: NonZeroU32) -> Self {
        self.mails_per_connection_max = mails;
        self
    }

    /// The longest time until a connection is ready for a mail.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The largest mail, in bytes.
    #[must_use]
    pub fn with_message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes;
        self
    }

    /// The most recipients in one transaction.
    #[must_use]
    pub fn with_recipients_max(mut self, recipients: NonZeroUsize) -> Self {
        self.recipients_max = recipients;
        self
    }

    /// What becomes of a record of which some recipients are refused for good.
    #[must_use]
    pub fn with_on_refused(mut self, on_refused: OnRefused) -> Self {
        self.on_refused = on_refused;
        self
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.unwrap_or(match self.tls {
            Tls::StartTls => 587,
            Tls::Implicit => 465,
            Tls::Off => 25,
        })
    }
}

/// How the connection to the server is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Tls {
    /// Begins in plain text and turns to TLS before anything is said. A server that does not offer it
    /// gets no mail.
    #[default]
    StartTls,
    /// TLS from the first byte.
    Implicit,
    /// No TLS: everyone on the way can read and change the mail. For a server on the same host.
    Off,
}

/// What becomes of a record of which some recipients have the mail and the others are refused for good.
///
/// When nobody has it and all are refused the record is dead either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OnRefused {
    /// It is sent, and its receipt names the recipients that were refused.
    #[default]
    Report,
    /// It is dead, for someone to look at. Redriven, it goes to nobody who has it already.
    Dead,
}

/// Who logs in, and how.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "method")]
#[non_exhaustive]
pub enum Credentials {
    /// A name and a password, by `AUTH PLAIN`, or by `AUTH LOGIN` where that alone is offered.
    Password {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// A name and an OAuth 2 access token, by `AUTH XOAUTH2`. Tokens expire: see
    /// [`SmtpSink::with_tokens`](crate::SmtpSink::with_tokens).
    OAuth2 {
        /// The name.
        user: String,
        /// The token; empty when a source of tokens is given.
        #[serde(default)]
        token: String,
    },
}

impl Credentials {
    /// A name and a password.
    pub fn password(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self::Password { user: user.into(), password: password.into() }
    }

    /// A name and an OAuth 2 access token.
    pub fn oauth2(user: impl Into<String>, token: impl Into<String>) -> Self {
        Self::OAuth2 { user: user.into(), token: token.into() }
    }
}

/// Shows the method and nothing else.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Password { .. } => "Password(…)",
            Self::OAuth2 { .. } => "OAuth2(…)",
        })
    }
}

/// Where access tokens for `AUTH XOAUTH2` come from: asked at every new connection.
#[async_trait]
pub trait TokenSource: Send + Sync + 'static {
    /// A token that is valid now.
    ///
    /// # Errors
    ///
    /// Any. The sink counts as down until there is a token; the error itself is not shown.
    async fn token(&self) -> Result<String, Box<dyn std::error::Error + Send + Sync>>;
}
