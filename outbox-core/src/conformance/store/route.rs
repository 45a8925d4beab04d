//! Checks of routes, destinations and limits: S4.

use super::{
    StoreHarness,
    trial::{A, B, LEASE, Trial, any, ids, keyed, record, routes, sent},
};
use crate::{ClaimRequest, Pattern, RouteDemand, Store};

/// S4: only the kinds asked for are claimed. A pattern is no wildcard of the database's, and letter case
/// counts.
pub async fn only_the_kinds_asked_for_are_claimed<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let kinds = [
        "order.placed",
        "order.line.added",
        "order",
        "ordering.x",
        "Order.placed",
        "mail.sent",
        "a_b.c",
        "axb.c",
        "a%.c",
        "a[b].c",
        "abc.c",
    ];
    trial.enqueue(kinds.map(record)).await;
    let claimed = async |asked: &[(&str, usize)]| {
        let records = trial.batch(&routes(asked)).await.records;
        records.into_iter().map(|record| record.kind).collect::<Vec<_>>()
    };
    assert_eq!(claimed(&[("order.*", 100)]).await, ["order.placed", "order.line.added"]);
    assert_eq!(claimed(&[("mail.sent", 100), ("mail", 100)]).await, ["mail.sent"]);
    assert_eq!(claimed(&[("a_b.*", 100)]).await, ["a_b.c"]);
    assert_eq!(claimed(&[("a%.*", 100)]).await, ["a%.c"]);
    assert_eq!(claimed(&[("a[b].*", 100)]).await, ["a[b].c"]);
    assert_eq!(claimed(&[("nothing", 100)]).await, [""; 0]);
    assert_eq!(claimed(&[]).await, [""; 0]);
    assert_eq!(claimed(&[("*", 100)]).await, ["order", "ordering.x", "Order.placed", "axb.c", "abc.c"]);
}

/// S4: the most specific route decides, even when it is full: its kinds do not fall to a wider one.
pub async fn a_full_route_does_not_lose_its_kinds_to_a_wider_one<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    trial.enqueue(["order.placed", "order.line.added", "order.sent", "mail.sent"].map(record)).await;
    let asked = [("*", 100), ("order.*", 100), ("order.line.*", 0), ("order.placed", 0)];
    let claimed = trial.batch(&routes(&asked)).await.records;
    let kinds: Vec<&str> = claimed.iter().map(|record| record.kind.as_str()).collect();
    assert_eq!(kinds, ["order.sent", "mail.sent"]);
}

/// S4: a kind that was never seen is claimed by the first claim after its commit.
pub async fn a_new_kind_is_seen_at_once<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let other = Trial { harness, store: harness.reopen(&trial.store).await };
    for n in 0..5 {
        assert!(trial.claim(A, 10).await.is_empty());
        let id = other.enqueue_one(record(&format!("new.{n}"))).await;
        let asked = if n % 2 == 0 { "*" } else { "new.*" };
        assert_eq!(ids(&trial.batch(&routes(&[(asked, 10)])).await.records), [id]);
    }
}

/// S4: each route takes no more than its limit, over all its kinds.
pub async fn a_route_takes_no_more_than_its_limit<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    trial.enqueue((0..10).flat_map(|_| ["a.x", "a.y", "b", "c"].map(record))).await;
    trial.enqueue((0..10).map(|_| record("a.z").key("k"))).await;
    let claimed = trial.batch(&routes(&[("a.*", 3), ("b", 4), ("c", 0), ("d", 9)])).await.records;
    let count = |prefix: &str| claimed.iter().filter(|record| record.kind.starts_with(prefix)).count();
    assert_eq!((count("a."), count("b"), count("c")), (3, 4, 0));
}

/// S4: a destination takes no more than its limit, over all kinds of the route and runs of keys; records
/// without one are not bounded by it.
pub async fn a_destination_takes_no_more_than_its_limit<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    for n in 0..5 {
        trial
            .enqueue([
                record("a.x").destination("one"),
                record("a.y").destination("one"),
                record("a.x").destination("two").key("k"),
                record("a.y").destination("three"),
                record(if n % 2 == 0 { "a.x" } else { "a.y" }),
            ])
            .await;
    }
    let mut demand = RouteDemand::new(Pattern::Prefix("a.".into()), 100);
    demand.destination_limit = 2;
    demand.destinations.insert("three".into(), 1);
    let claimed = trial.batch(&ClaimRequest::new(A, LEASE, 100, vec![demand])).await.records;
    let count =
        |to: Option<&str>| claimed.iter().filter(|record| record.destination.as_deref() == to).count();
    assert_eq!((count(Some("one")), count(Some("two")), count(Some("three")), count(None)), (2, 2, 1, 5));
}

/// S4: a destination that a claim leaves out costs no other its turn, and another relay may take it.
pub async fn a_left_out_destination_is_passed_over<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let down = trial.enqueue((0..20).map(|_| record("a").destination("down"))).await;
    let up = trial.enqueue((0..5).map(|_| record("a").destination("up"))).await;
    let mut demand = RouteDemand::new(Pattern::Default, 10);
    demand.destinations.insert("down".into(), 0);
    let request = ClaimRequest::new(A, LEASE, 10, vec![demand]);
    let mut claimed = Vec::new();
    for _ in 0..3 {
        claimed.extend(ids(&trial.batch(&request).await.records));
    }
    assert_eq!(claimed, up, "the other destination goes, and it alone");
    let claimed = ids(&trial.batch(&any(B, 100)).await.records);
    assert_eq!(claimed, down, "a relay that leaves nothing out takes them");
}

/// S4: a record that no route takes is left alone, holds back nothing, and is reported by its kind.
pub async fn a_record_without_a_route_is_left_alone_and_reported<H: StoreHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let lost = trial.enqueue([record("typo.placed"), record("typo.placed"), record("odd")]).await;
    let routed = trial.enqueue([record("order.placed"), keyed("k")]).await;
    let asked = routes(&[("order.*", 100)]);
    assert_eq!(ids(&trial.batch(&asked).await.records), routed);
    let patterns = [Pattern::Prefix("order.".into())];
    let stats = trial.store.stats(&patterns).await.unwrap();
    let mut unrouted: Vec<_> =
        stats.unrouted.iter().map(|(kind, count)| (kind.as_str(), count.value)).collect();
    unrouted.sort_unstable();
    assert_eq!(unrouted, [("odd", 1), ("typo.placed", 2)]);
    let claimed = trial.claim(B, 10).await;
    assert_eq!(ids(&claimed), lost, "they go once there is a route");
    for record in &claimed {
        trial.end(record, sent()).await;
    }
    let stats = trial.store.stats(&patterns).await.unwrap();
    assert!(stats.unrouted.is_empty(), "finished records need no route");
}
