//! The consumer: bills each order once, however often its event arrives.

use std::time::Duration;

use outbox_core::Uuid;
use outbox_sqlite::{SqliteConfig, SqliteStore};
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{Consumer, StreamConsumer},
    message::{BorrowedMessage, Headers},
};
use serde::Deserialize;

use crate::{Error, Kafka, interrupted};

#[derive(Deserialize)]
struct Order {
    number: i64,
    customer: String,
}

pub(crate) async fn run(file: &str, kafka: Kafka) -> Result<(), Error> {
    // A database of its own; of the outbox only the inbox is used.
    let inbox = SqliteStore::connect(file, SqliteConfig::new()).await?;
    inbox.migrate().await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS bills (number INTEGER NOT NULL, customer TEXT NOT NULL)")
        .execute(inbox.pool())
        .await?;
    let consumer: StreamConsumer = ClientConfig::new()
        .set("bootstrap.servers", kafka.brokers)
        .set("group.id", "billing")
        .set("enable.auto.commit", "false")
        .set("allow.auto.create.topics", "true")
        .create()?;
    // Every run reads from the start, so that the inbox has something to drop. With a consumer group instead, the position is
    // committed after the transaction, and what is seen again after a crash is dropped just the same.
    let mut partitions = TopicPartitionList::new();
    // Blocks for a moment, when nothing else is to be done yet.
    let metadata = consumer.fetch_metadata(Some(&kafka.topic), Duration::from_secs(10))?;
    for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
        partitions.add_partition_offset(&kafka.topic, partition.id(), Offset::Beginning)?;
    }
    consumer.assign(&partitions)?;
    tokio::select! {
        () = interrupted() => Ok(()),
        ended = consume(&inbox, &consumer) => ended,
    }
}

async fn consume(inbox: &SqliteStore, consumer: &StreamConsumer) -> Result<(), Error> {
    loop {
        let message = match consumer.recv().await {
            Ok(message) => message,
            Err(error) => {
                eprintln!("no event: {error}");
                continue;
            }
        };
        bill(inbox, &message).await?;
    }
}

async fn bill(inbox: &SqliteStore, message: &BorrowedMessage<'_>) -> Result<(), Error> {
    let id = id_of(message).ok_or("an event without an id")?;
    let order: Order = serde_json::from_slice(message.payload().unwrap_or_default())?;
    // The bill and the memory of the id are one transaction.
    let mut tx = inbox.pool().begin().await?;
    if !inbox.accept(&mut tx, "billing", id).await? {
        println!("order {} is billed already", order.number);
        return Ok(());
    }
    sqlx::query("INSERT INTO bills (number, customer) VALUES (?, ?)")
        .bind(order.number)
        .bind(&order.customer)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    println!("order {} is billed", order.number);
    Ok(())
}

fn id_of(message: &BorrowedMessage<'_>) -> Option<Uuid> {
    let header = message.headers()?.iter().find(|header| header.key == "outbox-id")?;
    std::str::from_utf8(header.value?).ok()?.parse().ok()
}
