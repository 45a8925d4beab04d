//! One record as one NATS message: its subject, headers and payload.

use std::borrow::Cow;

use async_nats::{HeaderMap, HeaderName, HeaderValue};
use outbox_core::{CloudEvents, CloudEventsMode, Record, SendError};

use crate::{NatsConfig, NatsError, NatsErrorKind};

/// The longest subject that is sent; servers cut a connection over a control line of 4,096 bytes, which
/// also holds the reply subject and two numbers.
const SUBJECT_BYTES_MAX: usize = 3_072;
const KIND: &str = "{kind}";
const KEY: &str = "{key}";

/// How records become messages.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    subject: Option<String>,
    stream: Option<String>,
    cloud_events: Option<CloudEvents>,
}

/// What is handed to the client.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) subject: String,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Vec<u8>,
}

impl Template {
    pub(crate) fn new(config: &NatsConfig) -> Result<Self, NatsError> {
        if let Some(subject) = &config.subject {
            check_subject(&subject.replace(KIND, "k").replace(KEY, "k")).map_err(|why| {
                NatsError::config(NatsErrorKind::Subject, format!("subject {subject:?} {why}"))
            })?;
        }
        if let Some(events) = &config.cloud_events {
            events
                .check()
                .map_err(|invalid| NatsError::config(NatsErrorKind::CloudEvents, invalid.to_string()))?;
        }
        if let Some(stream) = config.stream.as_deref().filter(|name| !is_token(name)) {
            return Err(NatsError::config(
                NatsErrorKind::Stream,
                format!("stream {stream:?} is no stream name"),
            ));
        }
        Ok(Self {
            subject: config.subject.clone(),
            stream: config.stream.clone(),
            cloud_events: config.cloud_events.clone(),
        })
    }

    pub(crate) fn stream(&self) -> Option<&str> {
        self.stream.as_deref()
    }

    /// The record's message. What fails here fails for good: the record is as it is.
    pub(crate) fn message(&self, record: &Record) -> Result<Message, SendError> {
        let subject = self.subject(record)?;
        check_subject(&subject)
            .map_err(|why| SendError::permanent(format!("subject {:?} {why}", shown(&subject))))?;
        let mut headers = HeaderMap::new();
        let mut payload = Cow::Borrowed(record.payload.as_bytes());
        let mut content_type = record.content_type.as_str();
        for (name, value) in &record.headers {
            self.check_header(name)?;
            insert(&mut headers, name, value)?;
        }
        match &self.cloud_events {
            Some(events) if events.mode == CloudEventsMode::Structured => {
                payload = Cow::Owned(events.envelope(record)?);
                content_type = CloudEvents::ENVELOPE_CONTENT_TYPE;
            }
            Some(events) => {
                for (name, value) in events.attributes(record)? {
                    insert(&mut headers, &format!("ce-{name}"), &CloudEvents::header_value(&value))?;
                }
            }
            None => {}
        }
        insert(&mut headers, "Content-Type", content_type)?;
        insert(&mut headers, "Outbox-Kind", &record.kind)?;
        insert(&mut headers, "Nats-Msg-Id", &record.id.to_string())?;
        if let Some(stream) = &self.stream {
            insert(&mut headers, "Nats-Expected-Stream", stream)?;
        }
        Ok(Message { subject, headers, payload: payload.into_owned() })
    }

    fn subject(&self, record: &Record) -> Result<String, SendError> {
        if let Some(destination) = &record.destination {
            return Ok(destination.clone());
        }
        let Some(template) = &self.subject else {
            return Err(SendError::permanent("the record names no destination and the sink no subject"));
        };
        let mut subject = template.replace(KIND, &record.kind);
        if subject.contains(KEY) {
            let Some(key) = record.key.as_deref() else {
                return Err(SendError::permanent("the subject names the key, and the record has none"));
            };
            if !is_token(key) {
                return Err(SendError::permanent(
                    "the key is no subject token: it is empty, or holds a space, `.`, `*`, `>` or a control character",
                ));
            }
            subject = subject.replace(KEY, key);
        }
        Ok(subject)
    }

    /// K6: names that mean something to the server or to this sink are not a record's to set.
    fn check_header(&self, name: &str) -> Result<(), SendError> {
        let refused = |why: &str| Err(SendError::permanent(format!("header {name:?} {why}")));
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':') {
            return refused("is no header name");
        }
        let lower = name.to_ascii_lowercase();
        let is_attribute = self.cloud_events.is_some() && lower.starts_with("ce-");
        if is_attribute
            || lower == "content-type"
            || lower.starts_with("nats-")
            || lower.starts_with("outbox-")
        {
            return refused(
                "is set by the sink or means something to the server, and a record cannot set it",
            );
        }
        Ok(())
    }
}

/// A value that could end its line is refused; the client would write it as it is.
fn insert(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), SendError> {
    let refused = || SendError::permanent(format!("header {name:?} holds what no header may"));
    if value.contains(|c: char| c.is_control() && c != '\t') {
        return Err(refused());
    }
    let name: HeaderName = name.parse().map_err(|_| refused())?;
    let value: HeaderValue = value.parse().map_err(|_| refused())?;
    headers.insert(name, value);
    Ok(())
}

