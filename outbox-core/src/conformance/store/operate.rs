//! Checks of operators' calls, and of what is kept of a record between attempts.

use std::{num::NonZeroU32, time::Duration};

use serde_json::json;

use super::{
    StoreHarness,
    trial::{A, B, HOUR, LAPSE, SLACK, Trial, any, dead, deferred, ids, keyed, record, retry, sent},
};
use crate::{
    Filter, HeldBecause, Mark, Marked, Operate, Pattern, PauseScope, Settlement, State, Store, Uuid,
};

/// S4: what is paused is not claimed, by any relay, and no attempt is counted; everything else goes. Resumed,
/// all of it goes.
pub async fn a_pause_stops_what_it_covers_and_nothing_else<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let scopes = [
        (PauseScope::All, [false, false, false]),
        (PauseScope::Kind(Pattern::Exact("order.placed".into())), [false, true, true]),
        (PauseScope::Kind(Pattern::Prefix("order.".into())), [false, false, true]),
        (PauseScope::Kind(Pattern::Default), [false, false, false]),
        (PauseScope::Destination("one".into()), [true, false, true]),
    ];
    for (scope, goes) in scopes {
        trial.store.pause(&scope, "for now").await.unwrap();
        let records = [
            record("order.placed").destination("two"),
            record("order.sent").destination("one"),
            record("mail.sent"),
        ];
        let enqueued = trial.enqueue(records).await;
        let mut claimed = trial.claim(A, 10).await;
        assert!(trial.claim(B, 10).await.is_empty());
        let expected: Vec<Uuid> =
            enqueued.iter().zip(goes).filter(|(_, goes)| *goes).map(|(id, _)| *id).collect();
        assert_eq!(ids(&claimed), expected, "while {scope:?} is paused");
        for (id, goes) in enqueued.iter().zip(goes) {
            assert_eq!(trial.show(*id).await.attempts, u32::from(goes), "a pause counted an attempt");
        }
        assert!(trial.store.resume(&scope).await.unwrap());
        claimed.extend(trial.claim(A, 10).await);
        assert_eq!(claimed.len(), 3, "not all went after {scope:?} was resumed");
        for record in &claimed {
            trial.end(record, sent()).await;
        }
    }
}

/// S7: a paused record holds its key: it is not overtaken.
pub async fn a_paused_record_is_not_overtaken<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let scope = PauseScope::Kind(Pattern::Exact("mail.sent".into()));
    trial.store.pause(&scope, "for now").await.unwrap();
    let line = trial.enqueue([record("mail.sent").key("k"), keyed("k"), keyed("l")]).await;
    assert_eq!(ids(&trial.claim(A, 10).await), line[2..]);
    trial.store.resume(&scope).await.unwrap();
    assert_eq!(ids(&trial.claim(A, 10).await), line[..2]);
}

/// S4: pauses are listed with their reason, a second replaces it, and a resume says whether there was one.
pub async fn pauses_are_listed_with_their_reason<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let scope = PauseScope::Destination("https://example.com".into());
    assert!(!trial.store.resume(&scope).await.unwrap());
    trial.store.pause(&scope, "first").await.unwrap();
    trial.store.pause(&scope, "second").await.unwrap();
    trial.store.pause(&PauseScope::All, "all").await.unwrap();
    let other = harness.reopen(&trial.store).await;
    for pauses in [other.pauses().await.unwrap(), other.stats(&[]).await.unwrap().paused] {
        let mut listed: Vec<_> = pauses.iter().map(|pause| (&pause.scope, pause.reason.as_str())).collect();
        listed.sort();
        assert_eq!(listed, [(&PauseScope::All, "all"), (&scope, "second")]);
    }
    assert!(trial.store.resume(&scope).await.unwrap());
    assert!(!trial.store.resume(&scope).await.unwrap());
    assert_eq!(trial.store.pauses().await.unwrap().len(), 1);
}

