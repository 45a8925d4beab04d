//! Checks of retention: S10.

use std::num::NonZeroUsize;

use super::{
    StoreHarness,
    trial::{A, B, HOUR, LEASE, Trial, dead, keyed, record, retry, sent},
};
use crate::{Dedup, Operate, Retention, State, Store, Swept};

fn retention(batch: usize) -> Retention {
    Retention {
        sent_for: Some(HOUR),
        dead_for: Some(HOUR),
        inbox_for: Some(HOUR),
        batch: NonZeroUsize::new(batch).expect("a batch holds something"),
    }
}

/// Sweeps until there is nothing more.
async fn sweep<H: StoreHarness>(trial: &Trial<'_, H>, retention: &Retention) -> Swept {
    let mut total = Swept::default();
    for _ in 0..100 {
        let swept = trial.store.sweep(retention).await.expect("a sweep succeeds");
        total.sent += swept.sent;
        total.dead += swept.dead;
        total.inbox += swept.inbox;
        total.dedup += swept.dedup;
        if !swept.more {
            return total;
        }
    }
    panic!("a sweep without end");
}

/// S10: finished records go at the age that is set, counted from their end, and not before; with none set they
/// are kept.
pub async fn finished_records_are_kept_as_long_as_told<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let ids = trial.enqueue((0..2).map(|_| record("a"))).await;
    trial.advance(HOUR * 2).await;
    let claimed = trial.claim(A, 2).await;
    trial.end(&claimed[0], sent()).await;
    trial.end(&claimed[1], dead(false)).await;
    sweep(&trial, &retention(100)).await;
    assert_eq!((trial.state(ids[0]).await, trial.state(ids[1]).await), (State::Sent, State::Dead));
    trial.advance(HOUR).await;
    let keep = Retention { sent_for: None, dead_for: None, ..retention(100) };
    let swept = sweep(&trial, &keep).await;
    assert_eq!((swept.sent, swept.dead), (0, 0), "what is kept for ever was swept");
    let swept = sweep(&trial, &retention(100)).await;
    assert_eq!((swept.sent, swept.dead), (1, 1));
    for id in ids {
        assert!(trial.store.show(id).await.unwrap().is_none(), "a swept record is still there");
    }
}

/// S10: one call deletes no more than a batch, and says that there is more.
pub async fn a_sweep_deletes_in_bounded_batches<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    trial.enqueue((0..25).map(|_| record("a"))).await;
    for claimed in trial.claim(A, 25).await {
        trial.end(&claimed, sent()).await;
    }
    trial.advance(HOUR).await;
    let mut left = 25;
    for _ in 0..10 {
        let swept = trial.store.sweep(&retention(10)).await.unwrap();
        assert!(swept.sent <= 10, "a sweep deleted more than its batch");
        left -= swept.sent;
        assert_eq!(trial.store.stats(&[]).await.unwrap().sent.value, left);
        assert!(swept.more || left == 0, "a sweep stopped with {left} to delete");
        if !swept.more {
            return;
        }
    }
    panic!("a sweep without end");
}

/// S10: an unfinished record is never deleted, however old and in whatever state.
pub async fn an_unfinished_record_is_never_swept<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let ids = trial.enqueue((0..2).map(|_| record("a"))).await;
    let claimed = trial.claim(A, 2).await;
    trial.end(&claimed[0], retry(HOUR * 24)).await;
    let pending = trial.enqueue_one(record("b").delay(HOUR * 1_000)).await;
    trial.advance(HOUR * 100).await;
    let everything = Retention { sent_for: Some(LEASE), dead_for: Some(LEASE), ..retention(100) };
    let swept = sweep(&trial, &everything).await;
    assert_eq!((swept.sent, swept.dead), (0, 0));
    for id in ids.into_iter().chain([pending]) {
        trial.state(id).await;
    }
}

/// S7: a dead record that blocks its key is never swept; discarded, it is like any other.
pub async fn a_blocking_dead_record_is_never_swept<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let line = trial.enqueue([keyed("k"), keyed("k")]).await;
    let claimed = trial.claim(A, 1).await;
    trial.end(&claimed[0], dead(true)).await;
    trial.advance(HOUR * 100).await;
    sweep(&trial, &retention(100)).await;
    assert_eq!(trial.state(line[0]).await, State::Dead, "a blocking dead record was swept");
    assert!(trial.claim(B, 10).await.is_empty(), "its key went on");
    trial.store.discard(&[line[0]], "not needed").await.unwrap();
    trial.advance(HOUR).await;
    assert_eq!(sweep(&trial, &retention(100)).await.dead, 1);
    assert_eq!(trial.claim_one(B).await.id, line[1]);
}

/// S10: dedup keys and the inbox have retentions of their own: each is kept as long as told, and not longer.
pub async fn dedup_and_inbox_have_a_retention_of_their_own<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let dedup = |keep| record("a").dedup(Dedup::new(format!("{keep:?}")).keep_for(keep));
    let ids = trial.enqueue([dedup(HOUR / 2), dedup(HOUR * 10)]).await;
    let mut transaction = harness.begin(&trial.store).await;
    assert!(harness.accept(&trial.store, &mut transaction, "billing", ids[0]).await.unwrap());
    harness.commit(transaction).await;
    let swept = sweep(&trial, &retention(100)).await;
    assert_eq!((swept.dedup, swept.inbox), (0, 0), "swept before its time");
    trial.advance(HOUR / 2).await;
    let swept = sweep(&trial, &retention(100)).await;
    assert_eq!((swept.dedup, swept.inbox), (1, 0));
    trial.advance(HOUR / 2).await;
    let swept = sweep(&trial, &retention(100)).await;
    assert_eq!((swept.dedup, swept.inbox), (0, 1));
    assert!(trial.try_enqueue(&[dedup(HOUR / 2)]).await.unwrap()[0].is_new());
    assert!(!trial.try_enqueue(&[dedup(HOUR * 10)]).await.unwrap()[0].is_new(), "it is kept");
}
