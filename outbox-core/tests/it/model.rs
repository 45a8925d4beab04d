//! The reference store beside a model that scans everything: whatever happens, both agree on what can be claimed.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    time::Duration,
};

use fastrand::Rng;
use outbox_core::{
    ClaimRequest, Clock, Enqueue, Lease, ManualClock, Mark, Marked, MemoryStore, NewRecord, Operate, Owner,
    Pattern, PauseScope, RouteDemand, Settlement, Store, Uuid,
};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(10);
const KINDS: [&str; 3] = ["a", "b.x", "b.y"];
const DESTINATIONS: [Option<&str>; 3] = [None, Some("one"), Some("two")];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Pending,
    Claimed,
    Sent,
    Dead { blocks: bool },
}

#[derive(Clone, Debug)]
struct Row {
    id: Uuid,
    kind: &'static str,
    destination: Option<&'static str>,
    key: Option<String>,
    hold_key: bool,
    send_after: Duration,
    state: State,
    fence: i64,
    lapses: u32,
    attempts: u32,
}

impl Row {
    fn is_unfinished(&self) -> bool {
        matches!(self.state, State::Pending | State::Claimed)
    }

    fn is_live(&self, now: Duration) -> bool {
        self.state == State::Claimed && self.send_after > now
    }

    fn is_suspect(&self) -> bool {
        self.state == State::Claimed || self.lapses > 0
    }

    /// Whether later records of its key wait for it.
    fn is_in_line(&self, now: Duration) -> bool {
        let scheduled =
            self.state == State::Pending && self.fence == 0 && !self.hold_key && self.send_after > now;
        (self.is_unfinished() && !scheduled) || self.state == State::Dead { blocks: true }
    }
}

#[derive(Default)]
struct Model {
    rows: BTreeMap<i64, Row>,
    paused: BTreeSet<&'static str>,
}

impl Model {
    /// Whether a claim could take this row, beside those that it has taken of the same key.
    fn may_go(&self, seq: i64, taken: &BTreeSet<i64>, request: &ClaimRequest, now: Duration) -> bool {
        let row = &self.rows[&seq];
        let key_is_free = row.key.is_none()
            || self.rows.iter().filter(|(other, peer)| **other != seq && peer.key == row.key).all(
                |(other, peer)| {
                    taken.contains(other) || (!peer.is_live(now) && (*other > seq || !peer.is_in_line(now)))
                },
            );
        let Some(route) = request.route_of(row.kind).map(|at| &request.routes[at]) else { return false };
        row.is_unfinished()
            && row.send_after <= now
            && route.limit_for(row.destination) > 0
            && row.destination.is_none_or(|to| !self.paused.contains(to))
            && (request.suspect || !row.is_suspect())
            && key_is_free
    }

    /// Whether the request has room for this row besides what was taken.
    fn has_room(&self, seq: i64, taken: &BTreeSet<i64>, request: &ClaimRequest) -> bool {
        let row = &self.rows[&seq];
        let route = request.route_of(row.kind).unwrap();
        let of_route: Vec<&Row> = taken
            .iter()
            .map(|seq| &self.rows[seq])
            .filter(|taken| request.route_of(taken.kind) == Some(route))
            .collect();
        let of_destination = of_route.iter().filter(|taken| taken.destination == row.destination).count();
        taken.len() < request.limit
            && of_route.len() < request.routes[route].limit
            && (row.destination.is_none()
                || of_destination < request.routes[route].limit_for(row.destination))
    }

    fn check_claim(&mut self, records: &[outbox_core::Record], request: &ClaimRequest, now: Duration) {
        let mut taken = BTreeSet::new();
        let mut suspects = 0;
        for record in records {
            let seq = record.seq;
            assert!(self.may_go(seq, &taken, request, now), "{seq} may not go: {:?}", self.rows[&seq]);
            assert!(self.has_room(seq, &taken, request), "no room for {seq}");
            suspects += usize::from(self.rows[&seq].is_suspect());
            let of_key = taken.iter().filter(|taken| self.rows[taken].key == self.rows[&seq].key).count();
            assert!(record.key.is_none() || of_key < request.run_max.get(), "a run is too long");
            taken.insert(seq);
        }
        assert!(suspects <= 1, "{suspects} suspects in one claim");
        for (seq, row) in &self.rows {
            let left = !taken.contains(seq) && (!row.is_suspect() || suspects == 0);
            // What is left of a key goes with the next claim, when its run was as long as it may be.
            let fresh_key = row.key.is_none() || !taken.iter().any(|taken| self.rows[taken].key == row.key);
            if left && fresh_key && self.may_go(*seq, &BTreeSet::new(), request, now) {
                assert!(!self.has_room(*seq, &taken, request), "{seq} was left behind: {row:?}");
            }
        }
        for record in records {
            let row = self.rows.get_mut(&record.seq).unwrap();
            if row.state == State::Claimed {
                row.lapses += 1
            } else {
                row.attempts += 1
            }
            row.state = State::Claimed;
            row.fence += 1;
            row.send_after = now + request.lease_for;
            assert_eq!(
                (record.fence, record.attempts, record.lapses, record.id),
                (row.fence, row.attempts, row.lapses, row.id)
            );
        }
    }
}

