//! The sink against brokers: real ones, and librdkafka's own where no real one can be made to fail so.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod broker;
mod conformance;
mod fault;
mod link;
mod partition;
mod refuse;
mod relay;
mod send;
mod telemetry;
