//! Checks of time and idleness: S5, S9.

use std::{pin::pin, time::Duration};

use futures_util::future::{Either, select};

use super::{
    StoreHarness,
    trial::{A, B, HOUR, LAPSE, LEASE, SLACK, Trial, any, deferred, ids, keyed, record, retry, routes, sent},
};
use crate::{ClaimRequest, Operate, Pattern, PauseScope, RouteDemand, Settlement, Store, Wake};

/// S5: a delay counts from the enqueue, by the store's clock.
pub async fn a_delayed_record_goes_at_its_time<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let late = trial.enqueue_one(record("a").delay(HOUR)).await;
    let now = trial.enqueue_one(record("a")).await;
    assert_eq!(ids(&trial.claim(A, 10).await), [now]);
    trial.advance(HOUR - SLACK).await;
    let claimed = ids(&trial.claim(B, 10).await);
    assert!(!claimed.contains(&late), "it was claimed before its time");
    trial.advance(SLACK).await;
    assert!(ids(&trial.claim(B, 10).await).contains(&late), "it was not claimed at its time");
}

/// S5: the waits of marks and leases count from their statement, by the store's clock.
pub async fn waits_count_from_the_mark<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    for settlement in [retry(HOUR), deferred(HOUR)] {
        let id = trial.enqueue_one(record("a")).await;
        let claimed = trial.claim_one(A).await;
        trial.advance(LEASE / 2).await;
        trial.end(&claimed, settlement.clone()).await;
        trial.advance(HOUR - SLACK).await;
        assert!(trial.claim(A, 1).await.is_empty(), "{settlement:?} ended early");
        trial.advance(SLACK).await;
        let claimed = trial.claim_one(A).await;
        assert_eq!(claimed.id, id);
        trial.end(&claimed, Settlement::Released).await;
        let claimed = trial.claim_one(A).await;
        assert_eq!(claimed.id, id, "a released record is due at once");
        trial.end(&claimed, sent()).await;
    }
}

/// S5: a lease lasts from the claim's statement for as long as asked, and not beyond.
pub async fn a_lease_lasts_as_long_as_asked<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let id = trial.enqueue_one(record("a")).await;
    trial.claim_one(A).await;
    trial.advance(LEASE - SLACK).await;
    assert!(trial.claim(B, 1).await.is_empty(), "a lease ended early");
    trial.advance(SLACK).await;
    assert_eq!(trial.claim_one(B).await.id, id);
}

/// S9: a claim that took all there is says how long until the next record falls due, of those that the request
/// could take.
pub async fn an_idle_claim_says_when_to_come_back<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    trial.enqueue([record("other").delay(SLACK), record("a").delay(HOUR * 2), record("a").delay(HOUR)]).await;
    let asked = routes(&[("a", 10), ("other", 0)]);
    let due = async || trial.batch(&asked).await.next_due.expect("something falls due");
    let first = due().await;
    assert!((HOUR - SLACK..=HOUR).contains(&first), "{first:?} is not an hour");
    trial.advance(HOUR / 2).await;
    let second = due().await;
    assert!((HOUR / 2 - SLACK..=HOUR / 2).contains(&second), "{second:?} is not half an hour");
    // Exactly when it said, and not a moment later.
    trial.advance(second).await;
    let claimed = trial.batch(&asked).await.records;
    assert_eq!(claimed.len(), 1, "what was announced is not there");
    trial.end(&claimed[0], retry(HOUR / 2)).await;
    let backoff = due().await;
    assert!((HOUR / 2 - SLACK..=HOUR / 2).contains(&backoff), "a backoff falls due as well: {backoff:?}");
}

/// S9: a scheduled record of a key counts when it falls due, also while it does not hold its key.
pub async fn a_scheduled_record_of_a_key_is_announced<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    trial.enqueue([keyed("k").delay(HOUR), keyed("l").delay(HOUR * 2).hold_key()]).await;
    let due = trial.batch(&any(A, 10)).await.next_due.expect("something falls due");
    assert!((HOUR - SLACK..=HOUR).contains(&due), "{due:?} is not an hour");
}

