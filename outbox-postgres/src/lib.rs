//! outbox-postgres
