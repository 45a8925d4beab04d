//! Smoke checks that rows which cannot be taken hold back no other: S8. Speed itself is for a bench.

use super::{
    StoreHarness,
    trial::{A, HOUR, LEASE, Trial, any, dead, ids, keyed, record, retry, routes},
};
use crate::{ClaimRequest, NewRecord, Operate, Pattern, PauseScope, RouteDemand, Uuid};

/// In how many claims the rows that can be taken must have come in.
const CLAIMS: usize = 5;

/// Enqueues in portions, as producers would.
async fn fill<H: StoreHarness>(trial: &Trial<'_, H>, rows: usize, new: impl Fn(usize) -> NewRecord) {
    for start in (0..rows).step_by(2_000) {
        trial.enqueue((start..rows.min(start + 2_000)).map(&new)).await;
    }
}

/// Sees to it that these and no others come in soon.
async fn come_in<H: StoreHarness>(trial: &Trial<'_, H>, request: &ClaimRequest, expected: Vec<Uuid>) {
    let mut taken = Vec::new();
    for _ in 0..CLAIMS {
        taken.extend(ids(&trial.batch(request).await.records));
    }
    taken.sort_unstable();
    let mut expected = expected;
    expected.sort_unstable();
    assert!(taken == expected, "{} of {} came in", taken.len(), expected.len());
}

/// S8: 20,000 rows behind one failing key.
pub async fn rows_behind_a_failing_key_hold_back_no_other<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    trial.enqueue_one(keyed("stuck")).await;
    let head = trial.claim_one(A).await;
    trial.end(&head, retry(HOUR)).await;
    fill(&trial, 20_000, |_| keyed("stuck")).await;
    let others = trial.enqueue((0..40).map(|n| keyed(&format!("k{}", n % 10)))).await;
    come_in(&trial, &any(A, 50), others).await;
}

/// S8: 2,000 keys, each blocked by a dead head.
pub async fn many_blocked_keys_hold_back_no_other<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    fill(&trial, 2_000, |n| keyed(&format!("stuck {n}"))).await;
    let heads = trial.claim(A, 2_000).await;
    assert_eq!(heads.len(), 2_000);
    let marks: Vec<_> = heads.iter().map(|head| crate::Mark::new(head.lease(), dead(true))).collect();
    trial.mark(&marks).await;
    fill(&trial, 4_000, |n| keyed(&format!("stuck {}", n % 2_000))).await;
    let others = trial.enqueue((0..40).map(|_| record("a"))).await;
    come_in(&trial, &any(A, 50), others).await;
}

/// S8: 10,000 rows scheduled for later, with a key and without.
pub async fn scheduled_rows_hold_back_no_other<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    fill(&trial, 10_000, |n| {
        let later = record("a").delay(HOUR);
        if n % 2 == 0 { later } else { later.key("k") }
    })
    .await;
    let others = trial.enqueue((0..40).map(|n| record("a").key(if n % 2 == 0 { "k" } else { "l" }))).await;
    come_in(&trial, &any(A, 50), others).await;
}

/// S8: rows of 2,000 other kinds, without a route or with a full one.
pub async fn rows_of_other_kinds_hold_back_no_other<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    fill(&trial, 4_000, |n| record(&format!("other.{}", n % 1_000))).await;
    fill(&trial, 4_000, |n| record(&format!("full.{}", n % 1_000))).await;
    let others = trial.enqueue((0..40).map(|n| record(if n % 2 == 0 { "a.x" } else { "a.y" }))).await;
    come_in(&trial, &routes(&[("a.*", 50), ("full.*", 0)]), others).await;
}

/// S8: 10,000 rows of a destination that is left out, saturated or paused, of the same kind as the others.
pub async fn rows_of_a_closed_destination_hold_back_no_other<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    trial.store.pause(&PauseScope::Destination("paused".into()), "for now").await.unwrap();
    fill(&trial, 10_000, |n| record("a").destination(if n % 2 == 0 { "down" } else { "paused" })).await;
    let others = trial.enqueue((0..40).map(|n| record("a").destination(format!("up {}", n % 4)))).await;
    let mut demand = RouteDemand::new(Pattern::Default, 50);
    demand.destinations.insert("down".into(), 0);
    come_in(&trial, &ClaimRequest::new(A, LEASE, 50, vec![demand]), others).await;
}
