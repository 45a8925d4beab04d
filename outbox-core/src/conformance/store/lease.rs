//! Checks of leases and fences: S3.

use std::time::Duration;

use uuid::Uuid;

use super::{
    StoreHarness,
    trial::{A, B, HOUR, LAPSE, LEASE, SLACK, Trial, dead, deferred, record, retry, sent},
};
use crate::{Lease, Mark, Marked, Operate, Settlement, State};

/// S3: a relay that stalled, and whose record another has taken, marks nothing and is told so.
pub async fn a_stale_fence_marks_nothing<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let id = trial.enqueue_one(record("a")).await;
    let stale = trial.claim_one(A).await;
    trial.advance(LAPSE).await;
    let newest = trial.claim_one(B).await;
    assert_eq!(stale.id, newest.id);
    for settlement in [dead(true), retry(HOUR), deferred(HOUR), Settlement::Released, sent()] {
        assert_eq!(trial.settle(&stale, settlement).await, Marked::Lost);
        assert_eq!(trial.state(id).await, State::Claimed, "a stale mark ended a live claim");
    }
    assert_eq!(trial.renew(&[stale.lease()], HOUR).await, [stale.lease()], "a lost lease is returned");
    trial.end(&newest, deferred(Duration::ZERO)).await;
    // The newer claim has ended, and the record waits: the stale one has still no say.
    assert_eq!(trial.settle(&stale, dead(true)).await, Marked::Lost);
    assert_eq!(trial.state(id).await, State::Pending);
}

/// S3: two claims by one owner, one right after the other, are two: only the newest may mark.
pub async fn two_claims_by_one_owner_have_two_fences<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let id = trial.enqueue_one(record("a")).await;
    let first = trial.claim_one(A).await;
    trial.end(&first, Settlement::Released).await;
    let second = trial.claim_one(A).await;
    assert_ne!(first.fence, second.fence);
    assert_eq!(trial.settle(&first, dead(true)).await, Marked::Lost);
    assert_eq!(trial.state(id).await, State::Claimed);
    trial.end(&second, sent()).await;
}

/// S3: the fence rises at every claim and whenever one ends.
pub async fn the_fence_rises_at_a_claim_and_at_its_end<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let id = trial.enqueue_one(record("a")).await;
    let mut last = trial.claim_one(A).await;
    for settlement in
        [Settlement::Released, deferred(Duration::ZERO), retry(Duration::ZERO), dead(false), sent()]
    {
        trial.end(&last, settlement.clone()).await;
        match settlement {
            Settlement::Dead { .. } => _ = trial.store.redrive(&[id]).await.unwrap(),
            Settlement::Sent { .. } => {
                let resent = trial.store.resend(&crate::Filter::default(), None, 1).await.unwrap();
                assert_eq!(resent, 1);
            }
            _ => {}
        }
        let next = trial.claim_one(A).await;
        assert!(next.fence >= last.fence + 2, "{settlement:?} did not raise the fence");
        last = next;
    }
    trial.advance(LAPSE).await;
    assert!(trial.claim_one(B).await.fence > last.fence, "a lapse did not raise the fence");
}

/// S3: the same mark twice, because the answer of the first was lost, changes nothing and is told apart from a
/// lost lease.
pub async fn a_repeated_mark_changes_nothing<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    for settlement in [sent(), retry(HOUR), deferred(HOUR), Settlement::Released, dead(false)] {
        let id = trial.enqueue_one(record("a")).await;
        let claimed = trial.claim_one(A).await;
        assert_eq!(claimed.id, id);
        trial.end(&claimed, settlement.clone()).await;
        let before = trial.show(id).await;
        assert_eq!(
            trial.settle(&claimed, settlement.clone()).await,
            Marked::AlreadyApplied,
            "{settlement:?} twice"
        );
        assert_eq!(trial.show(id).await, before, "{settlement:?} twice changed the record");
        if let Settlement::Sent { .. } | Settlement::Dead { .. } = settlement {
            assert_eq!(trial.settle(&claimed, retry(HOUR)).await, Marked::Lost);
            assert_eq!(trial.show(id).await, before, "another mark after {settlement:?}");
        } else {
            trial.store.discard(&[id], "done with").await.unwrap();
        }
    }
}

/// S3: of two marks for one lease in one call the first counts.
pub async fn of_two_marks_for_one_lease_the_first_counts<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let id = trial.enqueue_one(record("a")).await;
    let other = trial.enqueue_one(record("a")).await;
    let claimed = trial.claim(A, 2).await;
    let marked = trial
        .mark(&[
            Mark::new(claimed[0].lease(), sent()),
            Mark::new(claimed[1].lease(), sent()),
            Mark::new(claimed[0].lease(), dead(true)),
            Mark::new(claimed[1].lease(), sent()),
        ])
        .await;
    assert_eq!(marked[..2], [Marked::Applied; 2]);
    assert!(!marked[2..].contains(&Marked::Applied), "a second mark for one lease was applied");
    assert_eq!((trial.state(id).await, trial.state(other).await), (State::Sent, State::Sent));
}

