//! Finding the kinds and lanes that have rows, by jumps over an index: the rows themselves are not read.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use serde_json::Value;
use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};

use super::plan::Plan;
use crate::{link::query, store::Shared};

/// How many kinds are merged by due time. With more the oldest of all is not found, but all have their turn.
const KINDS_MERGED: usize = 128;
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
}

impl Rotation {
    pub(super) fn kind(&self) -> String {
        self.kind.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_kind(&self, kind: String) {
        *self.kind.lock().unwrap_or_else(PoisonError::into_inner) = kind;
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

/// A kind that has due rows.
pub(super) struct DueKind {
    pub(super) kind: String,
    pub(super) route: usize,
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
    later: Option<i64>,
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
        Self { plan, suspect, left, later: None }
    }

    /// When the first row falls due that was not due, among the kinds seen so far.
    pub(super) fn later(&self) -> Option<i64> {
        self.later.filter(|at| *at < i64::MAX)
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
    ) -> Result<Vec<DueKind>, sqlx::Error> {
        let mut due = Vec::new();
        while due.len() < KINDS_MERGED
            && let Some(segment) = self.left.pop_front()
        {
            let rows = self.read(shared, connection, &segment, now).await?;
            for row in &rows {
                self.note(shared, connection, row, now, &mut due).await?;
            }
            if let Segment::Range(start, end) = segment
                && rows.len() == KINDS_MERGED
                && let Some(last) = rows.last()
            {
                let mut next = text(last, "kind")?;
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
                kinds.bind(now).bind(KINDS_MERGED as i64).fetch_all(connection).await
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

    async fn note(
        &mut self,
        shared: &Shared,
        connection: &mut SqliteConnection,
        row: &SqliteRow,
        now: i64,
        due: &mut Vec<DueKind>,
    ) -> Result<(), sqlx::Error> {
        let kind = text(row, "kind")?;
        let Some(route) = self.plan.route(&kind) else { return Ok(()) };
        if let Some(mut later) = row.try_get::<Option<i64>, _>("later")? {
            if self.plan.closes_destinations() {
                later = self.later_open(shared, connection, &kind, route, now).await?.unwrap_or(later);
            }
            self.later = Some(self.later.map_or(later, |at| at.min(later)));
        }
        if row.try_get::<Option<i64>, _>("first")?.is_some_and(|first| first <= now) {
            due.push(DueKind { kind, route });
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
                return row.try_get("send_after").map(Some);
            }
        }
        if rows.len() < LATER_MAX as usize {
            return Ok(Some(i64::MAX));
        }
        rows.last().map(|row| row.try_get("send_after")).transpose()
    }
}

/// Lanes that have rows which this request can take.
#[derive(Default)]
pub(super) struct Lanes(Vec<Lane>);

pub(super) struct Lane {
    pub(super) kind: String,
    pub(super) destination: String,
    pub(super) route: usize,
}

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
                    lanes.push(Lane { kind: kind.clone(), destination, route });
                }
            }
        }
        shared.rotation.set_lane(suspect, resume);
        Ok(Self(lanes))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self) -> Vec<Lane> {
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
