//! One check a rule, for every store and sink: ours, and a stranger's.
//!
//! A store that is written outside this workspace implements [`StoreHarness`](store::StoreHarness), which
//! says how to make an empty outbox, how to enqueue in a transaction, and how to move its time. The
//! macro [`store_conformance!`](crate::store_conformance) then makes one test of every check, named as the
//! rule that it shows. A sink does the same with [`SinkHarness`](sink::SinkHarness) and
//! [`sink_conformance!`](crate::sink_conformance).
//!
//! In the manifest the feature is on for tests alone:
//!
//! ```toml
//! [dev-dependencies]
//! outbox-core = { version = "0.1", features = ["conformance"] }
//! ```
//!
//! and in `tests/conformance.rs`:
//!
//! ```
//! use outbox_core::conformance::{MemoryHarness, MemorySinkHarness};
//!
//! // Evaluated anew in each test, inside its runtime: it may await.
//! mod store {
//!     # use super::*;
//!     outbox_core::store_conformance!(MemoryHarness::new());
//! }
//! mod sink {
//!     # use super::*;
//!     outbox_core::sink_conformance!(MemorySinkHarness::new());
//! }
//! ```
//!
//! What a database or a destination cannot be made to do is declared in a constant of the harness, where a
//! reader sees it; the checks that need it then show nothing.
//!
//! That each check can fail is itself shown, by stores and sinks that are wrong on purpose: `tests/it/wrong_stores`
//! and `tests/it/wrong_sinks.rs`.
//!
//! A check fails by panicking. Its doc comment starts with the number of the contract that it shows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a check fails by panicking")]

mod memory_harness;
mod memory_sink_harness;
pub mod sink;
pub mod store;

pub use memory_harness::MemoryHarness;
pub use memory_sink_harness::MemorySinkHarness;

/// Runs one check on a runtime of its own, with two threads.
#[doc(hidden)]
pub fn run(check: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime starts").block_on(check);
}

/// Makes one named test of every store check, run against the [`StoreHarness`] that the expression
/// gives. It is evaluated anew in each test, inside its runtime, and may await.
///
/// [`StoreHarness`]: crate::conformance::store::StoreHarness
#[macro_export]
macro_rules! store_conformance {
    ($harness:expr) => {
        $crate::__store_checks! { ($crate::__store_tests) ($harness) }
    };
}

/// Makes one named test of every sink check, run against the [`SinkHarness`] that the expression
/// gives. It is evaluated anew in each test, inside its runtime, and may await.
///
/// [`SinkHarness`]: crate::conformance::sink::SinkHarness
#[macro_export]
macro_rules! sink_conformance {
    ($harness:expr) => {
        $crate::__sink_checks! { ($crate::__sink_tests) ($harness) }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __sink_tests {
    (($harness:expr) $($check:ident)*) => { $(
        #[test]
        fn $check() {
            $crate::conformance::run(async { $crate::conformance::sink::$check(&$harness).await });
        }
    )* };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __store_tests {
    (($harness:expr) $($check:ident)*) => { $(
        #[test]
        fn $check() {
            $crate::conformance::run(async { $crate::conformance::store::$check(&$harness).await });
        }
    )* };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __check_names {
    (() $($check:ident)*) => { &[$(stringify!($check)),*] };
}
