//! NATS transport for a transactional outbox.