/// S3: mixed outcomes go in one call and are reported one by one, in input order; none is no error.
pub async fn marks_are_reported_in_input_order<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let ids = trial.enqueue((0..5).map(|_| record("a"))).await;
    let claimed = trial.claim(A, 5).await;
    trial.end(&claimed[1], sent()).await;
    let unknown = Lease::new(claimed[4].seq + 1_000, Uuid::now_v7(), 1);
    let marked = trial
        .mark(&[
            Mark::new(claimed[4].lease(), dead(false)),
            Mark::new(claimed[1].lease(), sent()),
            Mark::new(unknown, sent()),
            Mark::new(claimed[0].lease(), retry(HOUR)),
            Mark::new(claimed[3].lease(), sent()),
        ])
        .await;
    use Marked::{AlreadyApplied, Applied, Lost};
    assert_eq!(marked, [Applied, AlreadyApplied, Lost, Applied, Applied]);
    let mut states = Vec::new();
    for id in ids {
        states.push(trial.state(id).await);
    }
    use State::{Claimed, Dead, Pending, Sent};
    assert_eq!(states, [Pending, Sent, Claimed, Sent, Dead]);
    assert!(trial.mark(&[]).await.is_empty());
}

/// S3: a renewal that arrives after the mark changes nothing and is returned as lost.
pub async fn a_late_renewal_moves_no_backoff<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let id = trial.enqueue_one(record("a")).await;
    let claimed = trial.claim_one(A).await;
    trial.end(&claimed, retry(SLACK * 2)).await;
    let before = trial.show(id).await;
    assert_eq!(trial.renew(&[claimed.lease()], HOUR).await, [claimed.lease()]);
    assert_eq!(trial.show(id).await, before, "a late renewal changed the record");
    trial.advance(SLACK * 2).await;
    assert_eq!(trial.claim_one(B).await.id, id, "the backoff is what the mark ordered");
}

/// S3: a renewed lease holds from the renewal on; the lost ones of the same call are returned.
pub async fn a_renewed_lease_holds_longer<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    trial.enqueue([record("a"), record("a")]).await;
    let claimed = trial.claim(A, 2).await;
    trial.end(&claimed[1], retry(HOUR * 24)).await;
    trial.advance(LEASE / 2).await;
    let leases: Vec<Lease> = claimed.iter().map(crate::Record::lease).collect();
    assert_eq!(trial.renew(&leases, LEASE).await, [claimed[1].lease()]);
    trial.advance(LEASE - SLACK).await;
    assert!(trial.claim(B, 10).await.is_empty(), "a renewed record was claimed");
    trial.advance(SLACK).await;
    assert_eq!(trial.claim_one(B).await.id, claimed[0].id, "a renewed lease ends as well");
    assert!(trial.renew(&[], LEASE).await.is_empty());
}

/// S3: a lease that has run out and that nobody took may still be marked and renewed.
pub async fn a_lapsed_lease_that_nobody_took_may_still_be_marked<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let id = trial.enqueue_one(record("a")).await;
    let claimed = trial.claim_one(A).await;
    trial.advance(LAPSE).await;
    assert!(trial.renew(&[claimed.lease()], LEASE).await.is_empty(), "it was not lost");
    assert!(trial.claim(B, 1).await.is_empty(), "it is in force again");
    trial.advance(LAPSE).await;
    trial.end(&claimed, sent()).await;
    assert_eq!(trial.state(id).await, State::Sent);
    assert!(trial.claim(B, 1).await.is_empty());
}

/// S3: attempts are counted when claimed and refunded by a deferral, a release and a lapse; never below zero.
pub async fn attempts_are_never_negative<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let id = trial.enqueue_one(record("a")).await;
    for _ in 0..3 {
        let claimed = trial.claim_one(A).await;
        assert_eq!(claimed.attempts, 1);
        let marks = [deferred(Duration::ZERO), Settlement::Released, deferred(Duration::ZERO)];
        for settlement in marks {
            trial.settle(&claimed, settlement).await;
        }
        assert_eq!(trial.show(id).await.attempts, 0);
    }
    let first = trial.claim_one(A).await;
    trial.end(&first, retry(Duration::ZERO)).await;
    trial.settle(&first, Settlement::Released).await;
    assert_eq!(trial.show(id).await.attempts, 1, "a retry keeps the attempt");
    assert_eq!(trial.claim_one(A).await.attempts, 2);
}

/// S3: a lease names the identity as well: after a table was emptied and numbered anew, an old one marks nothing.
pub async fn a_lease_on_another_identity_marks_nothing<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let id = trial.enqueue_one(record("a")).await;
    let claimed = trial.claim_one(A).await;
    let other = Lease::new(claimed.seq, Uuid::now_v7(), claimed.fence);
    assert_eq!(trial.mark(&[Mark::new(other, sent())]).await, [Marked::Lost]);
    assert_eq!(trial.renew(&[other], HOUR).await, [other]);
    assert_eq!(trial.state(id).await, State::Claimed);
}
