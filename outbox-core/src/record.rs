//! The outbox record: as an application writes it, and as a relay claims it.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{InvalidRecord, Lease, validate};

/// Text headers of a record, by name. They travel with it; `traceparent` carries the trace.
pub type Headers = BTreeMap<String, String>;

/// What a record carries. The bytes enqueued are the bytes sent.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Payload {
    /// JSON text, kept to the letter: number spelling, member order and duplicate members.
    Json(String),
    /// Any bytes.
    Bytes(Vec<u8>),
}

impl Payload {
    /// The bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Json(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// The bytes to send, without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Json(text) => text.into_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// How many bytes there are to send.
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Shows the form and the size, never the content.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = match self {
            Self::Json(_) => "Json",
            Self::Bytes(_) => "Bytes",
        };
        write!(f, "{form}({} bytes)", self.len())
    }
}

/// Drops a second enqueue of the same thing, for as long as the first is kept.
///
/// A dedup key belongs to its kind: the same key under another kind is another thing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dedup {
    /// What the second enqueue would repeat, such as an order number: 1 to 1,024 bytes.
    pub key: String,
    /// How long the first is remembered, counted by the database from its enqueue. Default: 7 days.
    pub keep_for: Duration,
    /// Whether a first that ended dead lets the second in. Default: yes, a dead first does not count.
    pub replaces_dead: bool,
}

impl Dedup {
    /// Remembers `key` for 7 days.
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into(), keep_for: Duration::from_secs(7 * 24 * 3600), replaces_dead: true }
    }

    /// How long the first enqueue is remembered.
    #[must_use]
    pub fn keep_for(mut self, keep_for: Duration) -> Self {
        self.keep_for = keep_for;
        self
    }

    /// Lets a first that ended dead count as well, so that the second adds nothing.
    #[must_use]
    pub fn counting_dead(mut self) -> Self {
        self.replaces_dead = false;
        self
    }
}

/// A record before it is written.
///
/// ```
/// use std::time::Duration;
/// use outbox_core::NewRecord;
///
/// #[derive(serde::Serialize)]
/// struct Order { id: String, total: f64 }
/// let order = Order { id: "o-17".into(), total: 12.5 };
///
/// let record = NewRecord::json("order.placed", &order)?
///     .key(&order.id)
///     .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
///     .delay(Duration::from_secs(60));
/// assert_eq!(record.kind, "order.placed");
///
/// let broken = Order { id: "o-18".into(), total: f64::NAN };
/// let error = NewRecord::json("order.placed", &broken).unwrap_err();
/// assert_eq!(error.to_string(), "payload holds a number that JSON cannot spell, NaN, at `total`");
/// # Ok::<(), outbox_core::InvalidRecord>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewRecord {
    /// What receivers drop duplicates by. A UUIDv7, drawn when the value is made.
    pub id: Uuid,
    /// What the record is, such as `order.placed`; picks the route. 1 to 255 bytes.
    pub kind: String,
    /// Where it goes, when a route has many destinations: a URL, a topic, a queue, a subject.
    pub destination: Option<String>,
    /// The ordering scope: records of one key go out in order. Empty text is a key like any other.
    pub key: Option<String>,
    /// What is sent.
    pub payload: Payload,
    /// The media type of the payload. `application/json` unless said.
    pub content_type: String,
    /// Text that travels beside the payload.
    pub headers: Headers,
    /// How long the record waits from its enqueue, by the database's clock, before it may be sent.
    pub delay: Duration,
    /// Whether the record holds back its key while it waits for its `delay`. Off: later records of
    /// the key overtake one that was scheduled and has never been due.
    pub hold_key: bool,
    /// What makes a second enqueue of the same thing add nothing.
    pub dedup: Option<Dedup>,
}

impl NewRecord {
    /// A record whose payload is `payload` as JSON.
    ///
    /// # Errors
    ///
    /// When the value has no JSON form; a number that is not finite is an error that names its
    /// place, not a silent `null`.
    pub fn json<T>(kind: impl Into<String>, payload: &T) -> Result<Self, InvalidRecord>
    where
        T: Serialize + ?Sized,
    {
        Ok(Self::with_payload(kind, Payload::Json(validate::to_json(payload)?), "application/json"))
    }

    /// A record whose payload is this JSON text, sent to the letter.
    ///
    /// # Errors
    ///
    /// When the text is not JSON.
    pub fn raw_json(kind: impl Into<String>, text: impl Into<String>) -> Result<Self, InvalidRecord> {
        let text = text.into();
        validate::is_json(&text)?;
        Ok(Self::with_payload(kind, Payload::Json(text), "application/json"))
    }

    /// A record whose payload is these bytes, of the given media type.
    pub fn bytes(
        kind: impl Into<String>,
        content_type: impl Into<String>,
        payload: impl Into<Vec<u8>>,
    ) -> Self {
        Self::with_payload(kind, Payload::Bytes(payload.into()), content_type)
    }

