//! Checks of acknowledgements, outcomes and identities: K1, K2, K3.

use tokio::time::timeout;

use super::{
    Fault, SinkHarness,
    trial::{Trial, can, can_to_one},
};
use crate::{Outcome, Sink};

/// K1: when a send returns `Ok`, the destination has the record.
pub async fn what_is_acknowledged_has_arrived<H: SinkHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let mut sent = Vec::new();
    for _ in 0..3 {
        let record = harness.record();
        trial.send(&record).await.expect("a good record is sent");
        sent.push(record.id);
        assert_eq!(trial.received().await, sent, "acknowledged before it arrived");
    }
}

/// K1: without an answer there is no `Ok`, whatever was written to the wire.
pub async fn no_answer_is_no_acknowledgement<H: SinkHarness>(harness: &H) {
    for fault in [Fault::Held, Fault::Cut, Fault::Down] {
        if !can::<H>(fault) {
            continue;
        }
        let trial = Trial::new(harness).await;
        harness.fail(fault, None).await;
        let record = harness.record();
        let ended = timeout(harness.patience(), trial.sink.send(&record, &trial.cx)).await;
        assert!(!matches!(ended, Ok(Ok(_))), "acknowledged while {fault:?}");
        let mut outcomes = crate::Outcomes::new(1);
        let batch = [harness.record()];
        let _ = timeout(harness.patience(), trial.sink.send_batch(&batch, &trial.cx, &mut outcomes)).await;
        assert!(!matches!(outcomes.outcome(0), Outcome::Sent(_)), "acknowledged while {fault:?}");
        harness.heal().await;
    }
}

/// K2: a batch gives each record its own outcome, at its own place; no records, no outcomes.
pub async fn each_record_of_a_batch_has_its_outcome<H: SinkHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let records = trial.records(10);
    let outcomes = trial.send_batch(&records).await;
    for at in 0..records.len() {
        assert!(matches!(outcomes.outcome(at), Outcome::Sent(_)), "record {at}: {outcomes:?}");
    }
    let mut received = trial.received().await;
    let mut sent: Vec<_> = records.iter().map(|record| record.id).collect();
    received.sort_unstable();
    sent.sort_unstable();
    assert_eq!(received, sent, "each record arrives once");
    assert!(trial.send_batch(&[]).await.is_empty());
}

/// K2: a batch that fails in part says which: the others are sent, and reported as sent.
pub async fn a_batch_that_fails_in_part_says_which<H: SinkHarness>(harness: &H) {
    for fault in [Fault::RefusedForever, Fault::RefusedForNow] {
        if !can_to_one::<H>(fault) {
            continue;
        }
        let trial = Trial::new(harness).await;
        let records = trial.records(5);
        let failing = records.len() / 2;
        harness.fail(fault, Some(records[failing].id)).await;
        let before = trial.received().await.len();
        let outcomes = trial.send_batch(&records).await;
        for at in 0..records.len() {
            let outcome = outcomes.outcome(at);
            if at == failing {
                assert!(matches!(outcome, Outcome::Failed(_)), "record {at} was refused: {outcomes:?}");
            } else {
                assert!(matches!(outcome, Outcome::Sent(_)), "record {at} was accepted: {outcomes:?}");
            }
        }
        let received = trial.received().await.split_off(before);
        assert_eq!(received.len(), records.len() - 1);
        assert!(!received.contains(&records[failing].id), "a refused record arrived");
        harness.heal().await;
    }
}

/// K3: the id travels in the destination's own field, and is the same at every attempt.
pub async fn the_id_is_the_same_at_every_attempt<H: SinkHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let mut record = harness.record();
    for attempt in 1..=2 {
        record.attempts = attempt;
        record.fence = i64::from(attempt);
        trial.send(&record).await.expect("a second copy is taken, or dropped by its id");
    }
    let received = trial.received().await;
    assert!(!received.is_empty(), "it did not arrive");
    assert!(received.iter().all(|id| *id == record.id), "{received:?} are not {}", record.id);
    let batch = [record.clone()];
    trial.send_batch(&batch).await;
    assert!(trial.received().await.iter().all(|id| *id == record.id), "a batch has another id");
}
