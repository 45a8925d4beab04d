//! What a record looks like as a message of SQS, and what SQS would refuse.

use std::collections::BTreeSet;

use aws_sdk_sqs::types::{MessageAttributeValue, SendMessageBatchRequestEntry};
use base64::{Engine, engine::general_purpose::STANDARD};
use outbox_core::{Payload, Record, SendError};

use crate::{
    config::{BytesAs, HeadersAs, SqsConfig},
    queue::Queue,
};

/// The most attributes of a message.
const ATTRIBUTES_MAX: usize = 10;
const STRING: &str = "String";

/// How records become messages.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    bytes_as: BytesAs,
    headers_as: HeadersAs,
    bytes_max: usize,
    delay_seconds: Option<i32>,
}

/// A message, and how much of a request's bytes it takes.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    body: String,
    attributes: Vec<(String, String)>,
    /// Group and deduplication id, on a FIFO queue.
    fifo: Option<(String, String)>,
    delay_seconds: Option<i32>,
    pub(crate) bytes: usize,
}

impl Template {
    pub(crate) fn new(config: &SqsConfig, delay_seconds: Option<i32>) -> Self {
        Self {
            bytes_as: config.bytes_as,
            headers_as: config.headers_as,
            bytes_max: config.message_bytes_max,
            delay_seconds,
        }
    }

    /// The message, or why no queue will ever take it.
    pub(crate) fn message(&self, record: &Record, queue: &Queue) -> Result<Message, SendError> {
        let refused = |why: &str| SendError::permanent(why);
        let (body, is_base64) = match (&record.payload, self.bytes_as) {
            (Payload::Json(text), _) => (text.clone(), false),
            (payload, BytesAs::Base64) => (STANDARD.encode(payload.as_bytes()), true),
            (payload, BytesAs::Text) => match std::str::from_utf8(payload.as_bytes()) {
                Ok(text) => (text.to_owned(), false),
                Err(_) => return Err(refused("the payload is no UTF-8 text, as which it is to be sent")),
            },
        };
        if body.is_empty() {
            return Err(refused("the payload is empty, which SQS refuses"));
        }
        if !is_taken(&body) {
            return Err(refused("the payload holds a character that SQS refuses"));
        }

        let mut attributes = Vec::with_capacity(ATTRIBUTES_MAX);
        if !queue.is_fifo {
            attributes.push(("outbox-id".to_owned(), record.id.to_string()));
        }
        attributes.push(("outbox-kind".to_owned(), record.kind.clone()));
        attributes.push(("content-type".to_owned(), record.content_type.clone()));
        if is_base64 {
            attributes.push(("outbox-encoding".to_owned(), "base64".to_owned()));
        }
        match self.headers_as {
            HeadersAs::Json if record.headers.is_empty() => {}
            HeadersAs::Json => {
                let text = serde_json::to_string(&record.headers)
                    .map_err(|_| refused("the headers cannot be written as JSON"))?;
                attributes.push(("outbox-headers".to_owned(), text));
            }
            HeadersAs::Attributes => {
                for (name, value) in &record.headers {
                    check_name(name).map_err(|why| SendError::permanent(format!("header {name:?} {why}")))?;
                    attributes.push((name.clone(), value.clone()));
                }
            }
        }
        if attributes.len() > ATTRIBUTES_MAX {
            return Err(SendError::permanent(format!(
                "{} attributes, and SQS takes {ATTRIBUTES_MAX}: send the headers as JSON",
                attributes.len()
            )));
        }
        let mut names = BTreeSet::new();
        for (name, value) in &attributes {
            if !names.insert(name.as_str()) {
                return Err(SendError::permanent(format!("attribute {name:?} is there twice")));
            }
            if value.is_empty() {
                return Err(SendError::permanent(format!("attribute {name:?} is empty, which SQS refuses")));
            }
            if !is_taken(value) {
                return Err(SendError::permanent(format!(
                    "attribute {name:?} holds a character that SQS refuses"
                )));
            }
        }

        let of_attributes: usize =
            attributes.iter().map(|(name, value)| name.len() + STRING.len() + value.len()).sum();
        let bytes = body.len() + of_attributes;
        if bytes > self.bytes_max {
            return Err(SendError::permanent(format!(
                "{bytes} bytes with attributes, and a message has at most {}",
                self.bytes_max
            )));
        }
        Ok(Message {
            body,
            attributes,
            fifo: queue.is_fifo.then(|| (group(record), record.id.to_string())),
            delay_seconds: self.delay_seconds.filter(|_| !queue.is_fifo),
            bytes,
        })
    }
}