/// A subject that is published to: no wildcard, no empty token, nothing that ends the protocol's line.
fn check_subject(subject: &str) -> Result<(), &'static str> {
    if subject.len() > SUBJECT_BYTES_MAX {
        return Err("is longer than 3072 bytes");
    }
    if subject.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("holds a space or a control character");
    }
    if subject.contains(['*', '>']) {
        return Err("holds a wildcard");
    }
    if subject.split('.').any(str::is_empty) {
        return Err("has an empty token");
    }
    if subject.starts_with('$') || subject.starts_with("_INBOX.") {
        return Err("belongs to the server");
    }
    Ok(())
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || ".*>".contains(c))
}

/// Enough of a subject to know it by.
fn shown(subject: &str) -> &str {
    subject.get(..subject.floor_char_boundary(100)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use outbox_core::{Payload, Uuid};

    use super::*;

    fn record() -> Record {
        Record::new(7, Uuid::from_u128(17), "order.placed", Payload::Json("{}".into()))
    }

    fn template(subject: &str) -> Template {
        Template::new(&NatsConfig::new("").with_subject(subject)).unwrap()
    }

    fn subject(subject: &str, record: &Record) -> Result<String, String> {
        template(subject).message(record).map(|message| message.subject).map_err(|error| error.to_string())
    }

    /// K6: nothing in a subject can become protocol.
    #[test]
    fn subjects_that_are_none_are_refused_before_sending() {
        for (destination, expected) in [
            ("a b", "holds a space or a control character"),
            ("a\r\nPUB x 1", "holds a space or a control character"),
            ("a..b", "has an empty token"),
            (".a", "has an empty token"),
            ("a.", "has an empty token"),
            ("", "has an empty token"),
            ("*", "holds a wildcard"),
            ("a.>", "holds a wildcard"),
            ("a\0", "holds a space or a control character"),
            ("a\u{2028}b", "holds a space or a control character"),
            ("$JS.API.STREAM.DELETE.ORDERS", "belongs to the server"),
        ] {
            let mut record = record();
            record.destination = Some(destination.into());
            let error = subject("x", &record).unwrap_err();
            assert!(error.ends_with(expected), "{destination:?}: {error}");
        }
        let mut long = record();
        long.destination = Some("a".repeat(4_000));
        assert!(subject("x", &long).unwrap_err().ends_with("is longer than 3072 bytes"));
    }

    #[test]
    fn a_subject_comes_from_the_destination_or_from_the_template() {
        let mut record = record();
        assert_eq!(subject("shop.{kind}", &record).unwrap(), "shop.order.placed");
        assert!(subject("shop.{key}", &record).unwrap_err().contains("the record has none"));
        record.key = Some("k 1".into());
        assert!(subject("shop.{key}", &record).unwrap_err().contains("no subject token"));
        record.key = Some("k1".into());
        assert_eq!(subject("shop.{kind}.{key}", &record).unwrap(), "shop.order.placed.k1");
        record.destination = Some("elsewhere".into());
        assert_eq!(subject("shop.{key}", &record).unwrap(), "elsewhere");
    }

    /// K3, K6: the id travels in the server's own field, and no record can put another there.
    #[test]
    fn the_sinks_own_headers_cannot_be_replaced() {
        let mut good = record();
        good.headers.insert("traceparent".into(), "00-1-2-01".into());
        let message = template("x").message(&good).unwrap();
        assert_eq!(message.headers.get("Nats-Msg-Id").unwrap().as_str(), good.id.to_string());
        assert_eq!(message.headers.get("traceparent").unwrap().as_str(), "00-1-2-01");
        for name in ["Nats-Msg-Id", "nats-rollup", "content-type", "outbox-kind", "a:b", "a b", ""] {
            let mut record = record();
            record.headers.insert(name.into(), "x".into());
            let error = template("x").message(&record).unwrap_err();
            assert_eq!(error.kind(), outbox_core::SendErrorKind::Permanent, "{name:?}");
        }
        let mut record = record();
        record.headers.insert("x".into(), "secret\r\nNats-Msg-Id: 1".into());
        let error = template("x").message(&record).unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn cloud_events_go_binary_or_structured() {
        let config = NatsConfig::new("").with_subject("x");
        let binary = Template::new(&config.clone().with_cloud_events(CloudEvents::binary("/shop"))).unwrap();
        let message = binary.message(&record()).unwrap();
        assert_eq!(message.headers.get("ce-type").unwrap().as_str(), "order.placed");
        assert_eq!(message.payload, b"{}");
        let structured = Template::new(&config.with_cloud_events(CloudEvents::structured("/shop"))).unwrap();
        let message = structured.message(&record()).unwrap();
        assert_eq!(message.headers.get("Content-Type").unwrap().as_str(), "application/cloudevents+json");
    }

    #[test]
    fn settings_that_cannot_hold_are_refused() {
        for config in [
            NatsConfig::new("").with_subject("a..{kind}"),
            NatsConfig::new("").with_subject("a.>"),
            NatsConfig::new("").with_stream("a.b"),
            NatsConfig::new("").with_cloud_events(CloudEvents::binary("")),
        ] {
            assert!(Template::new(&config).is_err(), "{config:?}");
        }
    }
}