/// S9: the end of another relay's lease is a time at which something falls due.
pub async fn an_idle_relay_wakes_when_a_lease_ends<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    trial.enqueue_one(record("a")).await;
    trial.claim_one(A).await;
    let due = trial.batch(&any(B, 10)).await.next_due.expect("a lease ends");
    assert!((LEASE - SLACK..=LEASE).contains(&due), "{due:?} is not the lease");
}

/// S9: with nothing to come there is no time to come back at; with more to take it is now.
pub async fn next_due_is_none_for_nothing_and_zero_for_more<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    assert_eq!(trial.batch(&any(A, 10)).await.next_due, None, "an empty outbox");
    trial.enqueue((0..5).map(|_| record("a"))).await;
    assert_eq!(trial.batch(&any(A, 3)).await.next_due, Some(Duration::ZERO), "two more are due");
    let claimed = trial.batch(&any(A, 3)).await;
    assert_eq!(claimed.records.len(), 2);
    assert_ne!(claimed.next_due, Some(Duration::ZERO), "all were taken");
}

/// S9: never zero after a claim that took nothing, whatever is due and held back, or the relay would spin.
pub async fn next_due_is_never_zero_after_an_empty_claim<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let empty = async |what: &str, request: &ClaimRequest| {
        for _ in 0..3 {
            let batch = trial.batch(request).await;
            assert!(batch.records.is_empty(), "{what} was claimed");
            assert_ne!(batch.next_due, Some(Duration::ZERO), "spins on {what}");
        }
    };
    // A lapsed record, for a relay that may take none.
    trial.enqueue_one(record("lapsed")).await;
    trial.claim_one(B).await;
    trial.advance(LAPSE).await;
    let mut without_suspects = any(A, 10);
    without_suspects.suspect = false;
    empty("a suspect", &without_suspects).await;

    // Records behind a backing-off head, and behind a dead one.
    trial.enqueue([keyed("k"), keyed("k"), keyed("l"), keyed("l")]).await;
    let mut one_each = any(A, 10);
    one_each.suspect = false;
    one_each.run_max = std::num::NonZeroUsize::MIN;
    let heads = trial.batch(&one_each).await.records;
    assert_eq!(heads.len(), 2, "one head of each key");
    trial.end(&heads[0], retry(HOUR)).await;
    trial.end(&heads[1], super::trial::dead(true)).await;
    empty("a held key", &without_suspects).await;

    // Kinds without room, and destinations that are left out or paused.
    trial.enqueue([record("full"), record("open").destination("down")]).await;
    trial.enqueue([record("open").destination("paused")]).await;
    trial.store.pause(&PauseScope::Destination("paused".into()), "for now").await.unwrap();
    let mut open = RouteDemand::new(Pattern::Exact("open".into()), 10);
    open.destinations.insert("down".into(), 0);
    let full = RouteDemand::new(Pattern::Exact("full".into()), 0);
    let mut request = ClaimRequest::new(A, LEASE, 10, vec![open, full]);
    request.suspect = false;
    empty("a full route or a closed destination", &request).await;

    empty("a claim of nothing", &any(A, 0)).await;
}

/// S9: a wait ends by itself, and may be dropped half-way.
pub async fn a_wait_ends_at_its_time<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    drop(select(trial.store.wait(HOUR), std::future::ready(())).await);
    // A hint may come without cause, but not for ever.
    for _ in 0..100 {
        let moving = async {
            // Far more than the wait, on a clock that moves only when told to.
            for _ in 0..100_000 {
                trial.advance(Duration::from_millis(10)).await;
                tokio::task::yield_now().await;
            }
        };
        match select(trial.store.wait(Duration::from_millis(20)), pin!(moving)).await {
            Either::Left((Ok(Wake::Timeout), _)) => return,
            Either::Left((Ok(_), _)) => {}
            Either::Left((Err(error), _)) => panic!("{error}"),
            Either::Right(_) => panic!("a wait outlasts its time"),
        }
    }
    panic!("hints without end");
}
