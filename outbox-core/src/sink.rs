//! What carries records to their destination: the `Sink` trait and how a send ends.

use std::{error::Error, fmt, num::NonZeroUsize, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{StreamExt, stream::FuturesUnordered};

use crate::Record;

/// A transport: hands records to a destination and reports what it acknowledged.
///
/// [`send`](Self::send) is the only method to write; a sink that can do better with many records at
/// once overrides [`send_batch`](Self::send_batch).
///
/// # Contract
///
/// - **K1** `Ok` only after the destination has acknowledged the record.
/// - **K2** One outcome per record, in input order. A batch that fails in part says which.
/// - **K3** [`Record::id`] travels in the destination's own field for dropping duplicates.
/// - **K4** What can never be accepted is [`SendError::permanent`], without a retry of the sink's own.
/// - **K5** A send that outlives [`SendContext::timeout`] is dropped by the relay. A sink whose client
///   library cannot withdraw what it was given refuses to send unless connected.
/// - **K6** Nothing that a record contains can become protocol.
/// - **K7** No secret and no payload in errors, logs or `Debug`.
/// - **K8** No record goes to the wire before the previous one of its key is acknowledged. Records of
///   other keys, and records without one, go side by side. [`SendContext::pipelined_keys`] lifts it.
///
/// # Cancellation
///
/// Both send methods may be dropped at any await. What was recorded in [`Outcomes`] by then stands.
///
/// # Examples
///
/// ```
/// use outbox_core::{Receipt, Record, SendContext, SendError, Sink, async_trait};
///
/// struct PagerSink;
///
/// #[async_trait]
/// impl Sink for PagerSink {
///     async fn send(&self, record: &Record, cx: &SendContext) -> Result<Receipt, SendError> {
///         if record.payload.len() > 200 {
///             return Err(SendError::permanent("a page holds at most 200 bytes"));
///         }
///         // … hand it to the pager service within `cx.timeout`, wait for its answer …
///         Ok(Receipt::new("page 17"))
///     }
/// }
/// ```
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// Sends one record and waits for the destination's acknowledgement.
    ///
    /// # Errors
    ///
    /// Says by [`SendError::kind`] whether to try again and by [`SendError::scope`] what is broken.
    async fn send(&self, record: &Record, cx: &SendContext) -> Result<Receipt, SendError>;

    /// Sends several records and writes each one's end into `outcomes` as soon as it is known.
    ///
    /// A record left [`Outcome::Unknown`] is tried again after backoff, as a counted attempt: it may
    /// have been sent. One that never went to the wire is [`Outcomes::not_attempted`].
    ///
    /// The default sends the keys side by side and the records of one key in sequence; a failure
    /// stops its key, whose later records are not attempted.
    async fn send_batch(&self, records: &[Record], cx: &SendContext, outcomes: &mut Outcomes) {
        send_each(self, records, cx, outcomes).await;
    }

    /// What one call may be given, and how many calls may be under way.
    fn limits(&self) -> SinkLimits {
        SinkLimits::default()
    }

    /// Does what a send does, short of sending: called at start, and before the first record goes to
    /// a sink that was down.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    async fn check(&self) -> Result<(), SendError> {
        Ok(())
    }

    /// Ends background work within `grace`; no send follows.
    async fn close(&self, grace: Duration) {
        let _ = grace;
    }

    /// The name in logs and metrics: the type's, unless overridden.
    fn name(&self) -> &str {
        let full = std::any::type_name::<Self>();
        full.rsplit("::").next().unwrap_or(full)
    }
}

#[async_trait]
impl<S: Sink + ?Sized> Sink for Arc<S> {
    async fn send(&self, record: &Record, cx: &SendContext) -> Result<Receipt, SendError> {
        (**self).send(record, cx).await
    }

    async fn send_batch(&self, records: &[Record], cx: &SendContext, outcomes: &mut Outcomes) {
        (**self).send_batch(records, cx, outcomes).await;
    }

    fn limits(&self) -> SinkLimits {
        (**self).limits()
    }

    async fn check(&self) -> Result<(), SendError> {
        (**self).check().await
    }

