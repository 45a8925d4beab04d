//! Records a second through claim and mark, beside a hand-written loop on the same server in the same run.
//!
//! `OUTBOX_TEST_POSTGRES_URL=… cargo bench -p outbox-postgres --bench claim`
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench prints, and fails by panicking"
)]

use std::time::{Duration, Instant};

use outbox_core::{ClaimRequest, Mark, Owner, Pattern, RouteDemand, Settlement, Store};
use outbox_postgres::{PostgresConfig, PostgresStore};
use sqlx::{AssertSqlSafe, PgPool, Row};

const RECORDS: usize = 50_000;
const BATCH: usize = 500;

fn main() {
    let Ok(url) = std::env::var("OUTBOX_TEST_POSTGRES_URL") else {
        println!("OUTBOX_TEST_POSTGRES_URL names no server: nothing was measured");
        return;
    };
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(run(&url));
}

async fn run(url: &str) {
    let pool = PgPool::connect(url).await.unwrap();
    let schema = format!("bench{}", std::process::id());
    execute(&pool, format!("CREATE SCHEMA {schema}")).await;
    let store = PostgresStore::with_config(pool.clone(), PostgresConfig::new().with_schema(&schema)).unwrap();
    store.migrate().await.unwrap();
    println!("| {RECORDS} records of 250 bytes, {BATCH} a claim, one connection | records/s |\n|---|---|");
    let ceiling = by_hand(&pool, &schema).await;
    println!("| hand-written: claim, commit, mark, commit | {ceiling:.0} |");
    for (name, key) in [("no key", "NULL"), ("1,000 keys", "'k' || n % 1000"), ("one key", "'k'")] {
        execute(&pool, format!("TRUNCATE {schema}.outbox")).await;
        fill(&pool, &format!("{schema}.outbox"), key).await;
        let rate = drain(&store).await;
        println!("| this store, {name} | {rate:.0} ({:.2} of it) |", rate / ceiling);
    }
    execute(&pool, format!("DROP SCHEMA {schema} CASCADE")).await;
}

async fn execute(pool: &PgPool, sql: String) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.unwrap();
}

async fn fill(pool: &PgPool, table: &str, key: &str) {
    let sql = format!(
        "INSERT INTO {table} (kind, key, payload) SELECT 'a', {key}, ('\"' || repeat('x', 248) || '\"')::json \
         FROM generate_series(1, {RECORDS}) n; ANALYZE {table}"
    );
    execute(pool, sql).await;
}

fn rate(since: Instant) -> f64 {
    RECORDS as f64 / since.elapsed().as_secs_f64()
}

async fn by_hand(pool: &PgPool, schema: &str) -> f64 {
    let table = format!("{schema}.plain");
    execute(
        pool,
        format!(
            "CREATE TABLE {table} (seq bigserial PRIMARY KEY, kind text, key text, payload json, claimed_at timestamptz, \
             sent_at timestamptz); CREATE INDEX ON {table} (seq) WHERE claimed_at IS NULL"
        ),
    )
    .await;
    fill(pool, &table, "NULL").await;
    let claim = format!(
        "WITH c AS MATERIALIZED (SELECT seq FROM {table} WHERE claimed_at IS NULL ORDER BY seq LIMIT {BATCH} \
         FOR UPDATE SKIP LOCKED) UPDATE {table} t SET claimed_at = now() FROM c WHERE t.seq = c.seq \
         RETURNING t.seq, t.kind, t.payload::text"
    );
    let mark = format!("UPDATE {table} SET sent_at = now() WHERE seq = ANY ($1)");
    let mut connection = pool.acquire().await.unwrap();
    let start = Instant::now();
    loop {
        let rows = sqlx::query(AssertSqlSafe(claim.as_str())).fetch_all(&mut *connection).await.unwrap();
        let seqs: Vec<i64> = rows.iter().map(|row| row.get("seq")).collect();
        if seqs.is_empty() {
            return rate(start);
        }
        sqlx::query(AssertSqlSafe(mark.as_str())).bind(seqs).execute(&mut *connection).await.unwrap();
    }
}

async fn drain(store: &PostgresStore) -> f64 {
    let owner = Owner::from_random(7);
    let routes = vec![RouteDemand::new(Pattern::Default, BATCH)];
    let request = ClaimRequest::new(owner, Duration::from_secs(10), BATCH, routes);
    let start = Instant::now();
    loop {
        let records = store.claim(&request).await.unwrap().records;
        if records.is_empty() {
            return rate(start);
        }
        let marks: Vec<Mark> = records
            .iter()
            .map(|record| Mark::new(record.lease(), Settlement::Sent { receipt: None }))
            .collect();
        store.mark(&marks).await.unwrap();
    }
}
