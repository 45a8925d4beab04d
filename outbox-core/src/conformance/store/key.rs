//! Checks of order within a key: S7.

use std::{num::NonZeroUsize, time::Duration};

use super::{
    StoreHarness,
    trial::{A, B, HOUR, LEASE, SLACK, Trial, any, dead, deferred, ids, keyed, record, retry, routes, sent},
};
use crate::{ClaimRequest, Operate, Pattern, PauseScope, Retention, RouteDemand, Settlement, Store};

/// S7: a failing record holds back its key and nothing else, and is not overtaken while it waits.
pub async fn a_failing_head_holds_back_its_key_and_nothing_else<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    for (n, settlement) in [retry(HOUR), deferred(HOUR)].into_iter().enumerate() {
        let key = format!("k{n}");
        let line = trial.enqueue([keyed(&key), keyed(&key), keyed(&key)]).await;
        let head = trial.claim_one(A).await;
        assert_eq!(head.id, line[0]);
        trial.end(&head, settlement.clone()).await;
        let others = trial.enqueue([keyed("other"), record("a"), keyed(&key)]).await;
        let claimed = trial.claim(A, 10).await;
        assert_eq!(ids(&claimed), others[..2], "after {settlement:?}");
        for record in &claimed {
            trial.end(record, sent()).await;
        }
        trial.advance(HOUR - SLACK).await;
        assert!(trial.claim(A, 10).await.is_empty(), "overtaken during {settlement:?}");
        trial.advance(SLACK).await;
        let run = trial.claim(A, 10).await;
        assert_eq!(ids(&run), [line[0], line[1], line[2], others[2]], "in the old order");
        for record in &run {
            trial.end(record, sent()).await;
        }
    }
}

/// S7: records of a key that are due go together in a run, in order, and no more of them than asked for.
pub async fn records_of_a_key_go_in_runs<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let line = trial.enqueue((0..10).map(|_| keyed("k"))).await;
    let mut request = any(A, 100);
    let mut taken = Vec::new();
    for run_max in [1, 3, 100] {
        request.run_max = NonZeroUsize::new(run_max).unwrap();
        let run = trial.batch(&request).await.records;
        assert_eq!(run.len(), run_max.min(10 - taken.len()), "a run is as long as asked for");
        assert!(trial.claim(B, 100).await.is_empty(), "a key under a live claim was claimed");
        assert!(trial.batch(&request).await.records.is_empty(), "even by its holder");
        for record in &run {
            trial.end(record, sent()).await;
        }
        taken.extend(ids(&run));
    }
    assert_eq!(taken, line);
}

/// S7: while part of a run is still under way, the rest of the key waits.
pub async fn a_key_waits_for_the_last_of_its_run<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let line = trial.enqueue((0..4).map(|_| keyed("k"))).await;
    let mut request = any(A, 10);
    request.run_max = NonZeroUsize::new(3).unwrap();
    let run = trial.batch(&request).await.records;
    for record in &run[..2] {
        trial.end(record, sent()).await;
        assert!(trial.claim(B, 10).await.is_empty(), "the run is still under way");
    }
    trial.end(&run[2], sent()).await;
    assert_eq!(ids(&trial.claim(B, 10).await), [line[3]]);
}

/// S7: what is handed back from a run goes again in its old order, behind the one that failed.
pub async fn a_broken_run_is_taken_up_in_order<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let line = trial.enqueue((0..3).map(|_| keyed("k"))).await;
    let run = trial.claim(A, 10).await;
    // The tail first, as a relay that marks in any order would.
    trial.end(&run[2], Settlement::Released).await;
    trial.end(&run[1], deferred(Duration::ZERO)).await;
    assert!(trial.claim(B, 10).await.is_empty(), "the head is still under way");
    trial.end(&run[0], retry(HOUR)).await;
    assert!(trial.claim(B, 10).await.is_empty(), "the head waits");
    trial.advance(HOUR).await;
    let again = trial.claim(B, 10).await;
    assert_eq!(ids(&again), line);
    assert_eq!(again.iter().map(|record| record.attempts).collect::<Vec<_>>(), [2, 1, 1]);
}

/// S7: order holds over kinds: a record waits for an earlier one of its key that another route takes.
pub async fn order_holds_over_the_kinds_of_a_key<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let line = trial.enqueue([record("order.placed").key("k"), record("mail.sent").key("k")]).await;
    let mail = routes(&[("mail.*", 10)]);
    assert!(trial.batch(&mail).await.records.is_empty(), "the earlier record was overtaken");
    let first = trial.batch(&routes(&[("order.*", 10)])).await.records;
    assert_eq!(ids(&first), [line[0]]);
    assert!(trial.batch(&mail).await.records.is_empty(), "the earlier record is under way");
    trial.end(&first[0], sent()).await;
    assert_eq!(ids(&trial.batch(&mail).await.records), [line[1]]);
}

