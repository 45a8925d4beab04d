//! Tests of the SMTP sink: against a scripted server for every answer, and against a real MTA.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::print_stderr, reason = "a test that skips says so")]

mod auth;
mod conformance;
mod dkim;
mod drawn;
mod hostile;
mod mailbox;
mod mta;
mod pool;
mod recipients;
mod relay;
mod replies;
mod scripted;
mod sizes;
