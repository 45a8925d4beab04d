//! Tests of the crate as a whole.
#![cfg(feature = "conformance")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod listed;
mod memory;
mod model;
mod must_fail;
mod wrong_sinks;
mod wrong_stores;