    fn with_payload(kind: impl Into<String>, payload: Payload, content_type: impl Into<String>) -> Self {
        Self {
            id: Uuid::now_v7(),
            kind: kind.into(),
            destination: None,
            key: None,
            payload,
            content_type: content_type.into(),
            headers: Headers::new(),
            delay: Duration::ZERO,
            hold_key: false,
            dedup: None,
        }
    }

    /// Sets the identity, for a caller that has one of its own. It must be unique in the outbox.
    #[must_use]
    pub fn id(mut self, id: Uuid) -> Self {
        self.id = id;
        self
    }

    /// Sets where the record goes.
    #[must_use]
    pub fn destination(mut self, destination: impl Into<String>) -> Self {
        self.destination = Some(destination.into());
        self
    }

    /// Sets the ordering scope.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the media type of the payload.
    #[must_use]
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = content_type.into();
        self
    }

    /// Adds a header, in the place of one of the same name.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Sends the record no sooner than this long after its enqueue.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Makes a delayed record hold back later records of its key until it is sent.
    #[must_use]
    pub fn hold_key(mut self) -> Self {
        self.hold_key = true;
        self
    }

    /// Makes a second enqueue with this dedup key add nothing.
    #[must_use]
    pub fn dedup(mut self, dedup: Dedup) -> Self {
        self.dedup = Some(dedup);
        self
    }

    /// Checks every field against its limits. Stores call it before any SQL, so that the caller's
    /// transaction stays usable.
    ///
    /// # Errors
    ///
    /// Names the first field that is out of its limits, and where in it.
    pub fn validate(&self, payload_bytes_max: usize) -> Result<(), InvalidRecord> {
        validate::record(self, payload_bytes_max)
    }
}

/// Shows what names the record and the sizes of the rest, never a payload or a header's value.
impl fmt::Debug for NewRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewRecord")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("key", &self.key)
            .field("payload", &self.payload)
            .field("headers", &self.headers.keys())
            .field("delay", &self.delay)
            .finish_non_exhaustive()
    }
}

/// A claimed record, as a sink receives it.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Record {
    /// Its place in line. Stable, but no public identity: use [`id`](Self::id).
    pub seq: i64,
    /// What receivers drop duplicates by; the same at every attempt.
    pub id: Uuid,
    /// What the record is; picked the route.
    pub kind: String,
    /// Where it goes, when the route has many destinations.
    pub destination: Option<String>,
    /// The ordering scope.
    pub key: Option<String>,
    /// What is sent, byte for byte as enqueued.
    pub payload: Payload,
    /// The media type of the payload.
    pub content_type: String,
    /// Text that travels beside the payload. Written by any language, so not yet checked for what
    /// a protocol allows: a sink does that.
    pub headers: Headers,
    /// Attempts so far, this one included: 1 at the first.
    pub attempts: u32,
    /// Earlier claims that ended with a dead or silent relay.
    pub lapses: u32,
    /// The number of this claim.
    pub fence: i64,
    /// Time spent on counted attempts and the waits between them; what `age_max` bounds.
    pub age: Duration,
    /// What the sink kept from an earlier attempt, such as the recipients that accepted.
    pub progress: Option<serde_json::Value>,
    /// When it was enqueued, by the database's clock.
    pub created_at: SystemTime,
}

impl Record {
    /// A record as it stands at its first claim, with every optional part empty. For stores, and
    /// for the tests of sinks; the fields are public, to be set afterwards.
    pub fn new(seq: i64, id: Uuid, kind: impl Into<String>, payload: Payload) -> Self {
        Self {
            seq,
            id,
            kind: kind.into(),
            destination: None,
            key: None,
            payload,
            content_type: "application/json".into(),
            headers: Headers::new(),
            attempts: 1,
            lapses: 0,
            fence: 1,
            age: Duration::ZERO,
            progress: None,
            created_at: SystemTime::UNIX_EPOCH,
        }
    }

    /// The right to mark or renew this claim.
    pub fn lease(&self) -> Lease {
        Lease::new(self.seq, self.id, self.fence)
    }
}

/// Shows what names the record and the sizes of the rest, never a payload or a header's value.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("seq", &self.seq)
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("key", &self.key)
            .field("payload", &self.payload)
            .field("attempts", &self.attempts)
            .field("lapses", &self.lapses)
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}

/// Where a record stands.
///
/// ```text
///            ┌──────── retry, deferral, release, lapse ────────┐
///            ▼                                                 │
/// enqueue ─▶ pending ── claim ──▶ claimed ── mark ──▶ sent     │
///            ▲                     │    └─── mark ──▶ dead     │
///            │                     └───────────────────────────┘
///            └──────── redrive (dead), resend (sent)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum State {
    /// Waits to be claimed: now, or once it falls due.
    Pending,
    /// Held by a relay that is sending it.
    Claimed,
    /// Acknowledged by its destination.
    Sent,
    /// Given up, with the reason in `last_error`; redrive makes it pending again.
    Dead,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Claimed => "claimed",
            Self::Sent => "sent",
            Self::Dead => "dead",
        })
    }
}
