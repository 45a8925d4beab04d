//! The relay itself on a file.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use outbox_core::{
    ClaimBatch, ClaimRequest, Lease, Mark, MarkReport, MemorySink, NewRecord, Owner, Pattern, Presence,
    Retention, Stats, Store, StoreError, Swept, Wake, async_trait, relay::Relay,
};
use outbox_sqlite::SqliteStore;

use crate::{harness::Files, process::enqueue};

/// A store that counts its claims.
#[derive(Clone)]
struct Counted {
    store: SqliteStore,
    claims: Arc<AtomicU64>,
}

#[async_trait]
impl Store for Counted {
    async fn enter(&self, owner: Owner) -> Result<Box<dyn Presence>, StoreError> {
        self.store.enter(owner).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch, StoreError> {
        self.claims.fetch_add(1, Ordering::Relaxed);
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

async fn received(sink: &MemorySink, count: usize) {
    let all = async {
        while sink.received().len() < count {
            // real time: the file and its locks are real.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("all is sent in time");
}

/// S2: two relays on one file send each record once, and those of a key in order.
#[tokio::test(flavor = "multi_thread")]
async fn two_relays_send_each_record_once_and_each_key_in_order() {
    let files = Files::new();
    let store = files.open("app.db").await;
    let sink = MemorySink::new();
    let relay = |store| Relay::new(store).route("*", sink.clone());
    let other = files.open("app.db").await;
    let done = || received(&sink, 2_000);
    let fill = async {
        for n in 0..20 {
            let mut transaction = store.pool().begin().await.unwrap();
            let records: Vec<_> = (0..100)
                .map(|m| NewRecord::json("order.placed", &(n * 100 + m)).unwrap().key(format!("k{}", m % 30)))
                .collect();
            store.enqueue_all(&mut transaction, &records).await.unwrap();
            transaction.commit().await.unwrap();
        }
    };
    let (one, two, ()) = tokio::join!(relay(store.clone()).run(done()), relay(other).run(done()), fill);
    one.unwrap();
    two.unwrap();
    let mut last: HashMap<String, i64> = HashMap::new();
    let received = sink.received();
    assert_eq!(received.len(), 2_000, "a record was sent twice");
    for record in received {
        let before = last.insert(record.key.clone().unwrap(), record.seq);
        assert!(before.is_none_or(|before| before < record.seq), "a key went out of order");
    }
    assert_eq!(store.stats(&[Pattern::Default]).await.unwrap().sent.value, 2_000);
}

/// S9: a relay with nothing to do rests: its own writes are no reason to look again and again.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_relay_rests() {
    let files = Files::new();
    let store = files.open("app.db").await;
    let counted = Counted { store: store.clone(), claims: Arc::default() };
    let sink = MemorySink::new();
    enqueue(&store, NewRecord::json("order.placed", &1).unwrap()).await;
    enqueue(&store, NewRecord::json("order.placed", &2).unwrap().delay(Duration::from_secs(3_600))).await;
    let watch = async {
        received(&sink, 1).await;
        // real time: what is counted is how often a real file is looked at.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let before = counted.claims.load(Ordering::Relaxed);
        // real time: as above.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let claims = counted.claims.load(Ordering::Relaxed) - before;
        assert!(claims <= 10, "{claims} claims in two idle seconds");
    };
    Relay::new(counted.clone()).route("*", sink.clone()).run(watch).await.unwrap();
}
