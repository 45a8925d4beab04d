//! Finding the kinds and lanes that have rows, by jumps over an index: the rows themselves are not read.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde_json::Value;
use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};
use tokio::time::Instant;

use super::{cursor::Source, plan::Plan};
use crate::{link::query, store::Shared};

/// How many kinds are merged by due time. With more the oldest of all is not found, but all have their turn.
const KINDS_MERGED: usize = 128;
/// How many kinds are read at once.
const KINDS_READ: usize = 512;
/// Of how many kinds it is found out when a row to an open destination falls due.
const LATER_KINDS_MAX: usize = 16;
/// How many lanes one claim looks at.
const LANES_MAX: usize = 1_024;
/// How many rows are looked at to find when one to an open destination falls due.
const LATER_MAX: i64 = 64;

/// Where the next claim starts, when the last did not come round.
#[derive(Debug, Default)]
pub(crate) struct Rotation {
    kind: Mutex<String>,
    lane: [Mutex<(String, String)>; 2],
    mended: Mutex<String>,
    /// Until when kinds are walked one by one: many rows of kinds that are not wanted stand before all others.
    by_kind: [Mutex<Option<Instant>>; 2],
}

/// How long kinds are walked one by one before all of them are tried in one order again.
const BY_KIND: Duration = Duration::from_secs(1);

