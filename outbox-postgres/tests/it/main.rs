//! The PostgreSQL store on a real server, named by `OUTBOX_TEST_POSTGRES_URL`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test fails by panicking"
)]

mod harness;
mod own;

macro_rules! checks {
    (($harness:expr) $($check:ident)*) => { $(
        #[test]
        fn $check() {
            if crate::harness::server().is_some() {
                outbox_core::conformance::run(async { outbox_core::conformance::store::$check(&$harness).await });
            }
        }
    )* };
}

mod conformance {
    use crate::harness::PostgresHarness;

    outbox_core::__store_checks! { (checks) (PostgresHarness::default()) }
}

/// The same where transactions are serializable and read-only unless they say otherwise, with no search path.
mod conformance_by_serializable_default {
    use crate::harness::PostgresHarness;

    outbox_core::__store_checks! { (checks) (PostgresHarness::serializable()) }
}
