//! Outboxes on a real server, each in a schema of its own.

use std::{str::FromStr, time::Duration};

use async_trait::async_trait;
use outbox_core::{
    Enqueue, Enqueued, NewRecord, StoreError,
    conformance::store::{SetDue, StoreHarness},
};
use outbox_postgres::{PostgresConfig, PostgresStore};
use sqlx::{
    AssertSqlSafe, PgPool, Postgres, Row, Transaction,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use uuid::Uuid;

/// The server's address. None: the test skips, loudly, and fails where services must be there.
pub(crate) fn server() -> Option<String> {
    let url = std::env::var("OUTBOX_TEST_POSTGRES_URL").ok();
    let set = |name, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    let must = set("CI", "true") || set("OUTBOX_TEST_REQUIRE_SERVICES", "1");
    assert!(url.is_some() || !must, "OUTBOX_TEST_POSTGRES_URL names no server");
    if url.is_none() {
        eprintln!("SKIPPED: OUTBOX_TEST_POSTGRES_URL names no server");
    }
    url
}

#[derive(Default)]
pub(crate) struct PostgresHarness {
    options: Vec<(&'static str, &'static str)>,
}

/// An outbox with the pool that its tests use beside it.
#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    pub(crate) store: PostgresStore,
    pub(crate) pool: PgPool,
    pub(crate) schema: String,
}

impl PostgresHarness {
    pub(crate) fn serializable() -> Self {
        Self {
            options: vec![
                ("default_transaction_isolation", "serializable"),
                ("default_transaction_read_only", "on"),
                ("search_path", ""),
            ],
        }
    }

    pub(crate) async fn outbox(&self) -> Outbox {
        let options = PgConnectOptions::from_str(&server().unwrap()).unwrap().options(self.options.clone());
        let pool = PgPoolOptions::new().max_connections(12).connect_with(options).await.unwrap();
        let schema = format!("t{}", Uuid::now_v7().simple());
        let create = format!("BEGIN READ WRITE; CREATE SCHEMA {schema}; COMMIT");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&pool).await.unwrap();
        let config = PostgresConfig::new().with_schema(&schema);
        let store = PostgresStore::with_config(pool.clone(), config).unwrap();
        store.migrate().await.unwrap();
        Outbox { store, pool, schema }
    }
}

impl Outbox {
    /// Runs a statement in which `{outbox}` stands for the table.
    pub(crate) async fn run(&self, sql: &str) -> Vec<sqlx::postgres::PgRow> {
        let table = |name: &str| format!("{}.{name}", self.schema);
        let sql = sql
            .replace("{outbox}", &table("outbox"))
            .replace("{dedup}", &table("outbox_dedup"))
            .replace("{inbox}", &table("outbox_inbox"));
        let mut tx = self.pool.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").await.unwrap();
        let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        rows
    }
}

/// The traits are on the outbox, so that a check's store brings its pool along.
mod as_store {
    use outbox_core::{
        ClaimBatch, ClaimRequest, Filter, Lease, Mark, MarkReport, Operate, Pattern, Pause, PauseScope,
        Payload, RecordView, Retention, Stats, Store, Swept, Wake,
    };
    use std::num::NonZeroU32;

    use super::*;

    #[async_trait]
    impl Store for Outbox {
        async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch, StoreError> {
            self.store.claim(request).await
        }
        async fn mark(&self, marks: &[Mark]) -> Result<MarkReport, StoreError> {
            self.store.mark(marks).await
        }
        async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, StoreError> {
            self.store.renew(leases, lease_for).await
        }
        async fn wait(&self, at_most: Duration) -> Result<Wake, StoreError> {
            self.store.wait(at_most).await
        }
        async fn sweep(&self, retention: &Retention) -> Result<Swept, StoreError> {
            self.store.sweep(retention).await
        }
        async fn stats(&self, routed: &[Pattern]) -> Result<Stats, StoreError> {
            self.store.stats(routed).await
        }
    }

