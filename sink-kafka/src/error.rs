//! Why a sink cannot be made, and what each of the client's errors means for a record.

use std::{error::Error, fmt};

use outbox_core::{ErrorScope, SendError, SendErrorKind};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// Why a `KafkaSink` cannot be made.
#[derive(Debug)]
pub struct ConnectError {
    kind: ConnectErrorKind,
    message: String,
}

/// What is wrong with a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectErrorKind {
    /// The topic or its template is none.
    Topic,
    /// The source of the CloudEvents is none.
    CloudEvents,
    /// A property that the sink cannot work with, or that is there twice.
    Property,
    /// A property that weakens delivery, without permission by name.
    Weak,
    /// Late messages could not be withdrawn before the send times out.
    Timeout,
    /// librdkafka refused.
    Client,
}

impl ConnectError {
    pub(crate) fn new(kind: ConnectErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// librdkafka's refusal, without the values that its own text repeats.
    pub(crate) fn of_client(error: &KafkaError) -> Self {
        let message = match error {
            KafkaError::ClientConfig(_, reason, name, value) => {
                let reason = match value.as_str() {
                    "" => reason.clone(),
                    value => reason.replace(value, "…"),
                };
                format!("librdkafka refused property {name:?}: {reason}{}", hint(name))
            }
            KafkaError::ClientCreation(reason) => format!("librdkafka made no client: {reason}"),
            _ => "librdkafka made no client".to_owned(),
        };
        Self::new(ConnectErrorKind::Client, message)
    }

    /// What is wrong.
    pub fn kind(&self) -> ConnectErrorKind {
        self.kind
    }
}

/// Which feature of this crate the property may need.
fn hint(property: &str) -> &'static str {
    if property == "security.protocol" || property.starts_with("ssl.") {
        " (TLS needs the feature `tls` or `tls-vendored` of sink-kafka)"
    } else if property.starts_with("sasl.kerberos.") {
        " (Kerberos needs the feature `gssapi` or `gssapi-vendored` of sink-kafka)"
    } else if property.starts_with("sasl.") {
        " (SCRAM and OAUTHBEARER need the feature `tls` or `tls-vendored` of sink-kafka, GSSAPI needs `gssapi`)"
    } else {
        ""
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ConnectError {}

/// What the relay is told about each error of the client.
///
/// | | |
/// |---|---|
/// | the record's own size or content | permanent |
/// | topic, its partitions, its replicas, the right to write to it | unavailable, destination |
/// | connection, authentication, the client's own state | unavailable, sink |
/// | not written because of another record | unavailable, record |
/// | all else | transient |
pub(crate) fn class(code: Code) -> (SendErrorKind, ErrorScope) {
    use ErrorScope::{Destination, Record, Sink};
    use SendErrorKind::{Permanent, Throttled, Transient, Unavailable};
    match code {
        Code::MessageSizeTooLarge
        | Code::MessageBatchTooLarge
        | Code::InvalidTopic
        | Code::InvalidRecord => (Permanent, Record),

        Code::InvalidDifferentRecord | Code::OperationNotAttempted => (Unavailable, Record),

        Code::UnknownTopic
        | Code::UnknownPartition
        | Code::UnknownTopicOrPartition
        | Code::UnknownTopicId
        | Code::LeaderNotAvailable
        | Code::NotLeaderForPartition
        | Code::ReplicaNotAvailable
        | Code::FencedLeaderEpoch
        | Code::UnknownLeaderEpoch
        | Code::PreferredLeaderNotAvailable
        | Code::EligibleLeadersNotAvailable
        | Code::ISRInsufficient
        | Code::NotEnoughReplicas
        | Code::NotEnoughReplicasAfterAppend
        | Code::KafkaStorageError
        | Code::LogDirNotFound
        // The right to write to this topic.
        | Code::TopicAuthorizationFailed
        | Code::PolicyViolation
        // The client puts in the time of sending: the clocks are apart, for every record alike.
        | Code::InvalidTimestamp
        // A topic of the old format holds no headers.
        | Code::UnsupportedForMessageFormat => (Unavailable, Destination),

        Code::BrokerTransportFailure
        | Code::AllBrokersDown
        | Code::Resolve
        | Code::NetworkException
        | Code::BrokerNotAvailable
        | Code::BrokerDestroy
        | Code::DestroyBroker
        | Code::UnknownBroker
        | Code::RebootstrapRequired
        | Code::NotController
        | Code::StaleControllerEpoch
        | Code::StaleBrokerEpoch
        | Code::CoordinatorLoadInProgress
        | Code::CoordinatorNotAvailable
        | Code::NotCoordinator
        // Who we are, and whether that may be here at all.
        | Code::SSL
        | Code::Authentication
        | Code::SaslAuthenticationFailed
        | Code::UnsupportedSASLMechanism
        | Code::IllegalSASLState
        | Code::ClusterAuthorizationFailed
        | Code::SecurityDisabled
        | Code::DelegationTokenAuthDisabled
        | Code::DelegationTokenNotFound
        | Code::DelegationTokenOwnerMismatch
        | Code::DelegationTokenRequestNotAllowed
        | Code::DelegationTokenAuthorizationFailed
        | Code::DelegationTokenExpired
        // What this client and this cluster cannot do together.
        | Code::UnsupportedVersion
        | Code::UnsupportedFeature
        | Code::UnsupportedCompressionType
        | Code::InvalidRequiredAcks
        | Code::NotConfigured
        | Code::NotImplemented
        | Code::CriticalSystemResource
        // The client's own state: it is made anew.
        | Code::Fatal
        | Code::Fenced
        | Code::ProducerFenced
        | Code::PurgeQueue
        | Code::PurgeInflight
        | Code::GaplessGuarantee
        | Code::Inconsistent
        | Code::State
        | Code::OutOfOrderSequenceNumber
        | Code::UnknownProducerId
        | Code::InvalidProducerEpoch
        | Code::InvalidProducerIdMapping => (Unavailable, Sink),

        Code::QueueFull => (Throttled, Record),
        Code::ThrottlingQuotaExceeded => (Throttled, Sink),

        _ => (Transient, Record),
    }
}

/// Whether a broker says it of a whole batch, though one record alone may be its reason.
pub(crate) fn may_be_anothers(code: Code) -> bool {
    matches!(
        code,
        Code::MessageSizeTooLarge
            | Code::MessageBatchTooLarge
            | Code::InvalidRecord
            | Code::InvalidMessage
            | Code::InvalidDifferentRecord
    )
}

/// Whether the broker does not know the client, or no longer, and so has written nothing.
pub(crate) fn is_unknown(code: Code) -> bool {
    matches!(
        code,
        Code::ProducerFenced
            | Code::InvalidProducerEpoch
            | Code::InvalidProducerIdMapping
            | Code::UnknownProducerId
    )
}

/// Whether the client's standing with the cluster is lost, though it does not call it fatal: only another client
/// has a new one.
pub(crate) fn is_lost(code: Code) -> bool {
    is_unknown(code)
        || matches!(code, Code::Fenced | Code::OutOfOrderSequenceNumber | Code::Inconsistent | Code::State)
}

/// Whether it says that we are not let in.
pub(crate) fn is_refusal(code: Code) -> bool {
    matches!(
        code,
        Code::Authentication
            | Code::SaslAuthenticationFailed
            | Code::UnsupportedSASLMechanism
            | Code::IllegalSASLState
            | Code::ClusterAuthorizationFailed
            | Code::SSL
    )
}

/// The error with its class. The code's own text names no content of a record.
pub(crate) fn of_code(code: Code, doing: &str) -> SendError {
    let (kind, scope) = class(code);
    SendError::new(kind, format!("{doing}: {}", text(code))).with_scope(scope)
}

/// librdkafka's text for the code.
pub(crate) fn text(code: Code) -> String {
    let text = code.to_string();
    // The name of the Rust variant comes first, in front of librdkafka's words.
    match text.split_once(" (") {
        Some((_, words)) => words.trim_end_matches(')').to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K4: each code has its kind and its scope.
    #[test]
    fn each_code_has_its_kind_and_scope() {
        use ErrorScope::{Destination, Record, Sink};
        use SendErrorKind::{Permanent, Throttled, Transient, Unavailable};
        let rows = [
            (Code::MessageSizeTooLarge, Permanent, Record),
            (Code::MessageBatchTooLarge, Permanent, Record),
            (Code::InvalidTopic, Permanent, Record),
            (Code::InvalidRecord, Permanent, Record),
            (Code::InvalidDifferentRecord, Unavailable, Record),
            (Code::OperationNotAttempted, Unavailable, Record),
            (Code::UnknownTopic, Unavailable, Destination),
            (Code::UnknownPartition, Unavailable, Destination),
            (Code::UnknownTopicOrPartition, Unavailable, Destination),
            (Code::UnknownTopicId, Unavailable, Destination),
            (Code::LeaderNotAvailable, Unavailable, Destination),
            (Code::NotLeaderForPartition, Unavailable, Destination),
            (Code::ReplicaNotAvailable, Unavailable, Destination),
            (Code::FencedLeaderEpoch, Unavailable, Destination),
            (Code::UnknownLeaderEpoch, Unavailable, Destination),
            (Code::PreferredLeaderNotAvailable, Unavailable, Destination),
            (Code::EligibleLeadersNotAvailable, Unavailable, Destination),
            (Code::ISRInsufficient, Unavailable, Destination),
            (Code::NotEnoughReplicas, Unavailable, Destination),
            (Code::NotEnoughReplicasAfterAppend, Unavailable, Destination),
            (Code::KafkaStorageError, Unavailable, Destination),
            (Code::LogDirNotFound, Unavailable, Destination),
            (Code::TopicAuthorizationFailed, Unavailable, Destination),
            (Code::PolicyViolation, Unavailable, Destination),
            (Code::InvalidTimestamp, Unavailable, Destination),
            (Code::UnsupportedForMessageFormat, Unavailable, Destination),
            (Code::BrokerTransportFailure, Unavailable, Sink),
            (Code::AllBrokersDown, Unavailable, Sink),
            (Code::Resolve, Unavailable, Sink),
            (Code::NetworkException, Unavailable, Sink),
            (Code::BrokerNotAvailable, Unavailable, Sink),
            (Code::BrokerDestroy, Unavailable, Sink),
            (Code::DestroyBroker, Unavailable, Sink),
            (Code::UnknownBroker, Unavailable, Sink),
            (Code::RebootstrapRequired, Unavailable, Sink),
            (Code::NotController, Unavailable, Sink),
            (Code::StaleControllerEpoch, Unavailable, Sink),
            (Code::StaleBrokerEpoch, Unavailable, Sink),
            (Code::CoordinatorLoadInProgress, Unavailable, Sink),
            (Code::CoordinatorNotAvailable, Unavailable, Sink),
            (Code::NotCoordinator, Unavailable, Sink),
            (Code::SSL, Unavailable, Sink),
            (Code::Authentication, Unavailable, Sink),
            (Code::SaslAuthenticationFailed, Unavailable, Sink),
            (Code::UnsupportedSASLMechanism, Unavailable, Sink),
            (Code::IllegalSASLState, Unavailable, Sink),
            (Code::ClusterAuthorizationFailed, Unavailable, Sink),
            (Code::SecurityDisabled, Unavailable, Sink),
            (Code::DelegationTokenAuthDisabled, Unavailable, Sink),
            (Code::DelegationTokenNotFound, Unavailable, Sink),
            (Code::DelegationTokenOwnerMismatch, Unavailable, Sink),
            (Code::DelegationTokenRequestNotAllowed, Unavailable, Sink),
            (Code::DelegationTokenAuthorizationFailed, Unavailable, Sink),
            (Code::DelegationTokenExpired, Unavailable, Sink),
            (Code::UnsupportedVersion, Unavailable, Sink),
            (Code::UnsupportedFeature, Unavailable, Sink),
            (Code::UnsupportedCompressionType, Unavailable, Sink),
            (Code::InvalidRequiredAcks, Unavailable, Sink),
            (Code::NotConfigured, Unavailable, Sink),
            (Code::NotImplemented, Unavailable, Sink),
            (Code::CriticalSystemResource, Unavailable, Sink),
            (Code::Fatal, Unavailable, Sink),
            (Code::Fenced, Unavailable, Sink),
            (Code::ProducerFenced, Unavailable, Sink),
            (Code::PurgeQueue, Unavailable, Sink),
            (Code::PurgeInflight, Unavailable, Sink),
            (Code::GaplessGuarantee, Unavailable, Sink),
            (Code::Inconsistent, Unavailable, Sink),
            (Code::State, Unavailable, Sink),
            (Code::OutOfOrderSequenceNumber, Unavailable, Sink),
            (Code::UnknownProducerId, Unavailable, Sink),
            (Code::InvalidProducerEpoch, Unavailable, Sink),
            (Code::InvalidProducerIdMapping, Unavailable, Sink),
            (Code::QueueFull, Throttled, Record),
            (Code::ThrottlingQuotaExceeded, Throttled, Sink),
            // A sample of the rest, which is tried again and counted.
            (Code::MessageTimedOut, Transient, Record),
            (Code::RequestTimedOut, Transient, Record),
            (Code::OperationTimedOut, Transient, Record),
            (Code::InvalidMessage, Transient, Record),
            (Code::DuplicateSequenceNumber, Transient, Record),
            (Code::Fail, Transient, Record),
            (Code::Unknown, Transient, Record),
        ];
        for (code, kind, scope) in rows {
            let error = of_code(code, "send");
            assert_eq!((error.kind(), error.scope()), (kind, scope), "{code:?}");
        }
    }

    /// R1: a topic, a cluster or a client that is broken kills no record.
    #[test]
    fn only_a_records_own_fault_is_permanent() {
        let error = of_code(Code::MessageSizeTooLarge, "send");
        assert_eq!((error.kind(), error.scope()), (SendErrorKind::Permanent, ErrorScope::Record));
        assert_eq!(error.to_string(), "send: Broker: Message size too large");
    }

    /// K7: the client's refusal shows no value.
    #[test]
    fn a_refused_property_shows_no_value() {
        let mut config = rdkafka::ClientConfig::new();
        config.set("security.protocol", "s3cret");
        let refusal = config.create_native_config().err().expect("refused");
        let error = ConnectError::of_client(&refusal);
        assert_eq!(error.kind(), ConnectErrorKind::Client);
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("s3cret") && shown.contains("security.protocol"), "{shown}");
    }
}
