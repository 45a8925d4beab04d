//! The statements with the names of one outbox in them, and its tables.

use std::sync::Arc;

use outbox_core::StoreError;
use sqlx::AssertSqlSafe;

use crate::{PostgresConfig, PostgresStore, error::doing};

const TABLES: &str = include_str!("../migrations/0001_outbox.sql");

/// Pending, fresh, and not what may be killing relays. Spelled as in the indexes.
const READY: &str = "o.sent_at IS NULL AND o.dead_at IS NULL AND o.owner IS NULL AND o.lapses = 0";
const SUSPECT: &str = "o.sent_at IS NULL AND o.dead_at IS NULL AND (o.owner IS NOT NULL OR o.lapses > 0)";
/// In the line of its key: unfinished, or dead and blocking; not what was scheduled and has never been due.
const LINE: &str = "e.key IS NOT NULL AND e.sent_at IS NULL AND (e.dead_at IS NULL OR e.blocks_key) \
    AND NOT (e.fence = 0 AND NOT e.hold_key AND e.owner IS NULL AND e.send_after > statement_timestamp())";
const LIVE: &str = "l.key IS NOT NULL AND l.owner IS NOT NULL AND l.send_after > statement_timestamp()";

macro_rules! statements {
    ($($name:ident),* $(,)?) => {
        /// Every statement of one outbox.
        pub(crate) struct Statements {
            $(pub(crate) $name: Arc<str>,)*
        }

        impl Statements {
            pub(crate) fn new(config: &PostgresConfig) -> Self {
                Self { $($name: fill(include_str!(concat!("../sql/", stringify!($name), ".sql")), config).into(),)* }
            }
        }
    };
}

statements! {
    insert, remember, existing, kinds, unkeyed, keyed, suspects, lock_keys, lines, take, next_due, next_suspect,
    mark, settled, renew, lock_lapsed, sweep_sent, sweep_dead, sweep_inbox, sweep_dedup, list, show, revive, discard,
}

/// Puts names into a statement. They were checked to be plain identifiers.
pub(crate) fn fill(sql: &str, config: &PostgresConfig) -> String {
    let (schema, table) = (&config.schema, &config.table);
    let mut filled = sql
        .replace("{ready}", READY)
        .replace("{suspect}", if sql.contains("CREATE TABLE") { "{index_suspect}" } else { SUSPECT })
        .replace("{line_of_e}", LINE)
        .replace("{live_of_l}", LIVE)
        .replace("{filter}", crate::operate::FILTER)
        .replace("{outbox}", &format!("\"{schema}\".\"{table}\""));
    for name in ["dedup", "inbox", "pause"] {
        filled = filled.replace(&format!("{{{name}}}"), &format!("\"{schema}\".\"{table}_{name}\""));
    }
    for name in ["due", "due_keyed", "line", "live", "sent", "dead"] {
        filled = filled.replace(&format!("{{{name}}}"), &format!("\"{table}_{name}\""));
    }
    filled.replace("{index_suspect}", &format!("\"{table}_suspect\""))
}

impl PostgresStore {
    /// The SQL of the tables, for teams that run their own migrator.
    pub fn schema_sql(&self) -> String {
        fill(TABLES, &self.shared.config)
    }

    /// Creates the tables where they are missing. Two at once are safe.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Denied`](outbox_core::StoreErrorKind::Denied) for a role that may not create tables.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let failed = doing("migrate the outbox tables");
        let mut tx = self.begin().await?;
        let lock = "SELECT pg_advisory_xact_lock($1)";
        sqlx::query(lock)
            .persistent(false)
            .bind(self.shared.lock_base - 1)
            .execute(&mut *tx)
            .await
            .map_err(failed)?;
        let name = format!("\"{}\".\"{}\"", self.shared.config.schema, self.shared.config.table);
        let exists: bool = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
            .persistent(false)
            .bind(name)
            .fetch_one(&mut *tx)
            .await
            .map_err(failed)?;
        if !exists {
            sqlx::raw_sql(AssertSqlSafe(self.schema_sql())).execute(&mut *tx).await.map_err(failed)?;
        }
        tx.commit().await.map_err(failed)
    }
}
