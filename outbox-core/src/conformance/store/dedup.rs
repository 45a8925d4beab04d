//! Checks of what drops second copies: the dedup key at enqueue, and the inbox of a receiver. A1, A2.

use std::{pin::pin, time::Duration};

use futures_util::future::join;

use super::{
    StoreHarness,
    trial::{A, HOUR, Trial, dead, ids, record, sent},
};
use crate::{Dedup, Enqueued, NewRecord, Retention, State, Store, Uuid};

fn once(key: &str) -> NewRecord {
    record("a").dedup(Dedup::new(key).keep_for(HOUR))
}

/// A2: a second enqueue of a dedup key adds nothing, says where the first stands, and leaves the transaction
/// usable.
pub async fn a_second_enqueue_of_a_dedup_key_adds_nothing<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let first = trial.enqueue_one(once("x")).await;
    let existing = async || {
        let mut transaction = harness.begin(&trial.store).await;
        let second = harness.enqueue(&trial.store, &mut transaction, &[once("x")]).await.unwrap()[0];
        let other = harness.enqueue(&trial.store, &mut transaction, &[record("b")]).await.unwrap()[0];
        harness.commit(transaction).await;
        assert!(other.is_new(), "the transaction is usable");
        second
    };
    assert_eq!(existing().await, Enqueued::Existing { id: first, state: Some(State::Pending) });
    let claimed = trial.claim(A, 10).await;
    assert_eq!(claimed.len(), 2, "the first, and the other");
    assert_eq!(claimed[0].id, first);
    assert_eq!(existing().await, Enqueued::Existing { id: first, state: Some(State::Claimed) });
    trial.end(&claimed[0], sent()).await;
    assert_eq!(existing().await, Enqueued::Existing { id: first, state: Some(State::Sent) });
    let retention = Retention { sent_for: Some(Duration::ZERO), ..Retention::default() };
    while trial.store.sweep(&retention).await.unwrap().more {}
    assert_eq!(existing().await, Enqueued::Existing { id: first, state: None }, "its row is gone");
}

/// A2: a dedup key counts within one call and one transaction as well, and among records that have none.
pub async fn a_dedup_key_counts_within_one_transaction<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let mut transaction = harness.begin(&trial.store).await;
    let call = [once("y"), record("b"), once("x"), once("y"), record("b")];
    let first = harness.enqueue(&trial.store, &mut transaction, &call).await.unwrap();
    let second = harness.enqueue(&trial.store, &mut transaction, &[once("x")]).await.unwrap();
    harness.commit(transaction).await;
    let new: Vec<bool> = first.iter().map(Enqueued::is_new).collect();
    assert_eq!(new, [true, true, true, false, true]);
    assert_eq!((first[3].id(), second[0].id()), (call[0].id, call[2].id), "each names its first");
    assert!(!second[0].is_new());
    let mut claimed = ids(&trial.claim(A, 10).await);
    let mut expected = vec![call[0].id, call[1].id, call[2].id, call[4].id];
    claimed.sort_unstable();
    expected.sort_unstable();
    assert_eq!(claimed, expected);
}

/// A2: a dedup key belongs to its kind.
pub async fn a_dedup_key_belongs_to_its_kind<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    trial.enqueue_one(once("x")).await;
    let other = record("b").dedup(Dedup::new("x"));
    assert!(trial.try_enqueue(&[other]).await.unwrap()[0].is_new());
    assert!(trial.try_enqueue(&[once("X")]).await.unwrap()[0].is_new(), "letter case counts");
}

/// A2: a dedup key is remembered for as long as its first enqueue said.
pub async fn a_dedup_key_is_forgotten_after_its_time<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    trial.enqueue_one(once("x")).await;
    trial.advance(HOUR - super::trial::SLACK).await;
    assert!(!trial.try_enqueue(&[once("x")]).await.unwrap()[0].is_new(), "it was forgotten early");
    trial.advance(super::trial::SLACK).await;
    assert!(trial.try_enqueue(&[once("x")]).await.unwrap()[0].is_new(), "it was not forgotten");
    assert!(!trial.try_enqueue(&[once("x")]).await.unwrap()[0].is_new(), "the new first counts");
    assert_eq!(trial.claim(A, 10).await.len(), 2);
}

/// A2: a first that ended dead lets the second in, unless it says otherwise.
pub async fn a_dead_first_does_not_count_unless_asked<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let first = trial.enqueue_one(once("x")).await;
    let claimed = trial.claim_one(A).await;
    trial.end(&claimed, dead(false)).await;
    let counting = record("a").dedup(Dedup::new("x").keep_for(HOUR).counting_dead());
    let existing = trial.try_enqueue(&[counting]).await.unwrap();
    assert_eq!(existing, [Enqueued::Existing { id: first, state: Some(State::Dead) }]);
    let second = trial.try_enqueue(&[once("x")]).await.unwrap()[0];
    assert!(second.is_new(), "a dead first counted");
    let third = trial.try_enqueue(&[once("x")]).await.unwrap();
    assert_eq!(third, [Enqueued::Existing { id: second.id(), state: Some(State::Pending) }]);
}

