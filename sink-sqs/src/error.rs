//! Why a sink cannot be made, and what the answers of SQS and of its client mean for a record.

use std::{error::Error, fmt, time::Duration};

use aws_sdk_sqs::{
    config::http::HttpResponse,
    error::{ProvideErrorMetadata, SdkError},
};
use outbox_core::{ErrorScope, SendError, SendErrorKind};

/// Why an `SqsSink` cannot be made.
#[derive(Debug)]
pub struct SqsError {
    kind: SqsErrorKind,
    message: String,
}

/// What is wrong with a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SqsErrorKind {
    /// The queue is neither a name nor a URL that ends with one.
    Queue,
    /// Some other setting is out of its range.
    Setting,
}

impl SqsError {
    pub(crate) fn new(kind: SqsErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// What is wrong.
    pub fn kind(&self) -> SqsErrorKind {
        self.kind
    }
}

impl fmt::Display for SqsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed to set up the SQS sink: {}", self.message)
    }
}

impl Error for SqsError {}

/// Why a request, or one entry of it, was not acknowledged. The texts are this crate's own: those of AWS may
/// quote the message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    kind: SendErrorKind,
    scope: ErrorScope,
    text: String,
    retry_after: Option<Duration>,
    pub(crate) queue_is_gone: bool,
}

impl Failure {
    fn new(kind: SendErrorKind, scope: ErrorScope, text: impl Into<String>) -> Self {
        Self { kind, scope, text: text.into(), retry_after: None, queue_is_gone: false }
    }

    /// Nothing was written to the wire, and nothing can be at present.
    pub(crate) fn sink_is_down(text: impl Into<String>) -> Self {
        Self::new(SendErrorKind::Unavailable, ErrorScope::Sink, text)
    }

    /// The request was written, and no answer came.
    pub(crate) fn no_answer(text: impl Into<String>) -> Self {
        Self::new(SendErrorKind::Transient, ErrorScope::Record, text)
    }

    /// Whether it is the fault of a record; of which one of a batch, it does not say.
    pub(crate) fn is_of_a_record(&self) -> bool {
        self.kind == SendErrorKind::Permanent
    }

    /// The same for a request that writes no record: nothing was received, and no record is to blame.
    pub(crate) fn of_look_up(mut self) -> Self {
        if matches!(self.kind, SendErrorKind::Permanent | SendErrorKind::Transient) {
            self.kind = SendErrorKind::Unavailable;
            self.scope = self.scope.max(ErrorScope::Destination);
            self.text = format!("the queue could not be asked for: {}", self.text);
        }
        self
    }

    pub(crate) fn to_send_error(&self) -> SendError {
        let error = SendError::new(self.kind, self.text.clone()).with_scope(self.scope);
        match self.retry_after {
            Some(wait) => error.with_retry_after(wait),
            None => error,
        }
    }
}

