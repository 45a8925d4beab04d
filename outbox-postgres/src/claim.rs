//! Which records a claim takes: candidates are read, chosen within the request's limits, and taken by one write.
//!
//! A record with a key goes only while an advisory lock of its key is held, and the key is looked at again
//! in a statement after the lock was had: it sees what the lock's last holder committed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use outbox_core::{ClaimBatch, ClaimRequest, Pause, PauseScope, Router, StoreError};
use sqlx::{PgConnection, Row, postgres::PgRow};

use crate::{
    PostgresStore,
    error::doing,
    row::{Timestamp, claimed, micros},
};

/// How soon to come back for keys that another claim was just looking at.
const SOON: Duration = Duration::from_millis(5);

struct Candidate {
    due: Timestamp,
    seq: i64,
    kind: String,
    destination: Option<String>,
    key: Option<String>,
}

fn candidates(rows: &[PgRow]) -> Result<Vec<Candidate>, StoreError> {
    let read = |row: &PgRow| -> Result<Candidate, sqlx::Error> {
        Ok(Candidate {
            due: row.try_get("send_after")?,
            seq: row.try_get("seq")?,
            kind: row.try_get("kind")?,
            destination: row.try_get("destination")?,
            key: row.try_get("key")?,
        })
    };
    rows.iter().map(|row| read(row).map_err(doing("claim records"))).collect()
}

/// What one claim has chosen so far, and the room that is left.
struct Choice<'r> {
    request: &'r ClaimRequest,
    router: Router<usize>,
    pauses: Vec<Pause>,
    taken: BTreeSet<i64>,
    by_route: Vec<usize>,
    by_destination: HashMap<(usize, String), usize>,
}

impl<'r> Choice<'r> {
    fn new(request: &'r ClaimRequest, pauses: Vec<Pause>) -> Self {
        let mut router = Router::default();
        for (at, route) in request.routes.iter().enumerate() {
            // Of two routes with one pattern the first stands.
            let _ = router.insert(route.pattern.clone(), at);
        }
        let by_route = vec![0; request.routes.len()];
        Self { request, router, pauses, taken: BTreeSet::new(), by_route, by_destination: HashMap::new() }
    }

    fn is_paused(&self, kind: &str, destination: Option<&str>) -> bool {
        self.pauses.iter().any(|pause| pause.scope.covers(kind, destination))
    }

    /// The route that takes this kind, when it has room and the kind is not paused.
    fn route(&self, kind: &str) -> Option<usize> {
        let route = self.router.get(kind).copied()?;
        (self.request.routes[route].limit > 0 && !self.is_paused(kind, None)).then_some(route)
    }

    fn room(&self, route: usize) -> usize {
        let total = self.request.limit.saturating_sub(self.taken.len());
        total.min(self.request.routes[route].limit.saturating_sub(self.by_route[route]))
    }

    /// Takes the record if the limits allow it.
    fn take(&mut self, seq: i64, kind: &str, destination: Option<&str>) -> Option<usize> {
        let route = self.route(kind)?;
        if self.taken.contains(&seq) || self.room(route) == 0 || self.is_paused(kind, destination) {
            return None;
        }
        let demand = &self.request.routes[route];
        if let Some(name) = destination {
            let limit = demand.limit_for(destination);
            let count = self.by_destination.entry((route, name.to_owned())).or_default();
            if *count >= limit {
                return None;
            }
            *count += 1;
        }
        self.by_route[route] += 1;
        self.taken.insert(seq);
        Some(route)
    }

    /// Destinations of each route of which nothing can be taken, for the statements to pass over.
    fn closed(&self) -> (Vec<i32>, Vec<String>) {
        let paused = self.pauses.iter().filter_map(|pause| match &pause.scope {
            PauseScope::Destination(name) => Some(name.clone()),
            _ => None,
        });
        let paused: Vec<String> = paused.collect();
        let (mut routes, mut names) = (Vec::new(), Vec::new());
        for (at, demand) in self.request.routes.iter().enumerate() {
            let mut shut: BTreeMap<&str, ()> = paused.iter().map(|name| (name.as_str(), ())).collect();
            shut.extend(
                demand
                    .destinations
                    .iter()
                    .filter(|(_, limit)| **limit == 0)
                    .map(|(name, _)| (name.as_str(), ())),
            );
            for name in shut.into_keys() {
                routes.push(i32::try_from(at).unwrap_or(i32::MAX));
                names.push(name.to_owned());
            }
        }
        (routes, names)
    }
}

/// The kinds that a statement looks at, in the arrays that it takes.
struct Asked {
    kinds: Vec<String>,
    rooms: Vec<i64>,
    routes: Vec<i32>,
}

