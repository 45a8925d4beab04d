//! The sink against a real nats-server, also one that is cut off, killed and restarted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says when it skips"
)]

mod broker;
mod conformance;
mod faults;
mod proxy;
