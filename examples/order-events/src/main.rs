//! An order and its event leave together: axum, SQLite and Kafka, with the consumer's side.
//!
//! ```text
//! order-events shop FILE       takes orders by HTTP and sends their events
//! order-events billing FILE    bills each order once, by its event
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

mod billing;
mod shop;

use std::process::ExitCode;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Where both sides find each other.
struct Kafka {
    brokers: String,
    topic: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let variable = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let kafka = Kafka {
        brokers: variable("KAFKA_BROKERS", "127.0.0.1:9092"),
        topic: variable("ORDERS_TOPIC", "orders"),
    };
    let ended = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["shop", file] => shop::run(file, &variable("LISTEN", "127.0.0.1:8080"), kafka).await,
        ["billing", file] => billing::run(file, kafka).await,
        _ => Err("usage: order-events shop FILE | order-events billing FILE".into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("order-events failed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Ctrl-C.
async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
