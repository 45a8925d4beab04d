//! What PostgreSQL alone can do wrong.

use std::{collections::HashSet, time::Duration};

use outbox_core::{
    ClaimRequest, Mark, NewRecord, Owner, Pattern, RouteDemand, Settlement, Store, StoreErrorKind, Wake,
};
use outbox_postgres::{PostgresConfig, PostgresStore};

use crate::harness::{PostgresHarness, server};

const LEASE: Duration = Duration::from_secs(60);

fn request(owner: u64, limit: usize) -> ClaimRequest {
    ClaimRequest::new(
        Owner::from_random(owner),
        LEASE,
        limit,
        vec![RouteDemand::new(Pattern::Default, limit)],
    )
}

/// S2: eight relays at once take each record once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_relays_take_each_record_once() {
    const RECORDS: i64 = 20_000;
    if server().is_none() {
        return;
    }
    let outbox = PostgresHarness::default().outbox().await;
    outbox
        .run(&format!(
            "INSERT INTO {{outbox}} (kind, payload, key) SELECT 'a', '1', CASE WHEN n % 2 = 0 THEN 'k' || n % 500 END \
             FROM generate_series(1, {RECORDS}) n"
        ))
        .await;
    let relays: Vec<_> = (1..=8)
        .map(|owner| {
            let store = outbox.store.clone();
            tokio::spawn(async move {
                let (mut taken, mut empty) = (Vec::new(), 0);
                while empty < 50 {
                    let records = store.claim(&request(owner, 500)).await.unwrap().records;
                    empty = if records.is_empty() { empty + 1 } else { 0 };
                    let sent = |record: &outbox_core::Record| {
                        Mark::new(record.lease(), Settlement::Sent { receipt: None })
                    };
                    let marks: Vec<Mark> = records.iter().map(sent).collect();
                    assert_eq!(store.mark(&marks).await.unwrap().lost(), 0);
                    taken.extend(records.into_iter().map(|record| record.seq));
                }
                taken
            })
        })
        .collect();
    let mut taken = Vec::new();
    for relay in relays {
        taken.extend(relay.await.unwrap());
    }
    assert_eq!(taken.iter().collect::<HashSet<_>>().len(), taken.len(), "a record was taken twice");
    assert_eq!(i64::try_from(taken.len()).unwrap(), RECORDS);
}

/// S2: rows that are marked and renewed at once in opposite orders do not deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_and_renewals_in_opposite_orders_do_not_deadlock() {
    if server().is_none() {
        return;
    }
    let outbox = PostgresHarness::default().outbox().await;
    outbox.run("INSERT INTO {outbox} (kind, payload) SELECT 'a', '1' FROM generate_series(1, 3000)").await;
    let records = outbox.store.claim(&request(1, 3_000)).await.unwrap().records;
    assert_eq!(records.len(), 3_000);
    let leases: Vec<_> = records.iter().rev().map(outbox_core::Record::lease).collect();
    let marks: Vec<_> =
        records.iter().map(|record| Mark::new(record.lease(), Settlement::Sent { receipt: None })).collect();
    let store = outbox.store.clone();
    let renewing = tokio::spawn(async move { store.renew(&leases, LEASE).await });
    assert_eq!(outbox.store.mark(&marks).await.unwrap().lost(), 0);
    renewing.await.unwrap().unwrap();
}

#[tokio::test]
async fn two_migrations_at_once_are_safe() {
    if server().is_none() {
        return;
    }
    let outbox = PostgresHarness::default().outbox().await;
    let config = PostgresConfig::new().with_schema(&outbox.schema).with_table("other");
    let store = PostgresStore::with_config(outbox.pool.clone(), config).unwrap();
    let (one, two) = tokio::join!(store.migrate(), store.migrate());
    one.unwrap();
    two.unwrap();
    let mut connection = outbox.pool.acquire().await.unwrap();
    store.enqueue(&mut connection, NewRecord::json("a", &1).unwrap()).await.unwrap();
    assert_eq!(store.claim(&request(1, 10)).await.unwrap().records.len(), 1);
}

#[tokio::test]
async fn a_name_that_is_no_identifier_is_refused() {
    let pool = sqlx::PgPool::connect_lazy("postgres://nobody@127.0.0.1:1/none").unwrap();
    for name in ["", "a b", "a\"b", "1a", &"a".repeat(49)] {
        let refused = PostgresStore::with_config(pool.clone(), PostgresConfig::new().with_table(name));
        assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Config);
    }
}

/// R6: a relay of another process is woken after the commit, and without a hint its wait ends by itself.
#[tokio::test]
async fn a_wake_reaches_another_process() {
    if server().is_none() {
        return;
    }
    let outbox = PostgresHarness::default().outbox().await;
    let config = PostgresConfig::new().with_schema(&outbox.schema);
    let other = PostgresStore::with_config(outbox.pool.clone(), config).unwrap();
    let waiting = async {
        for _ in 0..100 {
            if other.wait(Duration::from_millis(500)).await.unwrap() == Wake::Hint {
                return;
            }
        }
        panic!("no wake-up was heard");
    };
    let waking = async {
        loop {
            outbox.store.wake_all().await.unwrap();
            // real time: the other side is waiting by then.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = waiting => {}
        () = waking => {}
    }
}
