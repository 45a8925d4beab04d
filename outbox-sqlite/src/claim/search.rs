//! Where to look for due rows: in one order over all kinds, or kind by kind.

use sqlx::SqliteConnection;

use super::{
    cursor::Source,
    plan::Plan,
    survey::{Survey, later_of_all},
};
use crate::store::Shared;

/// The search of one claim for rows of one sort.
pub(super) struct Search<'p> {
    shared: &'p Shared,
    plan: &'p Plan<'p>,
    suspect: bool,
    /// All kinds in one order: as cheap with 10,000 kinds as with one, unless many are not wanted.
    of_all: bool,
    survey: Survey<'p>,
}

impl<'p> Search<'p> {
    pub(super) fn new(shared: &'p Shared, plan: &'p Plan<'p>, suspect: bool) -> Self {
        let from = if suspect { String::new() } else { shared.rotation.kind() };
        Self {
            shared,
            plan,
            suspect,
            of_all: plan.takes_most() && !shared.rotation.goes_by_kind(suspect),
            survey: Survey::new(plan, suspect, from),
        }
    }

    /// What has due rows, if anything.
    pub(super) async fn start(
        &mut self,
        connection: &mut SqliteConnection,
        now: i64,
    ) -> Result<Vec<Source>, sqlx::Error> {
        if !self.of_all {
            return self.survey.page(self.shared, connection, now).await;
        }
        let first = later_of_all(self.shared, connection, self.plan, self.suspect, i64::MIN).await?;
        Ok(if first.is_some_and(|first| first <= now) { vec![Source::All] } else { Vec::new() })
    }

    /// What else has due rows, after all that was found has been walked. Where unwanted rows were in the way of all
    /// others, kind by kind.
    pub(super) async fn go_on(
        &mut self,
        connection: &mut SqliteConnection,
        now: i64,
        is_obstructed: bool,
    ) -> Result<Vec<Source>, sqlx::Error> {
        if self.of_all && !is_obstructed {
            return Ok(Vec::new());
        }
        if self.of_all {
            self.shared.rotation.go_by_kind(self.suspect);
            self.of_all = false;
        }
        self.survey.page(self.shared, connection, now).await
    }

    /// Whether all has been found.
    pub(super) fn is_over(&self) -> bool {
        self.of_all || self.survey.is_over()
    }

    /// Remembers where the next claim starts.
    pub(super) fn rest(&self) {
        if !self.suspect && !self.of_all {
            self.shared.rotation.set_kind(self.survey.resume_at());
        }
    }

    /// When the next row falls due.
    pub(super) async fn later(
        &mut self,
        connection: &mut SqliteConnection,
        now: i64,
    ) -> Result<Option<i64>, sqlx::Error> {
        if self.of_all {
            return later_of_all(self.shared, connection, self.plan, self.suspect, now.saturating_add(1))
                .await;
        }
        self.survey.later(self.shared, connection, now).await
    }
}