/// What an error code of SQS means: the one place that reads them. Whoever is at fault is said by SQS.
pub(crate) fn of_code(code: &str, is_senders_fault: bool) -> Failure {
    use ErrorScope::{Destination, Record, Sink};
    use SendErrorKind::{Permanent, Throttled, Transient, Unavailable};
    let bare = code.strip_prefix("AWS.SimpleQueueService.").unwrap_or(code);
    let (kind, scope, what) = match bare {
        "QueueDoesNotExist" | "NonExistentQueue" => (Unavailable, Destination, "there is no such queue"),
        "QueueDeletedRecently" => (Unavailable, Destination, "the queue was deleted"),
        "RequestThrottled"
        | "Throttling"
        | "ThrottlingException"
        | "ThrottledException"
        | "RequestLimitExceeded"
        | "TooManyRequestsException"
        | "SlowDown"
        | "OverLimit" => (Throttled, Destination, "the queue asks for less"),
        "KmsThrottled" | "KMS.ThrottlingException" => {
            (Throttled, Destination, "the key service asks for less")
        }
        "AccessDenied" | "AccessDeniedException" | "AuthorizationError" => {
            (Unavailable, Destination, "sending to the queue is not allowed")
        }
        "InvalidAddress" | "UnsupportedOperation" => {
            (Unavailable, Destination, "the queue does not take requests of this kind")
        }
        "InvalidClientTokenId"
        | "UnrecognizedClientException"
        | "SignatureDoesNotMatch"
        | "InvalidSignatureException"
        | "IncompleteSignature"
        | "MissingAuthenticationToken"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "RequestExpired"
        | "InvalidSecurity"
        | "InvalidAccessKeyId"
        | "OptInRequired"
        | "NotAuthorized" => (Unavailable, Sink, "the credentials are refused"),
        "UnknownOperationException" | "UnknownOperation" | "InvalidAction" => {
            (Unavailable, Sink, "the endpoint does not serve SQS")
        }
        "InternalError" | "InternalFailure" => (Transient, Destination, "SQS failed"),
        "ServiceUnavailable" => (Unavailable, Sink, "SQS is not available"),
        "BatchRequestTooLong" => (Permanent, Record, "the message is larger than the queue takes"),
        "InvalidMessageContents" => (Permanent, Record, "the message holds a character that SQS refuses"),
        _ if bare.starts_with("Kms") || bare.starts_with("KMS.") => {
            (Unavailable, Destination, "the queue's key cannot be used")
        }
        _ if is_senders_fault => (Permanent, Record, "SQS refused the message"),
        _ => (Transient, Record, "SQS did not take the message"),
    };
    let mut failure = Failure::new(kind, scope, what);
    failure.queue_is_gone = matches!(bare, "QueueDoesNotExist" | "NonExistentQueue" | "QueueDeletedRecently");
    let shown: String = code
        .chars()
        .filter(|character| character.is_ascii_alphanumeric() || ['.', '-', '_'].contains(character))
        .take(80)
        .collect();
    if !shown.is_empty() {
        failure.text.push_str(&format!(" ({shown})"));
    }
    failure
}

/// What a status means where no code came with it: a proxy's answer, or a broken one.
fn of_status(status: u16) -> Failure {
    use ErrorScope::{Destination, Record, Sink};
    use SendErrorKind::{Throttled, Transient, Unavailable};
    let (kind, scope) = match status {
        401 | 403 | 407 | 503 => (Unavailable, Sink),
        404 => (Unavailable, Destination),
        429 => (Throttled, Destination),
        500..=599 => (Transient, Destination),
        _ => (Transient, Record),
    };
    Failure::new(kind, scope, format!("answered {status}"))
}