/// S7: a run ends at the first record of another route, and goes on in the next claim.
pub async fn a_run_ends_at_a_record_of_another_route<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let kinds = ["a.x", "a.y", "b.x", "a.x"];
    let line = trial.enqueue(kinds.map(|kind| record(kind).key("k"))).await;
    let asked = routes(&[("a.*", 10), ("b.*", 10)]);
    for expected in [&line[..2], &line[2..3], &line[3..]] {
        let run = trial.batch(&asked).await.records;
        assert_eq!(ids(&run), expected);
        for record in &run {
            trial.end(record, sent()).await;
        }
    }
}

/// S7: a run ends before a record that may not go now: not due, paused, or to a destination that is full.
pub async fn a_run_ends_before_a_record_that_may_not_go<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let line = trial
        .enqueue([
            keyed("held"),
            keyed("held").delay(HOUR).hold_key(),
            keyed("held"),
            keyed("paused"),
            record("stopped").key("paused"),
            keyed("paused"),
            keyed("full").destination("one"),
            keyed("full").destination("two"),
            keyed("full").destination("one"),
            keyed("full"),
        ])
        .await;
    trial.store.pause(&PauseScope::Kind(Pattern::Exact("stopped".into())), "for now").await.unwrap();
    let mut demand = RouteDemand::new(Pattern::Default, 100);
    demand.destination_limit = 1;
    let request = ClaimRequest::new(A, LEASE, 100, vec![demand]);
    let claimed = ids(&trial.batch(&request).await.records);
    assert_eq!(claimed, [line[0], line[3], line[6], line[7]]);
}

/// S7: a dead record that blocks its key holds it back until it is discarded; one that does not lets it go.
pub async fn a_dead_record_blocks_its_key_if_told_to<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let line = trial.enqueue([keyed("k"), keyed("k"), keyed("k")]).await;
    let run = trial.claim(A, 1).await;
    trial.end(&run[0], dead(false)).await;
    let second = trial.claim_one(A).await;
    assert_eq!(second.id, line[1], "the key goes on with a gap");
    trial.end(&second, dead(true)).await;
    let other = trial.enqueue([keyed("k"), record("a")]).await;
    assert_eq!(ids(&trial.claim(B, 10).await), other[1..], "the key is blocked, and nothing else");
    assert!(trial.show(line[1]).await.blocks_key && !trial.show(line[0]).await.blocks_key);
    assert_eq!(trial.store.discard(&[line[1]], "not needed").await.unwrap(), 1);
    assert!(!trial.show(line[1]).await.blocks_key);
    assert_eq!(ids(&trial.claim(B, 10).await), [line[2], other[0]]);
}

/// S7: redriven, a record is where it stood in its line: before those that wait for it.
pub async fn a_redriven_record_keeps_its_place<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let line = trial.enqueue([keyed("k"), keyed("k")]).await;
    let head = trial.claim(A, 1).await.remove(0);
    trial.end(&head, dead(true)).await;
    assert!(trial.claim(A, 10).await.is_empty());
    assert_eq!(trial.store.redrive(&[line[0]]).await.unwrap(), 1);
    let run = trial.claim(A, 10).await;
    assert_eq!(ids(&run), line);
    assert_eq!((run[0].seq, run[0].attempts), (head.seq, 1), "the same place, and attempts anew");
}

/// S7: a record that was scheduled and has never been due does not hold its key; once due it has its place.
pub async fn a_scheduled_record_holds_its_key_from_when_it_is_due<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let reminder = trial.enqueue_one(record("reminder").key("k").delay(HOUR)).await;
    let orders = trial.enqueue((0..3).map(|_| keyed("k"))).await;
    let first = trial.claim(A, 1).await;
    assert_eq!(ids(&first), orders[..1], "a reminder of next week does not hold back today's order");
    trial.renew(&[first[0].lease()], HOUR * 10).await;
    trial.advance(HOUR).await;
    assert!(trial.claim(B, 10).await.is_empty(), "it waits for what is under way, and is due");
    trial.end(&first[0], sent()).await;
    let due = trial.claim(B, 1).await;
    assert_eq!(ids(&due), [reminder], "it is the earliest of its key");
    trial.end(&due[0], retry(HOUR)).await;
    assert!(trial.claim(B, 10).await.is_empty(), "backing off, it is not overtaken");
    trial.advance(HOUR).await;
    assert_eq!(ids(&trial.claim(B, 10).await), [reminder, orders[1], orders[2]]);
}

