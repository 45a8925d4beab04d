//! Sends three records to a journal file, through a relay.
#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use custom_sink::JournalSink;
use outbox_core::{MemoryStore, NewRecord, relay::Relay};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("journal-{}.jsonl", std::process::id()));
    let outbox = MemoryStore::new();
    let mut tx = outbox.begin();
    for number in 1..=3 {
        outbox.enqueue(&mut tx, NewRecord::json("order.placed", &number)?.key("shop")).await?;
    }
    tx.commit();

    let written = path.clone();
    let all_written = async move {
        let lines = async || tokio::fs::read_to_string(&written).await.map_or(0, |text| text.lines().count());
        while lines().await < 3 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    Relay::new(outbox).route("*", JournalSink::new(&path)).run(all_written).await?;
    print!("{}", tokio::fs::read_to_string(&path).await?);
    tokio::fs::remove_file(&path).await?;
    Ok(())
}