impl Message {
    /// The entry of a request, under this id there.
    pub(crate) fn entry(
        &self,
        id: usize,
    ) -> Result<SendMessageBatchRequestEntry, aws_sdk_sqs::error::BuildError> {
        let mut entry = SendMessageBatchRequestEntry::builder()
            .id(id.to_string())
            .message_body(&self.body)
            .set_delay_seconds(self.delay_seconds);
        for (name, value) in &self.attributes {
            let value = MessageAttributeValue::builder().data_type(STRING).string_value(value).build()?;
            entry = entry.message_attributes(name, value);
        }
        if let Some((group, deduplication)) = &self.fifo {
            entry = entry.message_group_id(group).message_deduplication_id(deduplication);
        }
        entry.build()
    }
}

/// The key where SQS takes it, its SHA-256 in hexadecimal where it does not, the id where there is none.
fn group(record: &Record) -> String {
    match &record.key {
        None => record.id.to_string(),
        Some(key) if (1..=128).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic()) => {
            key.clone()
        }
        Some(key) => {
            let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key.as_bytes());
            digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
        }
    }
}

/// Whether SQS takes every character: those of XML 1.0.
fn is_taken(text: &str) -> bool {
    text.chars().all(|character| {
        matches!(character, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
    })
}

/// What SQS says of the names of attributes, and this sink of its own.
fn check_name(name: &str) -> Result<(), &'static str> {
    let lower = name.to_ascii_lowercase();
    if lower == "content-type" || lower.starts_with("outbox-") {
        return Err("is set by the sink, and a record cannot replace it");
    }
    if lower.starts_with("aws.") || lower.starts_with("amazon.") {
        return Err("begins with what AWS keeps to itself");
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if name.is_empty() || name.len() > 256 || !name.bytes().all(allowed) {
        return Err("is no attribute's name: 1 to 256 letters, digits, `_`, `-` and `.`");
    }
    if name.starts_with('.') || name.ends_with('.') || name.contains("..") {
        return Err("has a period at an end, or two in a row");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use outbox_core::{SendErrorKind, Uuid};

    use super::*;

    fn record() -> Record {
        Record::new(1, Uuid::from_u128(7), "order.placed", Payload::Json(r#"{"n":1.10}"#.into()))
    }

    fn message(config: &SqsConfig, record: &Record, queue: &str) -> Result<Message, SendError> {
        Template::new(config, None).message(record, &Queue::parse(queue).unwrap())
    }

    fn refusal(config: &SqsConfig, record: &Record) -> String {
        let error = message(config, record, "orders").expect_err("SQS would refuse it");
        assert_eq!(error.kind(), SendErrorKind::Permanent);
        error.to_string()
    }

    /// K3: on a FIFO queue the id is what SQS drops duplicates by, elsewhere an attribute.
    #[test]
    fn the_id_travels_where_the_queue_has_a_place_for_it() {
        let id = Uuid::from_u128(7).to_string();
        let fifo = message(&SqsConfig::default(), &record(), "orders.fifo").unwrap();
        assert_eq!(fifo.fifo, Some((id.clone(), id.clone())));
        assert!(!fifo.attributes.iter().any(|(name, _)| name == "outbox-id"));
        let standard = message(&SqsConfig::default(), &record(), "orders").unwrap();
        assert_eq!(standard.attributes[0], ("outbox-id".into(), id));
        assert_eq!(standard.fifo, None);
    }

    #[test]
    fn the_group_is_the_key_or_its_hash_and_without_a_key_the_id() {
        let of = |key: Option<&str>| {
            let mut record = record();
            record.key = key.map(str::to_owned);
            group(&record)
        };
        assert_eq!(of(None), Uuid::from_u128(7).to_string());
        assert_eq!(of(Some("order-17~!")), "order-17~!");
        assert_eq!(of(Some(&"k".repeat(128))), "k".repeat(128));
        assert_eq!(of(Some("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        for key in [&*"k".repeat(129), "two words", "schlüssel", "line\n"] {
            let hashed = of(Some(key));
            assert!(hashed.len() == 64 && hashed.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key:?}");
        }
        assert_ne!(of(Some("a b")), of(Some("a  b")));
    }

    #[test]
    fn the_characters_of_xml_are_taken_and_no_others() {
        for character in ['\t', '\n', '\r', ' ', '\u{7f}', '\u{d7ff}', '\u{e000}', '\u{fffd}', '\u{1f4e6}'] {
            assert!(is_taken(&character.to_string()), "{character:?}");
        }
        for character in ['\0', '\u{1}', '\u{8}', '\u{b}', '\u{c}', '\u{1f}', '\u{fffe}', '\u{ffff}'] {
            assert!(!is_taken(&format!("a{character}b")), "{character:?}");
            let mut in_payload = record();
            in_payload.payload = Payload::Json(format!("\"{character}\""));
            assert_eq!(
                refusal(&SqsConfig::default(), &in_payload),
                "the payload holds a character that SQS refuses"
            );
            let mut in_header = record();
            in_header.headers.insert("h".into(), character.to_string());
            assert!(refusal(&SqsConfig::default(), &in_header).contains("attribute \"h\""));
        }
    }

    #[test]
    fn an_empty_payload_and_an_empty_header_are_refused() {
        let mut empty = record();
        empty.payload = Payload::Bytes(Vec::new());
        assert_eq!(refusal(&SqsConfig::default(), &empty), "the payload is empty, which SQS refuses");
        let mut empty = record();
        empty.headers.insert("h".into(), String::new());
        refusal(&SqsConfig::default(), &empty);
    }

    #[test]
    fn bytes_go_as_base64_that_says_so_or_as_text() {
        let mut bytes = record();
        bytes.payload = Payload::Bytes(vec![0, 255]);
        let sent = message(&SqsConfig::default(), &bytes, "orders").unwrap();
        assert_eq!(sent.body, "AP8=");
        assert!(sent.attributes.contains(&("outbox-encoding".into(), "base64".into())));

        let text = SqsConfig::default().with_bytes_as(BytesAs::Text);
        refusal(&text, &bytes);
        bytes.payload = Payload::Bytes("grün".into());
        let sent = message(&text, &bytes, "orders").unwrap();
        assert_eq!(sent.body, "grün");
        assert!(!sent.attributes.iter().any(|(name, _)| name == "outbox-encoding"));
    }

    #[test]
    fn a_header_that_is_no_attribute_is_refused() {
        let long = "h".repeat(257);
        for name in [
            "",
            ".h",
            "h.",
            "a..b",
            "a b",
            "ö",
            "a:b",
            "AWS.h",
            "amazon.h",
            "Content-Type",
            "outbox-id",
            &long,
        ] {
            let mut odd = record();
            odd.headers.insert(name.into(), "secret value".into());
            let why = refusal(&SqsConfig::default(), &odd);
            assert!(!why.contains("secret value"), "{why}");
        }
    }

    #[test]
    fn headers_that_are_too_many_for_attributes_fit_as_json() {
        let mut many = record();
        for n in 0..7 {
            many.headers.insert(format!("h{n}"), "v".into());
        }
        assert_eq!(message(&SqsConfig::default(), &many, "orders").unwrap().attributes.len(), 10);
        many.headers.insert("a name of any kind".into(), String::new());
        refusal(&SqsConfig::default(), &many);
        let json = SqsConfig::default().with_headers_as(HeadersAs::Json);
        let sent = message(&json, &many, "orders").unwrap();
        let (name, value) = sent.attributes.last().unwrap();
        assert_eq!(name, "outbox-headers");
        assert_eq!(serde_json::from_str::<outbox_core::Headers>(value).unwrap(), many.headers);
    }

    #[test]
    fn the_limit_counts_body_and_attributes_to_the_byte() {
        let config = SqsConfig::default();
        let mut large = record();
        let overhead = message(&config, &large, "orders").unwrap().bytes - large.payload.len();
        large.payload = Payload::Json("1".repeat(config.message_bytes_max - overhead));
        assert_eq!(message(&config, &large, "orders").unwrap().bytes, 1_048_576);
        large.payload = Payload::Json("1".repeat(config.message_bytes_max - overhead + 1));
        assert!(refusal(&config, &large).contains("1048577 bytes"));
    }
}
