//! Reading the due rows of one kind, or of one lane, in order and in portions.

use std::collections::{BTreeSet, VecDeque};

use serde_json::Value;
use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};

use super::survey::{optional_text, text};
use crate::{link::query, store::Shared};

/// How many rows are read at once, at most.
const PORTION_MAX: i64 = 1_024;
/// How many scheduled rows take their place in line by one claim.
const PROMOTED_MAX: i64 = 5_000;

/// A due row, and how its key stands.
pub(super) struct Candidate {
    pub(super) seq: i64,
    pub(super) send_after: i64,
    pub(super) destination: Option<String>,
    pub(super) key: Option<String>,
    /// The first record of its key's line.
    pub(super) head: Option<i64>,
    /// Whether others stand behind it.
    pub(super) leads: bool,
    /// Whether a record of its key is under a live lease.
    pub(super) busy: bool,
    /// Whether scheduled records of its key have fallen due and not yet taken their place.
    ripe: bool,
    /// What the row is, when its source holds several kinds.
    pub(super) kind: Option<String>,
}

/// Rows that are walked in order.
pub(super) enum Source {
    /// All that nothing holds, of whatever kind.
    All,
    /// Those of one kind.
    Kind { kind: String, route: usize },
    /// Those in one lane.
    Lane { kind: String, destination: String, route: usize },
}

pub(super) struct Cursor {
    pub(super) source: Source,
    /// How many rows of it were in the way.
    pub(super) passed: usize,
    suspect: bool,
    rows: VecDeque<Candidate>,
    behind: (i64, i64),
    portion: i64,
    is_read: bool,
}

/// What reading on found.
pub(super) enum Found {
    Row,
    Nothing,
    /// More scheduled rows have fallen due than one claim can put in their place.
    TooMuch,
}

impl Cursor {
    pub(super) fn new(suspect: bool, source: Source, portion: i64) -> Self {
        Self {
            source,
            passed: 0,
            suspect,
            rows: VecDeque::new(),
            behind: (i64::MIN, i64::MIN),
            portion,
            is_read: false,
        }
    }

    pub(super) fn front(&self) -> Option<&Candidate> {
        self.rows.front()
    }

    pub(super) fn pop(&mut self) -> Option<Candidate> {
        self.rows.pop_front()
    }

    /// Sees to it that the next row, if there is one, is at the front.
    pub(super) async fn fill(
        &mut self,
        shared: &Shared,
        connection: &mut SqliteConnection,
        now: i64,
        promoted: &mut bool,
    ) -> Result<Found, sqlx::Error> {
        if !self.rows.is_empty() {
            return Ok(Found::Row);
        }
        if self.is_read {
            return Ok(Found::Nothing);
        }
        let mut rows = self.read(shared, connection, now).await?;
        let ripe: BTreeSet<String> =
            rows.iter().filter(|row| row.ripe).filter_map(|row| row.key.clone()).collect();
        if !ripe.is_empty() {
            let keys = Value::from_iter(ripe).to_string();
            let placed = query(&shared.statements.promote)
                .bind(keys)
                .bind(now)
                .bind(PROMOTED_MAX)
                .execute(&mut *connection)
                .await?
                .rows_affected();
            *promoted |= placed > 0;
            if placed >= PROMOTED_MAX as u64 {
                return Ok(Found::TooMuch);
            }
            rows = self.read(shared, connection, now).await?;
        }
        self.is_read = (rows.len() as i64) < self.portion;
        self.portion = (self.portion * 4).min(PORTION_MAX);
        let Some(last) = rows.back() else { return Ok(Found::Nothing) };
        self.behind = (last.send_after, last.seq);
        self.rows = rows;
        Ok(Found::Row)
    }

    async fn read(
        &self,
        shared: &Shared,
        connection: &mut SqliteConnection,
        now: i64,
    ) -> Result<VecDeque<Candidate>, sqlx::Error> {
        let statements = &shared.statements;
        let (statement, kind) = match &self.source {
            Source::All => (&statements.all_candidates, None),
            Source::Kind { kind, .. } => (&statements.candidates, Some(kind.clone())),
            Source::Lane { kind, .. } => (&statements.lane_candidates, Some(kind.clone())),
        };
        let mut rows = query(statement)
            .bind(self.suspect)
            .bind(kind)
            .bind(now)
            .bind(self.behind.0)
            .bind(self.behind.1)
            .bind(self.portion);
        if let Source::Lane { destination, .. } = &self.source {
            rows = rows.bind(destination.clone());
        }
        rows.fetch_all(connection).await?.iter().map(candidate).collect()
    }
}

fn candidate(row: &SqliteRow) -> Result<Candidate, sqlx::Error> {
    Ok(Candidate {
        seq: row.try_get(0)?,
        send_after: row.try_get(1)?,
        destination: optional_text(row, "destination")?,
        key: optional_text(row, "key")?,
        head: row.try_get(4)?,
        leads: row.try_get::<Option<i64>, _>(5)?.is_some(),
        busy: row.try_get(6)?,
        ripe: row.try_get(7)?,
        kind: if row.len() > 8 { Some(text(row, "kind")?) } else { None },
    })
}
