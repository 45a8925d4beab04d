//! Which rows a claim takes: a choice that reads only, then one write a row.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap, btree_set},
    time::Duration,
};

use super::{
    lanes::Lanes,
    row::{NEVER, Row},
    table::Table,
};
use crate::{ClaimBatch, ClaimRequest, Clock, Lease, PauseScope, Record, Router, Undecodable};

/// Takes what the request asks for and what is free at `now`.
pub(super) fn claim<'a>(
    table: &mut Table,
    pauses: impl Iterator<Item = &'a PauseScope> + Clone,
    request: &ClaimRequest,
    now: Duration,
    clock: &dyn Clock,
) -> ClaimBatch {
    table.advance(now);
    let mut choice = Choice::new(request, pauses);
    if request.suspect {
        choice.take_suspect(table, now);
    }
    choice.take_ready(table, now);

    let mut batch = ClaimBatch::default();
    for seq in &choice.taken {
        table.change(*seq, |row| row.claim(request.owner, now.saturating_add(request.lease_for)));
        match table.row(*seq).map(|row| read(row, clock)) {
            Some(Ok(record)) => batch.records.push(record),
            Some(Err(undecodable)) => batch.undecodable.push(undecodable),
            None => {}
        }
    }
    if request.limit > 0 {
        batch.next_due = choice.next_due(table, now);
    }
    batch
}

/// The row as a sink receives it.
fn read(row: &Row, clock: &dyn Clock) -> Result<Record, Undecodable> {
    let headers = row.headers.clone().map_err(|reason| {
        Undecodable::new(Lease::new(row.seq, row.id, row.fence), row.kind.clone(), reason)
    })?;
    let mut record = Record::new(row.seq, row.id, row.kind.clone(), row.payload.clone());
    record.destination.clone_from(&row.destination);
    record.key.clone_from(&row.key);
    record.content_type.clone_from(&row.content_type);
    record.headers = headers;
    record.attempts = row.attempts;
    record.lapses = row.lapses;
    record.fence = row.fence;
    record.age = row.age;
    record.progress.clone_from(&row.progress);
    record.created_at = clock.date(row.created_at);
    Ok(record)
}

/// What one claim has chosen so far, and the room that is left.
struct Choice<'r, P> {
    request: &'r ClaimRequest,
    router: Router<usize>,
    pauses: P,
    /// In the order of `seq`, as they are handed out.
    taken: BTreeSet<i64>,
    by_route: Vec<usize>,
    by_destination: HashMap<(usize, String), usize>,
}

/// A lane of a route with room, and the row that is next in it.
type Next<'t> = (Reverse<(Duration, i64)>, usize);

