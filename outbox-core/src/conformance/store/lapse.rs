//! Checks of what a dead relay leaves behind: R8, R9.

use std::time::Duration;

use super::{
    StoreHarness,
    trial::{A, B, LAPSE, LEASE, Trial, any, deferred, ids, keyed, record, retry, sent},
};
use crate::{Operate, Settlement};

/// R8: what a dead relay held goes out again after one lease.
pub async fn what_a_dead_relay_held_goes_out_after_one_lease<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let mut held = trial.enqueue((0..5).map(|_| record("a"))).await;
    assert_eq!(trial.claim(A, 10).await.len(), 5);
    trial.advance(LEASE).await;
    let mut taken = Vec::new();
    for _ in 0..5 {
        let claimed = trial.claim_one(B).await;
        taken.push(claimed.id);
        trial.end(&claimed, sent()).await;
    }
    taken.sort_unstable();
    held.sort_unstable();
    assert_eq!(taken, held);
}

/// R9: a lapse is no failure of the record: its attempt is refunded, and the lapse is counted.
pub async fn a_lapse_refunds_the_attempt_and_is_counted<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let id = trial.enqueue_one(record("a")).await;
    let first = trial.claim_one(A).await;
    trial.end(&first, retry(Duration::ZERO)).await;
    for lapses in 0..4 {
        let claimed = trial.claim_one(A).await;
        assert_eq!((claimed.attempts, claimed.lapses), (2, lapses));
        let view = trial.show(id).await;
        assert_eq!((view.attempts, view.lapses), (2, lapses));
        trial.advance(LAPSE).await;
    }
}

/// R9: at most one record with lapses, or of a lease that has run out, is in a claim; fresh ones do not wait
/// behind them.
pub async fn one_suspect_is_claimed_at_a_time<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let lapsed = trial.enqueue((0..30).map(|n| record("a").key(format!("k{}", n % 20)))).await;
    assert_eq!(trial.claim(A, 30).await.len(), 30);
    trial.advance(LAPSE).await;
    let fresh = trial.enqueue((0..10).map(|_| record("a"))).await;
    let first = trial.claim(B, 11).await;
    let (old, new): (Vec<_>, Vec<_>) = ids(&first).into_iter().partition(|id| lapsed.contains(id));
    assert_eq!((old.len(), new), (1, fresh), "one suspect, and every fresh record");
    // Pending with a lapse of the past, it is still a suspect.
    let suspect = first.iter().find(|record| record.id == old[0]).unwrap();
    assert_eq!(suspect.lapses, 1);
    trial.end(suspect, Settlement::Released).await;
    for _ in 0..3 {
        assert_eq!(trial.claim(B, 100).await.len(), 1, "one suspect at a time");
    }
}

/// R9: a relay that has a suspect under way asks for none and gets none.
pub async fn no_suspect_is_claimed_unless_asked_for<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    trial.enqueue([record("a"), record("a")]).await;
    let claimed = trial.claim(A, 2).await;
    trial.advance(LAPSE).await;
    let lapsed = trial.claim_one(B).await;
    trial.end(&lapsed, deferred(Duration::ZERO)).await;
    let fresh = trial.enqueue_one(record("a")).await;
    let mut request = any(B, 10);
    request.suspect = false;
    assert_eq!(ids(&trial.batch(&request).await.records), [fresh]);
    assert!(trial.batch(&request).await.records.is_empty());
    let mut taken = Vec::new();
    for _ in 0..2 {
        taken.extend(ids(&trial.claim(B, 10).await));
    }
    taken.sort_unstable();
    let mut expected = ids(&claimed);
    expected.sort_unstable();
    assert_eq!(taken, expected, "asked for, they come");
}

/// R9: only lapses in a row count: a relay that lived to write a retry sets them back. A deferral does not.
pub async fn a_retry_sets_lapses_back<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    trial.enqueue_one(record("a")).await;
    trial.claim_one(A).await;
    trial.advance(LAPSE).await;
    let claimed = trial.claim_one(A).await;
    assert_eq!(claimed.lapses, 1);
    trial.end(&claimed, deferred(Duration::ZERO)).await;
    let claimed = trial.claim_one(A).await;
    assert_eq!((claimed.attempts, claimed.lapses), (1, 1), "a deferral sets nothing back");
    trial.end(&claimed, retry(Duration::ZERO)).await;
    let claimed = trial.claim_one(A).await;
    assert_eq!((claimed.attempts, claimed.lapses), (2, 0));
}

/// R9: a suspect takes no run of its key with it, and a run takes no suspect in.
pub async fn a_suspect_goes_alone_of_its_key<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let line = trial.enqueue([keyed("k"), keyed("k")]).await;
    assert_eq!(trial.claim(A, 1).await.len(), 1);
    trial.advance(LAPSE).await;
    let alone = trial.claim(B, 10).await;
    assert_eq!(ids(&alone), [line[0]]);
    trial.end(&alone[0], sent()).await;
    let second = trial.claim_one(A).await;
    trial.advance(LAPSE).await;
    let third = trial.enqueue_one(keyed("k")).await;
    // An operator sends the first once more: it is fresh, and a suspect stands behind it.
    assert_eq!(trial.store.resend(&crate::Filter::default(), None, 1).await.unwrap(), 1);
    let run = trial.claim(B, 10).await;
    assert_eq!(ids(&run), [line[0]], "a suspect was taken along in a run");
    trial.end(&run[0], sent()).await;
    let suspect = trial.claim(B, 10).await;
    assert_eq!(ids(&suspect), [second.id]);
    trial.end(&suspect[0], sent()).await;
    assert_eq!(ids(&trial.claim(B, 10).await), [third]);
}
