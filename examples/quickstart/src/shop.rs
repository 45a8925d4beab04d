//! The application: it takes orders, each in one transaction with its webhook.

use outbox_core::NewRecord;
use outbox_sqlite::SqliteStore;
use serde::Serialize;
use sqlx::{Sqlite, SqlitePool, Transaction};

use crate::Error;

#[derive(Serialize)]
struct Order<'a> {
    number: i64,
    what: &'a str,
}

pub(crate) async fn migrate(pool: &SqlitePool) -> Result<(), Error> {
    sqlx::query(
        "CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT NOT NULL)",
    )
    .execute(pool)
    .await?;
    Ok(())
}

pub(crate) async fn place(outbox: &SqliteStore, what: &str) -> Result<String, Error> {
    let mut tx = outbox.pool().begin().await?;
    let number = write(outbox, &mut tx, what).await?;
    tx.commit().await?;
    // A hint; nothing is lost without it.
    outbox.wake();
    Ok(format!("order {number}"))
}

pub(crate) async fn place_and_roll_back(outbox: &SqliteStore) -> Result<String, Error> {
    let mut tx = outbox.pool().begin().await?;
    let number = write(outbox, &mut tx, crate::receiver::ROLLED_BACK).await?;
    tx.rollback().await?;
    outbox.wake();
    Ok(format!("order {number}"))
}

async fn write(outbox: &SqliteStore, tx: &mut Transaction<'_, Sqlite>, what: &str) -> Result<i64, Error> {
    let number = sqlx::query("INSERT INTO orders (what) VALUES (?)").bind(what).execute(&mut **tx).await?;
    let order = Order { number: number.last_insert_rowid(), what };
    let record = NewRecord::json("order.placed", &order)?.key(order.number.to_string());
    outbox.enqueue(tx, record).await?;
    Ok(order.number)
}

pub(crate) async fn count(pool: &SqlitePool) -> Result<i64, Error> {
    Ok(sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(pool).await?)
}