impl Rotation {
    pub(super) fn kind(&self) -> String {
        self.kind.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_kind(&self, kind: String) {
        *self.kind.lock().unwrap_or_else(PoisonError::into_inner) = kind;
    }

    pub(super) fn goes_by_kind(&self, suspect: bool) -> bool {
        let until = self.by_kind[usize::from(suspect)].lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn go_by_kind(&self, suspect: bool) {
        let mut until = self.by_kind[usize::from(suspect)].lock().unwrap_or_else(PoisonError::into_inner);
        *until = Some(Instant::now() + BY_KIND);
    }

    /// The key at which the next sweep starts to mend.
    pub(crate) fn mended(&self) -> String {
        self.mended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_mended(&self, key: String) {
        *self.mended.lock().unwrap_or_else(PoisonError::into_inner) = key;
    }

    fn lane(&self, suspect: bool) -> (String, String) {
        self.lane[usize::from(suspect)].lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_lane(&self, suspect: bool, lane: (String, String)) {
        *self.lane[usize::from(suspect)].lock().unwrap_or_else(PoisonError::into_inner) = lane;
    }
}

enum Segment {
    Range(String, Option<String>),
    Exact(Vec<String>),
}

/// A walk over the kinds of a plan, page by page.
pub(super) struct Survey<'p> {
    plan: &'p Plan<'p>,
    suspect: bool,
    left: VecDeque<Segment>,
    /// When the first row of each kind falls due that was not due.
    later: Vec<(i64, String, usize)>,
}

impl<'p> Survey<'p> {
    /// Starts at the kind `from`, and comes round.
    pub(super) fn new(plan: &'p Plan<'p>, suspect: bool, from: String) -> Self {
        let mut left = VecDeque::new();
        let mut before = VecDeque::new();
        for (start, end) in &plan.ranges {
            if end.as_ref().is_some_and(|end| *end <= from) {
                before.push_back(Segment::Range(start.clone(), end.clone()));
            } else if *start < from {
                before.push_back(Segment::Range(start.clone(), Some(from.clone())));
                left.push_back(Segment::Range(from.clone(), end.clone()));
            } else {
                left.push_back(Segment::Range(start.clone(), end.clone()));
            }
        }
        left.extend(plan.exact.chunks(KINDS_MERGED).map(|kinds| Segment::Exact(kinds.to_vec())));
        left.append(&mut before);
        Self { plan, suspect, left, later: Vec::new() }
    }

    /// When the next row falls due, among the kinds seen so far.
    pub(super) async fn later(
        &mut self,
        shared: &Shared,
        connection: &mut SqliteConnection,
        now: i64,
    ) -> Result<Option<i64>, sqlx::Error> {
        let mut later = std::mem::take(&mut self.later);
        if !self.plan.closes_destinations() {
            return Ok(later.into_iter().map(|(at, ..)| at).min());
        }
        later.sort_unstable();
        let mut next = None::<i64>;
        for (tried, (at, kind, route)) in later.into_iter().enumerate() {
            if next.is_some_and(|next| next <= at) {
                break;
            }
            let at = if tried < LATER_KINDS_MAX {
                self.later_open(shared, connection, &kind, route, now).await?
            } else {
                Some(at)
            };
            next = next.into_iter().chain(at).min();
        }
        Ok(next)
    }

    pub(super) fn is_over(&self) -> bool {
        self.left.is_empty()
    }

    /// Where the next survey should start.
    pub(super) fn resume_at(&self) -> String {
        match self.left.front() {
            Some(Segment::Range(start, _)) => start.clone(),
            _ => String::new(),
        }
    }

    /// The next kinds that have due rows; none when the survey is over.
    pub(super) async fn page(
        &mut self,
        shared: &Shared,
        connection: &mut SqliteConnection,
        now: i64,
    ) -> Result<Vec<Source>, sqlx::Error> {
        let mut due = Vec::new();
        while due.len() < KINDS_MERGED
            && let Some(segment) = self.left.pop_front()
        {
            let rows = self.read(shared, connection, &segment, now).await?;
            let mut last = None;
            for row in &rows {
                if due.len() >= KINDS_MERGED {
                    break;
                }
                let kind = text(row, "kind")?;
                last = Some(kind.clone());
                self.note(row, kind, now, &mut due)?;
            }
            let is_full = due.len() >= KINDS_MERGED || rows.len() >= KINDS_READ;
            if let Segment::Range(start, end) = segment
                && is_full
                && let Some(mut next) = last
            {
                next.push('\0');
                // A kind that is not UTF-8 may sort elsewhere than it reads.
                if next > start {
                    self.left.push_front(Segment::Range(next, end));
                }
            }
        }
        Ok(due)
    }

    async fn read(
        &self,
        shared: &Shared,
        connection: &mut SqliteConnection,
        segment: &Segment,
        now: i64,
    ) -> Result<Vec<SqliteRow>, sqlx::Error> {
        match segment {
            Segment::Range(start, end) => {
                let kinds = query(&shared.statements.kinds).bind(self.suspect).bind(start.clone());
                let kinds = match end {
                    Some(end) => kinds.bind(end.clone()),
                    // Every blob sorts behind every text.
                    None => kinds.bind(Vec::new()),
                };
                kinds.bind(now).bind(KINDS_READ as i64).fetch_all(connection).await
            }
            Segment::Exact(kinds) => {
                query(&shared.statements.kinds_exact)
                    .bind(self.suspect)
                    .bind(Value::from(kinds.clone()).to_string())
                    .bind(now)
                    .fetch_all(connection)
                    .await
            }
        }
    }

    fn note(
        &mut self,
        row: &SqliteRow,
        kind: String,
        now: i64,
        due: &mut Vec<Source>,
    ) -> Result<(), sqlx::Error> {
        let Some(route) = self.plan.route(&kind) else { return Ok(()) };
        if let Some(later) = row.try_get::<Option<i64>, _>("later")?.filter(|at| *at < i64::MAX) {
            self.later.push((later, kind.clone(), route));
        }
        if row.try_get::<Option<i64>, _>("first")?.is_some_and(|first| first <= now) {
            due.push(Source::Kind { kind, route });
        }
        Ok(())
    }

    /// When the next row to an open destination falls due. Behind many to closed ones it is a guess on the early side.
    async fn later_open(
        &self,
        shared: &Shared,
        connection: &mut SqliteConnection,
        kind: &str,
        route: usize,
        now: i64,
    ) -> Result<Option<i64>, sqlx::Error> {
        let rows = query(&shared.statements.later)
            .bind(self.suspect)
            .bind(kind.to_owned())
            .bind(now)
            .bind(LATER_MAX)
            .fetch_all(connection)
            .await?;
        for row in &rows {
            if self.plan.limit_for(route, optional_text(row, "destination")?.as_deref()) > 0 {
                return Ok(Some(row.try_get("send_after")?).filter(|at| *at < i64::MAX));
            }
        }
        guess(&rows)
    }
}

/// When to look again behind this many rows that cannot be taken; never, when they are all there are.
fn guess(rows: &[SqliteRow]) -> Result<Option<i64>, sqlx::Error> {
    let last = rows.last().filter(|_| rows.len() >= LATER_MAX as usize);
    Ok(last.map(|row| row.try_get("send_after")).transpose()?.filter(|at| *at < i64::MAX))
}

/// When the next row of any kind falls due that this plan can take, at `from` or later.
pub(super) async fn later_of_all(
    shared: &Shared,
    connection: &mut SqliteConnection,
    plan: &Plan<'_>,
    suspect: bool,
    from: i64,
) -> Result<Option<i64>, sqlx::Error> {
    let rows = query(&shared.statements.all_later)
        .bind(suspect)
        .bind(from)
        .bind(LATER_MAX)
        .fetch_all(connection)
        .await?;
    for row in &rows {
        let destination = optional_text(row, "destination")?;
        if plan
            .route(&text(row, "kind")?)
            .is_some_and(|route| plan.limit_for(route, destination.as_deref()) > 0)
        {
            return Ok(Some(row.try_get("send_after")?).filter(|at| *at < i64::MAX));
        }
    }
    guess(&rows)
}

/// Lanes that have rows which this request can take.
#[derive(Default)]
pub(super) struct Lanes(Vec<Source>);

impl Lanes {
    pub(super) async fn find(
        shared: &Shared,
        connection: &mut SqliteConnection,
        plan: &Plan<'_>,
        suspect: bool,
    ) -> Result<Self, sqlx::Error> {
        let (from_kind, from_destination) = shared.rotation.lane(suspect);
        let kinds = query(&shared.statements.lane_kinds)
            .bind(suspect)
            .bind(from_kind.clone())
            .bind(LANES_MAX as i64)
            .fetch_all(&mut *connection)
            .await?;
        let mut lanes = Vec::new();
        let mut seen = 0;
        let mut resume = (String::new(), String::new());
        for row in &kinds {
            let kind = text(row, "kind")?;
            let Some(route) = plan.route(&kind) else { continue };
            if seen >= LANES_MAX {
                resume = (kind, String::new());
                break;
            }
            let from = if kind == from_kind { from_destination.as_str() } else { "" };
            let found = query(&shared.statements.lanes)
                .bind(suspect)
                .bind(kind.clone())
                .bind(from.to_owned())
                .bind((LANES_MAX - seen) as i64)
                .fetch_all(&mut *connection)
                .await?;
            seen += found.len();
            for row in &found {
                let destination = text(row, "destination")?;
                if seen >= LANES_MAX {
                    resume = (kind.clone(), format!("{destination}\0"));
                }
                if plan.limit_for(route, Some(&destination)) > 0 {
                    lanes.push(Source::Lane { kind: kind.clone(), destination, route });
                }
            }
        }
        shared.rotation.set_lane(suspect, resume);
        Ok(Self(lanes))
    }

    pub(super) fn take(&mut self) -> Vec<Source> {
        std::mem::take(&mut self.0)
    }
}

/// Text as it can be read; what is not UTF-8 is found by nobody who asks for it by name.
pub(super) fn text(row: &SqliteRow, column: &str) -> Result<String, sqlx::Error> {
    Ok(optional_text(row, column)?.unwrap_or_default())
}

pub(super) fn optional_text(row: &SqliteRow, column: &str) -> Result<Option<String>, sqlx::Error> {
    let bytes = row.try_get_unchecked::<Option<&[u8]>, _>(column)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}
