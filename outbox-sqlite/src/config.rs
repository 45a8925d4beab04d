//! How a store is set up.

use std::time::Duration;

use outbox_core::{PAYLOAD_BYTES_MAX_DEFAULT, StoreError, StoreErrorKind};
use serde::{Deserialize, Serialize};

/// The longest table name, which leaves room for what the names of its indexes add.
const TABLE_BYTES_MAX: usize = 64;

/// Settings of a [`SqliteStore`](crate::SqliteStore).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SqliteConfig {
    /// The name of the outbox table; the others are named `<table>_dedup`, `<table>_inbox` and so on.
    /// A letter or underscore, then letters, digits and underscores. Default: `outbox`.
    pub table: String,
    /// The most bytes of a payload. Default: 1 MiB. Higher makes claims hold more memory: a relay
    /// reads as many payloads at once as it claims records.
    pub payload_bytes_max: usize,
    /// How long a call of the store's own tries to get the write lock before it is
    /// [`Unavailable`](StoreErrorKind::Unavailable). Default: 30 s. Too low, and a long transaction
    /// of an application shows as an outage.
    pub busy_for: Duration,
    /// How often a waiting relay looks whether another process has written. Default: 5 ms, which takes
    /// well under one percent of a core. Higher delays records of other processes by as much.
    pub watch_interval: Duration,
}

impl Default for SqliteConfig {
    fn default() -> Self {
        Self {
            table: "outbox".into(),
            payload_bytes_max: PAYLOAD_BYTES_MAX_DEFAULT,
            busy_for: Duration::from_secs(30),
            watch_interval: Duration::from_millis(5),
        }
    }
}

impl SqliteConfig {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The name of the outbox table.
    #[must_use]
    pub fn with_table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// The most bytes of a payload.
    #[must_use]
    pub fn with_payload_bytes_max(mut self, payload_bytes_max: usize) -> Self {
        self.payload_bytes_max = payload_bytes_max;
        self
    }

    /// How long to try for the write lock.
    #[must_use]
    pub fn with_busy_for(mut self, busy_for: Duration) -> Self {
        self.busy_for = busy_for;
        self
    }

    /// How often to look whether another process has written.
    #[must_use]
    pub fn with_watch_interval(mut self, watch_interval: Duration) -> Self {
        self.watch_interval = watch_interval;
        self
    }

    pub(crate) fn validate(&self) -> Result<(), StoreError> {
        let mut characters = self.table.chars();
        let starts = characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        let goes_on = characters.all(|c| c.is_ascii_alphanumeric() || c == '_');
        let refused = if !starts || !goes_on || self.table.len() > TABLE_BYTES_MAX {
            "the table name is not a plain identifier of up to 64 bytes"
        } else if self.table.to_ascii_lowercase().starts_with("sqlite_") {
            "table names that start with sqlite_ are SQLite's own"
        } else if self.watch_interval.is_zero() {
            "a watch interval of zero would never rest"
        } else {
            return Ok(());
        };
        Err(StoreError::new(StoreErrorKind::Config, "set up the store").with_source(refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_name_is_a_plain_identifier() {
        for good in ["outbox", "_o1", "Orders_Outbox"] {
            assert!(SqliteConfig::new().with_table(good).validate().is_ok(), "{good}");
        }
        for bad in ["", "1a", "a-b", "a.b", "a b", "a;", "\"a\"", "sqlite_x", "ä", &"a".repeat(65)] {
            let error = SqliteConfig::new().with_table(bad).validate().unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Config, "{bad}");
        }
    }
}
