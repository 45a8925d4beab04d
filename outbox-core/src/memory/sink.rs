//! The reference sink: keeps what it is given, and fails as told.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use uuid::Uuid;

use crate::{Clock, Receipt, Record, SendContext, SendError, Sink, SinkLimits};

/// A sink in memory. Clones are the same sink.
///
/// ```
/// use outbox_core::{MemorySink, Scripted, SendError};
///
/// let sink = MemorySink::new();
/// sink.next([Scripted::Fail(|| SendError::transient("try again"))]);
/// ```
#[derive(Clone)]
pub struct MemorySink {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Option<Arc<dyn Clock>>,
    limits: SinkLimits,
    payload_bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    received: Vec<Record>,
    calls: u64,
    in_flight: usize,
    in_flight_most: usize,
    next: VecDeque<Scripted>,
    by_id: HashMap<Uuid, VecDeque<Scripted>>,
    default: Scripted,
    down: Option<fn() -> SendError>,
    latency: Duration,
}

/// What one send does.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum Scripted {
    /// Accepts the record.
    #[default]
    Accept,
    /// Refuses it with this error.
    Fail(fn() -> SendError),
    /// Accepts it, and fails all the same: the acknowledgement was lost.
    LoseAnswer(fn() -> SendError),
    /// Never answers.
    Hang,
    /// Panics with this text.
    Panic(&'static str),
}

impl fmt::Debug for MemorySink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySink").field("received", &self.state().received.len()).finish_non_exhaustive()
    }
}

impl Default for MemorySink {
    fn default() -> Self {
        Self::new()
    }
}

impl MemorySink {
    /// A sink that accepts everything at once, up to 100 records in one call.
    pub fn new() -> Self {
        let limits = SinkLimits::default().with_batch_records(NonZeroUsize::MIN.saturating_add(99));
        Self::build(None, limits, usize::MAX)
    }

    /// A sink whose latency runs by this clock. Without one, there is none.
    pub fn with_clock(clock: impl Clock) -> Self {
        let base = Self::new();
        Self::build(Some(Arc::new(clock)), base.shared.limits, base.shared.payload_bytes_max)
    }

    /// A new sink with other limits.
    #[must_use]
    pub fn with_limits(self, limits: SinkLimits) -> Self {
        Self::build(self.shared.clock.clone(), limits, self.shared.payload_bytes_max)
    }

    /// A new sink that refuses larger payloads for ever. Without it, there is no limit.
    #[must_use]
    pub fn with_payload_bytes_max(self, payload_bytes_max: usize) -> Self {
        Self::build(self.shared.clock.clone(), self.shared.limits, payload_bytes_max)
    }

    fn build(clock: Option<Arc<dyn Clock>>, limits: SinkLimits, payload_bytes_max: usize) -> Self {
        let state = Mutex::default();
        Self { shared: Arc::new(Shared { clock, limits, payload_bytes_max, state }) }
    }

    /// What every send does for which nothing else is scripted. At first it accepts.
    pub fn set_default(&self, does: Scripted) {
        self.state().default = does;
    }

    /// Forgets everything scripted: every send and check is accepted again.
    pub fn heal(&self) {
        let mut state = self.state();
        state.default = Scripted::Accept;
        state.down = None;
        state.next.clear();
        state.by_id.clear();
    }

    /// What the next sends do, one each.
    pub fn next(&self, script: impl IntoIterator<Item = Scripted>) {
        self.state().next.extend(script);
    }

    /// What the next sends of this record do, one each.
    pub fn next_of(&self, id: Uuid, script: impl IntoIterator<Item = Scripted>) {
        self.state().by_id.entry(id).or_default().extend(script);
    }

    /// Fails every send and check until told otherwise by none.
    pub fn set_down(&self, error: Option<fn() -> SendError>) {
        self.state().down = error;
    }

    /// How long each send takes, by the sink's clock.
    pub fn set_latency(&self, latency: Duration) {
        self.state().latency = latency;
    }

    /// What was accepted, in order. A record that was sent twice is there twice.
    pub fn received(&self) -> Vec<Record> {
        self.state().received.clone()
    }

    /// The ids of what was accepted, in order.
    pub fn received_ids(&self) -> Vec<Uuid> {
        self.state().received.iter().map(|record| record.id).collect()
    }

    /// How many sends there have been, accepted or not.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// The most sends that were under way at one time.
    pub fn in_flight_most(&self) -> usize {
        self.state().in_flight_most
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, id: Uuid) -> (Scripted, Duration, InFlight<'_>) {
        let mut state = self.state();
        state.calls += 1;
        state.in_flight += 1;
        state.in_flight_most = state.in_flight_most.max(state.in_flight);
        let own = state.by_id.get_mut(&id).and_then(VecDeque::pop_front);
        let down = state.down.map(Scripted::Fail);
        let does = down.or(own).or_else(|| state.next.pop_front()).unwrap_or(state.default);
        (does, state.latency, InFlight(self))
    }

    fn accept(&self, record: &Record) -> Receipt {
        let mut state = self.state();
        state.received.push(record.clone());
        Receipt::new(format!("received {}", state.received.len()))
    }
}

/// Counts a send down again when it ends or is dropped.
struct InFlight<'s>(&'s MemorySink);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.state().in_flight -= 1;
    }
}

#[async_trait]
impl Sink for MemorySink {
    async fn send(&self, record: &Record, _: &SendContext) -> Result<Receipt, SendError> {
        let payload_bytes_max = self.shared.payload_bytes_max;
        if record.payload.len() > payload_bytes_max {
            return Err(SendError::permanent(format!("payload is larger than {payload_bytes_max} bytes")));
        }
        let (does, latency, _in_flight) = self.start(record.id);
        if let Some(clock) = self.shared.clock.as_ref().filter(|_| !latency.is_zero()) {
            clock.sleep(latency).await;
        }
        match does {
            Scripted::Accept => Ok(self.accept(record)),
            Scripted::Fail(error) => Err(error()),
            Scripted::LoseAnswer(error) => {
                self.accept(record);
                Err(error())
            }
            Scripted::Hang => std::future::pending().await,
            #[expect(clippy::panic, reason = "a sink that panics is what was asked for")]
            Scripted::Panic(text) => panic!("{text}"),
        }
    }

    fn limits(&self) -> SinkLimits {
        self.shared.limits
    }

    async fn check(&self) -> Result<(), SendError> {
        self.state().down.map_or(Ok(()), |error| Err(error()))
    }
}