/// S7: a scheduled record holds its key when asked to.
pub async fn a_scheduled_record_holds_its_key_when_asked<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let line = trial.enqueue([keyed("k").delay(HOUR).hold_key(), keyed("k"), keyed("l")]).await;
    assert_eq!(ids(&trial.claim(A, 10).await), line[2..], "the key is held, and no other");
    trial.advance(HOUR).await;
    let mut request = any(A, 10);
    request.suspect = false;
    assert_eq!(ids(&trial.batch(&request).await.records), line[..2]);
}

/// S7: an earlier record that is committed late waits until the later one, which is under way, is settled.
pub async fn a_record_that_appears_late_waits_for_what_is_under_way<H: StoreHarness>(harness: &H) {
    if !H::OVERLAPPING_WRITERS {
        return;
    }
    for settlement in [sent(), retry(Duration::ZERO)] {
        let trial = Trial::new(harness).await;
        let mut late = harness.begin(&trial.store).await;
        let first = harness.enqueue(&trial.store, &mut late, &[keyed("k")]).await.unwrap()[0].id();
        let second = trial.enqueue_one(keyed("k")).await;
        let claimed = trial.claim_one(A).await;
        assert_eq!(claimed.id, second, "what can be seen goes");
        harness.commit(late).await;
        assert!(trial.claim(B, 10).await.is_empty(), "two of a key were under way");
        assert!(trial.claim(A, 10).await.is_empty(), "two of a key were under way, even of one relay");
        trial.end(&claimed, settlement.clone()).await;
        let next = ids(&trial.claim(B, 10).await);
        match settlement {
            Settlement::Sent { .. } => assert_eq!(next, [first]),
            _ => assert_eq!(next, [first, second], "both pending, they go in order"),
        }
    }
}

/// S7: a lapsed claim is not renewed beside a newer one of its key: never are two in force at once.
pub async fn a_lapsed_claim_is_not_renewed_beside_a_newer_one_of_its_key<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let line = trial.enqueue([keyed("k"), keyed("k"), keyed("l"), keyed("l")]).await;
    let stalled = trial.claim(A, 10).await;
    assert_eq!(ids(&stalled), line);
    trial.advance(LEASE).await;
    let taken = trial.claim_one(B).await;
    let (same_key, other_key): (Vec<_>, Vec<_>) =
        stalled.iter().filter(|record| record.id != taken.id).partition(|record| record.key == taken.key);
    let leases: Vec<_> = stalled.iter().map(crate::Record::lease).collect();
    let lost = trial.renew(&leases, LEASE).await;
    assert_eq!(same_key.len(), 1);
    assert!(lost.contains(&same_key[0].lease()), "two relays hold one key");
    for record in other_key {
        assert!(!lost.contains(&record.lease()), "nobody took the other key");
    }
}

/// S7: records of a dead relay's run go one after the other, in order, and nothing of the key overtakes them.
pub async fn a_lapsed_run_goes_again_in_order<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let line = trial.enqueue((0..3).map(|_| keyed("k"))).await;
    assert_eq!(trial.claim(A, 10).await.len(), 3);
    trial.advance(LEASE).await;
    let last = trial.enqueue_one(keyed("k")).await;
    let mut without_suspects = any(B, 10);
    without_suspects.suspect = false;
    let mut order = Vec::new();
    for _ in 0..3 {
        assert!(trial.batch(&without_suspects).await.records.is_empty(), "a lapsed record was overtaken");
        let claimed = trial.claim(B, 10).await;
        assert_eq!(claimed.len(), 1, "a suspect goes alone");
        assert!(trial.claim(A, 10).await.is_empty(), "two of a key were under way");
        trial.end(&claimed[0], sent()).await;
        order.extend(ids(&claimed));
    }
    assert_eq!(order, line);
    assert_eq!(ids(&trial.claim(B, 10).await), [last]);
}

/// S7: the empty key is a key, and no key is none.
pub async fn the_empty_key_is_a_key<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let line = trial.enqueue([keyed(""), keyed(""), record("a"), record("a")]).await;
    let mut request = any(A, 10);
    request.run_max = NonZeroUsize::MIN;
    let claimed = trial.batch(&request).await.records;
    assert_eq!(ids(&claimed), [line[0], line[2], line[3]]);
}

