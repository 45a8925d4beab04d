//! SQS transport for a transactional outbox.
