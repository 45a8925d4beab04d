//! What the client and the server say, and what the relay makes of it.

use std::{error::Error, fmt};

use async_nats::jetstream::{
    ErrorCode,
    context::{PublishError, PublishErrorKind},
};
use outbox_core::{ErrorScope, SendError, SendErrorKind};

/// Why a [`NatsSink`](crate::NatsSink) could not be made.
#[derive(Debug)]
pub struct NatsError {
    kind: NatsErrorKind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What is wrong with a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NatsErrorKind {
    /// The subject is none.
    Subject,
    /// The stream's name is none.
    Stream,
    /// The CloudEvents source is none.
    CloudEvents,
    /// The servers' addresses, the credentials or the TLS settings cannot be used.
    Client,
}

impl NatsError {
    pub(crate) fn config(kind: NatsErrorKind, message: String) -> Self {
        Self { kind, message, source: None }
    }

    pub(crate) fn client(error: async_nats::ConnectError) -> Self {
        Self {
            kind: NatsErrorKind::Client,
            message: "the client refuses its settings".into(),
            source: Some(error.into()),
        }
    }

    /// What is wrong.
    pub fn kind(&self) -> NatsErrorKind {
        self.kind
    }
}

impl fmt::Display for NatsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed to set up the NATS sink: {}", self.message)
    }
}

impl Error for NatsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// Reads a failed publish. The texts are this crate's own: a server's may quote the message.
pub(crate) fn of_publish(error: &PublishError) -> SendError {
    use PublishErrorKind as Kind;
    let code = Error::source(error)
        .and_then(|source| source.downcast_ref::<async_nats::jetstream::Error>())
        .map(|error| (error.error_code(), error.code()));
    match (error.kind(), code) {
        (Kind::StreamNotFound, _) => down("no stream takes the subject"),
        (Kind::MaxPayloadExceeded, _) => SendError::permanent("the message is larger than the server takes"),
        // Written to the wire; the answer is what is missing.
        (Kind::TimedOut, _) => SendError::transient("no acknowledgement in time"),
        (Kind::BrokenPipe, _) => connection_lost(),
        // Never written.
        (Kind::MaxAckPending, _) => all_down("too many publishes are under way"),
        (_, Some((code, status))) => of_server(code, status),
        _ => SendError::transient("the publish failed"),
    }
}

/// The server's own answers, by its error code.
fn of_server(code: ErrorCode, status: usize) -> SendError {
    let (kind, scope, text) = match code {
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => {
            (SendErrorKind::Permanent, ErrorScope::Record, "the message is larger than the stream takes")
        }
        // Full, with discard new: room may be made. Counted for no record.
        ErrorCode::STREAM_STORE_FAILED
        | ErrorCode::STORAGE_RESOURCES_EXCEEDED
        | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
        | ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::TEMP_STORAGE_FAILED => {
            (SendErrorKind::Unavailable, ErrorScope::Destination, "the stream takes nothing more")
        }
        ErrorCode::STREAM_NOT_MATCH | ErrorCode::STREAM_MISMATCH => {
            (SendErrorKind::Unavailable, ErrorScope::Destination, "another stream than the expected one")
        }
        ErrorCode::STREAM_NOT_FOUND | ErrorCode::STREAM_SEALED => {
            (SendErrorKind::Unavailable, ErrorScope::Destination, "the stream is missing or sealed")
        }
        ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
            (SendErrorKind::Unavailable, ErrorScope::Sink, "JetStream is not enabled")
        }
        _ if status == 503 => {
            (SendErrorKind::Unavailable, ErrorScope::Destination, "the stream is not available")
        }
        _ => (SendErrorKind::Transient, ErrorScope::Record, "the server refused"),
    };
    SendError::new(kind, format!("{text} (error code {})", code.0)).with_scope(scope)
}

fn down(text: &str) -> SendError {
    SendError::unavailable(text)
}

/// Written to the wire, and the connection went before the answer came: it may have been stored.
pub(crate) fn connection_lost() -> SendError {
    SendError::transient("the connection broke before the acknowledgement").with_scope(ErrorScope::Sink)
}

/// Nothing reaches the servers.
pub(crate) fn all_down(text: &str) -> SendError {
    SendError::unavailable(text).with_scope(ErrorScope::Sink)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: &SendError, kind: SendErrorKind, scope: ErrorScope) {
        assert_eq!((error.kind(), error.scope()), (kind, scope), "{error}");
    }

    #[test]
    fn each_error_of_the_client_has_its_class() {
        use {ErrorScope::*, PublishErrorKind as Kind, SendErrorKind::*};
        for (error, kind, scope) in [
            (Kind::StreamNotFound, Unavailable, Destination),
            (Kind::MaxPayloadExceeded, Permanent, Record),
            (Kind::TimedOut, Transient, Record),
            (Kind::BrokenPipe, Transient, Sink),
            (Kind::MaxAckPending, Unavailable, Sink),
            (Kind::WrongLastMessageId, Transient, Record),
            (Kind::Other, Transient, Record),
        ] {
            check(&of_publish(&PublishError::new(error)), kind, scope);
        }
    }

    #[test]
    fn each_error_code_of_the_server_has_its_class() {
        use {ErrorScope::*, SendErrorKind::*};
        for (code, status, kind, scope) in [
            (ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM, 400, Permanent, Record),
            (ErrorCode::STREAM_STORE_FAILED, 503, Unavailable, Destination),
            (ErrorCode::STORAGE_RESOURCES_EXCEEDED, 500, Unavailable, Destination),
            (ErrorCode::ACCOUNT_RESOURCES_EXCEEDED, 400, Unavailable, Destination),
            (ErrorCode::STREAM_NOT_MATCH, 400, Unavailable, Destination),
            (ErrorCode::STREAM_NOT_FOUND, 404, Unavailable, Destination),
            (ErrorCode::STREAM_SEALED, 400, Unavailable, Destination),
            (ErrorCode::JETSTREAM_NOT_ENABLED, 503, Unavailable, Sink),
            (ErrorCode::CLUSTER_NOT_AVAILABLE, 503, Unavailable, Destination),
            (ErrorCode::BAD_REQUEST, 400, Transient, Record),
        ] {
            check(&of_server(code, status), kind, scope);
        }
    }
}
