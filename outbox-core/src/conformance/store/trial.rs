//! One outbox under test, with short words for what every check does.

use std::time::Duration;

use uuid::Uuid;

use super::StoreHarness;
use crate::{
    ClaimBatch, ClaimRequest, Enqueued, Lease, Mark, Marked, NewRecord, Operate, Owner, Pattern, Record,
    RecordView, RouteDemand, Settlement, State, Store, StoreError,
};

/// Two relays.
pub(super) const A: Owner = Owner::from_random(0xa11c_e000_0000_0001);
pub(super) const B: Owner = Owner::from_random(0x0b0b_0000_0000_0002);

/// Long beside what a check takes on a real database, so that real time decides nothing.
pub(super) const LEASE: Duration = Duration::from_secs(600);
/// Longer than any lease.
pub(super) const LAPSE: Duration = Duration::from_secs(601);
/// A wait that no check outlasts.
pub(super) const HOUR: Duration = Duration::from_secs(3600);
/// What a real database's clock may have moved on during a check.
pub(super) const SLACK: Duration = Duration::from_secs(60);

pub(super) struct Trial<'h, H: StoreHarness> {
    pub(super) harness: &'h H,
    pub(super) store: H::Store,
}

impl<'h, H: StoreHarness> Trial<'h, H> {
    pub(super) async fn new(harness: &'h H) -> Self {
        Self { harness, store: harness.store().await }
    }

    /// Enqueues in a transaction of its own, and returns the ids.
    pub(super) async fn enqueue(&self, records: impl IntoIterator<Item = NewRecord>) -> Vec<Uuid> {
        let records: Vec<NewRecord> = records.into_iter().collect();
        let enqueued = self.try_enqueue(&records).await.expect("good records are enqueued");
        enqueued.iter().map(Enqueued::id).collect()
    }

    pub(super) async fn enqueue_one(&self, record: NewRecord) -> Uuid {
        self.enqueue([record]).await[0]
    }

    /// Enqueues in a transaction of its own, which is committed whatever the answer.
    pub(super) async fn try_enqueue(&self, records: &[NewRecord]) -> Result<Vec<Enqueued>, StoreError> {
        let mut transaction = self.harness.begin(&self.store).await;
        let enqueued = self.harness.enqueue(&self.store, &mut transaction, records).await;
        self.harness.commit(transaction).await;
        enqueued
    }

    pub(super) async fn advance(&self, time: Duration) {
        self.harness.advance(&self.store, time).await;
    }

    pub(super) async fn batch(&self, request: &ClaimRequest) -> ClaimBatch {
        self.store.claim(request).await.expect("a claim succeeds")
    }

    /// Claims up to `limit` of any kind.
    pub(super) async fn claim(&self, owner: Owner, limit: usize) -> Vec<Record> {
        self.batch(&any(owner, limit)).await.records
    }

    pub(super) async fn claim_one(&self, owner: Owner) -> Record {
        let mut records = self.claim(owner, 1).await;
        assert_eq!(records.len(), 1, "one record can be claimed");
        records.remove(0)
    }

    pub(super) async fn mark(&self, marks: &[Mark]) -> Vec<Marked> {
        let report = self.store.mark(marks).await.expect("a mark succeeds");
        assert_eq!(report.marked.len(), marks.len(), "there is one report a mark");
        report.marked
    }

    pub(super) async fn settle(&self, record: &Record, settlement: Settlement) -> Marked {
        self.mark(&[Mark::new(record.lease(), settlement)]).await[0]
    }

    /// Marks, and sees to it that it was applied.
    pub(super) async fn end(&self, record: &Record, settlement: Settlement) {
        assert_eq!(self.settle(record, settlement).await, Marked::Applied, "a live claim is marked");
    }

    pub(super) async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Vec<Lease> {
        self.store.renew(leases, lease_for).await.expect("a renewal succeeds")
    }

    pub(super) async fn show(&self, id: Uuid) -> RecordView {
        self.store.show(id).await.expect("a record is shown").expect("the record exists").0
    }

    pub(super) async fn state(&self, id: Uuid) -> State {
        self.show(id).await.state
    }
}

/// A request for up to `limit` of any kind.
pub(super) fn any(owner: Owner, limit: usize) -> ClaimRequest {
    ClaimRequest::new(owner, LEASE, limit, vec![RouteDemand::new(Pattern::Default, limit)])
}

/// A request of A for up to 100 records, each route with a limit of its own.
pub(super) fn routes(routes: &[(&str, usize)]) -> ClaimRequest {
    let demand = |(pattern, limit): &(&str, usize)| RouteDemand::new(pattern.parse().unwrap(), *limit);
    ClaimRequest::new(A, LEASE, 100, routes.iter().map(demand).collect())
}

pub(super) fn record(kind: &str) -> NewRecord {
    NewRecord::json(kind, &1).unwrap()
}

pub(super) fn keyed(key: &str) -> NewRecord {
    record("order.placed").key(key)
}

pub(super) fn ids(records: &[Record]) -> Vec<Uuid> {
    records.iter().map(|record| record.id).collect()
}

pub(super) fn sent() -> Settlement {
    Settlement::Sent { receipt: Some("receipt".into()) }
}

pub(super) fn retry(after: Duration) -> Settlement {
    Settlement::Retry { after, error: "refused".into(), age: after }
}

pub(super) fn deferred(after: Duration) -> Settlement {
    Settlement::Deferred { after, error: None }
}

pub(super) fn dead(blocks_key: bool) -> Settlement {
    Settlement::Dead { error: "given up".into(), blocks_key }
}
