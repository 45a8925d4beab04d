//! The store's own connections to the database, one for each use.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use outbox_core::StoreError;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Sqlite, SqlitePool, Transaction,
    pool::PoolConnection,
    query::{Query, QueryScalar},
    sqlite::{SqliteArguments, SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous},
};
use tokio::time::{Instant, sleep};

use crate::{
    error::{is_busy, store_error},
    schema::{Statement, Statements},
};

/// How long SQLite itself waits for a lock. Short, so that the waits between are ours: its own grow to 100 ms, in
/// which others have taken the lock many times.
const BUSY_TIMEOUT: Duration = Duration::from_millis(15);
/// The longest wait between two tries for a lock.
const BUSY_WAIT_MAX: Duration = Duration::from_millis(10);

/// A connection for one use, opened when first needed.
#[derive(Debug)]
pub(crate) struct Link {
    /// The application's.
    pool: SqlitePool,
    synchronous: Option<SqliteSynchronous>,
    /// A pool of one; in memory the application's, where another connection may be another database.
    own: OnceLock<SqlitePool>,
    statements: Arc<Statements>,
    checked: AtomicBool,
}

impl Link {
    /// What a relay does thousands of times. A power cut may take back its last claims and marks, so that what
    /// was sent is sent again with the same id. It cannot take back what an application has committed with
    /// `synchronous = FULL`: such a commit is on disk before a claim can see it.
    pub(crate) fn for_relay(pool: &SqlitePool, statements: &Arc<Statements>) -> Self {
        Self::new(pool, statements, Some(SqliteSynchronous::Normal))
    }

    /// What operators do, and what is read beside the relay.
    pub(crate) fn for_operators(pool: &SqlitePool, statements: &Arc<Statements>) -> Self {
        Self::new(pool, statements, None)
    }

    fn new(pool: &SqlitePool, statements: &Arc<Statements>, synchronous: Option<SqliteSynchronous>) -> Self {
        Self {
            pool: pool.clone(),
            synchronous,
            own: OnceLock::new(),
            statements: Arc::clone(statements),
            checked: AtomicBool::new(false),
        }
    }

    fn own(&self) -> &SqlitePool {
        self.own.get_or_init(|| {
            let options = self.pool.connect_options();
            if is_in_memory(&options) {
                return self.pool.clone();
            }
            let mut options = (*options).clone().busy_timeout(BUSY_TIMEOUT);
            if let Some(synchronous) = self.synchronous.clone() {
                options = options.synchronous(synchronous);
            }
            SqlitePoolOptions::new()
                .max_connections(1)
                .idle_timeout(None)
                .max_lifetime(None)
                .test_before_acquire(false)
                .connect_lazy_with(options)
        })
    }

    /// The connection, for statements that stand alone.
    pub(crate) async fn acquire(&self) -> Result<PoolConnection<Sqlite>, sqlx::Error> {
        let mut connection = self.own().acquire().await?;
        if !self.checked.load(Ordering::Relaxed) {
            self.statements.check(&mut connection).await?;
            self.checked.store(true, Ordering::Relaxed);
        }
        Ok(connection)
    }

    /// A transaction that has the write lock from its start. Dropped, it is rolled back.
    pub(crate) async fn begin(&self) -> Result<Transaction<'static, Sqlite>, sqlx::Error> {
        drop(self.acquire().await?);
        self.begin_unchecked().await
    }

    /// As [`begin`](Self::begin), for tables that need not be there.
    pub(crate) async fn begin_unchecked(&self) -> Result<Transaction<'static, Sqlite>, sqlx::Error> {
        self.own().begin_with("BEGIN IMMEDIATE").await
    }
}

/// Whether each connection of these options could be a database of its own.
pub(crate) fn is_in_memory(options: &SqliteConnectOptions) -> bool {
    let name = options.get_filename().to_string_lossy();
    name.is_empty()
        || name == ":memory:"
        || options.to_url_lossy().query_pairs().any(|(name, value)| name == "mode" && value == "memory")
}

/// How long a call goes on trying for a lock.
pub(crate) struct Patience {
    end: Instant,
    wait: Duration,
}

impl Patience {
    pub(crate) fn new(busy_for: Duration) -> Self {
        Self { end: Instant::now() + busy_for, wait: Duration::from_millis(1) }
    }

    /// Whether to try again after this error; if so, waits a little first.
    pub(crate) async fn outlasts(&mut self, error: &sqlx::Error) -> bool {
        if !is_busy(error) || Instant::now() >= self.end {
            return false;
        }
        sleep(self.wait).await;
        self.wait = (self.wait * 2).min(BUSY_WAIT_MAX);
        true
    }
}

/// Tries until the lock is free, for as long as `busy_for`.
pub(crate) async fn retrying<T, F, Try>(
    doing: &'static str,
    busy_for: Duration,
    mut attempt: F,
) -> Result<T, StoreError>
where
    F: FnMut() -> Try + Send,
    Try: Future<Output = Result<T, sqlx::Error>> + Send,
    T: Send,
{
    let mut patience = Patience::new(busy_for);
    loop {
        match attempt().await {
            Err(error) if patience.outlasts(&error).await => {}
            tried => return tried.map_err(|error| store_error(doing, error)),
        }
    }
}

/// A prepared query of one of our statements, kept by the connection.
pub(crate) fn query(statement: &Statement) -> Query<'static, Sqlite, SqliteArguments> {
    sqlx::query(AssertSqlSafe(Arc::clone(statement)))
}

/// As [`query`], for a single value.
pub(crate) fn scalar<T>(statement: &Statement) -> QueryScalar<'static, Sqlite, T, SqliteArguments>
where
    (T,): for<'r> sqlx::FromRow<'r, sqlx::sqlite::SqliteRow>,
{
    sqlx::query_scalar(AssertSqlSafe(Arc::clone(statement)))
}
