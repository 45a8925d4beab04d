//! Outboxes in temporary files, for the shared checks.

use std::{path::PathBuf, time::Duration};

use outbox_core::{
    Enqueued, NewRecord, StoreError, Uuid, async_trait,
    conformance::store::{SetDue, StoreHarness},
};
use outbox_sqlite::{SqliteConfig, SqliteStore};
use sqlx::{AssertSqlSafe, Sqlite, Transaction};
use tempfile::TempDir;

/// Each outbox is a file of its own in one folder, which goes with the harness.
pub(crate) struct Files {
    folder: TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) async fn open(&self, name: &str) -> SqliteStore {
        SqliteStore::connect(self.path(name), SqliteConfig::new()).await.unwrap()
    }
}

async fn run(store: &SqliteStore, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(store.pool()).await.unwrap();
}

async fn inserted(store: &SqliteStore, sql: &'static str, kind: &str, text: &str) -> Uuid {
    let id: String = sqlx::query_scalar(sql).bind(kind).bind(text).fetch_one(store.pool()).await.unwrap();
    id.parse().unwrap()
}

#[async_trait]
impl StoreHarness for Files {
    type Store = SqliteStore;
    type Transaction = Transaction<'static, Sqlite>;

    const OVERLAPPING_WRITERS: bool = false;

    async fn store(&self) -> SqliteStore {
        self.open(&format!("{}.db", Uuid::now_v7())).await
    }

    async fn reopen(&self, store: &SqliteStore) -> SqliteStore {
        let options = store.pool().connect_options();
        SqliteStore::connect(options.get_filename(), SqliteConfig::new()).await.unwrap()
    }

    async fn begin(&self, store: &SqliteStore) -> Self::Transaction {
        store.pool().begin().await.unwrap()
    }

    async fn enqueue(
        &self,
        store: &SqliteStore,
        transaction: &mut Self::Transaction,
        records: &[NewRecord],
    ) -> Result<Vec<Enqueued>, StoreError> {
        store.enqueue_all(transaction, records).await
    }

    async fn accept(
        &self,
        store: &SqliteStore,
        transaction: &mut Self::Transaction,
        consumer: &str,
        id: Uuid,
    ) -> Result<bool, StoreError> {
        store.accept(transaction, consumer, id).await
    }

    async fn commit(&self, transaction: Self::Transaction) {
        transaction.commit().await.unwrap();
    }

    async fn rollback(&self, transaction: Self::Transaction) {
        transaction.rollback().await.unwrap();
    }

    async fn advance(&self, store: &SqliteStore, time: Duration) {
        let by = i64::try_from(time.as_millis()).unwrap();
        run(
            store,
            &format!(
                "UPDATE outbox SET
                    created_at = created_at - {by},
                    send_after = CASE
                        WHEN send_after IN (-9223372036854775808, 9223372036854775807) THEN send_after
                        ELSE send_after - {by} END,
                    sent_at = sent_at - {by},
                    dead_at = dead_at - {by};
                UPDATE outbox_dedup SET keep_until = keep_until - {by};
                UPDATE outbox_inbox SET created_at = created_at - {by};
                UPDATE outbox_pauses SET since = since - {by};"
            ),
        )
        .await;
    }

    async fn insert_plain(&self, store: &SqliteStore, kind: &str, payload: &str) -> Uuid {
        inserted(store, "INSERT INTO outbox (kind, payload) VALUES (?1, ?2) RETURNING id", kind, payload)
            .await
    }

    async fn insert_undecodable(&self, store: &SqliteStore, kind: &str) -> Uuid {
        let sql = "INSERT INTO outbox (kind, headers, payload) VALUES (?1, ?2, '{}') RETURNING id";
        inserted(store, sql, kind, "{\"n\": 1}").await
    }

    async fn delete(&self, store: &SqliteStore, id: Uuid) {
        run(store, &format!("DELETE FROM outbox WHERE id = '{id}'")).await;
    }

    async fn set_due(&self, store: &SqliteStore, id: Uuid, due: SetDue) -> bool {
        let time = match due {
            SetDue::Always => i64::MIN,
            SetDue::Never => i64::MAX,
            _ => return false,
        };
        run(store, &format!("UPDATE outbox SET send_after = {time} WHERE id = '{id}'")).await;
        true
    }
}
