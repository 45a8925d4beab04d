//! Kafka transport for a transactional outbox.
