//! What one claim takes: the oldest due rows of all kinds and lanes with room, each with the run of its key.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap, HashSet},
};

use serde_json::Value;
use sqlx::{Row, SqliteConnection};

use super::{
    cursor::{Candidate, Cursor, Found, Source},
    plan::Plan,
    survey::{optional_text, text},
};
use crate::{link::query, store::Shared};

/// How many rows in the way one claim passes over in one kind or lane; of all together, twice as many.
const PASSED_MAX: usize = 5_000;
/// How many rows may stay in the way: passing over them costs less than a write for each.
const LEFT_MAX: usize = 64;
/// How many rows a walk over all kinds passes over before it goes on kind by kind, so that no kind holds back another.
const OBSTRUCTED_AT: usize = 1_000;
/// How many more rows in the way are put aside unseen, once a walk has been ended by them.
const UNSEEN_MAX: i64 = 10_000;
/// For how many kinds that is done.
const UNSEEN_OF_MAX: usize = 4;

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
    /// Where the walk stood in each kind when it met the last of either.
    met: HashMap<String, Met>,
    passed: usize,
    /// In the walk over all kinds, those of kinds that are not wanted included.
    in_the_way: usize,
    more: bool,
    /// Whether a kind or lane was left because too much stood in its way.
    cut: bool,
    /// Whether the whole walk was.
    spent: bool,
    written: bool,
}

/// Rows of one kind that were in the way.
#[derive(Default)]
struct Met {
    last: (i64, i64),
    behind: usize,
    stopped: usize,
    destinations: BTreeSet<String>,
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
            met: HashMap::new(),
            passed: 0,
            in_the_way: 0,
            more: false,
            cut: false,
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

    /// Whether something was left because too much stood in its way.
    pub(super) fn is_spent(&self) -> bool {
        self.cut || self.spent
    }

    /// Whether due rows were left that another claim may take.
    pub(super) fn leaves_more(&self) -> bool {
        self.more || self.is_spent()
    }

    pub(super) fn has_written(&self) -> bool {
        self.written || !self.taken.is_empty()
    }

    /// Whether the walk over all kinds was given up.
    pub(super) fn was_obstructed(&self) -> bool {
        self.in_the_way >= OBSTRUCTED_AT
    }

    /// At most one, and alone of its key: it may be what kills relays.
    pub(super) async fn take_suspect(
        &mut self,
        connection: &mut SqliteConnection,
        sources: Vec<Source>,
    ) -> Result<(), sqlx::Error> {
        self.in_the_way = 0;
        self.walk(connection, sources, true).await?;
        // What is left of these does not stop the walk over the others.
        self.passed = 0;
        self.cut = false;
        self.spent = false;
        self.more = false;
        Ok(())
    }

    /// The oldest due rows, each with the run of its key.
    pub(super) async fn take_ready(
        &mut self,
        connection: &mut SqliteConnection,
        sources: Vec<Source>,
    ) -> Result<(), sqlx::Error> {
        self.in_the_way = 0;
        self.walk(connection, sources, false).await
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
        if self.is_spent() { self.put_aside_unseen(connection).await } else { Ok(()) }
    }

    /// Where rows of a kind stand in the way by the thousand, there are more of the same behind.
    async fn put_aside_unseen(&self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let statements = &self.shared.statements;
        let many = |count: usize| count >= PASSED_MAX / UNSEEN_OF_MAX;
        for (kind, met) in &self.met {
            let place = |statement| {
                query(statement)
                    .bind(false)
                    .bind(kind.clone())
                    .bind(self.now)
                    .bind(met.last.0)
                    .bind(met.last.1)
            };
            if many(met.behind) {
                let hold = place(&statements.hold_behind).bind(UNSEEN_MAX);
                hold.execute(&mut *connection).await?;
            }
            if many(met.stopped) {
                let destinations = Value::from_iter(met.destinations.iter().cloned()).to_string();
                let hold = place(&statements.hold_lanes).bind(destinations).bind(UNSEEN_MAX);
                hold.execute(&mut *connection).await?;
            }
        }
        Ok(())
    }