/// S6: records are listed by every test of a filter, in `seq` order and in pages.
pub async fn records_are_listed_by_filter_and_page<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let all = trial
        .enqueue([
            record("order.placed").destination("one").header("x", "y"),
            record("order.sent").key("k"),
            record("mail.sent").key("k").destination("two"),
            record("order.placed"),
        ])
        .await;
    let claimed = trial.claim(A, 2).await;
    trial.end(&claimed[0], sent()).await;
    let list = async |filter: Filter| {
        let views = trial.store.list(&filter, 0, 100).await.unwrap();
        views.iter().map(|view| view.id).collect::<Vec<_>>()
    };
    assert_eq!(list(Filter::default()).await, all);
    assert_eq!(list(Filter::state(State::Sent)).await, all[..1]);
    assert_eq!(list(Filter::state(State::Claimed)).await, all[1..2]);
    assert_eq!(list(Filter::state(State::Pending)).await, all[2..]);
    assert!(list(Filter::state(State::Dead)).await.is_empty());
    let orders = Filter::default().with_kind(Pattern::Prefix("order.".into()));
    assert_eq!(list(orders.clone()).await, [all[0], all[1], all[3]]);
    assert_eq!(list(orders.with_key("k")).await, [all[1]]);
    assert_eq!(list(Filter::default().with_destination("two")).await, [all[2]]);
    assert_eq!(list(Filter::default().with_kind(Pattern::Exact("mail.sent".into()))).await, [all[2]]);

    let first = trial.store.list(&Filter::default(), 0, 3).await.unwrap();
    let rest = trial.store.list(&Filter::default(), first[2].seq, 3).await.unwrap();
    let paged: Vec<Uuid> = first.iter().chain(&rest).map(|view| view.id).collect();
    assert_eq!(paged, all);
    assert_eq!(first[0].headers.get("x").map(String::as_str), Some("y"));
    assert_eq!(first[0].destination.as_deref(), Some("one"));

    let dated = first[2].created_at;
    assert!(list(Filter::default().with_since(dated)).await.contains(&all[2]), "since includes its time");
    assert!(!list(Filter::default().with_until(dated)).await.contains(&all[2]), "until does not");
    assert!(list(Filter::default().with_since(dated + HOUR)).await.is_empty());
    assert_eq!(list(Filter::default().with_until(dated + HOUR)).await, all);
    assert_eq!(trial.store.show(Uuid::now_v7()).await.unwrap(), None);
}

/// S3: redrive makes dead records pending anew, and leaves every other as it is.
pub async fn redrive_is_for_dead_records_alone<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let all = trial.enqueue((0..4).map(|_| record("a"))).await;
    let claimed = trial.claim(A, 3).await;
    trial.end(&claimed[0], sent()).await;
    trial.end(&claimed[1], dead(true)).await;
    assert_eq!(trial.store.redrive(&all).await.unwrap(), 1);
    assert_eq!(trial.store.redrive(&[Uuid::now_v7()]).await.unwrap(), 0);
    let mut states = Vec::new();
    for id in &all {
        states.push(trial.state(*id).await);
    }
    assert_eq!(states, [State::Sent, State::Pending, State::Claimed, State::Pending]);
    let view = trial.show(all[1]).await;
    assert_eq!((view.attempts, view.lapses, view.dead_at, view.blocks_key), (0, 0, None, false));
    assert_eq!(trial.settle(&claimed[1], dead(true)).await, Marked::Lost, "an old mark killed it again");
    assert_eq!(ids(&trial.claim(B, 10).await), [all[1], all[3]]);
}

/// S5: many records are redriven and resent at a rate, by a filter, and up to a limit; each keeps its id.
pub async fn records_are_redriven_and_resent_at_a_rate<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let rate = NonZeroU32::new(2);
    let all = trial.enqueue((0..12).map(|n| record(if n < 6 { "a" } else { "b" }))).await;
    for claimed in trial.claim(A, 12).await {
        trial.end(&claimed, if claimed.kind == "a" { dead(false) } else { sent() }).await;
    }
    let of = |kind: &str| Filter::default().with_kind(Pattern::Exact(kind.into()));
    assert_eq!(trial.store.redrive_filtered(&of("b"), None, 10).await.unwrap(), 0, "none is dead");
    assert_eq!(trial.store.resend(&of("a"), None, 10).await.unwrap(), 0, "none was sent");
    assert_eq!(trial.store.redrive_filtered(&of("a"), rate, 5).await.unwrap(), 5);
    assert_eq!(trial.store.resend(&of("b"), rate, 5).await.unwrap(), 5);
    for chosen in [&all[..5], &all[6..11]] {
        let mut due = Vec::new();
        for id in chosen {
            let view = trial.show(*id).await;
            assert_eq!((view.state, view.attempts), (State::Pending, 0));
            due.push(view.send_after);
        }
        let spread = due[4].duration_since(due[0]).expect("one after the other");
        assert_eq!(spread.as_millis(), 2_000, "two a second");
    }
    assert_eq!((trial.state(all[5]).await, trial.state(all[11]).await), (State::Dead, State::Sent));
    trial.advance(SLACK).await;
    assert_eq!(ids(&trial.claim(B, 20).await), [&all[..5], &all[6..11]].concat());
}

