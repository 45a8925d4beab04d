//! Checks that no record is out of reach: S6.

use std::time::Duration;

use super::{
    SetDue, StoreHarness,
    trial::{A, B, HOUR, LAPSE, Trial, any, dead, deferred, ids, keyed, record, retry, sent},
};
use crate::{ClaimBatch, Filter, Mark, Marked, Operate, Settlement, State, Store};

/// S6: a record that has used up its attempts and lapses is still claimed, so that a relay can end it.
pub async fn an_exhausted_record_is_found_again<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let id = trial.enqueue_one(record("a")).await;
    for attempt in 1..=30 {
        let claimed = trial.claim_one(A).await;
        assert_eq!(claimed.attempts, attempt);
        trial.end(&claimed, retry(Duration::ZERO)).await;
    }
    for lapses in 0..=12 {
        let claimed = trial.claim_one(A).await;
        assert_eq!((claimed.attempts, claimed.lapses), (31, lapses));
        trial.advance(LAPSE).await;
    }
    let claimed = trial.claim_one(B).await;
    trial.end(&claimed, dead(false)).await;
    assert_eq!(trial.state(id).await, State::Dead);
}

/// S6: a row that is no record is claimed, returned apart with the reason, and can be marked dead; its
/// neighbours go.
pub async fn an_undecodable_row_is_returned_apart<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let before = trial.enqueue_one(record("a")).await;
    let broken = harness.insert_undecodable(&trial.store, "a").await;
    let after = trial.enqueue_one(record("a")).await;
    let ClaimBatch { records, undecodable, .. } = trial.batch(&any(A, 10)).await;
    assert_eq!(ids(&records), [before, after]);
    assert_eq!(undecodable.len(), 1);
    assert_eq!((undecodable[0].lease.id, undecodable[0].kind.as_str()), (broken, "a"));
    assert!(!undecodable[0].reason.is_empty());
    let error = undecodable[0].reason.clone();
    let mark = Mark::new(undecodable[0].lease, Settlement::Dead { error: error.clone(), blocks_key: false });
    assert_eq!(trial.mark(&[mark]).await, [Marked::Applied]);
    let view = trial.show(broken).await;
    assert_eq!((view.state, view.last_error), (State::Dead, Some(error)));
    trial.advance(LAPSE).await;
    assert!(trial.batch(&any(B, 10)).await.undecodable.is_empty(), "it is dead");
}

/// S6: a record whose time was set to infinity by hand is out of no one's reach.
pub async fn a_record_of_infinite_times_is_found<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let held = trial.enqueue_one(record("a")).await;
    if !harness.set_due(&trial.store, held, SetDue::Never).await {
        return;
    }
    let batch = trial.batch(&any(A, 10)).await;
    assert!(batch.records.is_empty(), "what is never due was claimed");
    assert_eq!(batch.next_due, None, "what is never due is not announced");
    assert_eq!(trial.store.stats(&[]).await.unwrap().pending.value, 1);
    let listed = trial.store.list(&Filter::state(State::Pending), 0, 10).await.unwrap();
    assert_eq!(listed.iter().map(|view| view.id).collect::<Vec<_>>(), [held]);
    assert_eq!(trial.state(held).await, State::Pending);

    let early = trial.enqueue_one(record("a").delay(HOUR)).await;
    assert!(harness.set_due(&trial.store, early, SetDue::Always).await);
    let claimed = trial.claim_one(A).await;
    assert_eq!(claimed.id, early, "what was always due is claimed");
    assert!(harness.set_due(&trial.store, early, SetDue::Never).await);
    assert_eq!(trial.state(early).await, State::Claimed);
    trial.end(&claimed, deferred(Duration::ZERO)).await;
    trial.claim_one(A).await;
    // Its relay dies, under a lease without end.
    assert!(harness.set_due(&trial.store, early, SetDue::Never).await);
    assert_eq!(trial.store.discard(&[held, early], "out of reach").await.unwrap(), 2);
    assert_eq!((trial.state(held).await, trial.state(early).await), (State::Dead, State::Dead));
    assert_eq!(trial.store.redrive(&[held, early]).await.unwrap(), 2);
    assert_eq!(ids(&trial.claim(B, 10).await), [held, early], "redriven, they are due");
}

/// S6: every state is counted, and each record is in one.
pub async fn every_record_is_counted_in_one_state<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    trial.enqueue((0..4).map(|_| record("a"))).await;
    let claimed = trial.claim(A, 4).await;
    trial.end(&claimed[0], sent()).await;
    trial.end(&claimed[1], dead(false)).await;
    trial.end(&claimed[2], retry(HOUR)).await;
    trial.enqueue([record("a"), record("a").delay(HOUR), keyed("k"), keyed("k")]).await;
    let counts = async || {
        let stats = trial.store.stats(&[crate::Pattern::Default]).await.unwrap();
        [stats.pending, stats.claimed, stats.sent, stats.dead].map(|count| (count.value, count.at_least))
    };
    assert_eq!(counts().await, [(5, false), (1, false), (1, false), (1, false)]);
    trial.advance(LAPSE).await;
    assert_eq!(counts().await[1].0, 1, "a lapsed claim is a claim until it is taken");
    let stats = trial.store.stats(&[crate::Pattern::Default]).await.unwrap();
    let oldest = stats.oldest_due.expect("records are due");
    assert!((LAPSE..LAPSE + super::trial::SLACK).contains(&oldest), "{oldest:?} is not since they fell due");
    let stats = trial.store.stats(&[crate::Pattern::Exact("other".into())]).await.unwrap();
    assert_eq!(stats.oldest_due, None, "what has no route does not wait");
}
