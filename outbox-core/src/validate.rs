//! The limits of a record's fields, checked before any SQL.

use std::time::Duration;

use serde::Serialize;

use crate::{InvalidRecord, NewRecord, finite};

/// The longest kind, in bytes.
pub const KIND_BYTES_MAX: usize = 255;
/// The longest key, and the longest dedup key, in bytes. It fits an index row of every store.
pub const KEY_BYTES_MAX: usize = 1_024;
/// The longest destination, in bytes. It fits an index row of every store.
pub const DESTINATION_BYTES_MAX: usize = 2_048;
/// The longest content type, in bytes.
pub const CONTENT_TYPE_BYTES_MAX: usize = 255;
/// The most bytes of all headers together, names and values.
pub const HEADER_BYTES_MAX: usize = 64 * 1_024;
/// The most payload bytes, unless the store is configured otherwise: 1 MiB.
pub const PAYLOAD_BYTES_MAX_DEFAULT: usize = 1_024 * 1_024;

/// No database's interval or timestamp runs over by this.
const DELAY_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

pub(crate) fn record(record: &NewRecord, payload_bytes_max: usize) -> Result<(), InvalidRecord> {
    filled("kind", &record.kind)?;
    text("kind", &record.kind, KIND_BYTES_MAX)?;
    if let Some(destination) = &record.destination {
        filled("destination", destination)?;
        text("destination", destination, DESTINATION_BYTES_MAX)?;
    }
    if let Some(key) = &record.key {
        text("key", key, KEY_BYTES_MAX)?;
    }
    filled("content type", &record.content_type)?;
    short("content type", record.content_type.len(), CONTENT_TYPE_BYTES_MAX)?;
    characters("content type", &record.content_type, |c| (' '..='~').contains(&c))?;
    headers(record)?;
    short("payload", record.payload.len(), payload_bytes_max)?;
    far("delay", record.delay)?;
    if let Some(dedup) = &record.dedup {
        filled("dedup key", &dedup.key)?;
        text("dedup key", &dedup.key, KEY_BYTES_MAX)?;
        far("dedup time", dedup.keep_for)?;
    }
    Ok(())
}

fn headers(record: &NewRecord) -> Result<(), InvalidRecord> {
    let mut bytes = 0;
    let mut names = std::collections::HashSet::with_capacity(record.headers.len());
    for (name, value) in &record.headers {
        filled("header name", name)?;
        characters("header name", name, is_token)?;
        // A tab may stand in a header's value; no other control character may.
        characters(&format!("header {name:?}"), value, |c| c == '\t' || !c.is_control())?;
        if !names.insert(name.to_ascii_lowercase()) {
            return Err(InvalidRecord::RepeatedHeader { name: name.clone() });
        }
        bytes += name.len() + value.len();
    }
    short("headers", bytes, HEADER_BYTES_MAX)
}

/// The characters of an HTTP field name, which every other protocol's headers allow as well.
fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

fn filled(field: &'static str, value: &str) -> Result<(), InvalidRecord> {
    if value.is_empty() { Err(InvalidRecord::Empty { field }) } else { Ok(()) }
}

fn short(field: &'static str, bytes: usize, bytes_max: usize) -> Result<(), InvalidRecord> {
    if bytes > bytes_max { Err(InvalidRecord::TooLong { field, bytes, bytes_max }) } else { Ok(()) }
}

fn text(field: &'static str, value: &str, bytes_max: usize) -> Result<(), InvalidRecord> {
    short(field, value.len(), bytes_max)?;
    characters(field, value, |c| c != '\0')
}

fn characters(field: &str, value: &str, allowed: impl Fn(char) -> bool) -> Result<(), InvalidRecord> {
    match value.char_indices().find(|(_, c)| !allowed(*c)) {
        Some((at, character)) => Err(InvalidRecord::Character { field: field.to_owned(), character, at }),
        None => Ok(()),
    }
}

fn far(field: &'static str, duration: Duration) -> Result<(), InvalidRecord> {
    if duration > DELAY_MAX { Err(InvalidRecord::TooFar { field }) } else { Ok(()) }
}

