//! CloudEvents 1.0: a record's attributes, and the structured JSON envelope. Sinks carry either by
//! their protocol's own binding.

use std::{
    borrow::Cow,
    fmt::Write,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};

use crate::{Payload, Record, SendError, validate};

/// Makes a sink send its records as CloudEvents.
///
/// | attribute | is |
/// |---|---|
/// | `specversion` | `1.0` |
/// | `id` | the record's id |
/// | `source` | [`source`](Self::source) |
/// | `type` | the record's kind |
/// | `time` | when it was enqueued; left out beyond the years 0 to 9999 |
/// | `subject` | the record's key; left out when there is none or it is empty |
///
/// The media type of the data is the record's content type, which each protocol has a place of its
/// own for. The record's headers stay headers: they are no extension attributes.
///
/// # Examples
///
/// ```
/// use outbox_core::{CloudEvents, Payload, Record, Uuid};
///
/// let record = Record::new(1, Uuid::nil(), "order.placed", Payload::Json(r#"{"total": 1.10}"#.into()));
/// let envelope = CloudEvents::structured("https://shop.example/orders").envelope(&record)?;
/// assert_eq!(
///     String::from_utf8_lossy(&envelope),
///     concat!(
///         r#"{"specversion":"1.0","id":"00000000-0000-0000-0000-000000000000","#,
///         r#""source":"https://shop.example/orders","type":"order.placed","time":"1970-01-01T00:00:00Z","#,
///         r#""datacontenttype":"application/json","data":{"total": 1.10}}"#,
///     )
/// );
/// # Ok::<(), outbox_core::SendError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct CloudEvents {
    /// Where the events come from: a URI reference such as `https://shop.example/orders` or
    /// `/orders`. `source` and `id` together name an event in the whole world.
    pub source: String,
    /// How the event is laid into a message. Default: [`CloudEventsMode::Binary`].
    #[serde(default)]
    pub mode: CloudEventsMode,
}

/// How an event is laid into a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CloudEventsMode {
    /// Attributes in the protocol's headers; the body is the payload, byte for byte.
    #[default]
    Binary,
    /// The body is a JSON envelope that holds attributes and payload.
    Structured,
}

/// A [`CloudEvents::source`] that is no URI reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the CloudEvents source must be a URI reference, not empty, of printable ASCII without spaces")]
#[non_exhaustive]
pub struct InvalidSource;

impl CloudEvents {
    /// The media type of [`envelope`](Self::envelope).
    pub const ENVELOPE_CONTENT_TYPE: &str = "application/cloudevents+json";

    /// Attributes in headers, the payload as the body.
    pub fn binary(source: impl Into<String>) -> Self {
        Self { source: source.into(), mode: CloudEventsMode::Binary }
    }

    /// A JSON envelope as the body.
    pub fn structured(source: impl Into<String>) -> Self {
        Self { source: source.into(), mode: CloudEventsMode::Structured }
    }

    /// Checks what can be checked without a record. Sinks call it when they are connected.
    ///
    /// # Errors
    ///
    /// When [`source`](Self::source) is no URI reference.
    pub fn check(&self) -> Result<(), InvalidSource> {
        let allowed = |c: char| c.is_ascii_graphic() && !"\"<>\\^`{|}".contains(c);
        if self.source.is_empty() || !self.source.chars().all(allowed) {
            return Err(InvalidSource);
        }
        Ok(())
    }

