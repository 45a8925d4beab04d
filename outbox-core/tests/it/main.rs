//! Tests of the crate as a whole.
#![cfg(feature = "conformance")]

mod memory;
