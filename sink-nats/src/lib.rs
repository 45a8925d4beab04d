#![doc = include_str!("../README.md")]

mod config;
mod error;
mod message;
mod sink;

pub use config::NatsConfig;
pub use error::{NatsError, NatsErrorKind};
pub use sink::NatsSink;

/// The client library, for [`NatsSink::connect_with`] and [`NatsSink::from_client`].
pub use async_nats;
