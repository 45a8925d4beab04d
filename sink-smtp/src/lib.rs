//! SMTP transport for a transactional outbox.
