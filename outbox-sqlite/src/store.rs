//! The store: what its handles share, and the `Store` trait on it.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use outbox_core::{
    ClaimBatch, ClaimRequest, Lease, Mark, MarkReport, Owner, Pattern, Presence, Retention, Stats, Store,
    StoreError, Swept, Wake, async_trait,
};
use sqlx::{
    SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use crate::{
    claim::Rotation,
    config::SqliteConfig,
    enqueue::inserts,
    error::store_error,
    link::{Database, Link, retrying},
    presence::Relays,
    schema::{Statement, Statements},
    wake::Watch,
};

/// How many connections [`SqliteStore::connect`] lets an application have at once.
const CONNECTIONS_MAX: u32 = 8;

/// An outbox in a SQLite database. Clones are the same store and share its connections.
#[derive(Clone)]
pub struct SqliteStore {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) config: SqliteConfig,
    pub(crate) database: Arc<Database>,
    pub(crate) statements: Arc<Statements>,
    /// The insert of each number of rows.
    pub(crate) inserts: [Statement; 4],
    /// Claims, marks, renewals and sweeps.
    pub(crate) relay: Link,
    /// The look before each claim.
    pub(crate) look: Link,
    /// Operators' calls and statistics, which may take longer.
    pub(crate) side: Link,
    pub(crate) watch: Watch,
    pub(crate) relays: Relays,
    pub(crate) rotation: Rotation,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// The outbox in the database of an application's own pool, with the default settings.
    ///
    /// Applications write through their pool; the store opens up to four connections of its own with
    /// the same options. The pool should use WAL, and `synchronous = FULL` (SQLite's default), as
    /// [`connect`](Self::connect) does.
    pub fn new(pool: SqlitePool) -> Self {
        Self::build(pool, SqliteConfig::default())
    }

    /// As [`new`](Self::new), with other settings.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Config`](outbox_core::StoreErrorKind::Config) when the settings cannot hold.
    pub fn with_config(pool: SqlitePool, config: SqliteConfig) -> Result<Self, StoreError> {
        config.validate()?;
        Ok(Self::build(pool, config))
    }

    /// Opens the database file, which is made when missing, and brings its tables up to date.
    ///
    /// The pool behind it uses WAL, so that readers and the writer do not wait for each other;
    /// `synchronous = FULL`, so that what is committed outlasts a power cut before a relay can see it;
    /// and waits up to `busy_for` for the write lock. [`pool`](Self::pool) hands it out.
    ///
    /// # Errors
    ///
    /// When the settings cannot hold, the file cannot be opened, or its tables are of a newer release.
    pub async fn connect(path: impl AsRef<Path>, config: SqliteConfig) -> Result<Self, StoreError> {
        config.validate()?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(config.busy_for);
        let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS_MAX).connect_with(options).await;
        let store = Self::build(pool.map_err(|error| store_error("open the database", error))?, config);
        store.migrate().await?;
        Ok(store)
    }

    fn build(pool: SqlitePool, config: SqliteConfig) -> Self {
        let statements = Arc::new(Statements::new(&config.table));
        let database = Arc::new(Database::new(pool));
        let shared = Shared {
            relay: Link::for_relay(&database, &statements),
            look: Link::for_operators(&database, &statements),
            side: Link::for_operators(&database, &statements),
            watch: Watch::new(&database, &statements, &config),
            relays: Relays::new(&database),
            rotation: Rotation::default(),
            inserts: inserts(&statements.enqueue),
            statements,
            database,
            config,
        };
        Self { shared: Arc::new(shared) }
    }

    /// The application's pool.
    pub fn pool(&self) -> &SqlitePool {
        &self.shared.database.pool
    }

    /// Brings the tables up to date. Safe to call at every start, and from several processes at once.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Schema`](outbox_core::StoreErrorKind::Schema) when the tables are of a newer
    /// release than this one.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let migrate = || async {
            let mut transaction = self.shared.side.begin_unchecked().await?;
            self.shared.statements.migrate(&mut transaction).await?;
            transaction.commit().await
        };
        retrying("migrate", self.shared.config.busy_for, migrate).await
    }

    /// What [`migrate`](Self::migrate) does to an empty database, as a script for teams that have a
    /// migrator of their own.
    pub fn migrations_sql(&self) -> String {
        self.shared.statements.migrations()
    }

    /// Hints to the relays of this process that there is something to claim. Other processes see a
    /// commit by themselves, within [`watch_interval`](SqliteConfig::watch_interval) or little more.
    pub fn wake(&self) {
        self.shared.watch.ring();
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn enter(&self, owner: Owner) -> Result<Box<dyn Presence>, StoreError> {
        self.shared.relays.enter(owner).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch, StoreError> {
        self.shared.take_from_the_dead().await?;
        self.shared.claim(request).await
    }

    async fn mark(&self, marks: &[Mark]) -> Result<MarkReport, StoreError> {
        self.shared.mark(marks).await
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, StoreError> {
        self.shared.renew(leases, lease_for).await
    }

    async fn wait(&self, at_most: Duration) -> Result<Wake, StoreError> {
        self.shared.wait(at_most).await
    }

    async fn sweep(&self, retention: &Retention) -> Result<Swept, StoreError> {
        self.shared.sweep(retention).await
    }

    async fn stats(&self, routed: &[Pattern]) -> Result<Stats, StoreError> {
        self.shared.stats(routed).await
    }
}
