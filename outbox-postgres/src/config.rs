//! How a store is set up.

use outbox_core::{PAYLOAD_BYTES_MAX_DEFAULT, StoreError, StoreErrorKind};

/// The longest name, which leaves room for what the names of indexes add.
const NAME_BYTES_MAX: usize = 48;

/// Settings of a [`PostgresStore`](crate::PostgresStore).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresConfig {
    /// The schema of the tables. Default: `public`.
    pub schema: String,
    /// The name of the outbox table; the others are named `<table>_dedup`, `<table>_inbox` and so on.
    /// A letter or underscore, then letters, digits and underscores. Default: `outbox`.
    pub table: String,
    /// The most bytes of a payload. Default: 1 MiB. Higher makes claims hold more memory.
    pub payload_bytes_max: usize,
    /// Whether statements are prepared under names that stay on their connection. Default: on. A
    /// pooler in transaction mode needs it off.
    pub named_statements: bool,
    /// Whether a waiting relay holds a connection of its own on which it hears
    /// [`wake_all`](crate::PostgresStore::wake_all). Default: on. Off, it polls.
    pub listen: bool,
}

impl Default for PostgresConfig {
    fn default() -> Self {
        Self {
            schema: "public".into(),
            table: "outbox".into(),
            payload_bytes_max: PAYLOAD_BYTES_MAX_DEFAULT,
            named_statements: true,
            listen: true,
        }
    }
}

impl PostgresConfig {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The schema of the tables.
    #[must_use]
    pub fn with_schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
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

    /// Whether statements are prepared under names.
    #[must_use]
    pub fn with_named_statements(mut self, named_statements: bool) -> Self {
        self.named_statements = named_statements;
        self
    }

    /// Whether a waiting relay listens for wake-ups of other processes.
    #[must_use]
    pub fn with_listen(mut self, listen: bool) -> Self {
        self.listen = listen;
        self
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        for name in [&self.schema, &self.table] {
            let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            let goes_on = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !starts || !goes_on || name.len() > NAME_BYTES_MAX {
                return Err(StoreError::new(StoreErrorKind::Config, "name the outbox tables"));
            }
        }
        Ok(())
    }
}
