//! What an answer means: the table of statuses, `Retry-After`, and a body read no further than needed.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use outbox_core::{ErrorScope, Receipt, SendError, SendErrorKind};
use reqwest::{
    Response, StatusCode,
    header::{DATE, HeaderMap, HeaderName, RETRY_AFTER},
};
use tokio::time::Instant;

/// The most bytes of a body that are read so that the connection can serve again. A longer body
/// costs the connection instead.
const DRAIN_BYTES_MAX: usize = 64 * 1024;
/// The longest time for it. A slower body costs the connection instead.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);
/// The most bytes of a body in an error, whatever the configuration says.
pub(crate) const ERROR_BODY_BYTES_MAX: usize = 1_024;
/// The most bytes of a response header in a receipt.
const RECEIPT_HEADER_BYTES_MAX: usize = 256;

/// How answers are read.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) permanent_statuses: BTreeSet<u16>,
    pub(crate) error_body_bytes_max: usize,
    pub(crate) receipt_header: Option<HeaderName>,
}

/// The table. None: accepted.
fn meaning(status: StatusCode, permanent: &BTreeSet<u16>) -> Option<(SendErrorKind, ErrorScope)> {
    use ErrorScope::{Destination, Record, Sink};
    use SendErrorKind::{Permanent, Throttled, Transient, Unavailable};
    Some(match status.as_u16() {
        200..=299 => return None,
        status if permanent.contains(&status) => (Permanent, Record),
        // Not followed. Where the URL leads is the receiver's to mend, and until then each
        // record is tried: counted, so that an endpoint moved for good ends in dead, with this reason.
        300..=399 => (Transient, Destination),
        // Credentials are wrong for every record alike; none of them shall die of it.
        401 | 403 => (Unavailable, Destination),
        407 => (Unavailable, Sink),
        429 => (Throttled, Destination),
        503 => (Unavailable, Destination),
        // A gateway speaks for the server behind it. It may have handed the request on.
        502 | 504 => (Transient, Destination),
        // Among them 408, 425 and 500: this record, this time.
        _ => (Transient, Record),
    })
}

/// What the answer says about the record. `now` serves where the answer has no date of its own; the
/// body is read until `deadline` at the latest.
pub(crate) async fn outcome(
    mut response: Response,
    reading: &Reading,
    now: SystemTime,
    deadline: Instant,
) -> Result<Receipt, SendError> {
    let status = response.status();
    let Some((kind, scope)) = meaning(status, &reading.permanent_statuses) else {
        let receipt = receipt(status, response.headers(), reading.receipt_header.as_ref());
        read(&mut response, 0, deadline).await;
        return Ok(receipt);
    };
    let asked = retry_after(response.headers(), now);
    let body = read(&mut response, reading.error_body_bytes_max, deadline).await;
    let mut message = format!("answered {}", status.as_u16());
    if status.is_redirection() {
        message.push_str(", a redirect, which is not followed");
    }
    if !body.is_empty() {
        message.push_str(": ");
        message.push_str(&printable(&body));
    }
    let error = SendError::new(kind, message).with_scope(scope);
    Err(match asked {
        Some(asked) if kind != SendErrorKind::Permanent => error.with_retry_after(asked),
        _ => error,
    })
}

fn receipt(status: StatusCode, headers: &HeaderMap, header: Option<&HeaderName>) -> Receipt {
    let kept = header.and_then(|name| Some((name, headers.get(name)?)));
    Receipt::new(match kept {
        Some((name, value)) => {
            let value = &value.as_bytes()[..value.len().min(RECEIPT_HEADER_BYTES_MAX)];
            format!("{} {name}={}", status.as_u16(), printable(value))
        }
        None => status.as_u16().to_string(),
    })
}

/// Reads the body's start, and its rest if that is short and quick, so that the connection serves
/// again. The record's outcome is known by then: nothing here changes it.
async fn read(response: &mut Response, kept_bytes_max: usize, deadline: Instant) -> Vec<u8> {
    let mut kept = Vec::new();
    let wanted = kept_bytes_max.min(ERROR_BODY_BYTES_MAX);
    if wanted == 0 && response.content_length().is_some_and(|bytes| bytes > DRAIN_BYTES_MAX as u64) {
        return kept;
    }
    let drain = async {
        let mut bytes = 0;
        while let Ok(Some(chunk)) = response.chunk().await {
            let room = wanted - kept.len();
            kept.extend_from_slice(&chunk[..chunk.len().min(room)]);
            bytes += chunk.len();
            if bytes > DRAIN_BYTES_MAX {
                break;
            }
        }
    };
    // Out of time, what has come is kept.
    let _ = tokio::time::timeout_at(deadline.min(Instant::now() + DRAIN_TIME_MAX), drain).await;
    kept
}