impl PostgresStore {
    pub(crate) async fn claim_once(&self, request: &ClaimRequest) -> Result<ClaimBatch, StoreError> {
        let failed = doing("claim records");
        let mut batch = ClaimBatch::default();
        if request.limit == 0 || request.routes.iter().all(|route| route.limit == 0) {
            return Ok(batch);
        }
        let mut tx = self.begin().await?;
        let pauses = self.read_pauses(&mut tx).await?;
        let mut choice = Choice::new(request, pauses);
        let mut soon = false;
        let mut more = false;
        if request.suspect {
            more |= self.choose_suspect(&mut tx, &mut choice, &mut soon).await?;
        }
        let kinds = self.kinds(&mut tx, request).await?;
        more |= self.choose_ready(&mut tx, &mut choice, &kinds, &mut soon).await?;

        if !choice.taken.is_empty() {
            let seqs: Vec<i64> = choice.taken.iter().copied().collect();
            let rows = self
                .query(&self.shared.sql.take)
                .bind(seqs)
                .bind(request.owner.value())
                .bind(micros(request.lease_for))
                .fetch_all(&mut *tx)
                .await
                .map_err(failed)?;
            for row in &rows {
                match claimed(row)? {
                    Ok(record) => batch.records.push(record),
                    Err(undecodable) => batch.undecodable.push(undecodable),
                }
            }
        }
        let took = !batch.records.is_empty() || !batch.undecodable.is_empty();
        batch.next_due = if more && took {
            Some(Duration::ZERO)
        } else {
            let due = self.next_due(&mut tx, &choice, &kinds).await?;
            if soon || more { Some(due.map_or(SOON, |due| due.min(SOON))) } else { due }
        };
        tx.commit().await.map_err(failed)?;
        Ok(batch)
    }

    /// Every kind that has fresh or waiting records and that some route takes.
    async fn kinds(
        &self,
        connection: &mut PgConnection,
        request: &ClaimRequest,
    ) -> Result<Vec<String>, StoreError> {
        let exact = |route: &outbox_core::RouteDemand| match &route.pattern {
            outbox_core::Pattern::Exact(kind) => Some(kind.clone()),
            _ => None,
        };
        let open = || request.routes.iter().filter(|route| route.limit > 0);
        if open().all(|route| exact(route).is_some()) {
            return Ok(open().filter_map(exact).collect());
        }
        let rows =
            self.query(&self.shared.sql.kinds).fetch_all(connection).await.map_err(doing("claim records"))?;
        rows.iter().map(|row| row.try_get("kind").map_err(doing("claim records"))).collect()
    }

    fn asked(&self, choice: &Choice<'_>, kinds: &[String]) -> Asked {
        let mut asked = Asked { kinds: Vec::new(), rooms: Vec::new(), routes: Vec::new() };
        for kind in kinds {
            let Some(route) = choice.route(kind) else { continue };
            let room = choice.room(route);
            if room > 0 {
                let demand = &choice.request.routes[route];
                let bounded = demand.destination_limit < demand.limit || !demand.destinations.is_empty();
                let rows = if bounded { room.saturating_mul(4).max(1_000) } else { room + 1 };
                asked.kinds.push(kind.clone());
                asked.rooms.push(i64::try_from(rows).unwrap_or(i64::MAX));
                asked.routes.push(i32::try_from(route).unwrap_or(i32::MAX));
            }
        }
        asked
    }

    async fn look(
        &self,
        connection: &mut PgConnection,
        sql: &Arc<str>,
        choice: &Choice<'_>,
        kinds: &[String],
    ) -> Result<Vec<Candidate>, StoreError> {
        let asked = self.asked(choice, kinds);
        if asked.kinds.is_empty() {
            return Ok(Vec::new());
        }
        let (routes, names) = choice.closed();
        let bound =
            self.query(sql).bind(asked.kinds).bind(asked.rooms).bind(asked.routes).bind(routes).bind(names);
        candidates(&bound.fetch_all(connection).await.map_err(doing("claim records"))?)
    }

    /// Takes what is due in the order in which it fell due, each head of a free key with its run. Says whether
    /// the request's limit left some.
    async fn choose_ready(
        &self,
        connection: &mut PgConnection,
        choice: &mut Choice<'_>,
        kinds: &[String],
        soon: &mut bool,
    ) -> Result<bool, StoreError> {
        let mut found = self.look(connection, &self.shared.sql.unkeyed, choice, kinds).await?;
        found.extend(self.look(connection, &self.shared.sql.keyed, choice, kinds).await?);
        found.sort_unstable_by_key(|candidate| (candidate.due, candidate.seq));
        // Only as many keys are locked as can have a turn.
        let turns = choice.request.limit.saturating_sub(choice.taken.len());
        let keys: Vec<String> =
            found.iter().take(turns).filter_map(|candidate| candidate.key.clone()).collect();
        let (lines, busy) = self.lines(connection, keys, choice.request.run_max.get() + 1).await?;
        *soon |= busy;
        let mut lines: HashMap<String, Vec<InLine>> =
            lines.into_iter().filter_map(|line| Some((line.first()?.key.clone(), line))).collect();
        let mut left = false;
        for (turn, candidate) in found.into_iter().enumerate() {
            if choice.taken.len() >= choice.request.limit {
                return Ok(true);
            }
            match &candidate.key {
                None => _ = choice.take(candidate.seq, &candidate.kind, candidate.destination.as_deref()),
                Some(key) => match lines.remove(key) {
                    Some(line) => left |= take_run(choice, &line),
                    None => left |= turn >= turns,
                },
            }
        }
        Ok(left)
    }