    async fn walk(
        &mut self,
        connection: &mut SqliteConnection,
        sources: Vec<Source>,
        suspect: bool,
    ) -> Result<(), sqlx::Error> {
        if sources.is_empty() || self.is_over() {
            self.more |= !sources.is_empty();
            return Ok(());
        }
        let portion = if suspect { 16 } else { (self.plan.request.limit + 16) / sources.len() };
        let portion = portion.clamp(16, 1_024) as i64;
        let mut cursors: Vec<Cursor> =
            sources.into_iter().map(|source| Cursor::new(suspect, source, portion)).collect();
        let mut next = BinaryHeap::with_capacity(cursors.len());
        for (at, cursor) in cursors.iter_mut().enumerate() {
            self.advance(connection, at, cursor, &mut next).await?;
        }
        while let Some((_, at)) = next.pop() {
            if self.is_over() {
                self.more = true;
                break;
            }
            let cursor = &mut cursors[at];
            let Some(candidate) = cursor.pop() else { continue };
            let (route, of_all) = match &cursor.source {
                Source::All => (candidate.kind.as_deref().and_then(|kind| self.plan.route(kind)), true),
                Source::Kind { route, .. } | Source::Lane { route, .. } => (Some(*route), false),
            };
            let room = route.filter(|at| self.by_route[*at] < self.plan.request.routes[*at].limit);
            if let Some(route) = room {
                let (passed, in_the_way) = (self.passed, self.behind.len() + self.stopped.len());
                match self.judge(route, &candidate) {
                    Verdict::Take => {
                        self.take(route, candidate.seq, candidate.destination.as_deref());
                        if suspect {
                            self.keys.extend(candidate.key);
                            return Ok(());
                        }
                        self.take_run(connection, route, candidate).await?;
                    }
                    Verdict::Stopped => {
                        self.more |= self.taken_for(route, candidate.destination.as_deref()) > 0;
                        if matches!(cursor.source, Source::Lane { .. }) {
                            // The whole lane goes to that destination.
                            continue;
                        }
                        self.stop(&cursor.source, candidate, suspect);
                    }
                    Verdict::Behind => self.hold(&cursor.source, candidate, suspect),
                    Verdict::Pass => self.pass(),
                }
                let cursor = &mut cursors[at];
                cursor.passed += self.passed - passed;
                if of_all {
                    self.in_the_way += self.behind.len() + self.stopped.len() - in_the_way;
                } else if cursor.passed >= PASSED_MAX {
                    self.cut = true;
                    continue;
                }
            } else {
                self.more |= route.is_some();
                if !of_all {
                    continue;
                }
                self.in_the_way += 1;
            }
            if of_all && self.was_obstructed() {
                continue;
            }
            self.advance(connection, at, &mut cursors[at], &mut next).await?;
        }
        Ok(())
    }

    /// Notes a row that waits for the head of its key.
    fn hold(&mut self, source: &Source, candidate: Candidate, suspect: bool) {
        self.pass();
        self.behind.push(candidate.seq);
        if let Some(met) = self.met(source, &candidate, suspect) {
            met.behind += 1;
        }
    }

    /// Notes a row whose destination takes no more.
    fn stop(&mut self, source: &Source, candidate: Candidate, suspect: bool) {
        self.pass();
        self.stopped.push(candidate.seq);
        if let Some(met) = self.met(source, &candidate, suspect) {
            met.stopped += 1;
            met.destinations.extend(candidate.destination);
        }
    }

    /// The kind of a row in the way, which stands there now. Not for those of lanes and suspects, which are few.
    fn met(&mut self, source: &Source, candidate: &Candidate, suspect: bool) -> Option<&mut Met> {
        let kind = match source {
            Source::Kind { kind, .. } => Some(kind),
            Source::All => candidate.kind.as_ref(),
            Source::Lane { .. } => None,
        };
        let met = self.met.entry(kind.filter(|_| !suspect)?.clone()).or_default();
        met.last = (candidate.send_after, candidate.seq);
        Some(met)
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
        self.spent |= self.passed >= 2 * PASSED_MAX;
    }

    fn has_room(&self, route: usize, destination: Option<&str>) -> bool {
        let demand = &self.plan.request.routes[route];
        if self.taken.len() >= self.plan.request.limit || self.by_route[route] >= demand.limit {
            return false;
        }
        let limit = self.plan.limit_for(route, destination);
        limit > self.taken_for(route, destination)
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
