//! What operators do with an outbox: look, redrive, discard, pause, resend.

use std::{num::NonZeroU32, time::SystemTime};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Headers, Pattern, Payload, State, StoreError};

/// Operators' calls on a store. Each is safe while relays run.
#[async_trait]
pub trait Operate: Send + Sync {
    /// Records that pass the filter, in `seq` order from after `after_seq`, at most `limit` and never
    /// more than 1,000. Payloads are left out.
    async fn list(
        &self,
        filter: &Filter,
        after_seq: i64,
        limit: usize,
    ) -> Result<Vec<RecordView>, StoreError>;

    /// One record with its payload.
    async fn show(&self, id: Uuid) -> Result<Option<(RecordView, Payload)>, StoreError>;

    /// Makes dead records pending and due at once, in their old place in line. Attempts, lapses and
    /// age start anew; progress stays, so that what was accepted before is not sent again. Returns
    /// how many were dead.
    async fn redrive(&self, ids: &[Uuid]) -> Result<u64, StoreError>;

    /// As [`redrive`](Self::redrive) for the first `limit` dead records that pass the filter, due
    /// one after the other at `per_second`, all at once when none.
    async fn redrive_filtered(
        &self,
        filter: &Filter,
        per_second: Option<NonZeroU32>,
        limit: usize,
    ) -> Result<u64, StoreError>;

    /// Gives records up: an unfinished one is dead with `reason`, and whatever its state it no longer
    /// blocks its key, which goes on in the same transaction. Returns how many were changed.
    async fn discard(&self, ids: &[Uuid], reason: &str) -> Result<u64, StoreError>;

    /// Makes sent records pending again under the same id, the first `limit` that pass the filter,
    /// due one after the other at `per_second`, all at once when none. A receiver that still remembers
    /// the id drops them.
    async fn resend(
        &self,
        filter: &Filter,
        per_second: Option<NonZeroU32>,
        limit: usize,
    ) -> Result<u64, StoreError>;

    /// Stops claims of what the scope covers, in every relay and within a second. Nothing is dropped,
    /// no attempt is counted. A second pause of a scope replaces the reason.
    async fn pause(&self, scope: &PauseScope, reason: &str) -> Result<(), StoreError>;

    /// Lets go what [`pause`](Self::pause) stopped. Returns whether it was paused.
    async fn resume(&self, scope: &PauseScope) -> Result<bool, StoreError>;

    /// What is paused.
    async fn pauses(&self) -> Result<Vec<Pause>, StoreError>;
}

/// Which records an operator means: all that pass every test that is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Filter {
    /// In this state.
    pub state: Option<State>,
    /// Of these kinds.
    pub kind: Option<Pattern>,
    /// To this destination.
    pub destination: Option<String>,
    /// Of this key.
    pub key: Option<String>,
    /// Finished, or else enqueued, at this time or later.
    pub since: Option<SystemTime>,
    /// Finished, or else enqueued, before this time.
    pub until: Option<SystemTime>,
}

impl Filter {
    /// All records in this state.
    pub fn state(state: State) -> Self {
        Self { state: Some(state), ..Self::default() }
    }

    /// Of these kinds.
    #[must_use]
    pub fn with_kind(mut self, kind: Pattern) -> Self {
        self.kind = Some(kind);
        self
    }

    /// To this destination.
    #[must_use]
    pub fn with_destination(mut self, destination: impl Into<String>) -> Self {
        self.destination = Some(destination.into());
        self
    }

    /// Of this key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Finished, or else enqueued, at this time or later.
    #[must_use]
    pub fn with_since(mut self, since: SystemTime) -> Self {
        self.since = Some(since);
        self
    }

    /// Finished, or else enqueued, before this time.
    #[must_use]
    pub fn with_until(mut self, until: SystemTime) -> Self {
        self.until = Some(until);
        self
    }
}

/// A record as an operator sees it, without its payload.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RecordView {
    /// Its place in line.
    pub seq: i64,
    /// Its identity.
    pub id: Uuid,
    /// Its kind.
    pub kind: String,
    /// Where it goes.
    pub destination: Option<String>,
    /// Its ordering scope.
    pub key: Option<String>,
    /// The media type of its payload.
    pub content_type: String,
    /// Its headers. They may hold what should not be logged.
    pub headers: Headers,
    /// Where it stands.
    pub state: State,
    /// When it falls due; of a claimed record, when its lease ends.
    pub send_after: SystemTime,
    /// Counted attempts.
    pub attempts: u32,
    /// Claims that ended with a dead or silent relay.
    pub lapses: u32,
    /// Whether it is dead and blocks its key.
    pub blocks_key: bool,
    /// When it was enqueued.
    pub created_at: SystemTime,
    /// When it was sent.
    pub sent_at: Option<SystemTime>,
    /// When it died.
    pub dead_at: Option<SystemTime>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// What the destination answered.
    pub receipt: Option<String>,
}

impl RecordView {
    /// A pending record that was just enqueued, to be filled in by a store.
    pub fn new(seq: i64, id: Uuid, kind: impl Into<String>, created_at: SystemTime) -> Self {
        Self {
            seq,
            id,
            kind: kind.into(),
            destination: None,
            key: None,
            content_type: "application/json".into(),
            headers: Headers::new(),
            state: State::Pending,
            send_after: created_at,
            attempts: 0,
            lapses: 0,
            blocks_key: false,
            created_at,
            sent_at: None,
            dead_at: None,
            last_error: None,
            receipt: None,
        }
    }
}

/// What a pause covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PauseScope {
    /// Everything.
    All,
    /// These kinds.
    Kind(Pattern),
    /// This destination, whatever the kind.
    Destination(String),
}

impl PauseScope {
    /// Whether the scope covers a record of this kind and destination.
    pub fn covers(&self, kind: &str, destination: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Kind(pattern) => pattern.matches(kind),
            Self::Destination(paused) => destination == Some(paused.as_str()),
        }
    }
}

/// One pause in force.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pause {
    /// What it covers.
    pub scope: PauseScope,
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: SystemTime,
}

impl Pause {
    /// A pause of `scope` since `since`.
    pub fn new(scope: PauseScope, reason: impl Into<String>, since: SystemTime) -> Self {
        Self { scope, reason: reason.into(), since }
    }
}
