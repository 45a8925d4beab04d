//! Checks of what applications write: A1, A2, A3.

use std::time::Duration;

use super::{
    StoreHarness,
    trial::{A, LAPSE, Trial, any, ids, keyed, record, sent},
};
use crate::{Enqueued, NewRecord, Operate, State, StoreErrorKind};

/// A1: a rolled back transaction sends nothing.
pub async fn a_rolled_back_transaction_sends_nothing<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let mut transaction = harness.begin(&trial.store).await;
    harness.enqueue(&trial.store, &mut transaction, &[record("a"), keyed("k")]).await.unwrap();
    harness.rollback(transaction).await;
    assert!(trial.claim(A, 10).await.is_empty(), "a rolled back record was claimed");
    let kept = trial.enqueue_one(keyed("k")).await;
    assert_eq!(ids(&trial.claim(A, 10).await), [kept], "only the committed record goes");
}

/// A1: a committed record is claimed until it is sent, whoever dies meanwhile, and not after that.
pub async fn a_committed_record_is_claimed_until_it_is_sent<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let id = trial.enqueue_one(record("a")).await;
    for _ in 0..3 {
        assert_eq!(trial.claim_one(A).await.id, id, "a lapsed record is claimed again");
        trial.advance(LAPSE).await;
    }
    let claimed = trial.claim_one(A).await;
    trial.end(&claimed, sent()).await;
    trial.advance(LAPSE).await;
    assert!(trial.claim(A, 10).await.is_empty(), "a sent record was claimed");
    let view = trial.show(id).await;
    assert_eq!((view.state, view.receipt.as_deref()), (State::Sent, Some("receipt")));
    assert!(view.sent_at.is_some(), "a sent record has a date");
}

/// A1: what an open transaction has written is not sent before its commit.
pub async fn a_record_is_not_seen_before_its_commit<H: StoreHarness>(harness: &H) {
    if !H::OVERLAPPING_WRITERS {
        return;
    }
    let trial = Trial::new(harness).await;
    let mut transaction = harness.begin(&trial.store).await;
    let enqueued = harness.enqueue(&trial.store, &mut transaction, &[record("a")]).await.unwrap();
    assert!(trial.claim(A, 10).await.is_empty(), "an uncommitted record was claimed");
    harness.commit(transaction).await;
    assert_eq!(ids(&trial.claim(A, 10).await), [enqueued[0].id()]);
}

/// A1: a row that any language inserted, with kind and payload alone, goes out like any other.
pub async fn a_plain_insert_is_a_full_citizen<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let id = harness.insert_plain(&trial.store, "order.placed", r#"{"n": 1}"#).await;
    let claimed = trial.claim_one(A).await;
    assert_eq!(claimed.id, id);
    assert_eq!(claimed.kind, "order.placed");
    assert_eq!(claimed.payload.as_bytes(), br#"{"n": 1}"#);
    assert_eq!(claimed.content_type, "application/json");
    assert_eq!((claimed.attempts, claimed.lapses), (1, 0));
    assert!(claimed.headers.is_empty() && claimed.key.is_none() && claimed.destination.is_none());
    trial.end(&claimed, sent()).await;
    assert_eq!(trial.state(id).await, State::Sent);
}

/// A1: every field comes out as it went in; the empty key is a key.
pub async fn what_is_enqueued_is_what_is_claimed<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let new = NewRecord::bytes("file.stored", "application/octet-stream", vec![0_u8, 255, 10, 13])
        .key("")
        .destination("https://example.com/ü?a=b")
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .header("X-Note", "grün\t\"quoted\" \\ 'single'");
    let plain = record("order.placed");
    trial.enqueue([new.clone(), plain.clone()]).await;
    let claimed = trial.claim(A, 10).await;
    assert_eq!(claimed.len(), 2);
    for (claimed, new) in claimed.iter().zip([new, plain]) {
        assert_eq!(claimed.id, new.id);
        assert_eq!(claimed.kind, new.kind);
        assert_eq!(claimed.key, new.key);
        assert_eq!(claimed.destination, new.destination);
        assert_eq!(claimed.headers, new.headers);
        assert_eq!(claimed.content_type, new.content_type);
        assert!(claimed.payload == new.payload, "the payload changed");
        assert_eq!((claimed.attempts, claimed.lapses), (1, 0));
        assert_eq!((claimed.age, &claimed.progress), (Duration::ZERO, &None));
    }
}