impl<'r, 'a, P> Choice<'r, P>
where
    P: Iterator<Item = &'a PauseScope> + Clone,
{
    fn new(request: &'r ClaimRequest, pauses: P) -> Self {
        let mut router = Router::default();
        for (at, route) in request.routes.iter().enumerate() {
            // Of two routes with one pattern the first stands.
            let _ = router.insert(route.pattern.clone(), at);
        }
        Self {
            request,
            router,
            pauses,
            taken: BTreeSet::new(),
            by_route: vec![0; request.routes.len()],
            by_destination: HashMap::new(),
        }
    }

    /// The route that takes this kind, when it asks for any at all.
    fn route(&self, kind: &str) -> Option<usize> {
        self.router.get(kind).copied().filter(|route| self.request.routes[*route].limit > 0)
    }

    fn is_paused(&self, kind: &str, destination: Option<&str>) -> bool {
        self.pauses.clone().any(|scope| scope.covers(kind, destination))
    }

    fn has_room(&self, route: usize, destination: Option<&str>) -> bool {
        let demand = &self.request.routes[route];
        if self.taken.len() >= self.request.limit || self.by_route[route] >= demand.limit {
            return false;
        }
        let Some(name) = destination else { return true };
        let limit = demand.limit_for(destination);
        let taken = if limit < demand.limit {
            self.by_destination.get(&(route, name.to_owned())).copied().unwrap_or_default()
        } else {
            0
        };
        taken < limit
    }

    fn take(&mut self, route: usize, row: &Row) {
        self.taken.insert(row.seq);
        self.by_route[route] += 1;
        let demand = &self.request.routes[route];
        if let Some(name) = &row.destination
            && demand.limit_for(Some(name)) < demand.limit
        {
            *self.by_destination.entry((route, name.clone())).or_default() += 1;
        }
    }

    /// Every lane that this request may take from, with its route.
    fn open_lanes<'t>(
        &self,
        lanes: &'t Lanes,
    ) -> impl Iterator<Item = (usize, Option<&'t str>, &'t BTreeSet<(Duration, i64)>)> {
        lanes
            .kinds()
            .filter_map(|(kind, lanes)| self.route(kind).map(|route| (route, kind, lanes)))
            .flat_map(|(route, kind, lanes)| {
                lanes.iter().map(move |(destination, lane)| (route, kind, destination.as_deref(), lane))
            })
            .filter(|(route, kind, destination, _)| {
                self.request.routes[*route].limit_for(*destination) > 0 && !self.is_paused(kind, *destination)
            })
            .map(|(route, _, destination, lane)| (route, destination, lane))
    }

    /// At most one, and alone of its key: it may be what kills relays.
    fn take_suspect(&mut self, table: &Table, now: Duration) {
        let due = self
            .open_lanes(&table.suspects)
            .filter_map(|(route, _, lane)| lane.first().map(|place| (*place, route)))
            .filter(|((due, _), _)| *due <= now)
            .min();
        if let Some(((_, seq), route)) = due
            && self.request.limit > 0
            && let Some(row) = table.row(seq)
        {
            self.take(route, row);
        }
    }

    /// The oldest due rows of all lanes with room, each with the run of its key.
    fn take_ready(&mut self, table: &Table, now: Duration) {
        let mut lanes: Vec<(usize, Option<&str>, btree_set::Iter<'_, _>)> =
            self.open_lanes(&table.ready).map(|(route, to, lane)| (route, to, lane.iter())).collect();
        let mut next: BinaryHeap<Next<'_>> = BinaryHeap::with_capacity(lanes.len());
        let advance = |lanes: &mut Vec<(usize, Option<&str>, btree_set::Iter<'_, _>)>, at: usize| {
            let place: Option<&(Duration, i64)> = lanes[at].2.next();
            place.filter(|(due, _)| *due <= now).map(|place| (Reverse(*place), at))
        };
        for at in 0..lanes.len() {
            next.extend(advance(&mut lanes, at));
        }
        while self.taken.len() < self.request.limit
            && let Some((Reverse((_, seq)), at)) = next.pop()
        {
            let (route, destination, _) = lanes[at];
            if !self.has_room(route, destination) {
                continue;
            }
            if let Some(row) = table.row(seq) {
                self.take(route, row);
                self.take_run(table, row, route, now);
            }
            next.extend(advance(&mut lanes, at));
        }
    }

    /// The records behind the head of a key that go with it: due, of the same route, and none that has
    /// to go alone.
    fn take_run(&mut self, table: &Table, head: &Row, route: usize, now: Duration) {
        let Some(line) = head.key.as_deref().and_then(|key| table.line(key)) else { return };
        let behind = line.records.iter().filter(|seq| **seq > head.seq);
        for row in behind.take(self.request.run_max.get() - 1).filter_map(|seq| table.row(*seq)) {
            let destination = row.destination.as_deref();
            if !row.is_unfinished()
                || row.is_suspect()
                || row.send_after > now
                || self.route(&row.kind) != Some(route)
                || !self.has_room(route, destination)
                || self.is_paused(&row.kind, destination)
            {
                break;
            }
            self.take(route, row);
        }
    }

    /// How long until something falls due that this request could take.
    fn next_due(&self, table: &Table, now: Duration) -> Option<Duration> {
        let mut lanes = vec![&table.ready, &table.scheduled];
        if self.request.suspect {
            lanes.extend([&table.suspects, &table.leased]);
        }
        lanes
            .into_iter()
            .flat_map(|lanes| self.open_lanes(lanes))
            .filter_map(|(_, _, lane)| lane.first())
            .map(|(due, _)| *due)
            .min()
            .filter(|due| *due < NEVER)
            .map(|due| due.saturating_sub(now))
    }
}
