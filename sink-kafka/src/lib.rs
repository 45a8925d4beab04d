#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod client;
mod config;
mod context;
mod error;
mod lookup;
mod message;
mod settings;
mod sink;

pub use config::KafkaConfig;
pub use error::{ConnectError, ConnectErrorKind};
/// The client library, for [`KafkaSink::from_producer`].
pub use rdkafka;
pub use sink::KafkaSink;