pub(crate) fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<String, InvalidRecord> {
    finite::check(value)?;
    serde_json::to_string(value).map_err(|error| InvalidRecord::NotJson { reason: reason(&error) })
}

pub(crate) fn is_json(text: &str) -> Result<(), InvalidRecord> {
    serde_json::from_str::<serde::de::IgnoredAny>(text)
        .map(|_| ())
        .map_err(|error| InvalidRecord::NotJson { reason: reason(&error) })
}

/// What and where, without the text that serde_json may quote from the payload.
fn reason(error: &serde_json::Error) -> String {
    use serde_json::error::Category;
    match error.classify() {
        Category::Data => "a value of it has no JSON form".to_owned(),
        Category::Eof => format!("it ends early, at line {} column {}", error.line(), error.column()),
        Category::Syntax | Category::Io if error.line() == 0 => "a value of it has no JSON form".to_owned(),
        Category::Syntax | Category::Io => {
            format!("syntax error at line {} column {}", error.line(), error.column())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dedup;

    fn good() -> NewRecord {
        NewRecord::bytes("order.placed", "text/plain", "hello")
    }

    fn check(record: NewRecord, expected: &str) {
        match record.validate(PAYLOAD_BYTES_MAX_DEFAULT) {
            Ok(()) => assert_eq!("fine", expected),
            Err(error) => assert_eq!(error.to_string(), expected),
        }
    }

    /// A2: bad input is a typed error that names what and where.
    #[test]
    fn bad_fields_are_refused_by_name_and_place() {
        check(good(), "fine");
        check(NewRecord::bytes("", "text/plain", ""), "kind is empty");
        check(
            NewRecord::bytes("k".repeat(300), "text/plain", ""),
            "kind has 300 bytes, more than the 255 allowed",
        );
        check(
            NewRecord::bytes("a\0b", "text/plain", ""),
            "kind holds '\\0' at byte 1, which is not allowed there",
        );
        check(good().key("\0"), "key holds '\\0' at byte 0, which is not allowed there");
        check(good().key(""), "fine");
        check(good().key("k".repeat(1_025)), "key has 1025 bytes, more than the 1024 allowed");
        check(good().destination(""), "destination is empty");
        check(good().header("a b", ""), "header name holds ' ' at byte 1, which is not allowed there");
        check(good().header("a\r\nb", ""), "header name holds '\\r' at byte 1, which is not allowed there");
        check(
            good().header("x", "secret\nvalue"),
            "header \"x\" holds '\\n' at byte 6, which is not allowed there",
        );
        check(good().header("x", "\0"), "header \"x\" holds '\\0' at byte 0, which is not allowed there");
        check(good().header("x", "grün\tok"), "fine");
        check(good().header("x-a", "1").header("X-A", "2"), "header \"x-a\" is given twice");
        check(
            good().header("x", "v".repeat(HEADER_BYTES_MAX)),
            "headers has 65537 bytes, more than the 65536 allowed",
        );
        check(
            good().content_type("text/plain\r\nx: y"),
            "content type holds '\\r' at byte 10, which is not allowed there",
        );
        check(good().delay(Duration::MAX), "delay is longer than 100 years");
        check(good().dedup(Dedup::new("")), "dedup key is empty");
    }

    #[test]
    fn the_payload_limit_is_the_stores_to_set() {
        let record = NewRecord::bytes("k", "text/plain", vec![0; 11]);
        assert!(record.validate(10).is_err());
        assert!(record.validate(11).is_ok());
    }

    #[test]
    fn raw_json_is_checked_and_kept_to_the_letter() {
        let text = r#"{"n":18446744073709551615,"x":1.10,"e":1e400,"z":"\u0000","b":1,"b":2}"#;
        let record = NewRecord::raw_json("k", text).unwrap();
        assert_eq!(record.payload.as_bytes(), text.as_bytes());
        let error = NewRecord::raw_json("k", r#"{"password": hunter2}"#).unwrap_err();
        assert_eq!(error.to_string(), "payload is not JSON: syntax error at line 1 column 14");
    }
}
