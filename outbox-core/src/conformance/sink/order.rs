//! Checks of order within a key: K8.

use super::{
    Fault, SinkHarness,
    trial::{Trial, can_to_one},
};
use crate::{Outcome, Record};

/// Gives the records of a batch these keys.
fn with_keys(records: &mut [Record], keys: &[Option<&str>]) {
    for (record, key) in records.iter_mut().zip(keys) {
        record.key = key.map(str::to_owned);
    }
}

/// K8: the records of each key arrive in order.
pub async fn records_of_a_key_arrive_in_order<H: SinkHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let mut records = trial.records(10);
    let keys = ["k", "l"].map(Some);
    for (at, record) in records.iter_mut().enumerate() {
        with_keys(std::slice::from_mut(record), &keys[at % 2..]);
    }
    let outcomes = trial.send_batch(&records).await;
    // A sink that takes one of a key in a batch has not attempted the others.
    let received = trial.received().await;
    for key in keys {
        let sent: Vec<_> = records
            .iter()
            .enumerate()
            .filter(|(at, record)| {
                record.key.as_deref() == key && matches!(outcomes.outcome(*at), Outcome::Sent(_))
            })
            .map(|(_, record)| record.id)
            .collect();
        let arrived: Vec<_> = received.iter().filter(|id| sent.contains(id)).copied().collect();
        assert!(!sent.is_empty() && arrived == sent, "{key:?} arrived out of order");
    }
    for at in 0..records.len() {
        assert!(
            matches!(outcomes.outcome(at), Outcome::Sent(_) | Outcome::NotAttempted),
            "record {at}: {outcomes:?}"
        );
    }
}

/// K8: a failure stops its key, whose later records are never written to the wire; other keys, and records without
/// one, go on.
pub async fn a_failure_stops_its_key_and_no_other<H: SinkHarness>(harness: &H) {
    for fault in [Fault::RefusedForNow, Fault::RefusedForever] {
        if !can_to_one::<H>(fault) {
            continue;
        }
        let trial = Trial::new(harness).await;
        let Some(mut records) = trial.batch_of(5) else { return };
        with_keys(&mut records, &[Some("k"), Some(""), Some("k"), None, Some("k")]);
        harness.fail(fault, Some(records[0].id)).await;
        let outcomes = trial.send_batch(&records).await;
        assert!(matches!(outcomes.outcome(0), Outcome::Failed(_)), "{outcomes:?}");
        for at in [1, 3] {
            assert!(matches!(outcomes.outcome(at), Outcome::Sent(_)), "record {at} has another key");
        }
        let received = trial.received().await;
        for at in [2, 4] {
            assert!(
                matches!(outcomes.outcome(at), Outcome::NotAttempted),
                "record {at} overtook a failed one of its key: {outcomes:?}"
            );
            assert!(!received.contains(&records[at].id), "record {at} overtook a failed one of its key");
        }
        harness.heal().await;
    }
}

/// K8: a record waits until the one before it of its key is acknowledged, while other keys go.
pub async fn a_key_waits_for_each_acknowledgement<H: SinkHarness>(harness: &H) {
    if !can_to_one::<H>(Fault::Held) {
        return;
    }
    let trial = Trial::new(harness).await;
    let Some(mut records) = trial.batch_of(4) else { return };
    with_keys(&mut records, &[Some("k"), Some("k"), Some("l"), None]);
    harness.fail(Fault::Held, Some(records[0].id)).await;
    let sent = trial.abandon_batch(&records).await;
    let received = trial.received().await;
    assert!(!received.contains(&records[1].id), "a record overtook an unanswered one of its key");
    assert!(!sent.contains(&1));
    assert_eq!(sent, [2, 3], "other keys go side by side with one that is not answered");
    harness.heal().await;
}