    #[async_trait]
    impl Operate for Outbox {
        async fn list(
            &self,
            filter: &Filter,
            after_seq: i64,
            limit: usize,
        ) -> Result<Vec<RecordView>, StoreError> {
            self.store.list(filter, after_seq, limit).await
        }
        async fn show(&self, id: Uuid) -> Result<Option<(RecordView, Payload)>, StoreError> {
            self.store.show(id).await
        }
        async fn redrive(&self, ids: &[Uuid]) -> Result<u64, StoreError> {
            self.store.redrive(ids).await
        }
        async fn redrive_filtered(
            &self,
            filter: &Filter,
            per_second: Option<NonZeroU32>,
            limit: usize,
        ) -> Result<u64, StoreError> {
            self.store.redrive_filtered(filter, per_second, limit).await
        }
        async fn discard(&self, ids: &[Uuid], reason: &str) -> Result<u64, StoreError> {
            self.store.discard(ids, reason).await
        }
        async fn resend(
            &self,
            filter: &Filter,
            per_second: Option<NonZeroU32>,
            limit: usize,
        ) -> Result<u64, StoreError> {
            self.store.resend(filter, per_second, limit).await
        }
        async fn pause(&self, scope: &PauseScope, reason: &str) -> Result<(), StoreError> {
            self.store.pause(scope, reason).await
        }
        async fn resume(&self, scope: &PauseScope) -> Result<bool, StoreError> {
            self.store.resume(scope).await
        }
        async fn pauses(&self) -> Result<Vec<Pause>, StoreError> {
            self.store.pauses().await
        }
    }
}

#[async_trait]
impl StoreHarness for PostgresHarness {
    type Store = Outbox;
    type Transaction = Transaction<'static, Postgres>;

    const OVERLAPPING_WRITERS: bool = true;

    async fn store(&self) -> Outbox {
        self.outbox().await
    }

    async fn begin(&self, outbox: &Outbox) -> Self::Transaction {
        outbox.pool.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").await.unwrap()
    }

    async fn enqueue(
        &self,
        outbox: &Outbox,
        transaction: &mut Self::Transaction,
        records: &[NewRecord],
    ) -> Result<Vec<Enqueued>, StoreError> {
        outbox.store.enqueue_all(transaction, records).await
    }

    async fn accept(
        &self,
        outbox: &Outbox,
        transaction: &mut Self::Transaction,
        consumer: &str,
        id: Uuid,
    ) -> Result<bool, StoreError> {
        outbox.store.accept(transaction, consumer, id).await
    }

    async fn commit(&self, transaction: Self::Transaction) {
        transaction.commit().await.unwrap();
    }

    async fn rollback(&self, transaction: Self::Transaction) {
        transaction.rollback().await.unwrap();
    }

    async fn advance(&self, outbox: &Outbox, time: Duration) {
        let by = format!("interval '{} microseconds'", time.as_micros());
        outbox
            .run(&format!(
                "UPDATE {{outbox}} SET send_after = send_after - {by}, created_at = created_at - {by}, \
                 sent_at = sent_at - {by}, dead_at = dead_at - {by}; \
                 UPDATE {{dedup}} SET keep_until = keep_until - {by}; \
                 UPDATE {{inbox}} SET accepted_at = accepted_at - {by}"
            ))
            .await;
    }

    async fn insert_plain(&self, outbox: &Outbox, kind: &str, payload: &str) -> Uuid {
        let sql =
            format!("INSERT INTO {{outbox}} (kind, payload) VALUES ('{kind}', '{payload}') RETURNING id");
        outbox.run(&sql).await[0].try_get_unchecked::<String, _>("id").unwrap().parse().unwrap()
    }

    async fn insert_undecodable(&self, outbox: &Outbox, kind: &str) -> Uuid {
        let sql = format!(
            "INSERT INTO {{outbox}} (kind, payload, headers) VALUES ('{kind}', '1', '{{\"n\": 1}}') RETURNING id"
        );
        outbox.run(&sql).await[0].try_get_unchecked::<String, _>("id").unwrap().parse().unwrap()
    }

    async fn delete(&self, outbox: &Outbox, id: Uuid) {
        outbox.run(&format!("DELETE FROM {{outbox}} WHERE id = '{id}'")).await;
    }

    async fn set_due(&self, outbox: &Outbox, id: Uuid, due: SetDue) -> bool {
        let due = match due {
            SetDue::Always => "-infinity",
            _ => "infinity",
        };
        outbox.run(&format!("UPDATE {{outbox}} SET send_after = '{due}' WHERE id = '{id}'")).await;
        true
    }
}
