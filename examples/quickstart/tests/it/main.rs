//! The example as a user runs it, and what stands behind its promises: SQLite and HTTP, with real processes.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and children talk to it"
)]

mod processes;
mod receiver;
mod runs;
mod troubles;
