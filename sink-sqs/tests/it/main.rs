//! The sink against SQS servers on loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod batches;
mod conformance;
mod queues;
mod scripted;
mod service;
