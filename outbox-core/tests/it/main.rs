//! Tests of the crate as a whole.
#![cfg(feature = "conformance")]

mod memory;
mod must_fail;
mod wrong_stores;
