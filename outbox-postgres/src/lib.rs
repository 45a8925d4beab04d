#![doc = include_str!("../README.md")]

mod claim;
mod config;
mod enqueue;
mod error;
mod inbox;
mod mark;
mod operate;
mod row;
mod schema;
mod stats;
mod store;
mod sweep;
mod wake;

pub use config::PostgresConfig;
pub use store::PostgresStore;