/// A1: a first that was rolled back never was.
pub async fn a_rolled_back_dedup_key_does_not_count<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let mut transaction = harness.begin(&trial.store).await;
    assert!(harness.enqueue(&trial.store, &mut transaction, &[once("x")]).await.unwrap()[0].is_new());
    harness.rollback(transaction).await;
    assert!(trial.try_enqueue(&[once("x")]).await.unwrap()[0].is_new());
}

/// A2: of two transactions that enqueue one dedup key at the same time, the second waits for the first and adds
/// nothing; if the first is rolled back, it adds its own. Both commit.
pub async fn two_transactions_of_one_dedup_key_write_one_record<H: StoreHarness>(harness: &H) {
    if !H::OVERLAPPING_WRITERS {
        return;
    }
    let trial = Trial::new(harness).await;
    for (key, commits) in [("x", true), ("y", false)] {
        let mut one = harness.begin(&trial.store).await;
        let first = harness.enqueue(&trial.store, &mut one, &[once(key)]).await.unwrap()[0];
        let mut two = harness.begin(&trial.store).await;
        let second_record = [once(key)];
        let waiting = harness.enqueue(&trial.store, &mut two, &second_record);
        let end_first = async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            if commits { harness.commit(one).await } else { harness.rollback(one).await }
        };
        // The second is polled first, so that it meets the open one.
        let (second, ()) = join(pin!(waiting), end_first).await;
        let second = second.expect("it waits, and does not fail")[0];
        harness.commit(two).await;
        if commits {
            assert_eq!(second, Enqueued::Existing { id: first.id(), state: Some(State::Pending) });
        } else {
            assert!(second.is_new(), "a rolled back first counted");
        }
        assert_eq!(trial.claim(A, 10).await.len(), 1, "one record of {key}");
    }
}

/// A2: two producers with the same dedup keys in opposite orders both commit, with one record a key.
pub async fn producers_of_the_same_dedup_keys_do_not_deadlock<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    for round in 0..20 {
        let names = [format!("x{round}"), format!("y{round}"), format!("z{round}")];
        let forth: Vec<NewRecord> = names.iter().map(|name| once(name)).collect();
        let back: Vec<NewRecord> = names.iter().rev().map(|name| once(name)).collect();
        let (one, two) = join(trial.try_enqueue(&forth), trial.try_enqueue(&back)).await;
        let (one, two) = (one.expect("the first commits"), two.expect("the second commits"));
        for (one, two) in one.iter().zip(two.iter().rev()) {
            assert!(one.is_new() != two.is_new(), "each key is written once");
            assert_eq!(one.id(), two.id());
        }
        assert_eq!(trial.claim(A, 100).await.len(), 3);
    }
}

/// A1: the inbox lets each id in once for each consumer, in the receiver's own transaction.
pub async fn the_inbox_accepts_an_id_once<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let id = Uuid::now_v7();
    let accept = async |consumer: &str, id: Uuid, commits: bool| {
        let mut transaction = harness.begin(&trial.store).await;
        let accepted = harness.accept(&trial.store, &mut transaction, consumer, id).await.unwrap();
        let again = harness.accept(&trial.store, &mut transaction, consumer, id).await.unwrap();
        assert!(!again, "accepted twice in one transaction");
        if commits {
            harness.commit(transaction).await
        } else {
            harness.rollback(transaction).await
        }
        accepted
    };
    assert!(accept("billing", id, false).await);
    assert!(accept("billing", id, true).await, "a rolled back receiver has done nothing");
    assert!(!accept("billing", id, true).await, "a second copy was accepted");
    assert!(accept("shipping", id, true).await, "each consumer has an inbox of its own");
    assert!(accept("billing", Uuid::now_v7(), true).await);
}

/// A1: a second copy that arrives while the first is being worked on waits for how that ends.
pub async fn the_inbox_waits_for_an_open_first<H: StoreHarness>(harness: &H) {
    if !H::OVERLAPPING_WRITERS {
        return;
    }
    let trial = Trial::new(harness).await;
    for commits in [true, false] {
        let id = Uuid::now_v7();
        let mut one = harness.begin(&trial.store).await;
        assert!(harness.accept(&trial.store, &mut one, "billing", id).await.unwrap());
        let mut two = harness.begin(&trial.store).await;
        let waiting = harness.accept(&trial.store, &mut two, "billing", id);
        let end_first = async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            if commits { harness.commit(one).await } else { harness.rollback(one).await }
        };
        let (second, ()) = join(pin!(waiting), end_first).await;
        assert_eq!(second.expect("it waits, and does not fail"), !commits);
        harness.commit(two).await;
    }
}