/// S3: a discarded record is dead with the reason, whoever held it; a sent one stays sent.
pub async fn a_discarded_record_is_lost_to_its_holder<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let all = trial.enqueue((0..3).map(|_| record("a"))).await;
    let claimed = trial.claim(A, 2).await;
    trial.end(&claimed[0], sent()).await;
    assert_eq!(trial.store.discard(&all, "by mistake").await.unwrap(), 2);
    assert_eq!(trial.settle(&claimed[1], sent()).await, Marked::Lost);
    assert_eq!(trial.settle(&claimed[1], dead(false)).await, Marked::Lost);
    assert_eq!(trial.renew(&[claimed[1].lease()], HOUR).await.len(), 1);
    assert_eq!(trial.state(all[0]).await, State::Sent);
    for id in &all[1..] {
        let view = trial.show(*id).await;
        assert_eq!((view.state, view.last_error.as_deref()), (State::Dead, Some("by mistake")));
        assert!(view.dead_at.is_some() && !view.blocks_key);
    }
    trial.advance(LAPSE).await;
    assert!(trial.claim(B, 10).await.is_empty());
}

/// R1: what a mark says is kept: progress, age, the last error and the receipt. One that says nothing leaves what
/// stands there, and redrive keeps the progress.
pub async fn what_a_mark_says_is_kept<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let id = trial.enqueue_one(record("a")).await;
    let progress = json!({"accepted": ["a@example.com"], "n": 1});
    let claimed = trial.claim_one(A).await;
    let failed = Settlement::Retry {
        after: Duration::ZERO,
        error: "one refused".into(),
        age: Duration::from_millis(90_500),
    };
    let mark = Mark::new(claimed.lease(), failed).with_progress(Some(progress.clone()));
    assert_eq!(trial.mark(&[mark]).await, [Marked::Applied]);
    assert_eq!(trial.show(id).await.last_error.as_deref(), Some("one refused"));

    let claimed = trial.claim_one(A).await;
    assert_eq!(claimed.progress.as_ref(), Some(&progress));
    assert_eq!(claimed.age, Duration::from_millis(90_500));
    trial.end(&claimed, deferred(Duration::ZERO)).await;
    assert_eq!(trial.show(id).await.last_error.as_deref(), Some("one refused"), "it was overwritten");

    let claimed = trial.claim_one(A).await;
    assert_eq!(claimed.progress.as_ref(), Some(&progress), "a mark without progress took it away");
    assert_eq!(claimed.age, Duration::from_millis(90_500), "a deferral does not age");
    let error = Some("down".to_owned());
    trial.end(&claimed, Settlement::Deferred { after: Duration::ZERO, error }).await;
    assert_eq!(trial.show(id).await.last_error.as_deref(), Some("down"));

    let claimed = trial.claim_one(A).await;
    let mark = Mark::new(claimed.lease(), dead(false)).with_progress(Some(json!([2])));
    assert_eq!(trial.mark(&[mark]).await, [Marked::Applied]);
    assert_eq!(trial.show(id).await.last_error.as_deref(), Some("given up"));
    assert_eq!(trial.store.redrive(&[id]).await.unwrap(), 1);
    let claimed = trial.claim_one(A).await;
    assert_eq!(claimed.progress, Some(json!([2])), "redrive keeps the progress");
    assert_eq!((claimed.age, claimed.attempts), (Duration::ZERO, 1), "age and attempts start anew");
    trial.end(&claimed, Settlement::Sent { receipt: None }).await;
    assert_eq!(trial.show(id).await.receipt, None);
}

/// S7: held keys are listed with their head and why it does not go.
pub async fn held_keys_are_listed_with_their_head<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let line = trial.enqueue(["retrying", "dead", "flowing", "retrying", "dead", "flowing"].map(keyed)).await;
    let lost = trial.enqueue([record("odd").key("unrouted"), keyed("unrouted")]).await;
    trial.enqueue([keyed("alone")]).await;
    let mut request = any(A, 3);
    request.run_max = std::num::NonZeroUsize::MIN;
    let heads = trial.batch(&request).await.records;
    assert_eq!(ids(&heads), line[..3]);
    trial.end(&heads[0], retry(HOUR)).await;
    trial.end(&heads[1], dead(true)).await;
    let stats = trial.store.stats(&[Pattern::Prefix("order.".into())]).await.unwrap();
    let mut held: Vec<_> =
        stats.held_keys.iter().map(|held| (held.key.as_str(), held.id, held.because)).collect();
    held.sort_by_key(|(key, ..)| *key);
    assert_eq!(
        held,
        [
            ("dead", line[1], HeldBecause::Dead),
            ("retrying", line[0], HeldBecause::Retrying),
            ("unrouted", lost[0], HeldBecause::Unrouted),
        ]
    );
    let dead_head = stats.held_keys.iter().find(|held| held.key == "dead").unwrap();
    assert_eq!((dead_head.seq, dead_head.kind.as_str()), (heads[1].seq, "order.placed"));
}