    async fn close(&self, grace: Duration) {
        (**self).close(grace).await;
    }

    fn name(&self) -> &str {
        (**self).name()
    }
}

/// Keys side by side, records of one key in sequence; a failure stops its key.
async fn send_each<S: Sink + ?Sized>(
    sink: &S,
    records: &[Record],
    cx: &SendContext,
    outcomes: &mut Outcomes,
) {
    // Each lane holds the places of the records that must go one after the other.
    let mut lanes: Vec<Vec<usize>> = Vec::with_capacity(records.len());
    let mut lane_of = std::collections::HashMap::new();
    for (at, record) in records.iter().enumerate() {
        match record.key.as_deref().filter(|_| !cx.pipelined_keys) {
            Some(key) => {
                let lane = *lane_of.entry(key).or_insert_with(|| {
                    lanes.push(Vec::new());
                    lanes.len() - 1
                });
                lanes[lane].push(at);
            }
            None => lanes.push(vec![at]),
        }
    }

    let step = |lane: Vec<usize>, place: usize| async move {
        let result = match lane.get(place).and_then(|at| records.get(*at)) {
            Some(record) => sink.send(record, cx).await,
            None => Ok(Receipt::none()),
        };
        (lane, place, result)
    };
    let mut under_way: FuturesUnordered<_> = lanes.into_iter().map(|lane| step(lane, 0)).collect();
    while let Some((lane, place, result)) = under_way.next().await {
        let failed = result.is_err();
        outcomes.set(lane[place], result);
        if failed {
            for at in &lane[place + 1..] {
                outcomes.not_attempted(*at);
            }
        } else if place + 1 < lane.len() {
            under_way.push(step(lane, place + 1));
        }
    }
}

/// What one call of [`Sink::send_batch`] may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SinkLimits {
    /// The most records in one call. Default: 1.
    pub batch_records: NonZeroUsize,
    /// The most payload bytes in one call; a single larger record still goes alone. Default: no limit.
    pub batch_bytes: usize,
    /// How many calls may be under way, unless the route says otherwise. Default: 64.
    pub batches_in_flight: NonZeroUsize,
}

impl Default for SinkLimits {
    fn default() -> Self {
        Self {
            batch_records: NonZeroUsize::MIN,
            batch_bytes: usize::MAX,
            batches_in_flight: NonZeroUsize::MIN.saturating_add(63),
        }
    }
}

impl SinkLimits {
    /// The most records in one call.
    #[must_use]
    pub fn with_batch_records(mut self, records: NonZeroUsize) -> Self {
        self.batch_records = records;
        self
    }

    /// The most payload bytes in one call.
    #[must_use]
    pub fn with_batch_bytes(mut self, bytes: usize) -> Self {
        self.batch_bytes = bytes;
        self
    }

    /// How many calls may be under way.
    #[must_use]
    pub fn with_batches_in_flight(mut self, batches: NonZeroUsize) -> Self {
        self.batches_in_flight = batches;
        self
    }
}

/// What the relay tells a sink about one send.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SendContext {
    /// How long the send may take, counted from the call. The relay drops it then.
    pub timeout: Duration,
    /// Whether records of one key may be on the wire together. Off unless the route asks: on, a
    /// failure in the middle lets later records of the key overtake it.
    pub pipelined_keys: bool,
}

impl SendContext {
    /// A context for a send that may take `timeout`.
    pub const fn new(timeout: Duration) -> Self {
        Self { timeout, pipelined_keys: false }
    }

    /// Lets records of one key be on the wire together.
    #[must_use]
    pub const fn with_pipelined_keys(mut self) -> Self {
        self.pipelined_keys = true;
        self
    }
}

/// What the destination answered to an accepted record: an offset, a message id, an SMTP reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt(Option<String>);

impl Receipt {
    /// The longest text kept, in bytes; what is longer is cut.
    pub const BYTES_MAX: usize = 1_024;

    /// The destination answered nothing worth keeping.
    pub const fn none() -> Self {
        Self(None)
    }