    /// Takes at most one record that may be what kills relays. Says whether there are more of them.
    async fn choose_suspect(
        &self,
        connection: &mut PgConnection,
        choice: &mut Choice<'_>,
        soon: &mut bool,
    ) -> Result<bool, StoreError> {
        let sql = &self.shared.sql.suspects;
        let rows = self.query(sql).fetch_all(&mut *connection).await.map_err(doing("claim records"))?;
        let mut taken = false;
        for candidate in candidates(&rows)? {
            if choice.route(&candidate.kind).is_none()
                || choice.is_paused(&candidate.kind, candidate.destination.as_deref())
            {
                continue;
            }
            if taken {
                return Ok(true);
            }
            if let Some(key) = &candidate.key {
                let (lines, busy) = self.lines(connection, vec![key.clone()], 1).await?;
                *soon |= busy;
                let head = lines.first().and_then(|line| line.first());
                if !head.is_some_and(|head| head.seq == candidate.seq && head.due) {
                    continue;
                }
            }
            taken = choice.take(candidate.seq, &candidate.kind, candidate.destination.as_deref()).is_some();
        }
        Ok(false)
    }

    /// The records of each key that this claim now has the lock of, from the first on, and whether another
    /// claim has some of the locks.
    async fn lines(
        &self,
        connection: &mut PgConnection,
        keys: Vec<String>,
        rows_max: usize,
    ) -> Result<(Vec<Vec<InLine>>, bool), StoreError> {
        let failed = doing("claim records");
        if keys.is_empty() {
            return Ok((Vec::new(), false));
        }
        let bound = self.query(&self.shared.sql.lock_keys).bind(keys.clone()).bind(self.shared.lock_base);
        let rows = bound.fetch_all(&mut *connection).await.map_err(failed)?;
        let locked: BTreeSet<String> =
            rows.iter().map(|row| row.try_get("key")).collect::<Result<_, _>>().map_err(failed)?;
        let busy = keys.iter().any(|key| !locked.contains(key));
        let keys: Vec<String> = keys.into_iter().filter(|key| locked.contains(key)).collect();
        let bound =
            self.query(&self.shared.sql.lines).bind(keys).bind(i64::try_from(rows_max).unwrap_or(i64::MAX));
        let rows = bound.fetch_all(connection).await.map_err(failed)?;
        let mut lines: Vec<Vec<InLine>> = Vec::new();
        for row in rows {
            let read = || -> Result<InLine, sqlx::Error> {
                Ok(InLine {
                    key: row.try_get("key")?,
                    seq: row.try_get("seq")?,
                    kind: row.try_get("kind")?,
                    destination: row.try_get("destination")?,
                    due: row.try_get("due")?,
                    suspect: row.try_get("suspect")?,
                })
            };
            let row = read().map_err(failed)?;
            match lines.last_mut().filter(|line| line.first().is_some_and(|first| first.key == row.key)) {
                Some(line) => line.push(row),
                None => lines.push(vec![row]),
            }
        }
        Ok((lines, busy))
    }

    /// How long until a record falls due that this request could take.
    async fn next_due(
        &self,
        connection: &mut PgConnection,
        choice: &Choice<'_>,
        kinds: &[String],
    ) -> Result<Option<Duration>, StoreError> {
        let failed = doing("claim records");
        let open: Vec<String> = kinds.iter().filter(|kind| choice.route(kind).is_some()).cloned().collect();
        let bound = self.query(&self.shared.sql.next_due).bind(open);
        let mut rows = bound.fetch_all(&mut *connection).await.map_err(failed)?;
        if choice.request.suspect {
            rows.extend(
                self.query(&self.shared.sql.next_suspect).fetch_all(connection).await.map_err(failed)?,
            );
        }
        let mut next = None;
        for row in rows {
            let (kind, due): (&str, i64) =
                (row.try_get("kind").map_err(failed)?, row.try_get("micros").map_err(failed)?);
            if choice.route(kind).is_some() {
                let due = Duration::from_micros(due.max(1).unsigned_abs());
                next = Some(next.map_or(due, |next: Duration| next.min(due)));
            }
        }
        Ok(next)
    }
}

/// One record in the line of its key.
struct InLine {
    key: String,
    seq: i64,
    kind: String,
    destination: Option<String>,
    due: bool,
    suspect: bool,
}

/// Takes the head of a free key and what may go with it. Says whether the limit ended the run.
fn take_run(choice: &mut Choice<'_>, line: &[InLine]) -> bool {
    let run_max = choice.request.run_max.get();
    let mut run_route = None;
    for (place, row) in line.iter().enumerate() {
        let other_route = run_route.is_some_and(|route| choice.route(&row.kind) != Some(route));
        if !row.due || row.suspect || other_route || place == run_max {
            return false;
        }
        match choice.take(row.seq, &row.kind, row.destination.as_deref()) {
            Some(route) => run_route = Some(route),
            None => return choice.taken.len() >= choice.request.limit,
        }
    }
    false
}