/// S7: whatever is deleted by hand, its key goes on after the next sweep at the latest.
pub async fn a_key_goes_on_after_its_head_was_deleted_by_hand<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    for settlement in [retry(HOUR), dead(true)] {
        let line = trial.enqueue((0..5).map(|_| keyed("k"))).await;
        let head = trial.claim(A, 1).await.remove(0);
        trial.end(&head, settlement).await;
        for _ in 0..3 {
            assert!(trial.claim(A, 10).await.is_empty());
        }
        harness.delete(&trial.store, line[0]).await;
        trial.store.sweep(&Retention::default()).await.unwrap();
        let run = trial.claim(A, 10).await;
        assert_eq!(ids(&run), line[1..]);
        for record in &run {
            trial.end(record, sent()).await;
        }
    }
}

/// S7: a long line drains to its end in order, while claims of other relays come between.
pub async fn a_long_line_drains_in_order<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let line = trial.enqueue((0..60).map(|_| keyed("k"))).await;
    let mut request = any(A, 10);
    request.run_max = NonZeroUsize::new(2).unwrap();
    let mut order = Vec::new();
    for round in 0..100 {
        let run = trial.batch(&request).await.records;
        if run.is_empty() {
            break;
        }
        assert!(trial.claim(B, 10).await.is_empty(), "two of a key were under way");
        // Each fifth round fails at first, and the rest of its run is handed back.
        if round % 5 == 0 && run[0].attempts == 1 {
            trial.end(&run[0], retry(Duration::ZERO)).await;
            for record in &run[1..] {
                trial.end(record, Settlement::Released).await;
            }
            continue;
        }
        for record in &run {
            trial.end(record, sent()).await;
            order.push(record.id);
        }
    }
    assert_eq!(order, line);
}

/// S7: whatever interleaves, no two relays hold records of one key at once, and each key goes out in order.
pub async fn no_two_relays_hold_one_key<H: StoreHarness>(harness: &H) {
    use std::{
        collections::HashMap,
        sync::{Arc, Mutex},
    };

    #[derive(Default)]
    struct Seen {
        held_by: HashMap<String, (u64, usize)>,
        went: HashMap<String, Vec<i64>>,
    }
    const RECORDS: usize = 240;

    let trial = Trial::new(harness).await;
    trial.enqueue((0..RECORDS).map(|n| keyed(&format!("k{}", n % 5)))).await;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let relays: Vec<_> = (1..=4_u64)
        .map(|relay| {
            let (store, seen) = (trial.store.clone(), Arc::clone(&seen));
            tokio::spawn(async move {
                let mut empty = 0;
                while empty < 200 {
                    let mut request = any(crate::Owner::from_random(relay), 7);
                    request.run_max = NonZeroUsize::new(3).unwrap();
                    let records = store.claim(&request).await.unwrap().records;
                    empty = if records.is_empty() { empty + 1 } else { 0 };
                    for record in &records {
                        let key = record.key.clone().unwrap();
                        let mut seen = seen.lock().unwrap();
                        let holder = seen.held_by.entry(key).or_insert((relay, 0));
                        assert_eq!(holder.0, relay, "two relays hold one key");
                        holder.1 += 1;
                    }
                    tokio::task::yield_now().await;
                    let mut broken = Vec::new();
                    for record in &records {
                        let key = record.key.clone().unwrap();
                        let settlement = if broken.contains(&key) {
                            Settlement::Released
                        } else if record.seq % 7 == 0 && record.attempts == 1 {
                            broken.push(key.clone());
                            retry(Duration::ZERO)
                        } else {
                            seen.lock().unwrap().went.entry(key.clone()).or_default().push(record.seq);
                            sent()
                        };
                        {
                            let mut seen = seen.lock().unwrap();
                            let holder = seen.held_by.get_mut(&key).expect("it was noted");
                            holder.1 -= 1;
                            if holder.1 == 0 {
                                seen.held_by.remove(&key);
                            }
                        }
                        let mark = crate::Mark::new(record.lease(), settlement);
                        assert_eq!(store.mark(&[mark]).await.unwrap().lost(), 0, "a claim was lost");
                    }
                }
            })
        })
        .collect();
    for relay in relays {
        relay.await.expect("a relay runs to its end");
    }
    let seen = seen.lock().unwrap();
    let went: usize = seen.went.values().map(Vec::len).sum();
    assert_eq!(went, RECORDS, "every record went");
    for (key, seqs) in &seen.went {
        assert!(seqs.is_sorted(), "{key} went out of order: {seqs:?}");
    }
}
