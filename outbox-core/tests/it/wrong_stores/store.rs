//! The store that breaks a rule: the reference store, with its answers bent.

use std::{
    collections::{HashMap, HashSet},
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use outbox_core::{
    ClaimBatch, ClaimRequest, Filter, Lease, Mark, MarkReport, Marked, MemoryStore, Operate, Pattern, Pause,
    PauseScope, Payload, Record, RecordView, Retention, Settlement, State, Stats, Store, StoreError, Swept,
    Uuid, Wake, async_trait, memory::SetDue,
};

use super::{Flaw, before};

/// A store that breaks one rule, or none.
#[derive(Clone)]
pub(super) struct WrongStore {
    pub(super) inner: MemoryStore,
    flaw: Option<Flaw>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    newest: HashMap<Uuid, Lease>,
    ids: HashMap<i64, Uuid>,
    kinds: HashSet<String>,
    last: Vec<Record>,
    /// The fences that the right store drew, by those that were handed out.
    fences: HashMap<(Uuid, i64), i64>,
}

impl WrongStore {
    pub(super) fn new(inner: MemoryStore, flaw: Option<Flaw>) -> Self {
        Self { inner, flaw, seen: Arc::default() }
    }

    pub(super) fn is(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    async fn release(&self, records: &[Record]) {
        let marks: Vec<Mark> =
            records.iter().map(|record| Mark::new(record.lease(), Settlement::Released)).collect();
        self.inner.mark(&marks).await.unwrap();
    }

    async fn rows(&self, state: State) -> Vec<RecordView> {
        self.inner.list(&Filter::state(state), 0, 1_000).await.unwrap()
    }

    /// The lease as this store understands it.
    fn lease(&self, mut lease: Lease) -> Lease {
        let seen = self.seen();
        match self.flaw {
            Some(Flaw::IgnoresTheFence) => seen.newest.get(&lease.id).copied().unwrap_or(lease),
            Some(Flaw::IgnoresTheIdentity) => {
                lease.id = seen.ids.get(&lease.seq).copied().unwrap_or(lease.id);
                lease
            }
            Some(Flaw::FenceStandsStillAtTheEnd) => {
                lease.fence = seen.fences.get(&(lease.id, lease.fence)).copied().unwrap_or(lease.fence);
                lease
            }
            _ => lease,
        }
    }

    async fn bend(&self, flaw: Flaw, request: &ClaimRequest, batch: &mut ClaimBatch) {
        let records = &mut batch.records;
        match flaw {
            Flaw::ClaimsNothing => self.release(records).await,
            Flaw::Unsorted => records.reverse(),
            Flaw::HidesTheUndecodable => batch.undecodable.clear(),
            Flaw::ForgetsToAnnounce => batch.next_due = None,
            Flaw::Spins => batch.next_due = Some(Duration::ZERO),
            Flaw::AlwaysAnnounces => batch.next_due = batch.next_due.or(Some(Duration::from_secs(3600))),
            Flaw::DropsTheExhausted => records.retain(|record| record.attempts <= 20),
            Flaw::InventsContentType => {
                records.iter_mut().for_each(|record| record.content_type = "text/plain".into());
            }
            Flaw::LapsesCostAttempts => {
                records.iter_mut().for_each(|record| record.attempts += record.lapses);
            }
            Flaw::LapsesNeverCount => records.iter_mut().for_each(|record| record.lapses = 0),
            Flaw::KeysOvertake | Flaw::KeysPerKind => {
                for key in records.iter_mut().filter_map(|record| record.key.as_mut()) {
                    key.truncate(key.find(before::BREAK).unwrap_or(key.len()));
                }
            }
            Flaw::CachesKinds => {
                let unseen: Vec<Record> = {
                    let mut seen = self.seen();
                    records.extract_if(.., |record| seen.kinds.insert(record.kind.clone())).collect()
                };
                self.release(&unseen).await;
            }
            Flaw::SharesRecords => {
                let mut seen = self.seen();
                let again = std::mem::replace(&mut seen.last, records.clone());
                if records.len() + again.len() <= request.limit {
                    records.extend(again);
                }
            }
            Flaw::TakesManySuspects => {
                while records.len() < request.limit {
                    let more = self.inner.claim(request).await.unwrap().records;
                    if more.is_empty() {
                        break;
                    }
                    records.extend(more);
                }
                records.sort_by_key(|record| record.seq);
            }
            // Takes what it may not, and hands it back: its turn was wasted.
            Flaw::OneDestinationFillsTheRest => {
                let closed: Vec<Record> = records
                    .extract_if(.., |record| {
                        let route = &request.routes[request.route_of(&record.kind).unwrap()];
                        route.limit_for(record.destination.as_deref()) == 0
                    })
                    .collect();
                self.release(&closed).await;
            }
            Flaw::ScansFromTheFront => {
                // As they stood before this claim.
                let rows = self.rows(State::Pending).await;
                let end = if rows.len() < 1_000 { i64::MAX } else { rows[rows.len() - 1].seq };
                let beyond: Vec<Record> = records.extract_if(.., |record| record.seq > end).collect();
                self.release(&beyond).await;
            }
            Flaw::FenceStandsStillAtTheEnd => {
                let mut seen = self.seen();
                for record in records {
                    let drawn = record.fence;
                    record.fence = (drawn + 1) / 2;
                    seen.fences.insert((record.id, record.fence), drawn);
                }
            }
            _ => {}
        }
    }
}

#[async_trait]
impl Store for WrongStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch, StoreError> {
        let mut bent = request.clone();
        if let Some(flaw) = self.flaw {
            before::request(flaw, &mut bent);
        }
        if self.is(Flaw::LocksWhileSending) && !self.rows(State::Claimed).await.is_empty() {
            return Ok(ClaimBatch::default());
        }
        let mut batch = self.inner.claim(&bent).await?;
        {
            let mut seen = self.seen();
            for record in &batch.records {
                seen.newest.insert(record.id, record.lease());
                seen.ids.insert(record.seq, record.id);
            }
        }
        if let Some(flaw) = self.flaw {
            self.bend(flaw, request, &mut batch).await;
        }
        Ok(batch)
    }

    async fn mark(&self, marks: &[Mark]) -> Result<MarkReport, StoreError> {
        let mut marks = marks.to_vec();
        for mark in &mut marks {
            mark.lease = self.lease(mark.lease);
            if let Some(flaw) = self.flaw {
                before::mark(flaw, mark);
            }
        }
        if self.is(Flaw::MarksFromTheEnd) {
            marks.reverse();
        }
        let mut report = self.inner.mark(&marks).await?;
        match self.flaw {
            Some(Flaw::MarksFromTheEnd | Flaw::ReportsOutOfOrder) => report.marked.reverse(),
            Some(Flaw::RepeatsAreLost) => {
                for marked in report.marked.iter_mut().filter(|marked| **marked == Marked::AlreadyApplied) {
                    *marked = Marked::Lost;
                }
            }
            _ => {}
        }
        Ok(report)
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, StoreError> {
        match self.flaw {
            Some(Flaw::RenewsAnything) => Ok(Vec::new()),
            Some(Flaw::RenewsNothing) => Ok(leases.to_vec()),
            _ => {
                let known: Vec<Lease> = leases.iter().map(|lease| self.lease(*lease)).collect();
                self.inner.renew(&known, lease_for).await
            }
        }
    }

    async fn wait(&self, at_most: Duration) -> Result<Wake, StoreError> {
        if self.is(Flaw::WaitsForEver) {
            return std::future::pending().await;
        }
        self.inner.wait(at_most).await
    }

    async fn sweep(&self, retention: &Retention) -> Result<Swept, StoreError> {
        let mut retention = retention.clone();
        if let Some(flaw) = self.flaw {
            before::retention(flaw, &mut retention);
        }
        let delete = match self.flaw {
            Some(Flaw::SweepsOldRows) => self.rows(State::Pending).await,
            Some(Flaw::SweepsBlockingDead) => self.rows(State::Dead).await,
            _ => Vec::new(),
        };
        for row in delete {
            self.inner.by_hand().delete(row.id);
        }
        self.inner.sweep(&retention).await
    }

    async fn stats(&self, routed: &[Pattern]) -> Result<Stats, StoreError> {
        let mut stats = self.inner.stats(routed).await?;
        match self.flaw {
            Some(Flaw::CountsClaimedAsPending) => stats.pending.value += stats.claimed.value,
            Some(Flaw::ListsNoHeldKeys) => stats.held_keys.clear(),
            _ => {}
        }
        Ok(stats)
    }
}

#[async_trait]
impl Operate for WrongStore {
    async fn list(
        &self,
        filter: &Filter,
        after_seq: i64,
        limit: usize,
    ) -> Result<Vec<RecordView>, StoreError> {
        let mut views = self.inner.list(filter, after_seq, limit).await?;
        if self.is(Flaw::ListsBackwards) {
            views.reverse();
        }
        Ok(views)
    }

    async fn show(&self, id: Uuid) -> Result<Option<(RecordView, Payload)>, StoreError> {
        self.inner.show(id).await
    }

    async fn redrive(&self, ids: &[Uuid]) -> Result<u64, StoreError> {
        let mut redriven = self.inner.redrive(ids).await?;
        match self.flaw {
            Some(Flaw::RedriveIsNotDue) => {
                for id in ids {
                    self.inner.by_hand().set_due(*id, SetDue::Never);
                }
            }
            Some(Flaw::RedriveTakesTheSent) => {
                redriven += self.inner.resend(&Filter::default(), None, ids.len()).await?;
            }
            _ => {}
        }
        Ok(redriven)
    }

    async fn redrive_filtered(
        &self,
        filter: &Filter,
        per_second: Option<NonZeroU32>,
        limit: usize,
    ) -> Result<u64, StoreError> {
        let per_second = per_second.filter(|_| !self.is(Flaw::IgnoresTheRate));
        self.inner.redrive_filtered(filter, per_second, limit).await
    }

    async fn discard(&self, ids: &[Uuid], reason: &str) -> Result<u64, StoreError> {
        if self.is(Flaw::DiscardsNothing) {
            return Ok(ids.len() as u64);
        }
        self.inner.discard(ids, reason).await
    }

    async fn resend(
        &self,
        filter: &Filter,
        per_second: Option<NonZeroU32>,
        limit: usize,
    ) -> Result<u64, StoreError> {
        let per_second = per_second.filter(|_| !self.is(Flaw::IgnoresTheRate));
        self.inner.resend(filter, per_second, limit).await
    }

    async fn pause(&self, scope: &PauseScope, reason: &str) -> Result<(), StoreError> {
        if self.is(Flaw::IgnoresPauses) {
            return Ok(());
        }
        let known = self.inner.pauses().await?.iter().any(|pause| pause.scope == *scope);
        if known && self.is(Flaw::KeepsTheFirstReason) {
            return Ok(());
        }
        self.inner.pause(scope, reason).await
    }

    async fn resume(&self, scope: &PauseScope) -> Result<bool, StoreError> {
        Ok(self.inner.resume(scope).await? || self.is(Flaw::IgnoresPauses))
    }

    async fn pauses(&self) -> Result<Vec<Pause>, StoreError> {
        self.inner.pauses().await
    }
}
