#![doc = include_str!("../README.md")]

mod answer;
mod config;
mod destination;
mod error;
mod guard;
mod message;
mod signature;
mod sink;

pub use config::HttpConfig;
pub use error::{HttpError, HttpErrorKind};
pub use signature::{InvalidSecret, Secret};
pub use sink::{HttpSink, HttpSinkBuilder};

/// A network of [`HttpConfig::allowed_networks`], such as `10.1.0.0/16`.
pub use ipnet::IpNet;