    /// The record's attributes, without a protocol's prefix, `specversion` first.
    ///
    /// # Errors
    ///
    /// Permanent, when the kind or the key holds a control character, which no attribute may.
    pub fn attributes<'a>(
        &'a self,
        record: &'a Record,
    ) -> Result<Vec<(&'static str, Cow<'a, str>)>, SendError> {
        let mut attributes = vec![
            ("specversion", Cow::Borrowed("1.0")),
            ("id", Cow::Owned(record.id.to_string())),
            ("source", Cow::Borrowed(self.source.as_str())),
            ("type", text("kind", &record.kind)?),
        ];
        if let Some(time) = timestamp(record.created_at) {
            attributes.push(("time", Cow::Owned(time)));
        }
        if let Some(key) = record.key.as_deref().filter(|key| !key.is_empty()) {
            attributes.push(("subject", text("key", key)?));
        }
        Ok(attributes)
    }

    /// The structured form: attributes and payload as one JSON object. A JSON payload of a JSON
    /// content type stands in it to the letter; any other is `data_base64`.
    ///
    /// # Errors
    ///
    /// Permanent, as [`attributes`](Self::attributes), and when a JSON payload is no JSON: written
    /// by hand it could otherwise close the envelope early and forge attributes.
    pub fn envelope(&self, record: &Record) -> Result<Vec<u8>, SendError> {
        let mut envelope = String::with_capacity(256 + record.payload.len() * 3 / 2);
        envelope.push('{');
        for (name, value) in self.attributes(record)? {
            member(&mut envelope, name, &value);
        }
        member(&mut envelope, "datacontenttype", &record.content_type);
        match &record.payload {
            Payload::Json(json) if is_json(&record.content_type) => {
                validate::is_json(json).map_err(|_| SendError::permanent("the payload is no JSON"))?;
                envelope.push_str("\"data\":");
                envelope.push_str(json);
            }
            payload => {
                envelope.push_str("\"data_base64\":\"");
                BASE64_STANDARD.encode_string(payload.as_bytes(), &mut envelope);
                envelope.push('"');
            }
        }
        envelope.push('}');
        Ok(envelope.into_bytes())
    }

    /// An attribute's value as the HTTP and NATS bindings put it into a header: space, `"`, `%` and
    /// whatever is not printable ASCII percent-encoded. Kafka's binding takes it as it is.
    pub fn header_value(value: &str) -> Cow<'_, str> {
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'%';
        if value.bytes().all(plain) {
            return Cow::Borrowed(value);
        }
        let mut encoded = String::with_capacity(value.len() * 2);
        for byte in value.bytes() {
            if plain(byte) {
                encoded.push(char::from(byte));
            } else {
                push_fmt(&mut encoded, format_args!("%{byte:02X}"));
            }
        }
        Cow::Owned(encoded)
    }
}

/// Writing to a string cannot fail.
fn push_fmt(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(arguments);
}

fn text<'a>(field: &str, value: &'a str) -> Result<Cow<'a, str>, SendError> {
    if value.chars().any(char::is_control) {
        let reason = format!("the {field} holds a control character, which no CloudEvents attribute may");
        return Err(SendError::permanent(reason));
    }
    Ok(Cow::Borrowed(value))
}

/// Writes `"name":"value",`.
fn member(json: &mut String, name: &str, value: &str) {
    push_fmt(json, format_args!("\"{name}\":{},", serde_json::Value::from(value)));
}

/// Whether the media type is JSON: its subtype is `json` or ends in `+json`.
fn is_json(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let subtype = media_type.split_once('/').map_or("", |(_, subtype)| subtype);
    subtype == "json" || subtype.ends_with("+json")
}

/// RFC 3339 in UTC. None beyond the years that it can spell.
fn timestamp(time: SystemTime) -> Option<String> {
    const DAY: i64 = 24 * 3600;
    let (seconds, nanos) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).ok()?, after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let whole = i64::try_from(before.as_secs()).ok()?;
            match before.subsec_nanos() {
                0 => (-whole, 0),
                nanos => (-whole - 1, 1_000_000_000 - nanos),
            }
        }
    };
    let (days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let (year, month, day) = civil(days);
    if !(0..=9999).contains(&year) {
        return None;
    }
    let mut text = format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    );
    let micros = Duration::from_nanos(nanos.into()).as_micros();
    if micros > 0 {
        push_fmt(&mut text, format_args!(".{micros:06}"));
    }
    text.push('Z');
    Some(text)
}

