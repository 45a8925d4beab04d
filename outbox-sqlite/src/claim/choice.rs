//! What one claim takes: the oldest due rows of all kinds and lanes with room, each with the run of its key.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap, HashSet},
};

use serde_json::Value;
use sqlx::{Row, SqliteConnection};

use super::{
    cursor::{Candidate, Cursor, Found},
    plan::Plan,
    survey::{DueKind, Lane, optional_text, text},
};
use crate::{link::query, store::Shared};

/// How many rows in the way one claim passes over.
const PASSED_MAX: usize = 5_000;
/// How many rows may stay in the way: passing over them costs less than a write for each.
const LEFT_MAX: usize = 64;

pub(super) struct Choice<'c> {
    shared: &'c Shared,
    plan: &'c Plan<'c>,
    now: i64,
    taken: BTreeSet<i64>,
    by_route: Vec<usize>,
    by_destination: HashMap<(usize, String), usize>,
    keys: HashSet<String>,
    /// Rows that wait for the head of their key.
    behind: Vec<i64>,
    /// Rows to a destination that takes no more.
    stopped: Vec<i64>,
    passed: usize,
    more: bool,
    spent: bool,
    written: bool,
}

enum Verdict {
    Take,
    /// Waits for the head of its key.
    Behind,
    /// Its destination takes no more.
    Stopped,
    /// Nothing to be said: taken already, or the head of a key that is busy.
    Pass,
}

impl<'c> Choice<'c> {
    pub(super) fn new(shared: &'c Shared, plan: &'c Plan<'c>, now: i64) -> Self {
        Self {
            shared,
            plan,
            now,
            taken: BTreeSet::new(),
            by_route: vec![0; plan.request.routes.len()],
            by_destination: HashMap::new(),
            keys: HashSet::new(),
            behind: Vec::new(),
            stopped: Vec::new(),
            passed: 0,
            more: false,
            spent: false,
            written: false,
        }
    }

    pub(super) fn taken(&self) -> &BTreeSet<i64> {
        &self.taken
    }

    /// Whether there is no sense in walking on.
    pub(super) fn is_over(&self) -> bool {
        self.spent || self.taken.len() >= self.plan.request.limit
    }

    /// Whether the walk ended because too much stood in its way.
    pub(super) fn is_spent(&self) -> bool {
        self.spent
    }

    /// Whether due rows were left that another claim may take.
    pub(super) fn leaves_more(&self) -> bool {
        self.more || self.spent
    }

    pub(super) fn has_written(&self) -> bool {
        self.written || !self.taken.is_empty()
    }

    /// At most one, and alone of its key: it may be what kills relays.
    pub(super) async fn take_suspect(
        &mut self,
        connection: &mut SqliteConnection,
        kinds: &[DueKind],
        lanes: Vec<Lane>,
    ) -> Result<(), sqlx::Error> {
        self.walk(connection, kinds, lanes, true).await?;
        // What is left of these does not stop the walk over the others.
        self.passed = 0;
        self.spent = false;
        self.more = false;
        Ok(())
    }

    /// The oldest due rows, each with the run of its key.
    pub(super) async fn take_ready(
        &mut self,
        connection: &mut SqliteConnection,
        kinds: &[DueKind],
        lanes: Vec<Lane>,
    ) -> Result<(), sqlx::Error> {
        self.walk(connection, kinds, lanes, false).await
    }

    /// Takes rows out of the way, if there are many, so that the next claim need not pass over them.
    pub(super) async fn put_aside(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        for (seqs, held) in [(&self.behind, "key"), (&self.stopped, "destination")] {
            if seqs.len() > LEFT_MAX {
                query(&self.shared.statements.hold)
                    .bind(Value::from(seqs.clone()).to_string())
                    .bind(held)
                    .execute(&mut *connection)
                    .await?;
                self.written = true;
            }
        }
        Ok(())
    }