/// What a failed request means.
pub(crate) fn of_request<E>(error: &SdkError<E, HttpResponse>) -> Failure
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let mut failure = match error {
        // The SDK builds, signs and looks credentials up before it writes.
        SdkError::ConstructionFailure(_) => {
            Failure::sink_is_down("no request can be made: region or endpoint")
        }
        SdkError::TimeoutError(_) => Failure::no_answer("no answer in time: it may have been received"),
        SdkError::DispatchFailure(dispatch) => {
            let cause = dispatch.as_connector_error().map(|error| error as &(dyn Error + 'static));
            of_dispatch(cause, dispatch.is_timeout(), dispatch.is_io())
        }
        SdkError::ServiceError(answer) => match answer.err().code() {
            Some(code) => of_code(code, (400..500).contains(&answer.raw().status().as_u16())),
            None => of_status(answer.raw().status().as_u16()),
        },
        SdkError::ResponseError(answer) => match answer.raw().status().as_u16() {
            200..300 => Failure::no_answer("the answer cannot be read: it may have been received"),
            status => of_status(status),
        },
        _ => Failure::no_answer("the request failed: it may have been received"),
    };
    if let Some(wait) = error.raw_response().and_then(|answer| answer.headers().get("retry-after")) {
        failure.retry_after = wait.parse().ok().map(Duration::from_secs);
    }
    failure
}

/// No answer at all. Only what was written counts.
fn of_dispatch(cause: Option<&(dyn Error + 'static)>, is_timeout: bool, is_io: bool) -> Failure {
    let mut next = cause;
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            return if error.is_connect() {
                Failure::sink_is_down("no connection")
            } else {
                Failure::no_answer("no answer: it may have been received")
            };
        }
        next = error.source();
    }
    match (is_timeout, is_io) {
        // The one timeout that the sink lets the SDK have.
        (true, _) => Failure::sink_is_down("no connection in time"),
        (_, true) => Failure::no_answer("no answer: it may have been received"),
        _ => {
            Failure::sink_is_down("the request was not sent: the credentials or the endpoint cannot be used")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K4: each code has its meaning, and a broken queue or sink is never the record's end.
    #[test]
    fn each_code_has_its_meaning() {
        use ErrorScope::{Destination, Record, Sink};
        use SendErrorKind::{Permanent, Throttled, Transient, Unavailable};
        for (code, senders, kind, scope) in [
            ("QueueDoesNotExist", true, Unavailable, Destination),
            ("AWS.SimpleQueueService.NonExistentQueue", true, Unavailable, Destination),
            ("AWS.SimpleQueueService.QueueDeletedRecently", true, Unavailable, Destination),
            ("RequestThrottled", true, Throttled, Destination),
            ("Throttling", true, Throttled, Destination),
            ("ThrottlingException", true, Throttled, Destination),
            ("OverLimit", true, Throttled, Destination),
            ("KmsThrottled", true, Throttled, Destination),
            ("KMS.ThrottlingException", true, Throttled, Destination),
            ("KmsDisabled", true, Unavailable, Destination),
            ("KmsAccessDenied", true, Unavailable, Destination),
            ("AccessDenied", true, Unavailable, Destination),
            ("AccessDeniedException", true, Unavailable, Destination),
            ("InvalidAddress", true, Unavailable, Destination),
            ("AWS.SimpleQueueService.UnsupportedOperation", true, Unavailable, Destination),
            ("InvalidClientTokenId", true, Unavailable, Sink),
            ("UnrecognizedClientException", true, Unavailable, Sink),
            ("SignatureDoesNotMatch", true, Unavailable, Sink),
            ("ExpiredToken", true, Unavailable, Sink),
            ("InvalidSecurity", true, Unavailable, Sink),
            ("UnknownOperationException", true, Unavailable, Sink),
            ("InternalError", false, Transient, Destination),
            ("InternalFailure", false, Transient, Destination),
            ("ServiceUnavailable", false, Unavailable, Sink),
            ("AWS.SimpleQueueService.BatchRequestTooLong", true, Permanent, Record),
            ("InvalidMessageContents", true, Permanent, Record),
            ("InvalidParameterValue", true, Permanent, Record),
            ("SomethingNew", true, Permanent, Record),
            ("SomethingNew", false, Transient, Record),
            ("", false, Transient, Record),
        ] {
            let error = of_code(code, senders).to_send_error();
            assert_eq!((error.kind(), error.scope()), (kind, scope), "{code}");
            assert!(error.to_string().contains(code), "{error}");
        }
    }

    #[test]
    fn each_status_without_a_code_has_its_meaning() {
        use ErrorScope::{Destination, Record, Sink};
        use SendErrorKind::{Throttled, Transient, Unavailable};
        for (status, kind, scope) in [
            (401, Unavailable, Sink),
            (403, Unavailable, Sink),
            (407, Unavailable, Sink),
            (503, Unavailable, Sink),
            (404, Unavailable, Destination),
            (429, Throttled, Destination),
            (500, Transient, Destination),
            (502, Transient, Destination),
            (400, Transient, Record),
            (302, Transient, Record),
        ] {
            let error = of_status(status).to_send_error();
            assert_eq!((error.kind(), error.scope()), (kind, scope), "{status}");
        }
    }

    /// K7: a code is shown, and what might be text is not.
    #[test]
    fn a_code_is_shown_only_as_a_name() {
        let error = of_code(&format!("Odd\r\n<{}", "x".repeat(500)), true).to_send_error();
        assert_eq!(error.to_string(), format!("SQS refused the message (Odd{})", "x".repeat(77)));
    }

    #[test]
    fn only_what_may_have_been_written_is_counted() {
        let kind = |timeout, io| of_dispatch(None, timeout, io).to_send_error().kind();
        assert_eq!(kind(true, false), SendErrorKind::Unavailable);
        assert_eq!(kind(false, true), SendErrorKind::Transient);
        assert_eq!(kind(false, false), SendErrorKind::Unavailable);
    }
}
