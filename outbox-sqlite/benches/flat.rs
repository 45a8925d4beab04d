//! What a claim costs beside rows that it cannot take. `cargo bench -p outbox-sqlite --bench flat -- 1000000` puts a
//! million in its way, 100,000 when not told.
//!
//! Each line: the first claim, which may have to put rows aside; the median and the slowest of the claims after it;
//! the median mark; and the records that one thread claims and marks in a second, 500 at a time.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints, and fails by panicking")]

use std::time::{Duration, Instant};

use outbox_core::{ClaimRequest, Mark, Operate, Owner, Pattern, PauseScope, RouteDemand, Settlement, Store};
use outbox_sqlite::{SqliteConfig, SqliteStore};
use sqlx::AssertSqlSafe;

const BATCH: usize = 500;
const FRESH: usize = 10_000;

struct Scenario {
    name: &'static str,
    /// Columns and their values for row `i`.
    columns: &'static str,
    values: &'static str,
    before: &'static str,
    routes: &'static [(&'static str, usize)],
}

const ANY: &[(&str, usize)] = &[("*", BATCH)];
const MINE: &[(&str, usize)] = &[("mine.*", BATCH), ("full.*", 0)];

const NOW: &str = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)";

const SCENARIOS: &[Scenario] = &[
    Scenario { name: "nothing", columns: "", values: "", before: "", routes: ANY },
    Scenario { name: "sent, kept", columns: "sent_at, fence", values: "{now}, 2", before: "", routes: ANY },
    Scenario {
        name: "scheduled for tomorrow",
        columns: "send_after",
        values: "{now} + 86400000 + i",
        before: "",
        routes: ANY,
    },
    Scenario {
        name: "scheduled, one key",
        columns: "key, send_after",
        values: "'k', {now} + 86400000 + i",
        before: "",
        routes: ANY,
    },
    Scenario { name: "a kind not asked for", columns: "kind", values: "'other'", before: "", routes: MINE },
    Scenario {
        name: "10,000 kinds not asked for",
        columns: "kind",
        values: "'other.' || (i % 10000)",
        before: "",
        routes: MINE,
    },
    Scenario {
        name: "10,000 kinds of a full route",
        columns: "kind",
        values: "'full.' || (i % 10000)",
        before: "",
        routes: &[("*", BATCH), ("full.*", 0)],
    },
    Scenario {
        name: "10,000 kinds, all due",
        columns: "kind",
        values: "'mine.' || (i % 10000)",
        before: "",
        routes: ANY,
    },
    Scenario {
        name: "10,000 kinds, scheduled",
        columns: "kind, send_after",
        values: "'mine.' || (i % 10000), {now} + 86400000",
        before: "",
        routes: ANY,
    },
    Scenario {
        name: "behind one failing key",
        columns: "key",
        values: "'k'",
        before: "INSERT INTO outbox (kind, payload, key, fence, attempts, send_after) VALUES ('mine.a', '{}', 'k', 2, 1, {now} + 86400000)",
        routes: ANY,
    },
    Scenario {
        name: "behind 100,000 dead keys",
        columns: "key",
        values: "'k' || (i % 100000)",
        before: "INSERT INTO outbox (kind, payload, key, fence, dead_at, blocks_key) WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999) SELECT 'mine.a', '{}', 'k' || i, 2, {now}, 1 FROM n",
        routes: ANY,
    },
    Scenario {
        name: "to a paused destination",
        columns: "destination",
        values: "'paused'",
        before: "",
        routes: ANY,
    },
    Scenario {
        name: "to a closed destination",
        columns: "destination",
        values: "'down'",
        before: "",
        routes: ANY,
    },
    Scenario {
        name: "to 1,000 closed destinations",
        columns: "destination",
        values: "'down ' || (i % 1000)",
        before: "",
        routes: ANY,
    },
    Scenario {
        name: "held by a live relay",
        columns: "owner, fence, attempts, send_after",
        values: "7, 1, 1, {now} + 86400000",
        before: "",
        routes: ANY,
    },
    Scenario {
        name: "left by a dead relay",
        columns: "owner, fence, attempts, send_after",
        values: "7, 1, 1, {now} - 1",
        before: "",
        routes: ANY,
    },
    Scenario {
        name: "left by a dead relay, one key",
        columns: "key, owner, fence, attempts, send_after",
        values: "'k', 7, 1, 1, {now} - 1",
        before: "",
        routes: ANY,
    },
];

