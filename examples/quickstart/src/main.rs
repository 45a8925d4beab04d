//! An order and its webhook leave together: SQLite, a receiver on loopback, no service.
//!
//! ```text
//! cargo run -p quickstart                         in a temporary file, to a receiver started inside
//! cargo run -p quickstart -- --url URL            to a receiver of your own
//! cargo run -p quickstart -- --db FILE            keeps the file
//! cargo run -p quickstart -- --db FILE --crash    dies right after a commit; the next run sends it
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

mod args;
mod receiver;
mod shop;
mod timeline;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use outbox_core::{
    Backoff, Count, Store,
    relay::{Relay, Route},
};
use outbox_sqlite::{SqliteConfig, SqliteStore};
use sink_http::{HttpConfig, HttpSink, Secret};
use tokio::sync::oneshot;

use crate::{args::Args, receiver::Receiver, timeline::Timeline};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The orders that go through.
const ORDERS: u64 = 5;
/// How long the whole may take before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(12);

#[tokio::main]
async fn main() -> ExitCode {
    let args = match Args::read(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    match run(args).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("quickstart failed: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                eprintln!("  because {cause}");
                source = cause.source();
            }
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<bool, Error> {
    let timeline = Timeline::start();
    let temporary = tempfile::tempdir()?;
    let file = args.db.clone().unwrap_or_else(|| temporary.path().join("shop.db"));

    // The application's own database, with the outbox tables in it.
    let outbox = SqliteStore::connect(&file, SqliteConfig::new()).await?;
    shop::migrate(outbox.pool()).await?;
    let before = outbox.stats(&[]).await?;
    let left_over = before.pending.value + before.claimed.value;
    if left_over > 0 {
        timeline.say(
            "shop",
            &format!("{left_over} webhooks of an earlier run are pending in {}", file.display()),
        );
    }

    if args.crash {
        let order = shop::place(&outbox, "order that survives a crash").await?;
        timeline.say("shop", &format!("{order} is committed with its webhook; now the process dies"));
        std::process::abort();
    }

    let receiver = match &args.url {
        Some(_) => None,
        None => Some(Receiver::start(receiver_file(&args, temporary.path().into()), timeline.clone()).await?),
    };
    let sink = match (&receiver, &args.url) {
        (Some(receiver), _) => HttpSink::connect(
            HttpConfig::to(receiver.url()).with_plain_http().with_loopback().with_secret(receiver.secret()?),
        )?,
        (None, Some(url)) => {
            HttpSink::connect(HttpConfig::to(url.as_str()).with_plain_http().with_all_addresses())?
        }
        (None, None) => return Err("neither a receiver nor a URL".into()),
    };

    let (stop, stopped) = oneshot::channel::<()>();
    let route = Route::to(sink).backoff(Backoff::new(Duration::from_millis(200), Duration::from_secs(2)));
    let relay = Relay::new(outbox.clone()).route("order.*", route);
    let relay = tokio::spawn(relay.run(async move {
        let _ = stopped.await;
    }));

    for number in 1..=ORDERS {
        let order = shop::place(&outbox, &format!("book {number}")).await?;
        timeline.say("shop", &format!("{order} is committed with its webhook"));
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    let order = shop::place_and_roll_back(&outbox).await?;
    timeline.say("shop", &format!("{order} is rolled back, and its webhook with it"));

    let expected = ORDERS + left_over;
    let end = tokio::time::Instant::now() + PATIENCE;
    let after = loop {
        let now = outbox.stats(&[]).await?;
        if (now.pending.value == 0 && now.claimed.value == 0) || tokio::time::Instant::now() >= end {
            break now;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    drop(stop);
    relay.await??;

    let sent = after.sent.value - before.sent.value;
    let orders = shop::count(outbox.pool()).await?;
    println!();
    println!("orders committed in all     {orders}");
    println!("webhooks to send            {expected}");
    println!("webhooks sent               {sent}");
    println!("webhooks pending or dead    {}", after.pending.value + after.claimed.value + after.dead.value);
    let mut right = sent == expected
        && after.pending == Count::default()
        && after.claimed == Count::default()
        && after.dead == before.dead;
    if let Some(receiver) = receiver {
        let seen = receiver.stop().await?;
        println!("received and booked         {}", seen.booked);
        println!("refused at first            {}", seen.refused);
        println!("second copies dropped       {}", seen.dropped);
        right &= seen.booked == expected && seen.refused == 1 && seen.dropped == 1 && !seen.rolled_back;
    }
    println!("{}", if right { "every count is right" } else { "a count is wrong" });
    Ok(right)
}

/// A receiver has a database of its own; it stays beside a file that is kept.
fn receiver_file(args: &Args, temporary: PathBuf) -> PathBuf {
    match &args.db {
        Some(file) => {
            let mut name = file.file_name().unwrap_or_default().to_owned();
            name.push("-receiver");
            file.with_file_name(name)
        }
        None => temporary.join("receiver.db"),
    }
}

impl Receiver {
    fn secret(&self) -> Result<Secret, Error> {
        Ok(receiver::SECRET.parse()?)
    }
}
