//! Checks of claims: S1, S2.

use std::collections::HashSet;

use super::{
    StoreHarness,
    trial::{A, B, LAPSE, LEASE, Trial, any, ids, record, sent},
};
use crate::{ClaimRequest, Owner, Pattern, RouteDemand, State, Store};

/// S1: a claim is committed before it is returned: another handle sees it at once.
pub async fn a_claim_is_committed_before_it_is_returned<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let id = trial.enqueue_one(record("a")).await;
    let other = Trial { harness, store: harness.reopen(&trial.store).await };
    let claimed = trial.claim_one(A).await;
    assert_eq!(other.state(id).await, State::Claimed);
    assert!(other.claim(B, 10).await.is_empty(), "another handle claimed the same record");
    other.end(&claimed, sent()).await;
    assert_eq!(trial.state(id).await, State::Sent, "a mark by another handle is seen");
}

/// S1: while records are being sent, enqueues, claims, marks and renewals of others go through.
pub async fn nothing_is_locked_while_records_are_sent<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    trial.enqueue([record("a"), record("a")]).await;
    let held = trial.claim(A, 2).await;
    assert_eq!(held.len(), 2);
    let other = Trial { harness, store: harness.reopen(&trial.store).await };
    let id = other.enqueue_one(record("a")).await;
    let claimed = other.claim_one(B).await;
    assert_eq!(claimed.id, id);
    assert!(other.renew(&[claimed.lease()], LEASE).await.is_empty());
    other.end(&claimed, sent()).await;
    for record in &held {
        trial.end(record, sent()).await;
    }
}

/// S2: claims that run at the same time never share a record, and together take each one once.
pub async fn concurrent_claims_never_share_a_record<H: StoreHarness>(harness: &H) {
    const RECORDS: usize = 300;
    let trial = Trial::new(harness).await;
    trial
        .enqueue((0..RECORDS).map(|n| {
            let new = record("a");
            if n % 3 == 0 { new.key(format!("k{}", n % 7)) } else { new }
        }))
        .await;
    let relays: Vec<_> = (0..6)
        .map(|n| {
            let store = trial.store.clone();
            tokio::spawn(async move {
                let mut taken = Vec::new();
                let mut empty = 0;
                while empty < 20 {
                    let batch = store.claim(&any(Owner::from_random(n + 1), 7)).await.unwrap();
                    assert!(batch.records.len() <= 7, "a claim took more than its limit");
                    empty = if batch.records.is_empty() { empty + 1 } else { 0 };
                    let marks: Vec<_> =
                        batch.records.iter().map(|record| crate::Mark::new(record.lease(), sent())).collect();
                    let report = store.mark(&marks).await.unwrap();
                    assert_eq!(report.lost(), 0, "a record was taken twice");
                    taken.extend(ids(&batch.records));
                    tokio::task::yield_now().await;
                }
                taken
            })
        })
        .collect();
    let mut taken = Vec::new();
    for relay in relays {
        taken.extend(relay.await.expect("a relay runs to its end"));
    }
    taken.extend(ids(&trial.claim(A, RECORDS).await));
    assert_eq!(taken.len(), RECORDS, "each record is taken once");
    assert_eq!(taken.iter().collect::<HashSet<_>>().len(), RECORDS, "a record was taken twice");
}

/// S2: one claim never takes more than its limit, fresh records and lapsed ones together; a limit of zero
/// takes none.
pub async fn a_claim_never_takes_more_than_its_limit<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    trial.enqueue((0..3).map(|_| record("a"))).await;
    assert_eq!(trial.claim(A, 3).await.len(), 3);
    trial.advance(LAPSE).await;
    trial.enqueue((0..10).map(|n| if n < 5 { record("a") } else { record("b").key("k") })).await;
    for limit in [0, 1, 3] {
        // The route would allow more.
        let routes = vec![RouteDemand::new(Pattern::Default, 100)];
        let batch = trial.batch(&ClaimRequest::new(B, LEASE, limit, routes)).await;
        assert_eq!(batch.records.len(), limit);
    }
}

/// S2: the records of one claim come back sorted by `seq`, whatever the order in which they fell due.
pub async fn claimed_records_come_back_in_seq_order<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    trial.enqueue((0..5).map(|n| record("a").delay(LEASE * (5 - n)))).await;
    trial.enqueue((0..5).map(|n| record("b").key(format!("k{}", 5 - n)))).await;
    trial.advance(LEASE * 6).await;
    let seqs: Vec<i64> = trial.claim(A, 8).await.iter().map(|record| record.seq).collect();
    assert_eq!(seqs.len(), 8);
    assert!(seqs.is_sorted(), "{seqs:?} are not in order");
}
