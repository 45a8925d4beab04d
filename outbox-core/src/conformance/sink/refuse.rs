//! Checks of refusals and lost destinations: K4, K5.

use tokio::time::timeout;

use super::{
    Fault, SinkHarness,
    trial::{Trial, can},
};
use crate::{ErrorScope, Outcome, SendErrorKind, Sink};

/// K4: what the destination will never take is permanent, of this record alone, and asked for once.
pub async fn a_refusal_for_ever_is_permanent_and_not_repeated<H: SinkHarness>(harness: &H) {
    if !can::<H>(Fault::RefusedForever) {
        return;
    }
    let trial = Trial::new(harness).await;
    harness.fail(Fault::RefusedForever, None).await;
    let before = harness.asked().await;
    let error = trial.send(&harness.record()).await.expect_err("it is refused");
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Permanent, ErrorScope::Record), "{error}");
    if let (Some(before), Some(after)) = (before, harness.asked().await) {
        assert_eq!(after - before, 1, "a refused record was sent again");
    }
    harness.heal().await;
    trial.send(&harness.record()).await.expect("other records go");
}

/// K4: what can never be accepted is refused as permanent before it is sent, and harms no other.
pub async fn what_can_never_be_accepted_is_not_sent<H: SinkHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    for (what, record) in harness.unacceptable() {
        let Err(error) = trial.send(&record).await else { panic!("{what}: it was acknowledged") };
        assert_eq!(
            (error.kind(), error.scope()),
            (SendErrorKind::Permanent, ErrorScope::Record),
            "{what}: {error}"
        );
        let outcomes = trial.send_batch(std::slice::from_ref(&record)).await;
        match outcomes.outcome(0) {
            Outcome::Failed(error) if error.kind() == SendErrorKind::Permanent => {}
            other => panic!("{what}, in a batch: {other:?}"),
        }
        assert!(trial.received().await.is_empty(), "{what}: it arrived");
    }
    trial.send(&harness.record()).await.expect("other records go");
}

/// K4: a failure that may pass is never permanent.
pub async fn a_failure_that_may_pass_is_not_permanent<H: SinkHarness>(harness: &H) {
    for fault in [Fault::RefusedForNow, Fault::Throttled, Fault::Cut, Fault::Down] {
        if !can::<H>(fault) {
            continue;
        }
        let trial = Trial::new(harness).await;
        harness.fail(fault, None).await;
        let error = trial.send(&harness.record()).await.expect_err("it fails");
        let kind = error.kind();
        match fault {
            Fault::Throttled => assert_eq!(kind, SendErrorKind::Throttled, "{error}"),
            // A destination that is down costs no record an attempt.
            Fault::Down => assert_eq!(kind, SendErrorKind::Unavailable, "{error}"),
            _ => assert_ne!(kind, SendErrorKind::Permanent, "{fault:?}: {error}"),
        }
        harness.heal().await;
        trial.send(&harness.record()).await.expect("it has passed");
    }
}

/// K5: a send that the relay gave up leaves the sink able to send.
pub async fn an_abandoned_send_harms_no_other<H: SinkHarness>(harness: &H) {
    if !can::<H>(Fault::Held) {
        return;
    }
    let trial = Trial::new(harness).await;
    harness.fail(Fault::Held, None).await;
    for _ in 0..3 {
        let record = harness.record();
        let ended = timeout(harness.patience() / 4, trial.sink.send(&record, &trial.cx)).await;
        assert!(ended.is_err(), "a held send ended: {ended:?}");
    }
    harness.heal().await;
    let records = trial.records(3);
    let outcomes = trial.send_batch(&records).await;
    for at in 0..records.len() {
        assert!(matches!(outcomes.outcome(at), Outcome::Sent(_)), "record {at}: {outcomes:?}");
    }
    let received = trial.received().await;
    for record in &records {
        assert!(received.contains(&record.id));
    }
}

/// K5: what failed while the destination was down is not sent behind the relay's back once it is up.
pub async fn nothing_is_sent_late<H: SinkHarness>(harness: &H) {
    if !can::<H>(Fault::Down) {
        return;
    }
    let trial = Trial::new(harness).await;
    trial.send(&harness.record()).await.expect("the destination is up");
    let before = trial.received().await.len();
    harness.fail(Fault::Down, None).await;
    for _ in 0..3 {
        let record = harness.record();
        let ended = timeout(harness.patience() * 4, trial.sink.send(&record, &trial.cx)).await;
        assert!(!matches!(ended, Ok(Ok(_))), "acknowledged by nobody");
    }
    harness.heal().await;
    let record = harness.record();
    let mut sent = trial.send(&record).await;
    for _ in 0..20 {
        if sent.is_ok() {
            break;
        }
        // A client may need a moment to see that the destination is back.
        trial.settle_down().await;
        sent = trial.send(&record).await;
    }
    sent.expect("the destination is back");
    trial.settle_down().await;
    let late = trial.received().await.split_off(before);
    assert!(late.iter().all(|id| *id == record.id), "what had failed was sent late");
}
