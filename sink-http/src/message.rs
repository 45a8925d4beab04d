//! One record as one HTTP request: its headers, its identity, its signature, its body.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use outbox_core::{CloudEvents, CloudEventsMode, Record, SendError};
use reqwest::{
    Body, Method, Request, Url,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT},
};

use crate::{HttpConfig, HttpError, HttpErrorKind, Secret, error::Stage, signature};

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The most headers of one record. Receivers take about a hundred.
const HEADERS_MAX: usize = 1_000;

/// Headers that belong to the connection, to the sink or to the record's own fields. Neither a record
/// nor the configuration sets them. Besides these: whatever starts with `webhook-` or `proxy-`.
const OWNED: [&str; 12] = [
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "idempotency-key",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers that the configuration may set and a record may not: they say who sends.
const CREDENTIALS: [&str; 3] = ["authorization", "cookie", "user-agent"];

fn is_owned(name: &str) -> bool {
    OWNED.contains(&name) || name.starts_with("webhook-") || name.starts_with("proxy-")
}

/// What every request has in common.
#[derive(Debug)]
pub(crate) struct Template {
    headers: HeaderMap,
    cloud_events: Option<CloudEvents>,
}

impl Template {
    pub(crate) fn new(config: &HttpConfig) -> Result<Self, HttpError> {
        let mut headers = HeaderMap::new();
        headers
            .insert(USER_AGENT, HeaderValue::from_static(concat!("outbox-http/", env!("CARGO_PKG_VERSION"))));
        let mut set_before = std::collections::HashSet::new();
        for (name, value) in &config.headers {
            let refused = |why: &str| HttpError::new(HttpErrorKind::Header, format!("header {name:?} {why}"));
            let header: HeaderName = name.parse().map_err(|_| refused("is no header name"))?;
            if is_owned(header.as_str()) {
                return Err(refused("is set by the sink"));
            }
            if !set_before.insert(header.clone()) {
                return Err(refused("is there twice"));
            }
            let mut value =
                HeaderValue::from_str(value).map_err(|_| refused("holds a character that no header may"))?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        if let Some(cloud_events) = &config.cloud_events {
            cloud_events
                .check()
                .map_err(|invalid| HttpError::new(HttpErrorKind::Setting, invalid.to_string()))?;
        }
        Ok(Self { headers, cloud_events: config.cloud_events.clone() })
    }

    /// The headers of every request, for one that carries no record.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The request that carries the record, and the mark that tells how far it came.
    ///
    /// Everything here that can fail fails for good: the record is as it is.
    pub(crate) fn request(
        &self,
        url: Url,
        record: &Record,
        secrets: &[Secret],
        now: SystemTime,
    ) -> Result<(Request, Progress), SendError> {
        let mut headers = self.headers.clone();
        self.copy_headers(record, &mut headers)?;
        let (content_type, body) = self.content(record, &mut headers)?;
        headers.insert(CONTENT_TYPE, value("content type", &content_type)?);

        let id = record.id.to_string();
        let timestamp = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        headers.insert(WEBHOOK_ID, value("id", &id)?);
        headers.insert(IDEMPOTENCY_KEY, value("id", &id)?);
        headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(timestamp));
        if !secrets.is_empty() {
            let signature = signature::header(secrets, &id, timestamp, &body);
            headers.insert(WEBHOOK_SIGNATURE, value("signature", &signature)?);
        }

        if body.is_empty() {
            // The client leaves it out for a body that is none, and some receivers answer 411 to that.
            headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
        }
        let progress = Progress::new(body.is_empty());
        let mut request = Request::new(Method::POST, url);
        *request.headers_mut() = headers;
        *request.body_mut() =
            Some(Body::wrap(WatchedBody { bytes: Some(body), written: Arc::clone(&progress.0) }));
        Ok((request, progress))
    }

    /// K6: a record's headers are text beside the payload. None of them is the protocol's, the sink's
    /// or a credential, and none of them holds the end of a line.
    fn copy_headers(&self, record: &Record, headers: &mut HeaderMap) -> Result<(), SendError> {
        if record.headers.len() > HEADERS_MAX {
            return Err(SendError::permanent(format!(
                "the record has {} headers, more than {HEADERS_MAX}",
                record.headers.len()
            )));
        }
        let mut copied = HeaderMap::with_capacity(record.headers.len());
        for (name, text) in &record.headers {
            let refused = |why: &str| SendError::permanent(format!("header {name:?} {why}"));
            let header: HeaderName = name.parse().map_err(|_| refused("is no HTTP header name"))?;
            let is_attribute = self.cloud_events.is_some() && header.as_str().starts_with("ce-");
            if is_attribute
                || is_owned(header.as_str())
                || CREDENTIALS.contains(&header.as_str())
                || headers.contains_key(&header)
            {
                return Err(refused("is set by the sink, and a record cannot replace it"));
            }
            let text = HeaderValue::from_bytes(text.as_bytes())
                .map_err(|_| refused("holds a character that no HTTP header may"))?;
            if copied.insert(header, text).is_some() {
                return Err(refused("is there twice"));
            }
        }
        headers.extend(copied);
        Ok(())
    }

    /// Content type and body; the attributes of a binary CloudEvent go to the headers.
    fn content(&self, record: &Record, headers: &mut HeaderMap) -> Result<(String, Bytes), SendError> {
        if let Some(cloud_events) = &self.cloud_events {
            if cloud_events.mode == CloudEventsMode::Structured {
                let envelope = cloud_events.envelope(record)?;
                return Ok((CloudEvents::ENVELOPE_CONTENT_TYPE.to_owned(), envelope.into()));
            }
            for (name, text) in cloud_events.attributes(record)? {
                let header = HeaderName::try_from(format!("ce-{name}"))
                    .map_err(|_| SendError::permanent("an attribute's name is no HTTP header name"))?;
                headers.insert(header, value(name, &CloudEvents::header_value(&text))?);
            }
        }
        Ok((record.content_type.clone(), Bytes::copy_from_slice(record.payload.as_bytes())))
    }
}

fn value(field: &str, text: &str) -> Result<HeaderValue, SendError> {
    HeaderValue::from_str(text)
        .map_err(|_| SendError::permanent(format!("the {field} holds a character that no HTTP header may")))
}

/// How far a request came. The HTTP client asks for the body only once it has a connection and has
/// begun to write, so a body that was never asked for was never sent, and neither was its head.
#[derive(Clone, Debug)]
pub(crate) struct Progress(Arc<AtomicBool>);

impl Progress {
    /// An empty body is never asked for, so its request counts as written from the start.
    fn new(body_is_empty: bool) -> Self {
        Self(Arc::new(AtomicBool::new(body_is_empty)))
    }

    pub(crate) fn stage(&self) -> Stage {
        if self.0.load(Ordering::Acquire) { Stage::Written } else { Stage::Unwritten }
    }
}

/// A body that notes when it is asked for.
struct WatchedBody {
    bytes: Option<Bytes>,
    written: Arc<AtomicBool>,
}

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.written.store(true, Ordering::Release);
        Poll::Ready(self.bytes.take().filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.as_ref().is_none_or(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use outbox_core::{Payload, SendErrorKind, Uuid};

    use super::*;

    fn template(config: &HttpConfig) -> Template {
        Template::new(config).unwrap()
    }

    fn record() -> Record {
        Record::new(1, Uuid::from_u128(7), "order.placed", Payload::Json("{}".into()))
    }

    fn request(config: &HttpConfig, record: &Record) -> Result<Request, SendError> {
        let now = UNIX_EPOCH + Duration::from_secs(1_614_265_330);
        let url = Url::parse("https://hooks.example/in").unwrap();
        template(config).request(url, record, &config.secrets, now).map(|(request, _)| request)
    }

    fn header<'a>(request: &'a Request, name: &str) -> &'a str {
        request.headers().get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// K3: the id travels in the fields that receivers drop duplicates by.
    #[test]
    fn the_id_travels_as_webhook_id_and_idempotency_key() {
        let request = request(&HttpConfig::default(), &record()).unwrap();
        assert_eq!(request.method(), Method::POST);
        assert_eq!(header(&request, "webhook-id"), "00000000-0000-0000-0000-000000000007");
        assert_eq!(header(&request, "idempotency-key"), "00000000-0000-0000-0000-000000000007");
        assert_eq!(header(&request, "webhook-timestamp"), "1614265330");
        assert_eq!(header(&request, "webhook-signature"), "");
        assert_eq!(header(&request, "content-type"), "application/json");
    }

    #[test]
    fn a_records_headers_travel_beside_its_payload() {
        let mut record = record();
        record.headers.insert("traceparent".into(), "00-4bf9-00f0-01".into());
        record.headers.insert("X-Shop".into(), "Zürich\tmain".into());
        let request = request(&HttpConfig::default(), &record).unwrap();
        assert_eq!(header(&request, "traceparent"), "00-4bf9-00f0-01");
        assert_eq!(request.headers()["x-shop"].as_bytes(), "Zürich\tmain".as_bytes());
    }

    /// K6: nothing that a record contains can become protocol.
    #[test]
    fn a_record_cannot_set_what_is_not_its_own() {
        let config = HttpConfig::default()
            .with_header("x-shop", "main")
            .with_cloud_events(CloudEvents::binary("/orders"));
        for name in [
            "Host",
            "content-length",
            "Transfer-Encoding",
            "connection",
            "Authorization",
            "cookie",
            "Proxy-Authorization",
            "webhook-id",
            "Webhook-Signature",
            "idempotency-key",
            "content-type",
            "X-Shop",
            "ce-id",
            "a b",
            "a\r\nb",
            "a:b",
            "",
            "ä",
        ] {
            let mut record = record();
            record.headers.insert(name.into(), "s3cret".into());
            let error = request(&config, &record).unwrap_err();
            assert_eq!(error.kind(), SendErrorKind::Permanent, "{name}");
            assert!(!error.to_string().contains("s3cret"));
        }
    }

    /// K6: a value cannot end its line. K7: it is not shown.
    #[test]
    fn a_value_cannot_end_its_line() {
        for value in ["s3cret\r\nx: y", "s3cret\n", "s3cret\0", "s3cret\u{7f}"] {
            let mut with_header = record();
            with_header.headers.insert("x-shop".into(), value.into());
            let mut with_type = record();
            with_type.content_type = value.into();
            for record in [with_header, with_type] {
                let error = request(&HttpConfig::default(), &record).unwrap_err();
                assert_eq!(error.kind(), SendErrorKind::Permanent, "{value:?}");
                assert!(!error.to_string().contains("s3cret"));
            }
        }
    }

    #[test]
    fn the_same_header_in_two_spellings_is_refused() {
        let mut record = record();
        record.headers.insert("X-Shop".into(), "a".into());
        record.headers.insert("x-shop".into(), "b".into());
        assert!(request(&HttpConfig::default(), &record).is_err());
    }

    #[test]
    fn a_flood_of_headers_is_refused() {
        let mut record = record();
        record.headers = (0..40_000).map(|at| (format!("x-{at}"), String::new())).collect();
        assert!(request(&HttpConfig::default(), &record).is_err());
    }

    #[test]
    fn a_binary_event_has_its_attributes_in_the_headers() {
        let mut record = record();
        record.key = Some("Zoë \"1\"".into());
        let config = HttpConfig::default().with_cloud_events(CloudEvents::binary("/orders"));
        let request = request(&config, &record).unwrap();
        assert_eq!(header(&request, "ce-specversion"), "1.0");
        assert_eq!(header(&request, "ce-id"), "00000000-0000-0000-0000-000000000007");
        assert_eq!(header(&request, "ce-type"), "order.placed");
        assert_eq!(header(&request, "ce-source"), "/orders");
        assert_eq!(header(&request, "ce-time"), "1970-01-01T00:00:00Z");
        assert_eq!(header(&request, "ce-subject"), "Zo%C3%AB%20%221%22");
        assert_eq!(header(&request, "content-type"), "application/json");
    }

    #[test]
    fn a_structured_event_has_its_own_content_type() {
        let config = HttpConfig::default().with_cloud_events(CloudEvents::structured("/orders"));
        let request = request(&config, &record()).unwrap();
        assert_eq!(header(&request, "content-type"), "application/cloudevents+json");
        assert_eq!(header(&request, "ce-id"), "");
    }

    #[test]
    fn a_configured_header_that_the_sink_sets_is_refused() {
        for name in ["Host", "webhook-id", "content-type", "a b", "Content-Length"] {
            let config = HttpConfig::default().with_header(name, "s3cret");
            let error = Template::new(&config).unwrap_err();
            assert_eq!(error.kind(), HttpErrorKind::Header, "{name}");
            assert!(!error.to_string().contains("s3cret"));
        }
        assert!(Template::new(&HttpConfig::default().with_header("a", "s3cret\n")).is_err());
    }
}
