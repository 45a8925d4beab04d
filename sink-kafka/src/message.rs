//! One record as one Kafka message: its topic, key, headers and value.

use std::borrow::Cow;

use outbox_core::{CloudEvents, CloudEventsMode, Record, SendError};
use rdkafka::{
    message::{Header, OwnedHeaders},
    producer::FutureRecord,
};

use crate::{ConnectError, ConnectErrorKind};

/// The longest topic name that Kafka has.
const TOPIC_BYTES_MAX: usize = 249;
/// Stands for the record's kind in a topic template.
const KIND: &str = "{kind}";

/// How records become messages.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    topic: Option<String>,
    cloud_events: Option<CloudEvents>,
}

impl Template {
    pub(crate) fn new(
        topic: Option<String>,
        cloud_events: Option<CloudEvents>,
    ) -> Result<Self, ConnectError> {
        if let Some(topic) = &topic {
            check_topic(&topic.replace(KIND, "k")).map_err(|why| {
                ConnectError::new(ConnectErrorKind::Topic, format!("topic {topic:?} {why}"))
            })?;
        }
        if let Some(events) = &cloud_events {
            events
                .check()
                .map_err(|invalid| ConnectError::new(ConnectErrorKind::CloudEvents, invalid.to_string()))?;
        }
        Ok(Self { topic, cloud_events })
    }

    pub(crate) fn with_topic(&self, topic: String) -> Result<Self, ConnectError> {
        Self::new(Some(topic), self.cloud_events.clone())
    }

    /// The topic of every record that names no destination, if it is one and the same.
    pub(crate) fn fixed_topic(&self) -> Option<&str> {
        self.topic.as_deref().filter(|topic| !topic.contains(KIND))
    }

    /// The record's message. What fails here fails for good: the record is as it is.
    pub(crate) fn message<'a>(&'a self, record: &'a Record) -> Result<Message<'a>, SendError> {
        let topic = self.topic(record)?;
        check_topic(&topic).map_err(|why| SendError::permanent(format!("topic {topic:?} {why}")))?;
        let mut headers: Vec<(Cow<'a, str>, Cow<'a, str>)> = Vec::with_capacity(record.headers.len() + 9);
        headers.push(("outbox-id".into(), record.id.to_string().into()));
        headers.push(("outbox-kind".into(), record.kind.as_str().into()));
        let mut value = Cow::Borrowed(record.payload.as_bytes());
        let mut content_type = record.content_type.as_str();
        match &self.cloud_events {
            Some(events) if events.mode == CloudEventsMode::Structured => {
                value = Cow::Owned(events.envelope(record)?);
                content_type = "application/cloudevents+json; charset=UTF-8";
            }
            Some(events) => {
                let attributes = events.attributes(record)?;
                headers
                    .extend(attributes.into_iter().map(|(name, value)| (format!("ce_{name}").into(), value)));
            }
            None => {}
        }
        headers.push(("content-type".into(), content_type.into()));
        for (name, text) in &record.headers {
            self.check_header(name)?;
            headers.push((name.as_str().into(), text.as_str().into()));
        }
        Ok(Message { topic, key: record.key.as_deref().map(str::as_bytes), value, headers })
    }

    fn topic<'a>(&'a self, record: &'a Record) -> Result<Cow<'a, str>, SendError> {
        match (&record.destination, &self.topic) {
            (Some(destination), _) => Ok(Cow::Borrowed(destination)),
            (None, Some(topic)) if topic.contains(KIND) => Ok(Cow::Owned(topic.replace(KIND, &record.kind))),
            (None, Some(topic)) => Ok(Cow::Borrowed(topic)),
            (None, None) => {
                Err(SendError::permanent("the record names no destination and the sink no topic"))
            }
        }
    }

    /// K6: Kafka lets a header stand twice, so a record's own could pass for the sink's.
    fn check_header(&self, name: &str) -> Result<(), SendError> {
        let refused = |why: &str| Err(SendError::permanent(format!("header {name:?} {why}")));
        if name.is_empty() || name.contains('\0') {
            return refused("is no header name");
        }
        let lower = name.to_ascii_lowercase();
        let is_attribute = self.cloud_events.is_some() && lower.starts_with("ce_");
        if is_attribute || lower == "content-type" || lower.starts_with("outbox-") {
            return refused("is set by the sink, and a record cannot replace it");
        }
        Ok(())
    }
}

/// Kafka's own rule for names.
fn check_topic(topic: &str) -> Result<(), &'static str> {
    if topic.is_empty() || topic == "." || topic == ".." {
        return Err("is no topic name");
    }
    if topic.len() > TOPIC_BYTES_MAX {
        return Err("is longer than the 249 characters of a topic name");
    }
    if !topic.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
        return Err("holds a character other than letters, digits, `.`, `_` and `-`");
    }
    Ok(())
}

/// What is handed to the client.
pub(crate) struct Message<'a> {
    pub(crate) topic: Cow<'a, str>,
    key: Option<&'a [u8]>,
    value: Cow<'a, [u8]>,
    headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl Message<'_> {
    /// Without a timestamp: the client puts in the time of sending. With the record's, a topic's
    /// retention would delete at once what is sent after a long outage.
    pub(crate) fn record(&self) -> FutureRecord<'_, [u8], [u8]> {
        let headers = self
            .headers
            .iter()
            .fold(OwnedHeaders::new_with_capacity(self.headers.len()), |headers, (name, value)| {
                headers.insert(Header { key: name, value: Some(value.as_bytes()) })
            });
        let record = FutureRecord::to(&self.topic).payload(&*self.value).headers(headers);
        match self.key {
            Some(key) => record.key(key),
            None => record,
        }
    }

    /// What counts towards a topic's limit, before compression and framing.
    pub(crate) fn bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.key.map_or(0, <[u8]>::len) + self.value.len() + headers
    }
}