    async fn walk(
        &mut self,
        connection: &mut SqliteConnection,
        kinds: &[DueKind],
        lanes: Vec<Lane>,
        suspect: bool,
    ) -> Result<(), sqlx::Error> {
        let places = kinds.len() + lanes.len();
        if places == 0 || self.is_over() {
            self.more |= places > 0;
            return Ok(());
        }
        let portion = (2 * self.plan.request.limit / places).clamp(16, 512) as i64;
        let open = |route, kind, destination| Cursor::new(suspect, route, kind, destination, portion);
        let mut cursors: Vec<Cursor> =
            kinds.iter().map(|due| open(due.route, due.kind.clone(), None)).collect();
        cursors.extend(lanes.into_iter().map(|lane| open(lane.route, lane.kind, Some(lane.destination))));

        let mut next = BinaryHeap::with_capacity(places);
        for (at, cursor) in cursors.iter_mut().enumerate() {
            self.advance(connection, at, cursor, &mut next).await?;
        }
        while let Some((_, at)) = next.pop() {
            if self.is_over() {
                self.more = true;
                break;
            }
            let cursor = &mut cursors[at];
            let route = cursor.route;
            let Some(candidate) = cursor.pop() else { continue };
            if self.by_route[route] >= self.plan.request.routes[route].limit {
                self.more = true;
                continue;
            }
            match self.judge(route, &candidate) {
                Verdict::Take => {
                    self.take(route, candidate.seq, candidate.destination.as_deref());
                    if suspect {
                        self.keys.extend(candidate.key);
                        return Ok(());
                    }
                    self.take_run(connection, route, candidate).await?;
                }
                // The whole lane goes to that destination.
                Verdict::Stopped if cursor.lane => {
                    self.more = true;
                    continue;
                }
                Verdict::Stopped => {
                    self.more |= self.has_taken_for(route, candidate.destination.as_deref());
                    self.pass();
                    self.stopped.push(candidate.seq);
                }
                Verdict::Behind => {
                    self.pass();
                    self.behind.push(candidate.seq);
                }
                Verdict::Pass => self.pass(),
            }
            self.advance(connection, at, &mut cursors[at], &mut next).await?;
        }
        Ok(())
    }

    async fn advance(
        &mut self,
        connection: &mut SqliteConnection,
        at: usize,
        cursor: &mut Cursor,
        next: &mut BinaryHeap<(Reverse<(i64, i64)>, usize)>,
    ) -> Result<(), sqlx::Error> {
        match cursor.fill(self.shared, connection, self.now, &mut self.written).await? {
            Found::TooMuch => self.spent = true,
            Found::Nothing => {}
            Found::Row => next.extend(cursor.front().map(|row| (Reverse((row.send_after, row.seq)), at))),
        }
        Ok(())
    }

    fn judge(&self, route: usize, row: &Candidate) -> Verdict {
        if self.taken.contains(&row.seq) {
            return Verdict::Pass;
        }
        if !self.has_room(route, row.destination.as_deref()) {
            return Verdict::Stopped;
        }
        let Some(key) = &row.key else { return Verdict::Take };
        match row.head {
            Some(head) if head != row.seq => Verdict::Behind,
            // A head is never held: nothing would set it free.
            _ if row.busy || self.keys.contains(key) => Verdict::Pass,
            _ => Verdict::Take,
        }
    }

    fn pass(&mut self) {
        self.passed += 1;
        self.spent |= self.passed >= PASSED_MAX;
    }

    fn has_room(&self, route: usize, destination: Option<&str>) -> bool {
        let demand = &self.plan.request.routes[route];
        if self.taken.len() >= self.plan.request.limit || self.by_route[route] >= demand.limit {
            return false;
        }
        let limit = self.plan.limit_for(route, destination);
        limit > self.taken_for(route, destination)
    }

    fn has_taken_for(&self, route: usize, destination: Option<&str>) -> bool {
        self.taken_for(route, destination) > 0
    }

    fn taken_for(&self, route: usize, destination: Option<&str>) -> usize {
        destination
            .and_then(|name| self.by_destination.get(&(route, name.to_owned())))
            .copied()
            .unwrap_or_default()
    }

    fn take(&mut self, route: usize, seq: i64, destination: Option<&str>) {
        self.taken.insert(seq);
        self.by_route[route] += 1;
        if let Some(name) = destination {
            *self.by_destination.entry((route, name.to_owned())).or_default() += 1;
        }
    }

    /// The records behind the head of a key that go with it: due, of the same route, and none that has to go
    /// alone.
    async fn take_run(
        &mut self,
        connection: &mut SqliteConnection,
        route: usize,
        head: Candidate,
    ) -> Result<(), sqlx::Error> {
        let Some(key) = head.key else { return Ok(()) };
        let run_max = self.plan.request.run_max.get().min(self.plan.request.limit - self.taken.len() + 1);
        if head.leads && run_max > 1 {
            let line = query(&self.shared.statements.run)
                .bind(key.clone())
                .bind(head.seq)
                .bind(i64::try_from(run_max - 1).unwrap_or(i64::MAX))
                .fetch_all(connection)
                .await?;
            for row in &line {
                let destination = optional_text(row, "destination")?;
                if row.try_get::<Option<i64>, _>("dead_at")?.is_some()
                    || row.try_get::<bool, _>("suspect")?
                    || row.try_get::<i64, _>("send_after")? > self.now
                    || self.plan.route(&text(row, "kind")?) != Some(route)
                    || !self.has_room(route, destination.as_deref())
                {
                    break;
                }
                self.take(route, row.try_get("seq")?, destination.as_deref());
            }
        }
        self.keys.insert(key);
        Ok(())
    }
}
