#![doc = include_str!("../README.md")]

mod config;
mod dialogue;
mod dkim;
mod email;
mod error;
mod headers;
mod login;
mod mailbox;
mod message;
mod pool;
mod progress;
mod sink;
mod text;
mod wire;

pub use config::{Credentials, OnRefused, SmtpConfig, Tls, TokenSource};
pub use dkim::DkimConfig;
pub use email::{Attachment, Content, Email, Inline, ListUnsubscribe};
pub use error::{InvalidEmail, SmtpError};
pub use mailbox::Mailbox;
pub use sink::SmtpSink;
