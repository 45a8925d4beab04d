//! The tables and their versions, and every statement with the table's name filled in.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqliteConnection};

/// What stands for the present time in a statement: milliseconds since 1970, by the database's clock.
pub(crate) const NOW: &str = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)";

/// One migration a version, the first is version 1.
const MIGRATIONS: &[&str] = &[include_str!("../migrations/0001_outbox.sql")];

/// The version of the tables that this release knows.
pub(crate) const VERSION: i64 = MIGRATIONS.len() as i64;

/// The tables are not what this release works on.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) struct WrongVersion {
    /// What the database says; none when it has no outbox.
    pub(crate) found: Option<i64>,
    /// What this release knows.
    pub(crate) known: i64,
}

impl std::fmt::Display for WrongVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.found {
            None => f.write_str("there are no outbox tables: call migrate() or run migrations_sql()"),
            Some(found) if found > self.known => {
                write!(f, "the tables are of version {found}, and this release knows up to {}", self.known)
            }
            Some(found) => {
                write!(f, "the tables are of version {found}, and this release needs {}: migrate", self.known)
            }
        }
    }
}

impl From<WrongVersion> for sqlx::Error {
    fn from(wrong: WrongVersion) -> Self {
        sqlx::Error::Configuration(wrong.into())
    }
}

/// A statement with the name filled in.
pub(crate) type Statement = Arc<str>;

macro_rules! statements {
    ($($name:ident)*) => {
        /// Every statement of the store.
        #[derive(Debug)]
        pub(crate) struct Statements {
            $(pub(crate) $name: Statement,)*
            table: String,
        }

        impl Statements {
            pub(crate) fn new(table: &str) -> Self {
                Self {
                    $($name: fill(include_str!(concat!("sql/", stringify!($name), ".sql")), table).into(),)*
                    table: table.to_owned(),
                }
            }

            /// Each with its name.
            #[cfg(test)]
            fn all(&self) -> Vec<(&'static str, &Statement)> {
                vec![$((stringify!($name), &self.$name)),*]
            }
        }
    };
}

statements! {
    accept
    all_candidates
    all_later
    candidates
    check_lost
    claim
    count_behind
    count_dead
    count_due
    count_kind
    count_lanes
    count_sent
    dead_heads
    dedup
    dedup_existing
    discard
    enqueue
    free_heads
    head
    hold
    hold_behind
    hold_lanes
    kinds
    kinds_exact
    lane_candidates
    lane_kinds
    lanes
    later
    line_keys
    mark
    mend
    newest
    now
    oldest_behind
    pause
    pauses
    promote
    redrive
    renew
    resend
    resume
    run
    show
    sweep_dead
    sweep_dedup
    sweep_inbox
    sweep_sent
    take_from_dead
    version
    version_write
    waiting_keys
    wrongly_held
}

impl Statements {
    /// A statement that is put together from parts of ours, with bound values only.
    pub(crate) fn assemble(&self, sql: &str) -> Statement {
        fill(sql, &self.table).into()
    }

    /// All migrations as one script, for teams that have a migrator of their own.
    pub(crate) fn migrations(&self) -> String {
        let mut script = fill(include_str!("sql/version_table.sql"), &self.table);
        for (version, migration) in (1..).zip(MIGRATIONS) {
            script.push('\n');
            script.push_str(&fill(migration, &self.table));
            script.push_str(&format!("\nINSERT INTO {}_version (version) VALUES ({version});\n", self.table));
        }
        script
    }

    /// Brings the tables to [`VERSION`], inside a transaction that holds the write lock.
    pub(crate) async fn migrate(&self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let create = fill(include_str!("sql/version_table.sql"), &self.table);
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut *connection).await?;
        let found = self.version_of(connection).await?.unwrap_or(0);
        if found > VERSION {
            return Err(WrongVersion { found: Some(found), known: VERSION }.into());
        }
        for (version, migration) in (1_i64..).zip(MIGRATIONS).filter(|(version, _)| *version > found) {
            let sql = fill(migration, &self.table);
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *connection).await?;
            sqlx::query(AssertSqlSafe(Arc::clone(&self.version_write)))
                .bind(version)
                .execute(&mut *connection)
                .await?;
        }
        Ok(())
    }

    /// Sees to it that the tables are of [`VERSION`].
    pub(crate) async fn check(&self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let found = match self.version_of(connection).await {
            Ok(found) => found,
            Err(sqlx::Error::Database(error)) if error.message().contains("no such table") => None,
            Err(error) => return Err(error),
        };
        if found == Some(VERSION) { Ok(()) } else { Err(WrongVersion { found, known: VERSION }.into()) }
    }

    async fn version_of(&self, connection: &mut SqliteConnection) -> Result<Option<i64>, sqlx::Error> {
        sqlx::query_scalar(AssertSqlSafe(Arc::clone(&self.version))).fetch_one(connection).await
    }
}

fn fill(sql: &str, table: &str) -> String {
    sql.replace("{outbox}", table).replace("{now}", NOW)
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection, Row};

    use super::*;

    /// S8: no statement reads a table from end to end, whatever SQLite thinks of its size.
    #[tokio::test]
    async fn every_statement_finds_its_rows_by_an_index() {
        const TABLES: [&str; 9] =
            ["outbox", "row", "line", "late", "claimed", "other", "record", "outbox_dedup", "outbox_inbox"];
        let statements = Statements::new("outbox");
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        statements.migrate(&mut connection).await.unwrap();
        for (name, statement) in statements.all() {
            // The first words of an insert, to which the rows are added.
            if name == "enqueue" {
                continue;
            }
            let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
            for step in sqlx::query(explain).fetch_all(&mut connection).await.unwrap() {
                let step: String = step.try_get("detail").unwrap();
                let scanned = step.strip_prefix("SCAN ").and_then(|table| table.split(' ').next());
                let is_table = scanned.is_some_and(|table| TABLES.contains(&table));
                assert!(!is_table || step.contains(" INDEX "), "{name}: {step}");
                assert!(!step.contains("AUTOMATIC"), "{name}: {step}");
            }
        }
    }

    #[test]
    fn the_script_names_its_version() {
        let script = Statements::new("letters").migrations();
        assert!(
            script.contains("CREATE TABLE letters (")
                && !script.contains("{outbox}")
                && !script.contains("{now}"),
            "{script}"
        );
        assert!(script.contains("INSERT INTO letters_version (version) VALUES (1)"));
    }
}
