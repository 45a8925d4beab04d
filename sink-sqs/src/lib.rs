#![doc = include_str!("../README.md")]

mod batch;
mod config;
mod error;
mod message;
mod queue;
mod sink;

pub use aws_sdk_sqs;
pub use config::{BytesAs, HeadersAs, SqsConfig, SqsCredentials};
pub use error::{SqsError, SqsErrorKind};
pub use sink::SqsSink;
