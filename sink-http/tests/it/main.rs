//! The sink against receivers on loopback.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod answers;
mod conformance;
mod guard;
mod receiver;
mod relayed;
mod requests;
mod tls;