/// A1: the bytes enqueued are the bytes sent: number spelling, member order, duplicates and `\u0000`.
pub async fn the_payload_is_kept_to_the_letter<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let texts = [
        r#"{"n":18446744073709551615,"x":1.10,"e":1e400,"z":"\u0000","b":1,"b":2}"#,
        "  [ 1 ,\n\t2.00 ]  ",
        r#""\ud83d\ude00 😀""#,
        "null",
    ];
    let ids = trial.enqueue(texts.map(|text| NewRecord::raw_json("a", text).unwrap())).await;
    let claimed = trial.claim(A, 10).await;
    assert_eq!(claimed.len(), texts.len());
    for (claimed, text) in claimed.iter().zip(texts) {
        assert_eq!(std::str::from_utf8(claimed.payload.as_bytes()), Ok(text));
    }
    let (_, payload) = trial.store.show(ids[0]).await.unwrap().unwrap();
    assert_eq!(payload.as_bytes(), texts[0].as_bytes(), "an operator sees the same bytes");
}

/// A2: a record that is not valid is a typed error before any SQL: nothing is written, and the transaction
/// stays usable.
pub async fn a_bad_record_is_refused_and_the_transaction_stays_usable<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let bad = [
        record(""),
        record("a\0b"),
        record(&"k".repeat(300)),
        keyed("\0"),
        record("a").header("a b", "c"),
        record("a").header("x", "a\r\nb"),
        record("a").delay(Duration::MAX),
    ];
    let mut transaction = harness.begin(&trial.store).await;
    for bad in bad {
        let refused = harness.enqueue(&trial.store, &mut transaction, &[record("good"), bad]).await;
        let error = refused.expect_err("a bad record is refused");
        assert_eq!(error.kind(), StoreErrorKind::Invalid, "{error}");
    }
    let good = record("good");
    let enqueued = harness.enqueue(&trial.store, &mut transaction, std::slice::from_ref(&good)).await;
    assert!(enqueued.is_ok(), "the transaction stays usable");
    harness.commit(transaction).await;
    assert_eq!(ids(&trial.claim(A, 100).await), [good.id], "nothing of a refused call is written");
}

/// A2: an id that the outbox holds is refused by its own kind of error.
pub async fn a_second_record_of_one_id_is_refused_by_its_kind<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let first = record("a");
    trial.enqueue_one(first.clone()).await;
    let mut transaction = harness.begin(&trial.store).await;
    let refused = harness.enqueue(&trial.store, &mut transaction, &[record("b").id(first.id)]).await;
    harness.rollback(transaction).await;
    assert_eq!(refused.expect_err("a second record of one id").kind(), StoreErrorKind::DuplicateId);
    assert_eq!(trial.claim(A, 10).await.len(), 1);
}

/// A3: many records go in by one call, with one answer each, in input order and in rising `seq`.
pub async fn many_records_are_enqueued_in_one_call<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let records: Vec<NewRecord> = (0..1_000).map(|_| record("a")).collect();
    let enqueued = trial.try_enqueue(&records).await.unwrap();
    assert_eq!(enqueued.len(), records.len());
    let mut last = i64::MIN;
    for (enqueued, record) in enqueued.iter().zip(&records) {
        let Enqueued::New { id, seq } = enqueued else { panic!("{enqueued:?} is not new") };
        assert_eq!(*id, record.id, "answers come in input order");
        assert!(*seq > last, "seq rises in input order");
        last = *seq;
    }
    assert!(trial.try_enqueue(&[]).await.unwrap().is_empty(), "no records, no answers");
    let claimed = trial.batch(&any(A, 2_000)).await.records;
    assert_eq!(ids(&claimed), records.iter().map(|record| record.id).collect::<Vec<_>>());
}
