//! A user who signs up gets a mail; one whose sign-up is rolled back gets none.
#![allow(clippy::print_stdout, reason = "it is a program for a terminal")]

use std::{env, error::Error, time::Duration};

use outbox_core::{
    Store,
    relay::{Relay, RelayError, Route},
};
use outbox_sqlite::{SqliteConfig, SqliteStore};
use sink_smtp::{Credentials, Email, SmtpConfig, SmtpSink};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Result {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (task, file) = match args[..] {
        [task @ ("form" | "relay" | "both"), file] => (task, file),
        _ => return Err("usage: signup-mail form|relay|both FILE".into()),
    };
    let outbox = SqliteStore::connect(file, SqliteConfig::new()).await?;
    sqlx::query("create table if not exists users (address text primary key)").execute(outbox.pool()).await?;
    match task {
        "form" => form(&outbox).await,
        "relay" => Ok(relay(&outbox, interrupted()).await?),
        _ => {
            let (signed_up, sent) = tokio::join!(form(&outbox), relay(&outbox, all_sent(&outbox)));
            sent?;
            signed_up
        }
    }
}

/// The user and the mail, in one transaction.
async fn sign_up(outbox: &SqliteStore, address: &str) -> Result {
    let mail = Email::new("Example <hello@example.test>")
        .to(address)
        .subject("Welcome")
        .text("It is good to have you here.\n")
        .html("<p>It is good to have you here.</p>")
        .record("mail.welcome")?;
    let mut tx = outbox.pool().begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query("insert into users (address) values (?)").bind(address).execute(&mut *tx).await?;
    outbox.enqueue(&mut tx, mail).await?;
    tx.commit().await?;
    outbox.wake();
    Ok(())
}

/// Signs up who is named on standard input, one a line.
async fn form(outbox: &SqliteStore) -> Result {
    let mut addresses = BufReader::new(stdin()).lines();
    while let Some(address) = addresses.next_line().await? {
        match sign_up(outbox, &address).await {
            Ok(()) => println!("{address} signed up"),
            Err(error) => println!("{address} did not: {error}"),
        }
    }
    Ok(())
}

/// Sends until `shutdown` completes.
async fn relay(
    outbox: &SqliteStore,
    shutdown: impl Future<Output = ()> + Send,
) -> std::result::Result<(), RelayError> {
    let sink = smtp().and_then(|config| Ok(SmtpSink::connect(config)?));
    let sink = sink.map_err(|error| RelayError::Config(error.to_string()))?;
    Relay::new(outbox.clone()).route("mail.*", Route::to(sink).concurrency(4)).run(shutdown).await
}

/// The server that the environment names.
fn smtp() -> Result<SmtpConfig> {
    let server = env::var("SMTP_SERVER").map_err(|_| "SMTP_SERVER is not set")?;
    let (host, port) = server.rsplit_once(':').ok_or("SMTP_SERVER is not HOST:PORT")?;
    let mut config = SmtpConfig::new(host).with_port(port.parse()?);
    if let Ok(user) = env::var("SMTP_USER") {
        config = config.with_credentials(Credentials::password(user, env::var("SMTP_PASSWORD")?));
    }
    if let Ok(file) = env::var("SMTP_CA") {
        config = config.with_root_certificate(std::fs::read_to_string(file)?);
    }
    if let Ok(name) = env::var("SMTP_HELLO_NAME") {
        config = config.with_hello_name(name);
    }
    Ok(config)
}

/// Ctrl-C, or the signal by which supervisors end a process.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => _ = signal.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
}

/// Waits until nothing is left to send.
async fn all_sent(outbox: &SqliteStore) {
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        if let Ok(stats) = outbox.stats(&[]).await
            && stats.pending.value + stats.claimed.value == 0
        {
            return;
        }
    }
}
