//! One row of the outbox, and every step that writes it.

use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;

use crate::{Headers, NewRecord, Owner, Payload, Settlement, State};

/// Later than every reading of a clock: a time that was set to infinity by hand.
pub(super) const NEVER: Duration = Duration::MAX;

/// One row. All times are readings of the store's clock.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) seq: i64,
    pub(super) id: Uuid,
    pub(super) kind: String,
    pub(super) destination: Option<String>,
    pub(super) key: Option<String>,
    pub(super) payload: Payload,
    pub(super) content_type: String,
    /// The headers, or why they cannot be read.
    pub(super) headers: Result<Headers, String>,
    pub(super) hold_key: bool,
    pub(super) send_after: Duration,
    pub(super) attempts: u32,
    pub(super) lapses: u32,
    pub(super) owner: Option<Owner>,
    pub(super) fence: i64,
    pub(super) blocks_key: bool,
    pub(super) age: Duration,
    pub(super) progress: Option<Value>,
    pub(super) created_at: Duration,
    pub(super) sent_at: Option<Duration>,
    pub(super) dead_at: Option<Duration>,
    pub(super) last_error: Option<String>,
    pub(super) receipt: Option<String>,
    /// Whether the passing of time alone changes what this row is: its lease is in force, or it was
    /// scheduled and has never been due. The table keeps it.
    pub(super) timed: bool,
}

impl Row {
    pub(super) fn new(seq: i64, record: &NewRecord, now: Duration) -> Self {
        Self {
            seq,
            id: record.id,
            kind: record.kind.clone(),
            destination: record.destination.clone(),
            key: record.key.clone(),
            payload: record.payload.clone(),
            content_type: record.content_type.clone(),
            headers: Ok(record.headers.clone()),
            hold_key: record.hold_key,
            send_after: now.saturating_add(record.delay),
            attempts: 0,
            lapses: 0,
            owner: None,
            fence: 0,
            blocks_key: false,
            age: Duration::ZERO,
            progress: None,
            created_at: now,
            sent_at: None,
            dead_at: None,
            last_error: None,
            receipt: None,
            timed: false,
        }
    }

    pub(super) fn state(&self) -> State {
        match (self.sent_at, self.dead_at, self.owner) {
            (Some(_), _, _) => State::Sent,
            (None, Some(_), _) => State::Dead,
            (None, None, Some(_)) => State::Claimed,
            (None, None, None) => State::Pending,
        }
    }

    pub(super) fn is_unfinished(&self) -> bool {
        self.sent_at.is_none() && self.dead_at.is_none()
    }

    /// Whether the record stands in the line of its key: later ones wait for it.
    pub(super) fn is_in_line(&self) -> bool {
        let scheduled = self.timed && self.owner.is_none();
        (self.is_unfinished() && !scheduled) || self.blocks_key
    }

    /// Whether it may be what kills relays, and so is claimed and sent alone.
    pub(super) fn is_suspect(&self) -> bool {
        self.owner.is_some() || self.lapses > 0
    }

    /// Whether time alone will change what the row is.
    pub(super) fn is_timed(&self, now: Duration) -> bool {
        let never_due = self.key.is_some() && self.fence == 0 && !self.hold_key;
        self.is_unfinished() && (self.owner.is_some() || never_due) && self.send_after > now
    }

    /// When it finished, or else was enqueued.
    pub(super) fn dated(&self) -> Duration {
        self.sent_at.or(self.dead_at).unwrap_or(self.created_at)
    }

    /// A claim. A row that still has an owner is one whose lease has run out: its attempt is refunded by
    /// not counting this one, and the lapse is.
    pub(super) fn claim(&mut self, owner: Owner, lease_end: Duration) {
        if self.owner.is_some() {
            self.lapses = self.lapses.saturating_add(1);
        } else {
            self.attempts = self.attempts.saturating_add(1);
        }
        self.owner = Some(owner);
        self.fence += 1;
        self.send_after = lease_end;
    }

    /// The end of a claim.
    pub(super) fn settle(&mut self, settlement: &Settlement, now: Duration) {
        self.release();
        match settlement {
            Settlement::Sent { receipt } => {
                self.sent_at = Some(now);
                self.receipt.clone_from(receipt);
            }
            Settlement::Retry { after, error, age } => {
                self.send_after = now.saturating_add(*after);
                self.last_error = Some(error.clone());
                self.age = *age;
                self.lapses = 0;
            }
            Settlement::Dead { error, blocks_key } => {
                self.dead_at = Some(now);
                self.last_error = Some(error.clone());
                self.blocks_key = *blocks_key && self.key.is_some();
            }
            Settlement::Deferred { after, error } => {
                self.attempts = self.attempts.saturating_sub(1);
                self.send_after = now.saturating_add(*after);
                if error.is_some() {
                    self.last_error.clone_from(error);
                }
            }
            Settlement::Released => {
                self.attempts = self.attempts.saturating_sub(1);
                self.send_after = now;
            }
        }
    }

    /// Whether this settlement is what ended the claim `fence`.
    pub(super) fn was_settled(&self, fence: i64, settlement: &Settlement) -> bool {
        self.fence == fence + 1
            && match settlement {
                Settlement::Sent { .. } => self.state() == State::Sent,
                Settlement::Dead { error, .. } => {
                    self.state() == State::Dead && self.last_error.as_ref() == Some(error)
                }
                Settlement::Retry { .. } | Settlement::Deferred { .. } | Settlement::Released => {
                    self.state() == State::Pending
                }
            }
    }

    /// Pending again, as if it had never been sent. What a sink kept of it stays.
    pub(super) fn revive(&mut self, due: Duration) {
        self.release();
        self.sent_at = None;
        self.dead_at = None;
        self.attempts = 0;
        self.lapses = 0;
        self.age = Duration::ZERO;
        self.blocks_key = false;
        self.send_after = due;
    }

    /// Given up by an operator.
    pub(super) fn discard(&mut self, reason: &str, now: Duration) {
        self.release();
        self.dead_at = self.dead_at.or(Some(now));
        self.last_error = Some(reason.to_owned());
        self.blocks_key = false;
    }

    fn release(&mut self) {
        self.owner = None;
        self.fence += 1;
    }
}