    /// The destination answered this.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Some(bounded(text.into(), Self::BYTES_MAX)))
    }

    /// The text, if any.
    pub fn as_str(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// The text, if any, without a copy.
    pub fn into_string(self) -> Option<String> {
        self.0
    }
}

/// Cuts at a character's edge, and takes out NUL, which PostgreSQL's text refuses.
pub(crate) fn bounded(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
    }
    if text.contains('\0') {
        text = text.replace('\0', "\u{fffd}");
        text.truncate(text.floor_char_boundary(bytes_max));
    }
    text
}

/// Why a record was not acknowledged.
pub struct SendError {
    kind: SendErrorKind,
    scope: ErrorScope,
    message: String,
    retry_after: Option<Duration>,
    progress: Option<serde_json::Value>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What the relay does about a [`SendError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SendErrorKind {
    /// May succeed later: counted, and tried again after backoff.
    Transient,
    /// Can never succeed: the record is dead. Only of scope [`ErrorScope::Record`]; with a wider
    /// scope it is taken as [`Unavailable`](Self::Unavailable), since a broken destination must not
    /// kill records.
    Permanent,
    /// The destination asks for less: deferred, the attempt is not counted.
    Throttled,
    /// The destination or sink is down, or nothing was written to the wire: deferred, the attempt is
    /// not counted.
    Unavailable,
}

/// What a [`SendError`] says is broken; feeds the circuit breakers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ErrorScope {
    /// This record alone.
    Record,
    /// Everything for this record's destination.
    Destination,
    /// Everything this sink sends.
    Sink,
}

impl SendError {
    /// The longest text kept, in bytes; what is longer is cut.
    pub const BYTES_MAX: usize = 2_048;

    /// An error of any kind. The scope is the record's, or the destination's for
    /// [`SendErrorKind::Throttled`] and [`SendErrorKind::Unavailable`].
    ///
    /// The message is a lower-case fragment without payload, header value or credential.
    pub fn new(kind: SendErrorKind, message: impl Into<String>) -> Self {
        let scope = match kind {
            SendErrorKind::Transient | SendErrorKind::Permanent => ErrorScope::Record,
            SendErrorKind::Throttled | SendErrorKind::Unavailable => ErrorScope::Destination,
        };
        Self {
            kind,
            scope,
            message: bounded(message.into(), Self::BYTES_MAX),
            retry_after: None,
            progress: None,
            source: None,
        }
    }

    /// May succeed later.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(SendErrorKind::Transient, message)
    }

    /// Can never succeed.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(SendErrorKind::Permanent, message)
    }

    /// The destination asks for less.
    pub fn throttled(message: impl Into<String>) -> Self {
        Self::new(SendErrorKind::Throttled, message)
    }

    /// The destination is down, or nothing was written to the wire.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(SendErrorKind::Unavailable, message)
    }

    /// Says what is broken.
    #[must_use]
    pub fn with_scope(mut self, scope: ErrorScope) -> Self {
        self.scope = scope;
        self
    }

    /// Says how long the destination asked to wait.
    #[must_use]
    pub fn with_retry_after(mut self, retry_after: Duration) -> Self {
        self.retry_after = Some(retry_after);
        self
    }

    /// Keeps what the next attempt needs to know.
    #[must_use]
    pub fn with_progress(mut self, progress: serde_json::Value) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Adds what the client library said. Its text reaches logs, so it must hold no secret.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What the relay does about it.
    pub fn kind(&self) -> SendErrorKind {
        self.kind
    }

    /// What is broken.
    pub fn scope(&self) -> ErrorScope {
        self.scope
    }

    /// How long the destination asked to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// What the next attempt needs to know.
    pub fn progress(&self) -> Option<&serde_json::Value> {
        self.progress.as_ref()
    }
}

/// Shows that there is progress and not what: that may name recipients.
impl fmt::Debug for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError")
            .field("kind", &self.kind)
            .field("scope", &self.scope)
            .field("message", &self.message)
            .field("retry_after", &self.retry_after)
            .field("progress", &self.progress.is_some())
            .field("source", &self.source)
            .finish()
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for SendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// How the send of one record ended.
#[derive(Debug, Default)]
#[non_exhaustive]
pub enum Outcome {
    /// The sink has said nothing. It may have been sent: a counted attempt, tried again.
    #[default]
    Unknown,
    /// Acknowledged.
    Sent(Receipt),
    /// Refused, or failed.
    Failed(SendError),
    /// Never written to the wire: not counted, tried again soon.
    NotAttempted,
}

/// Called with a record's place as soon as its outcome is set.
type Observer = Box<dyn FnMut(usize, Outcome, Option<serde_json::Value>) + Send>;

/// The outcomes of one [`Sink::send_batch`], by the records' places. Each starts
/// [`Unknown`](Outcome::Unknown); the first word on a record stands.
pub struct Outcomes {
    slots: Vec<Slot>,
    observer: Option<Observer>,
}

#[derive(Default)]
struct Slot {
    settled: bool,
    outcome: Outcome,
    progress: Option<serde_json::Value>,
}

impl Outcomes {
    /// The outcomes of `records` records, all unknown.
    pub fn new(records: usize) -> Self {
        Self { slots: std::iter::repeat_with(Slot::default).take(records).collect(), observer: None }
    }

    /// Calls `observer` with place, outcome and progress as soon as a record's outcome is set. The
    /// outcome is moved into the call: the slot itself then reads unknown but settled.
    pub fn observed(
        records: usize,
        observer: impl FnMut(usize, Outcome, Option<serde_json::Value>) + Send + 'static,
    ) -> Self {
        Self { observer: Some(Box::new(observer)), ..Self::new(records) }
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The destination acknowledged the record at this place.
    pub fn sent(&mut self, at: usize, receipt: Receipt) {
        self.settle(at, Outcome::Sent(receipt));
    }

    /// The record at this place was refused, or failed.
    pub fn failed(&mut self, at: usize, error: SendError) {
        self.settle(at, Outcome::Failed(error));
    }

    /// The record at this place was never written to the wire.
    pub fn not_attempted(&mut self, at: usize) {
        self.settle(at, Outcome::NotAttempted);
    }

    /// The result of [`Sink::send`] for the record at this place.
    pub fn set(&mut self, at: usize, result: Result<Receipt, SendError>) {
        match result {
            Ok(receipt) => self.sent(at, receipt),
            Err(error) => self.failed(at, error),
        }
    }

    /// Keeps what the next attempt of the record at this place needs to know, in the place of what
    /// was kept before. It is kept even when the send is dropped afterwards.
    pub fn progress(&mut self, at: usize, progress: serde_json::Value) {
        if let Some(slot) = self.slots.get_mut(at).filter(|slot| !slot.settled) {
            slot.progress = Some(progress);
        }
    }

    /// Whether the record at this place has its outcome.
    pub fn is_settled(&self, at: usize) -> bool {
        self.slots.get(at).is_some_and(|slot| slot.settled)
    }

    /// The places of the records without an outcome.
    pub fn unsettled(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().enumerate().filter(|(_, slot)| !slot.settled).map(|(at, _)| at)
    }

    /// The outcome of the record at this place; unknown for a place that there is not.
    pub fn outcome(&self, at: usize) -> &Outcome {
        self.slots.get(at).map_or(&Outcome::Unknown, |slot| &slot.outcome)
    }

    /// Takes the outcome and the progress of the record at this place.
    pub fn take(&mut self, at: usize) -> (Outcome, Option<serde_json::Value>) {
        match self.slots.get_mut(at) {
            Some(slot) => (std::mem::take(&mut slot.outcome), slot.progress.take()),
            None => (Outcome::Unknown, None),
        }
    }

    fn settle(&mut self, at: usize, outcome: Outcome) {
        let Some(slot) = self.slots.get_mut(at).filter(|slot| !slot.settled) else { return };
        slot.settled = true;
        if let Outcome::Failed(error) = &outcome
            && let Some(progress) = &error.progress
        {
            slot.progress = Some(progress.clone());
        }
        match &mut self.observer {
            Some(observer) => observer(at, outcome, slot.progress.take()),
            None => slot.outcome = outcome,
        }
    }
}

impl fmt::Debug for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.slots.iter().map(|slot| &slot.outcome)).finish()
    }
}
