//! Why a sink cannot be made, and what the HTTP client's errors mean for a record.

use std::{error::Error, fmt};

use outbox_core::{ErrorScope, SendError};

use crate::guard::Refused;

/// Why an `HttpSink` cannot be made.
#[derive(Debug)]
pub struct HttpError {
    kind: HttpErrorKind,
    message: String,
}

/// What is wrong with a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HttpErrorKind {
    /// The URL is missing, cannot be read, or is one that the sink would refuse to send to.
    Url,
    /// A header's name or value is not allowed, or the sink sets the header itself.
    Header,
    /// Some other setting is out of its range.
    Setting,
    /// A certificate cannot be read, or TLS cannot be set up.
    Tls,
}

impl HttpError {
    pub(crate) fn new(kind: HttpErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// What is wrong.
    pub fn kind(&self) -> HttpErrorKind {
        self.kind
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for HttpError {}

/// How far a request came before it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing was written: it cannot have been received.
    Unwritten,
    /// It may have been received, in part or whole.
    Written,
}

/// What a failure without an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The address guard let no address of the host pass.
    Refused(Refused),
    /// The client cannot build the request.
    Unbuildable,
    /// No connection: name resolution, TCP, proxy or TLS.
    Connect,
    /// No answer in time.
    Timeout,
    /// The connection broke, or what came back is no HTTP.
    Broken,
}

impl Failure {
    /// The one place that reads the HTTP client's errors.
    fn of(error: &reqwest::Error) -> Self {
        if let Some(refused) = cause::<Refused>(error) {
            return Self::Refused(*refused);
        }
        match error {
            error if error.is_connect() => Self::Connect,
            error if error.is_timeout() => Self::Timeout,
            error if error.is_builder() => Self::Unbuildable,
            _ => Self::Broken,
        }
    }

    /// What the relay is told.
    pub(crate) fn into_send_error(self, stage: Stage, detail: &str) -> SendError {
        match (self, stage) {
            (Self::Refused(refused), _) => SendError::permanent(refused.to_string()),
            (Self::Unbuildable, _) => {
                SendError::permanent("no request can be made of the record and its URL")
            }
            (Self::Connect, _) => SendError::unavailable(format!("no connection{detail}")),
            (Self::Timeout, Stage::Unwritten) => SendError::unavailable("no connection in time"),
            (Self::Timeout, Stage::Written) => {
                SendError::transient("no answer in time: it may have been received")
            }
            (Self::Broken, Stage::Unwritten) => SendError::unavailable(format!("not sent{detail}")),
            (Self::Broken, Stage::Written) => {
                SendError::transient(format!("no answer: it may have been received{detail}"))
            }
        }
    }
}

/// What a failed request means. A refused address of a configured URL is the sink's fault, not the
/// record's.
pub(crate) fn of_request(error: &reqwest::Error, stage: Stage, url_is_configured: bool) -> SendError {
    let failure = Failure::of(error);
    let send_error = failure.into_send_error(stage, &detail(error));
    match failure {
        Failure::Refused(_) if url_is_configured => send_error.with_scope(ErrorScope::Sink),
        _ => send_error,
    }
}

/// The innermost cause, which names the reason. The error's own text is left out: it holds the URL, and
/// with it what stands in path and query.
fn detail(error: &reqwest::Error) -> String {
    let mut innermost: Option<&(dyn Error + 'static)> = None;
    let mut next = error.source();
    while let Some(error) = next {
        innermost = Some(error);
        next = error.source();
    }
    innermost.map_or_else(String::new, |cause| format!(": {cause}"))
}

/// A cause of this type, however deep.
fn cause<E: Error + 'static>(error: &reqwest::Error) -> Option<&E> {
    let mut next = error.source();
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use outbox_core::SendErrorKind;

    use super::*;
    use crate::guard::Guard;

    /// K4, R1: what was never written is the destination's, what may have arrived is counted.
    #[test]
    fn each_failure_has_its_kind_and_scope() {
        use ErrorScope::{Destination, Record};
        use SendErrorKind::{Permanent, Transient, Unavailable};
        use Stage::{Unwritten, Written};
        let refused = Guard::default().check("::1".parse().unwrap()).unwrap_err();
        for (failure, stage, kind, scope) in [
            (Failure::Refused(refused), Unwritten, Permanent, Record),
            (Failure::Unbuildable, Unwritten, Permanent, Record),
            (Failure::Connect, Unwritten, Unavailable, Destination),
            (Failure::Timeout, Unwritten, Unavailable, Destination),
            (Failure::Timeout, Written, Transient, Record),
            (Failure::Broken, Unwritten, Unavailable, Destination),
            (Failure::Broken, Written, Transient, Record),
        ] {
            let error = failure.into_send_error(stage, "");
            assert_eq!((error.kind(), error.scope()), (kind, scope), "{failure:?} {stage:?}");
        }
    }

    #[test]
    fn the_clients_error_loses_its_url() {
        let error = reqwest::Client::new().post("https://a.example/s3cret\u{0}").header("a", "\n").build();
        let error = of_request(&error.unwrap_err(), Stage::Unwritten, false);
        assert_eq!(error.kind(), SendErrorKind::Permanent);
        assert!(!error.to_string().contains("s3cret"));
    }
}
