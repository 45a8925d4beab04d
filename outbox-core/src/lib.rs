#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod backoff;
mod clock;
mod cloudevents;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod finite;
mod lease;
pub mod memory;
mod operate;
mod pattern;
mod record;
#[cfg(feature = "relay")]
pub mod relay;
mod sink;
mod state;
mod store;
mod validate;

pub use backoff::Backoff;
#[cfg(any(feature = "relay", feature = "conformance"))]
pub use clock::TokioClock;
pub use clock::{Clock, ManualClock, SystemClock};
pub use cloudevents::{CloudEvents, CloudEventsMode, InvalidSource};
pub use error::{InvalidRecord, StoreError, StoreErrorKind};
pub use lease::{Lease, Owner};
pub use memory::{MemorySink, MemoryStore, MemoryTransaction, Scripted};
pub use operate::{Filter, Operate, Pause, PauseScope, RecordView};
pub use pattern::{InvalidPattern, Pattern, Router};
pub use record::{Dedup, Headers, NewRecord, Payload, Record, State};
pub use sink::{
    ErrorScope, Outcome, Outcomes, Receipt, SendContext, SendError, SendErrorKind, Sink, SinkLimits,
};
pub use state::{OnDead, Policy, Settlement, Timing, before_send, settle};
pub use store::{
    ClaimBatch, ClaimRequest, Count, Enqueue, Enqueued, HeldBecause, HeldKey, Mark, MarkReport, Marked,
    Presence, Retention, RouteDemand, Stats, Store, Swept, Undecodable, Wake,
};
pub use validate::{
    CONTENT_TYPE_BYTES_MAX, DESTINATION_BYTES_MAX, HEADER_BYTES_MAX, KEY_BYTES_MAX, KIND_BYTES_MAX,
    PAYLOAD_BYTES_MAX_DEFAULT,
};

/// The attribute that [`Sink`] and [`Store`] implementations carry.
pub use async_trait::async_trait;
/// The type of a record's [`id`](Record::id).
pub use uuid::Uuid;