struct Run {
    rng: Rng,
    clock: ManualClock,
    store: MemoryStore,
    model: Model,
    /// Leases that were handed out, old ones too.
    leases: Vec<Lease>,
    open: Vec<(outbox_core::MemoryTransaction, Vec<(i64, Row)>)>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let clock = ManualClock::new();
        clock.advance(SECOND);
        let store = MemoryStore::with_clock(clock.clone());
        let model = Model::default();
        Self { rng: Rng::with_seed(seed), clock, store, model, leases: Vec::new(), open: Vec::new() }
    }

    async fn step(&mut self) {
        match self.rng.u32(0..100) {
            0..22 => self.enqueue().await,
            22..28 => self.finish_transaction(),
            28..55 => self.claim().await,
            55..80 => self.mark().await,
            80..85 => self.renew().await,
            85..94 => self.clock.advance(SECOND * self.rng.u32(0..12)),
            94..96 => self.pause().await,
            96..98 => self.discard().await,
            _ => self.redrive().await,
        }
    }

    async fn enqueue(&mut self) {
        let rng = &mut self.rng;
        let now = self.clock.now();
        let mut transaction = self.store.begin();
        let mut rows = Vec::new();
        for _ in 0..rng.usize(1..4) {
            let kind = KINDS[rng.usize(0..KINDS.len())];
            let destination = DESTINATIONS[rng.usize(0..DESTINATIONS.len())];
            let key = (rng.u32(0..4) > 0).then(|| format!("k{}", rng.u32(0..4)));
            let delay = if rng.u32(0..4) == 0 { SECOND * rng.u32(1..20) } else { Duration::ZERO };
            let mut record = NewRecord::json(kind, &1).unwrap().delay(delay);
            record.destination = destination.map(str::to_owned);
            record.key.clone_from(&key);
            record.hold_key = rng.u32(0..3) == 0;
            let hold_key = record.hold_key;
            let id = record.id;
            let enqueued = self.store.enqueue_all(&mut transaction, &[record]).await.unwrap()[0];
            let outbox_core::Enqueued::New { seq, .. } = enqueued else { panic!("not new") };
            let send_after = now + delay;
            let row = Row {
                id,
                kind,
                destination,
                key,
                hold_key,
                send_after,
                state: State::Pending,
                fence: 0,
                lapses: 0,
                attempts: 0,
            };
            rows.push((seq, row));
        }
        if rng.u32(0..3) == 0 {
            self.open.push((transaction, rows));
        } else {
            transaction.commit();
            self.model.rows.extend(rows);
        }
    }

    fn finish_transaction(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let (transaction, rows) = self.open.swap_remove(self.rng.usize(0..self.open.len()));
        if self.rng.bool() {
            transaction.commit();
            self.model.rows.extend(rows);
        }
    }

    async fn claim(&mut self) {
        let rng = &mut self.rng;
        let mut routes = Vec::new();
        for pattern in ["a", "b.*", "b.x", "*"] {
            if rng.u32(0..3) > 0 {
                let mut demand = RouteDemand::new(pattern.parse::<Pattern>().unwrap(), rng.usize(0..6));
                if rng.bool() {
                    demand.destination_limit = rng.usize(0..4);
                    demand.destinations.insert("two".into(), rng.usize(0..2));
                }
                routes.push(demand);
            }
        }
        let owner = Owner::from_random(rng.u64(0..3));
        let mut request = ClaimRequest::new(owner, LEASE, rng.usize(0..8), routes);
        request.suspect = rng.bool();
        request.run_max = NonZeroUsize::new(rng.usize(1..4)).unwrap();
        let batch = self.store.claim(&request).await.unwrap();
        let now = self.clock.now();
        self.model.check_claim(&batch.records, &request, now);
        self.leases.extend(batch.records.iter().map(outbox_core::Record::lease));
        let more = self.model.rows.keys().any(|seq| self.model.may_go(*seq, &BTreeSet::new(), &request, now));
        if request.limit > 0 {
            assert_eq!(batch.next_due == Some(Duration::ZERO), more, "next due of {:?}", request.routes);
        }
    }

    async fn mark(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let lease = self.leases[self.rng.usize(0..self.leases.len())];
        let after = SECOND * self.rng.u32(0..8);
        let blocks_key = self.rng.bool();
        let settlement = match self.rng.u32(0..8) {
            0..3 => Settlement::Sent { receipt: None },
            3..5 => Settlement::Retry { after, error: "e".into(), age: after },
            5 => Settlement::Dead { error: "e".into(), blocks_key },
            6 => Settlement::Deferred { after, error: None },
            _ => Settlement::Released,
        };
        let marked = self.store.mark(&[Mark::new(lease, settlement.clone())]).await.unwrap().marked[0];
        let now = self.clock.now();
        let row = self.model.rows.get_mut(&lease.seq).unwrap();
        if row.state != State::Claimed || row.fence != lease.fence {
            assert_ne!(marked, Marked::Applied, "a claim that has ended was marked");
            return;
        }
        assert_eq!(marked, Marked::Applied);
        row.fence += 1;
        row.state = State::Pending;
        match settlement {
            Settlement::Sent { .. } => row.state = State::Sent,
            Settlement::Dead { blocks_key, .. } => {
                row.state = State::Dead { blocks: blocks_key && row.key.is_some() };
            }
            Settlement::Retry { after, .. } => {
                row.send_after = now + after;
                row.lapses = 0;
            }
            Settlement::Deferred { after, .. } => {
                row.send_after = now + after;
                row.attempts -= 1;
            }
            _ => {
                row.send_after = now;
                row.attempts -= 1;
            }
        }
    }

    async fn renew(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let lease = self.leases[self.rng.usize(0..self.leases.len())];
        let lost = !self.store.renew(&[lease], LEASE).await.unwrap().is_empty();
        let now = self.clock.now();
        let row = &self.model.rows[&lease.seq];
        if row.state != State::Claimed || row.fence != lease.fence {
            assert!(lost, "a claim that has ended was renewed");
        } else if row.is_live(now) {
            assert!(!lost, "a live claim was not renewed");
        }
        if !lost {
            self.model.rows.get_mut(&lease.seq).unwrap().send_after = now + LEASE;
        }
    }

    async fn pause(&mut self) {
        let scope = PauseScope::Destination("one".into());
        if self.model.paused.remove("one") {
            assert!(self.store.resume(&scope).await.unwrap());
        } else {
            self.model.paused.insert("one");
            self.store.pause(&scope, "for now").await.unwrap();
        }
    }

    fn any_row(&mut self) -> Option<(i64, Uuid)> {
        let rows: Vec<_> = self.model.rows.iter().map(|(seq, row)| (*seq, row.id)).collect();
        self.rng.choice(rows)
    }

    async fn discard(&mut self) {
        let Some((seq, id)) = self.any_row() else { return };
        let changed = self.store.discard(&[id], "given up").await.unwrap();
        let row = self.model.rows.get_mut(&seq).unwrap();
        assert_eq!(changed == 1, row.state != State::Sent);
        if changed == 1 {
            row.state = State::Dead { blocks: false };
            row.fence += 1;
        }
    }

    async fn redrive(&mut self) {
        let Some((seq, id)) = self.any_row() else { return };
        let changed = self.store.redrive(&[id]).await.unwrap();
        let now = self.clock.now();
        let row = self.model.rows.get_mut(&seq).unwrap();
        assert_eq!(changed == 1, matches!(row.state, State::Dead { .. }));
        if changed == 1 {
            row.state = State::Pending;
            row.fence += 1;
            row.send_after = now;
            (row.attempts, row.lapses) = (0, 0);
        }
    }
}

/// S2, S4, S7, S9: what is claimed is what may be claimed, and all of it, after any history.
#[test]
fn the_store_agrees_with_a_model_that_scans_everything() {
    outbox_core::conformance::run(async {
        for seed in 0..40 {
            let mut run = Run::new(seed);
            for step in 0..300 {
                // Named when the run fails: the seed replays it.
                println!("seed {seed}, step {step}");
                run.step().await;
            }
        }
    });
}