#[cfg(test)]
mod tests {
    use outbox_core::{Payload, SendErrorKind, Uuid};

    use super::*;

    fn record() -> Record {
        Record::new(1, Uuid::from_u128(7), "order.placed", Payload::Json(r#"{"n":1.10}"#.into()))
    }

    fn template(topic: &str) -> Template {
        Template::new(Some(topic.into()), None).unwrap()
    }

    fn headers(message: &Message<'_>) -> Vec<(String, String)> {
        message.headers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    #[test]
    fn the_topic_is_the_destination_or_made_of_the_kind() {
        let mut record = record();
        assert_eq!(template("orders").message(&record).unwrap().topic, "orders");
        assert_eq!(template("shop.{kind}.v1").message(&record).unwrap().topic, "shop.order.placed.v1");
        record.destination = Some("elsewhere".into());
        assert_eq!(template("shop.{kind}").message(&record).unwrap().topic, "elsewhere");
    }

    /// K6: what is no topic name is refused before the client sees it.
    #[test]
    fn a_topic_that_is_none_is_permanent() {
        let long = "t".repeat(250);
        for topic in ["", ".", "..", "a b", "a/b", "tööpic", "a\0b", "a\r\n", long.as_str()] {
            let mut record = record();
            record.destination = Some(topic.into());
            let error = template("orders").message(&record).err().expect(topic);
            assert_eq!(error.kind(), SendErrorKind::Permanent, "{topic:?}");
        }
        let mut odd = record();
        odd.kind = "order placed".into();
        assert!(template("shop.{kind}").message(&odd).is_err());
        let nowhere = Template::new(None, None).unwrap();
        assert_eq!(nowhere.message(&record()).err().unwrap().kind(), SendErrorKind::Permanent);
    }

    #[test]
    fn a_template_that_can_make_no_topic_is_refused() {
        for topic in ["", "a b", "{key}", "{kind", "shop/{kind}"] {
            assert_eq!(
                Template::new(Some(topic.into()), None).unwrap_err().kind(),
                ConnectErrorKind::Topic,
                "{topic:?}"
            );
        }
        assert_eq!(template("orders").fixed_topic(), Some("orders"));
        assert_eq!(template("shop.{kind}").fixed_topic(), None);
    }

    /// K3: the id stands in the header `outbox-id`, which a record cannot set.
    #[test]
    fn id_kind_and_content_type_travel_as_headers() {
        let mut record = record();
        record.headers.insert("traceparent".into(), "00-1".into());
        let template = template("orders");
        let message = template.message(&record).unwrap();
        assert_eq!(
            headers(&message),
            [
                ("outbox-id", "00000000-0000-0000-0000-000000000007"),
                ("outbox-kind", "order.placed"),
                ("content-type", "application/json"),
                ("traceparent", "00-1"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        assert_eq!(message.value, &br#"{"n":1.10}"#[..]);
        for name in ["outbox-id", "Outbox-Id", "content-type", "outbox-later", "", "a\0b"] {
            let mut forged = record.clone();
            forged.headers.insert(name.into(), "x".into());
            assert_eq!(template.message(&forged).err().unwrap().kind(), SendErrorKind::Permanent, "{name:?}");
        }
    }

    #[test]
    fn cloud_events_are_headers_or_an_envelope() {
        let record = record();
        let binary = Template::new(Some("t".into()), Some(CloudEvents::binary("/orders"))).unwrap();
        let message = binary.message(&record).unwrap();
        let found = headers(&message);
        for (name, value) in [
            ("ce_specversion", "1.0"),
            ("ce_id", "00000000-0000-0000-0000-000000000007"),
            ("ce_source", "/orders"),
            ("ce_type", "order.placed"),
            ("content-type", "application/json"),
        ] {
            assert!(found.contains(&(name.to_owned(), value.to_owned())), "{name}");
        }
        assert_eq!(message.value, &br#"{"n":1.10}"#[..]);
        let mut forged = record.clone();
        forged.headers.insert("CE_id".into(), "x".into());
        assert!(binary.message(&forged).is_err());

        let structured = Template::new(Some("t".into()), Some(CloudEvents::structured("/orders"))).unwrap();
        let message = structured.message(&record).unwrap();
        assert!(message.value.starts_with(br#"{"specversion":"1.0""#));
        assert!(headers(&message).contains(&(
            "content-type".to_owned(),
            "application/cloudevents+json; charset=UTF-8".to_owned()
        )));
        assert_eq!(
            Template::new(None, Some(CloudEvents::binary(""))).unwrap_err().kind(),
            ConnectErrorKind::CloudEvents
        );
    }

    #[test]
    fn no_key_and_an_empty_key_differ() {
        let mut record = record();
        let template = template("orders");
        assert_eq!(template.message(&record).unwrap().key, None);
        record.key = Some(String::new());
        assert_eq!(template.message(&record).unwrap().key, Some(&b""[..]));
    }
}
