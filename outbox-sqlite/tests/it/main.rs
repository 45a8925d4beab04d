//! The store on real files: the shared checks, and what SQLite alone can do wrong.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and a child reports by printing"
)]

mod conformance;
mod harness;
mod process;
mod processes;
mod relays;
mod sqlite;
