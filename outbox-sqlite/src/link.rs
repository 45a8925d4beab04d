//! The store's own connections to the database, one for each use.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use outbox_core::StoreError;
use sqlx::{
    AssertSqlSafe, Sqlite, SqlitePool, Transaction,
    pool::PoolConnection,
    query::{Query, QueryScalar},
    sqlite::{SqliteArguments, SqlitePoolOptions, SqliteSynchronous},
};
use tokio::{
    sync::OnceCell,
    time::{Instant, sleep},
};

use crate::{
    error::{is_busy, store_error},
    schema::{Statement, Statements},
};

/// How long SQLite itself waits for a lock. Short, so that the waits between are ours: its own grow to 100 ms, in
/// which others have taken the lock many times.
const BUSY_TIMEOUT: Duration = Duration::from_millis(15);
/// The longest wait between two tries for a lock.
const BUSY_WAIT_MAX: Duration = Duration::from_millis(10);

/// The application's database: its pool, and where its file is.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) pool: SqlitePool,
    file: OnceCell<Option<PathBuf>>,
}

impl Database {
    pub(crate) fn new(pool: SqlitePool) -> Self {
        Self { pool, file: OnceCell::new() }
    }

    /// The file; none when the database is in memory, where another connection may be another database.
    pub(crate) async fn file(&self) -> Result<Option<&Path>, sqlx::Error> {
        let ask = || async {
            let sql = "SELECT file FROM pragma_database_list WHERE name = 'main'";
            let file: Option<String> = sqlx::query_scalar(sql).fetch_optional(&self.pool).await?.flatten();
            Ok(file.filter(|file| !file.is_empty()).map(PathBuf::from))
        };
        self.file.get_or_try_init(ask).await.map(Option::as_deref)
    }
}

/// The page cache of the relay's connection in KiB, negative as SQLite wants it: the upper pages of all indexes.
const RELAY_CACHE: &str = "-16384";
/// How many rows the driver's thread reads ahead: a claim's, so that it need not wait for us between them.
const ROWS_BUFFERED: usize = 1_024;

/// A connection for one use, opened when first needed.
#[derive(Debug)]
pub(crate) struct Link {
    database: Arc<Database>,
    synchronous: Option<SqliteSynchronous>,
    /// A pool of one; in memory the application's.
    own: OnceCell<SqlitePool>,
    statements: Arc<Statements>,
    checked: AtomicBool,
}

impl Link {
    /// What a relay does thousands of times. A power cut may take back its last claims and marks, so that what
    /// was sent is sent again with the same id. It cannot take back what an application has committed with
    /// `synchronous = FULL`: such a commit is on disk before a claim can see it.
    pub(crate) fn for_relay(database: &Arc<Database>, statements: &Arc<Statements>) -> Self {
        Self::new(database, statements, Some(SqliteSynchronous::Normal))
    }

    /// What operators do, and what is read beside the relay.
    pub(crate) fn for_operators(database: &Arc<Database>, statements: &Arc<Statements>) -> Self {
        Self::new(database, statements, None)
    }

    fn new(
        database: &Arc<Database>,
        statements: &Arc<Statements>,
        synchronous: Option<SqliteSynchronous>,
    ) -> Self {
        Self {
            database: Arc::clone(database),
            synchronous,
            own: OnceCell::new(),
            statements: Arc::clone(statements),
            checked: AtomicBool::new(false),
        }
    }

    async fn own(&self) -> Result<&SqlitePool, sqlx::Error> {
        let open = || async {
            if self.database.file().await?.is_none() {
                return Ok(self.database.pool.clone());
            }
            let options = self.database.pool.connect_options();
            let mut options = (*options).clone().busy_timeout(BUSY_TIMEOUT);
            if let Some(synchronous) = self.synchronous {
                options = options
                    .synchronous(synchronous)
                    .pragma("cache_size", RELAY_CACHE)
                    .pragma("temp_store", "memory")
                    .row_buffer_size(ROWS_BUFFERED);
            }
            Ok(SqlitePoolOptions::new()
                .max_connections(1)
                .idle_timeout(None)
                .max_lifetime(None)
                .test_before_acquire(false)
                .connect_lazy_with(options))
        };
        self.own.get_or_try_init(open).await
    }

    /// The connection, for statements that stand alone.
    pub(crate) async fn acquire(&self) -> Result<PoolConnection<Sqlite>, sqlx::Error> {
        let mut connection = self.own().await?.acquire().await?;
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
        self.own().await?.begin_with("BEGIN IMMEDIATE").await
    }
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