/// Year, month and day of a day counted from 1970-01-01, by the proleptic Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    // Counted from 0000-03-01, so that the leap day ends its year, in eras of 400 years.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn record(payload: Payload) -> Record {
        Record::new(1, Uuid::from_u128(7), "order.placed", payload)
    }

    fn json(text: &str) -> Payload {
        Payload::Json(text.to_owned())
    }

    fn at(seconds: i64, nanos: u32) -> SystemTime {
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let base = if seconds < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
        base + Duration::from_nanos(nanos.into())
    }

    #[test]
    fn each_attribute_comes_from_its_field() {
        let mut record = record(json("{}"));
        record.key = Some("o-17".into());
        record.created_at = at(1_796_088_896, 5_000_000);
        let events = CloudEvents::binary("/orders");
        let attributes = events.attributes(&record).unwrap();
        let attributes: Vec<_> = attributes.iter().map(|(name, value)| (*name, value.as_ref())).collect();
        assert_eq!(
            attributes,
            [
                ("specversion", "1.0"),
                ("id", "00000000-0000-0000-0000-000000000007"),
                ("source", "/orders"),
                ("type", "order.placed"),
                ("time", "2026-12-01T01:34:56.005000Z"),
                ("subject", "o-17"),
            ]
        );
    }

    #[test]
    fn an_empty_key_is_no_subject() {
        let mut record = record(json("{}"));
        record.key = Some(String::new());
        let events = CloudEvents::binary("/orders");
        assert!(events.attributes(&record).unwrap().iter().all(|(name, _)| *name != "subject"));
    }

    #[test]
    fn a_control_character_in_kind_or_key_is_permanent() {
        let events = CloudEvents::binary("/orders");
        let mut broken = record(json("{}"));
        broken.kind = "order\nplaced".into();
        assert!(events.attributes(&broken).is_err());
        let mut broken = record(json("{}"));
        broken.key = Some("a\u{85}b".into());
        let error = events.attributes(&broken).unwrap_err();
        assert_eq!(error.kind(), crate::SendErrorKind::Permanent);
    }

    #[test]
    fn a_json_payload_stands_in_the_envelope_to_the_letter() {
        let odd = r#"{"n":18446744073709551615, "x":1.10,"e":1e400,"z":"\u0000","b":1,"b":2}"#;
        let envelope = CloudEvents::structured("/orders").envelope(&record(json(odd))).unwrap();
        assert!(String::from_utf8(envelope).unwrap().ends_with(&format!("\"data\":{odd}}}")));
    }

    #[test]
    fn what_is_not_json_is_base64() {
        let mut bytes = record(Payload::Bytes(vec![0, 255, 10]));
        bytes.content_type = "image/png".into();
        let envelope = CloudEvents::structured("/orders").envelope(&bytes).unwrap();
        let envelope: serde_json::Value = serde_json::from_slice(&envelope).unwrap();
        assert_eq!(envelope["data_base64"], "AP8K");
        assert_eq!(envelope["datacontenttype"], "image/png");

        let mut text = record(json("17"));
        text.content_type = "text/plain".into();
        let envelope = CloudEvents::structured("/orders").envelope(&text).unwrap();
        assert!(serde_json::from_slice::<serde_json::Value>(&envelope).unwrap().get("data").is_none());
    }

    /// K6: a payload cannot close the envelope and forge attributes.
    #[test]
    fn a_json_payload_that_is_no_json_is_permanent() {
        let error = CloudEvents::structured("/orders").envelope(&record(json(r#"1,"id":"forged""#)));
        assert_eq!(error.unwrap_err().kind(), crate::SendErrorKind::Permanent);
    }

    /// K6: what an attribute contains is quoted.
    #[test]
    fn an_attribute_cannot_leave_its_quotes() {
        let mut quoted = record(json("{}"));
        quoted.key = Some(r#"a","id":"forged\"#.into());
        let envelope = CloudEvents::structured("/orders").envelope(&quoted).unwrap();
        let envelope: serde_json::Value = serde_json::from_slice(&envelope).unwrap();
        assert_eq!(envelope["subject"], r#"a","id":"forged\"#);
        assert_eq!(envelope["id"], "00000000-0000-0000-0000-000000000007");
    }

    #[test]
    fn json_is_told_by_its_media_type() {
        for yes in ["application/json", "APPLICATION/JSON; charset=utf-8", "application/vnd.a+json"] {
            assert!(is_json(yes), "{yes}");
        }
        for no in ["text/plain", "application/jsonl", "json", "", "application/xml;a=+json"] {
            assert!(!is_json(no), "{no}");
        }
    }

    #[test]
    fn header_values_are_percent_encoded() {
        for (value, encoded) in
            [("a/b-1", "a/b-1"), ("a b", "a%20b"), ("\"50%\"", "%2250%25%22"), ("Euro €", "Euro%20%E2%82%AC")]
        {
            assert_eq!(CloudEvents::header_value(value), encoded);
        }
    }

    #[test]
    fn times_are_rfc_3339() {
        for (seconds, nanos, text) in [
            (0, 0, Some("1970-01-01T00:00:00Z")),
            (951_782_400, 0, Some("2000-02-29T00:00:00Z")),
            (4_107_542_399, 999_999_999, Some("2100-02-28T23:59:59.999999Z")),
            (4_107_542_400, 0, Some("2100-03-01T00:00:00Z")),
            (-1, 500_000_000, Some("1969-12-31T23:59:59.500000Z")),
            (253_402_300_799, 0, Some("9999-12-31T23:59:59Z")),
            (253_402_300_800, 0, None),
            (-62_167_219_200, 0, Some("0000-01-01T00:00:00Z")),
            (-62_167_219_201, 0, None),
        ] {
            assert_eq!(timestamp(at(seconds, nanos)).as_deref(), text, "{seconds}");
        }
    }

    #[test]
    fn a_source_is_a_uri_reference() {
        for good in ["/orders", "https://shop.example/orders?a=b", "urn:shop:orders"] {
            assert_eq!(CloudEvents::binary(good).check(), Ok(()), "{good}");
        }
        for bad in ["", "a b", "a\nb", "ö", "<a>"] {
            assert_eq!(CloudEvents::binary(bad).check(), Err(InvalidSource), "{bad}");
        }
    }
}
