//! What can go wrong on the way into and out of a store.

use std::{error::Error, fmt};

/// A record that no outbox takes. Found before any SQL, so the caller's transaction stays usable.
///
/// The text names the field and the place in it, never a payload or a header's value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRecord {
    /// A field that must hold something is empty.
    #[error("{field} is empty")]
    Empty {
        /// The field.
        field: &'static str,
    },
    /// A field is longer than its limit.
    #[error("{field} has {bytes} bytes, more than the {bytes_max} allowed")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length in bytes.
        bytes: usize,
        /// The limit in bytes.
        bytes_max: usize,
    },
    /// A field holds a character that it may not.
    #[error("{field} holds {character:?} at byte {at}, which is not allowed there")]
    Character {
        /// The field; of a header, with its name.
        field: String,
        /// The character.
        character: char,
        /// Where it stands, in bytes from the start.
        at: usize,
    },
    /// Two headers whose names differ in letter case alone.
    #[error("header {name:?} is given twice")]
    RepeatedHeader {
        /// The name of the second.
        name: String,
    },
    /// A number that is not finite.
    #[error("payload holds a number that JSON cannot spell, {number}, at `{path}`")]
    NotFinite {
        /// `NaN`, `inf` or `-inf`.
        number: String,
        /// The place in the payload, as `lines[2].price`; `.` is the payload itself.
        path: String,
    },
    /// A payload that is not JSON, or a value that has no JSON form.
    #[error("payload is not JSON: {reason}")]
    NotJson {
        /// What the serializer or parser said, without the payload's content.
        reason: String,
    },
    /// A duration that no database can hold.
    #[error("{field} is longer than 100 years")]
    TooFar {
        /// The field.
        field: &'static str,
    },
}

/// An error of a store. [`kind`](Self::kind) is for code, the text and the sources are for people.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    doing: &'static str,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What a caller can do about a [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The record is not valid; see the source, an [`InvalidRecord`]. No SQL has run.
    Invalid,
    /// The database cannot be reached or is shutting down. Worth another try.
    Unavailable,
    /// The caller's own transaction met another: a serialization failure, a deadlock, or SQLite's
    /// busy snapshot. The caller must roll back and run its transaction again.
    Conflict,
    /// The tables are missing, or of a version that this release does not know.
    Schema,
    /// The role lacks a right.
    Denied,
    /// An identity that the outbox already holds.
    DuplicateId,
    /// The configuration cannot hold.
    Config,
    /// Anything else; the source says what.
    Other,
}

impl StoreError {
    /// An error met while `doing`, a fragment that reads after "failed to": `"claim records"`.
    pub fn new(kind: StoreErrorKind, doing: &'static str) -> Self {
        Self { kind, doing, source: None }
    }

    /// Adds what the driver said.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Unavailable | StoreErrorKind::Conflict)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.kind {
            StoreErrorKind::Invalid => "the record is not valid",
            StoreErrorKind::Unavailable => "the database is not available",
            StoreErrorKind::Conflict => "the transaction met another and must be run again",
            StoreErrorKind::Schema => "the outbox tables are missing or of another version",
            StoreErrorKind::Denied => "the database role lacks a right",
            StoreErrorKind::DuplicateId => "a record of this id exists",
            StoreErrorKind::Config => "the configuration cannot hold",
            StoreErrorKind::Other => "the database refused",
        };
        write!(f, "failed to {}: {why}", self.doing)?;
        match &self.source {
            Some(source) if self.kind == StoreErrorKind::Invalid => write!(f, ": {source}"),
            _ => Ok(()),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

impl From<InvalidRecord> for StoreError {
    fn from(invalid: InvalidRecord) -> Self {
        Self::new(StoreErrorKind::Invalid, "enqueue").with_source(invalid)
    }
}