/// Text without control characters, which a terminal or a log would obey.
fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace(char::is_control, "\u{fffd}")
}

/// How long the answer asks to wait: seconds, or a date. A date counts from the answer's own, so that
/// clocks that disagree do no harm. What is neither asks for nothing.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number holds still mean very long; the relay caps it.
        return Some(Duration::from_secs(text.parse::<u32>().unwrap_or(u32::MAX).into()));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    let sent = headers.get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    date.duration_since(sent.unwrap_or(now)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R1: every status has its kind and scope.
    #[test]
    fn each_status_has_its_meaning() {
        use ErrorScope::{Destination, Record, Sink};
        use SendErrorKind::{Permanent, Throttled, Transient, Unavailable};
        let permanent = crate::HttpConfig::default().permanent_statuses;
        for (status, expected) in [
            (200, None),
            (201, None),
            (202, None),
            (204, None),
            (299, None),
            (301, Some((Transient, Destination))),
            (302, Some((Transient, Destination))),
            (304, Some((Transient, Destination))),
            (308, Some((Transient, Destination))),
            (400, Some((Permanent, Record))),
            (401, Some((Unavailable, Destination))),
            (403, Some((Unavailable, Destination))),
            (404, Some((Permanent, Record))),
            (405, Some((Transient, Record))),
            (407, Some((Unavailable, Sink))),
            (408, Some((Transient, Record))),
            (409, Some((Transient, Record))),
            (410, Some((Permanent, Record))),
            (413, Some((Permanent, Record))),
            (418, Some((Transient, Record))),
            (422, Some((Permanent, Record))),
            (425, Some((Transient, Record))),
            (429, Some((Throttled, Destination))),
            (500, Some((Transient, Record))),
            (501, Some((Transient, Record))),
            (502, Some((Transient, Destination))),
            (503, Some((Unavailable, Destination))),
            (504, Some((Transient, Destination))),
            (599, Some((Transient, Record))),
            (999, Some((Transient, Record))),
        ] {
            assert_eq!(meaning(StatusCode::from_u16(status).unwrap(), &permanent), expected, "{status}");
        }
    }

    #[test]
    fn the_configured_statuses_are_permanent_and_no_others() {
        let permanent = BTreeSet::from([308, 409]);
        let kind = |status| meaning(StatusCode::from_u16(status).unwrap(), &permanent).unwrap().0;
        assert_eq!(kind(308), SendErrorKind::Permanent);
        assert_eq!(kind(409), SendErrorKind::Permanent);
        assert_eq!(kind(404), SendErrorKind::Transient);
    }

    fn asked(value: &str, date: Option<&str>) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, value.parse().unwrap());
        if let Some(date) = date {
            headers.insert(DATE, date.parse().unwrap());
        }
        let now = httpdate::parse_http_date("Tue, 01 Dec 2026 12:00:00 GMT").unwrap();
        retry_after(&headers, now).map(|asked| asked.as_secs())
    }

    /// R3: both forms are read, and nonsense asks for nothing.
    #[test]
    fn retry_after_is_seconds_or_a_date() {
        for (value, seconds) in [
            ("120", Some(120)),
            (" 5 ", Some(5)),
            ("0", Some(0)),
            ("315360000", Some(315_360_000)),
            ("99999999999999999999999999", Some(u32::MAX.into())),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
            ("Tue, 01 Dec 2026 12:02:00 GMT", Some(120)),
            ("Tuesday, 01-Dec-26 12:02:00 GMT", Some(120)),
            ("Tue, 01 Dec 2026 11:00:00 GMT", None),
            ("Tue, 32 Dec 2026 11:00:00 GMT", None),
        ] {
            assert_eq!(asked(value, None), seconds, "{value}");
        }
    }

    #[test]
    fn a_date_counts_from_the_answers_own_clock() {
        let (wait_until, date) = ("Tue, 01 Dec 2026 20:00:30 GMT", "Tue, 01 Dec 2026 20:00:00 GMT");
        assert_eq!(asked(wait_until, Some(date)), Some(30));
        assert_eq!(asked(wait_until, Some("yesterday")), Some(8 * 3600 + 30));
    }

    #[test]
    fn what_is_kept_of_an_answer_is_printable() {
        assert_eq!(printable(b"a\x1b[2J\r\n\xff\0b"), "a\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}\u{fffd}b");
    }
}
