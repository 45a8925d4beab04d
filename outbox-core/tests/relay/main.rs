//! The relay against the store in memory, on a clock that the tests move.
//!
//! tokio's paused time runs on by itself to the next timer once nothing else can, so minutes pass in no
//! time and every run of a seed is the same.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod adversity;
mod isolation;
mod leases;
mod order;
mod outage;
mod outcomes;
mod secrecy;
mod settings;
mod shaky;
mod simulation;
mod stop;
mod world;