fn main() {
    let rows = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(100_000_u32);
    let only = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-') && argument.parse::<u32>().is_err());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    println!("{rows} rows in the way, {BATCH} records a claim");
    println!(
        "{:<32} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10}",
        "rows in the way", "first ms", "claims", "claim ms", "slowest", "mark ms", "records/s"
    );
    for scenario in
        SCENARIOS.iter().filter(|scenario| only.as_ref().is_none_or(|only| scenario.name.contains(&**only)))
    {
        runtime.block_on(measure(scenario, rows));
    }
}

async fn measure(scenario: &Scenario, rows: u32) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::connect(folder.path().join("flat.db"), SqliteConfig::new()).await.unwrap();
    store.pause(&PauseScope::Destination("paused".into()), "bench").await.unwrap();
    if !scenario.before.is_empty() {
        run(&store, scenario.before).await;
    }
    if !scenario.columns.is_empty() {
        let kind = if scenario.columns.contains("kind") { ("", "") } else { ("kind, ", "'mine.a', ") };
        run(
            &store,
            &format!(
                "INSERT INTO outbox ({}payload, {}) WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n \
                 WHERE i < {}) SELECT {}'{{\"n\":1}}', {} FROM n",
                kind.0, scenario.columns, rows - 1, kind.1, scenario.values
            ),
        )
        .await;
    }
    run(
        &store,
        &format!(
            "INSERT INTO outbox (kind, payload, key, destination) WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT \
             i + 1 FROM n WHERE i < {}) SELECT 'mine.' || (i % 4), '{{\"order\":\"o-17\",\"total\":12.5}}', \
             CASE i % 2 WHEN 0 THEN 'fresh ' || (i % 1000) END, 'up ' || (i % 10) FROM n",
            FRESH - 1
        ),
    )
    .await;
    run(&store, "PRAGMA wal_checkpoint(TRUNCATE)").await;

    let mut routes: Vec<RouteDemand> = scenario
        .routes
        .iter()
        .map(|(pattern, limit)| RouteDemand::new(pattern.parse::<Pattern>().unwrap(), *limit))
        .collect();
    routes[0].destinations.insert("down".into(), 0);
    for down in 0..1_000 {
        routes[0].destinations.insert(format!("down {down}"), 0);
    }
    let mut request = ClaimRequest::new(Owner::from_random(1), Duration::from_secs(600), BATCH, routes);
    request.suspect = true;

    let (mut claims, mut marks) = (Vec::new(), Vec::new());
    let mut fresh = 0;
    let start = Instant::now();
    while fresh < FRESH && claims.len() < 1_000 {
        let claimed = Instant::now();
        let batch = store.claim(&request).await.unwrap();
        claims.push(claimed.elapsed());
        fresh += batch.records.len();
        let ends: Vec<Mark> = batch
            .records
            .iter()
            .map(|record| Mark::new(record.lease(), Settlement::Sent { receipt: Some("ok".into()) }))
            .collect();
        let marked = Instant::now();
        store.mark(&ends).await.unwrap();
        if !ends.is_empty() {
            marks.push(marked.elapsed());
        }
    }
    let elapsed = start.elapsed();
    let first = claims.remove(0);
    let count = claims.len() + 1;
    claims.sort();
    marks.sort();
    let millis = |time: Option<&Duration>| time.map_or(0.0, Duration::as_secs_f64) * 1_000.0;
    println!(
        "{:<32} {:>9.1} {:>9} {:>9.1} {:>9.1} {:>9.1} {:>10.0}",
        scenario.name,
        millis(Some(&first)),
        count,
        millis(claims.get(claims.len() / 2)),
        millis(claims.last()),
        millis(marks.get(marks.len() / 2)),
        fresh as f64 / elapsed.as_secs_f64(),
    );
}

async fn run(store: &SqliteStore, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.replace("{now}", NOW))).execute(store.pool()).await.unwrap();
}
