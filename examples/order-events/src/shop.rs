//! The application: takes orders, each in one transaction with its event, and sends the events.

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use outbox_core::{NewRecord, relay::Relay};
use outbox_sqlite::{SqliteConfig, SqliteStore};
use serde::{Deserialize, Serialize};
use sink_kafka::{KafkaConfig, KafkaSink};
use tokio::net::TcpListener;

use crate::{Error, Kafka, interrupted};

#[derive(Deserialize)]
struct Basket {
    customer: String,
    item: String,
}

#[derive(Serialize)]
struct Order {
    number: i64,
    customer: String,
    item: String,
}

pub(crate) async fn run(file: &str, listen: &str, kafka: Kafka) -> Result<(), Error> {
    // The application's own database, with the outbox tables in it.
    let outbox = SqliteStore::connect(file, SqliteConfig::new()).await?;
    outbox.migrate().await?;
    sqlx::query(
        "CREATE TABLE IF NOT EXISTS orders (\
         number INTEGER PRIMARY KEY AUTOINCREMENT, customer TEXT NOT NULL, item TEXT NOT NULL)",
    )
    .execute(outbox.pool())
    .await?;

    let sink = KafkaSink::connect(KafkaConfig::new(kafka.brokers).with_topic(kafka.topic))?;
    let relay = tokio::spawn(Relay::new(outbox.clone()).route("order.*", sink).run(interrupted()));

    let listener = TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = Router::new().route("/orders", post(place)).with_state(outbox);
    axum::serve(listener, app).with_graceful_shutdown(interrupted()).await?;
    relay.await??;
    Ok(())
}

async fn place(
    State(outbox): State<SqliteStore>,
    Json(basket): Json<Basket>,
) -> Result<(StatusCode, Json<Order>), StatusCode> {
    match write(&outbox, basket).await {
        Ok(Some(order)) => Ok((StatusCode::CREATED, Json(order))),
        Ok(None) => Err(StatusCode::UNPROCESSABLE_ENTITY),
        Err(error) => {
            eprintln!("no order: {error}");
            Err(StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}

/// The order and its event, in one transaction: both or neither.
async fn write(outbox: &SqliteStore, basket: Basket) -> Result<Option<Order>, Error> {
    let Basket { customer, item } = basket;
    let mut tx = outbox.pool().begin().await?;
    let written = sqlx::query("INSERT INTO orders (customer, item) VALUES (?, ?)")
        .bind(&customer)
        .bind(&item)
        .execute(&mut *tx)
        .await?;
    let order = Order { number: written.last_insert_rowid(), customer, item };
    // A customer's events go out in order, to one partition.
    outbox.enqueue(&mut tx, NewRecord::json("order.placed", &order)?.key(&order.customer)).await?;
    if order.item.is_empty() {
        // Too late for a check, but it shows what a rollback takes with it.
        tx.rollback().await?;
        return Ok(None);
    }
    tx.commit().await?;
    // A hint; nothing is lost without it.
    outbox.wake();
    Ok(Some(order))
}
