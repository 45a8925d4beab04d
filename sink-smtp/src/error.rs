//! What can go wrong: configurations, emails, and what each reply of a server means.

use std::{error::Error, fmt};

use outbox_core::{ErrorScope, SendError, SendErrorKind};

/// A configuration that cannot hold. It shows no secret.
#[derive(Debug)]
pub struct SmtpError {
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl SmtpError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Display for SmtpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for SmtpError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// An email that no server is asked to take. It names the field and shows nothing of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidEmail {
    field: String,
    reason: String,
}

impl InvalidEmail {
    pub(crate) fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }

    /// The field, such as `to[2]`.
    pub fn field(&self) -> &str {
        &self.field
    }
}

impl fmt::Display for InvalidEmail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.reason)
    }
}

impl Error for InvalidEmail {}

impl From<InvalidEmail> for SendError {
    fn from(invalid: InvalidEmail) -> Self {
        Self::permanent(invalid.to_string())
    }
}

/// Where in the dialogue something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Name resolution, TCP, and TLS where it comes first.
    Connect,
    /// The greeting and the answer to EHLO.
    Greeting,
    StartTls,
    Auth,
    Mail,
    Rcpt,
    /// The answer to DATA, before the message.
    Data,
    /// The answer to the final dot.
    Dot,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connecting",
            Self::Greeting => "the greeting",
            Self::StartTls => "STARTTLS",
            Self::Auth => "AUTH",
            Self::Mail => "MAIL",
            Self::Rcpt => "RCPT",
            Self::Data => "DATA",
            Self::Dot => "the final dot",
        })
    }
}

/// What a refusal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// For now: tried again, as a counted attempt.
    Later,
    /// For good.
    Never,
    /// The server asks for less.
    Busy,
    /// It says nothing about the mail: the server does not take any, or not from us.
    Down,
}

/// What a refusing reply means: decided by stage and code, never by the text.
pub(crate) fn verdict(stage: Stage, code: u16) -> Verdict {
    use Stage::{Auth, Connect, Data, Dot, Greeting, Mail, Rcpt, StartTls};
    match (stage, code) {
        // Nothing has been said about any mail yet. A wrong password is ours, not a record's.
        (Connect | Greeting | StartTls | Auth, _) => Verdict::Down,
        // The server closes. After a recipient was named it may be that recipient's doing: a record
        // that makes servers close must not be tried for ever.
        (Mail, 421) => Verdict::Down,
        (Rcpt | Data | Dot, 421) => Verdict::Later,
        // It wants a login, or TLS, or one that is stronger (RFC 4954 and 3207).
        (Mail | Rcpt | Data | Dot, 530 | 534 | 535 | 538) => Verdict::Down,
        // Out of storage before a recipient is named: it is the server's own.
        (Mail, 452) => Verdict::Busy,
        // Out of step at the first command: no mail is the cause.
        (Mail, 503) => Verdict::Down,
        // What old servers say instead of 452 when a transaction has too many recipients: RFC 5321
        // section 4.5.3.1.10 asks clients to try again.
        (Rcpt, 552) => Verdict::Later,
        (Mail | Rcpt | Data | Dot, 500..=599) => Verdict::Never,
        (Mail | Rcpt | Data | Dot, _) => Verdict::Later,
    }
}

/// A server's reply, as far as it may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    text: String,
}

impl Reply {
    /// The longest text kept of one reply, in bytes.
    const BYTES_MAX: usize = 200;

    /// Servers repeat addresses in their replies: those are taken out, and so is what would break a line.
    pub(crate) fn new(code: u16, text: &str) -> Self {
        let mut kept = String::new();
        for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty())
        {
            let word = if word.contains('@') { "<address>" } else { word };
            if kept.len() + word.len() > Self::BYTES_MAX {
                kept.push('…');
                break;
            }
            kept.push_str(word);
            kept.push(' ');
        }
        Self { code, text: kept.trim_end().to_owned() }
    }

    /// The code alone, where a text could repeat what was said to the server.
    pub(crate) fn code_only(code: u16) -> Self {
        Self { code, text: String::new() }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text.as_str() {
            "" => write!(f, "{}", self.code),
            text => write!(f, "{} {text}", self.code),
        }
    }
}

/// Why the dialogue ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) stage: Stage,
    pub(crate) cause: Cause,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A reply that says no.
    Refused(Reply),
    /// The connection is gone, or was never made.
    Lost(String),
    /// No answer in time.
    Slow,
    /// The server closed the connection instead of an answer, or said what is no reply here.
    Garbled,
    /// The server lacks what the configuration asks for.
    Missing(&'static str),
    /// Nothing was said: every connection is in use.
    NoneFree,
    /// The source of tokens has none.
    NoToken,
}

impl Failure {
    pub(crate) fn new(stage: Stage, cause: Cause) -> Self {
        Self { stage, cause }
    }

    pub(crate) fn refused(stage: Stage, reply: Reply) -> Self {
        Self::new(stage, Cause::Refused(reply))
    }

