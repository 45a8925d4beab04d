#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod claim;
mod config;
mod enqueue;
mod error;
mod inbox;
mod link;
mod mark;
mod operate;
mod presence;
mod row;
mod schema;
mod stats;
mod store;
mod sweep;
mod wake;

pub use config::SqliteConfig;
pub use store::SqliteStore;