    pub(crate) fn verdict(&self) -> Verdict {
        match (&self.cause, self.stage) {
            (Cause::Refused(reply), stage) => verdict(stage, reply.code),
            (Cause::Missing(_) | Cause::NoneFree | Cause::NoToken, _) => Verdict::Down,
            (_, Stage::Connect | Stage::Greeting | Stage::StartTls | Stage::Auth) => Verdict::Down,
            // A server that breaks off at the first command has not looked at the mail.
            (Cause::Lost(_) | Cause::Garbled, Stage::Mail) => Verdict::Down,
            (Cause::Lost(_) | Cause::Garbled | Cause::Slow, _) => Verdict::Later,
        }
    }

    /// Whether nothing more can be said on this connection.
    pub(crate) fn ends_connection(&self) -> bool {
        match &self.cause {
            Cause::Refused(reply) => reply.code == 421,
            _ => true,
        }
    }

    /// Whether a connection that was idle before shows by this that it was dead all along.
    pub(crate) fn is_stale(&self) -> bool {
        self.stage == Stage::Mail
            && match &self.cause {
                Cause::Lost(_) | Cause::Garbled => true,
                Cause::Refused(reply) => reply.code == 421,
                _ => false,
            }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Refused(reply) => write!(f, "the server answered {reply} at {}", self.stage),
            Cause::Lost(why) if why.is_empty() => write!(f, "the connection broke at {}", self.stage),
            Cause::Lost(why) => write!(f, "the connection broke at {}: {why}", self.stage),
            Cause::Slow => write!(f, "no answer in time at {}", self.stage),
            Cause::Garbled => {
                write!(f, "the server hung up, or did not answer in SMTP, at {}", self.stage)
            }
            Cause::Missing(what) => write!(f, "the server does not offer {what}"),
            Cause::NoneFree => f.write_str("every connection is in use"),
            Cause::NoToken => f.write_str("the source of tokens has none"),
        }?;
        match (&self.cause, self.stage) {
            (Cause::Lost(_) | Cause::Slow | Cause::Garbled, Stage::Dot) => {
                f.write_str(": the mail may have been taken")
            }
            _ => Ok(()),
        }
    }
}

impl From<Failure> for SendError {
    fn from(failure: Failure) -> Self {
        let (kind, scope) = match failure.verdict() {
            // It says something about this process, and nothing about the server.
            _ if failure.cause == Cause::NoneFree => (SendErrorKind::Unavailable, ErrorScope::Record),
            Verdict::Later => (SendErrorKind::Transient, ErrorScope::Record),
            Verdict::Never => (SendErrorKind::Permanent, ErrorScope::Record),
            Verdict::Busy => (SendErrorKind::Throttled, ErrorScope::Sink),
            Verdict::Down => (SendErrorKind::Unavailable, ErrorScope::Sink),
        };
        Self::new(kind, failure.to_string()).with_scope(scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every reply has its meaning by stage and code.
    #[test]
    fn each_code_has_its_meaning_at_each_stage() {
        use Verdict::{Busy, Down, Later, Never};
        let stages = [Stage::Greeting, Stage::Auth, Stage::Mail, Stage::Rcpt, Stage::Data, Stage::Dot];
        #[rustfmt::skip]
        let table = [
            // code  greeting AUTH  MAIL   RCPT   DATA   dot
            (421, [Down, Down, Down,  Later, Later, Later]),
            (450, [Down, Down, Later, Later, Later, Later]),
            (451, [Down, Down, Later, Later, Later, Later]),
            (452, [Down, Down, Busy,  Later, Later, Later]),
            (500, [Down, Down, Never, Never, Never, Never]),
            (503, [Down, Down, Down,  Never, Never, Never]),
            (530, [Down, Down, Down,  Down,  Down,  Down]),
            (535, [Down, Down, Down,  Down,  Down,  Down]),
            (550, [Down, Down, Never, Never, Never, Never]),
            (552, [Down, Down, Never, Later, Never, Never]),
            (553, [Down, Down, Never, Never, Never, Never]),
            (554, [Down, Down, Never, Never, Never, Never]),
        ];
        for (code, expected) in table {
            for (stage, expected) in stages.into_iter().zip(expected) {
                assert_eq!(verdict(stage, code), expected, "{code} at {stage}");
            }
        }
    }

    #[test]
    fn a_verdict_is_one_kind_and_scope_of_error() {
        let ends = |stage, code| {
            let error = SendError::from(Failure::refused(stage, Reply::code_only(code)));
            (error.kind(), error.scope())
        };
        assert_eq!(ends(Stage::Rcpt, 450), (SendErrorKind::Transient, ErrorScope::Record));
        assert_eq!(ends(Stage::Dot, 554), (SendErrorKind::Permanent, ErrorScope::Record));
        assert_eq!(ends(Stage::Mail, 452), (SendErrorKind::Throttled, ErrorScope::Sink));
        assert_eq!(ends(Stage::Auth, 535), (SendErrorKind::Unavailable, ErrorScope::Sink));
    }

    /// K7: a reply that repeats addresses shows none, and is bounded.
    #[test]
    fn replies_are_shown_without_addresses_and_bounded() {
        let reply = Reply::new(550, "5.1.1 <ann@example.com>: Recipient\r\naddress\0rejected");
        assert_eq!(reply.to_string(), "550 5.1.1 <address> Recipient address rejected");
        assert!(Reply::new(550, &"word ".repeat(1000)).to_string().len() < 220);
        assert!(Reply::new(550, &"w".repeat(5000)).to_string().len() < 220);
        assert_eq!(Reply::new(250, "").to_string(), "250");
    }
}
