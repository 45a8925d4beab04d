//! The store: a pool, the statements of one outbox, and the trait that relays use.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use outbox_core::{
    ClaimBatch, ClaimRequest, Lease, Mark, MarkReport, Pattern, Retention, Stats, Store, StoreError, Swept,
    Wake,
};
use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction, postgres::PgArguments, query::Query};

use crate::{PostgresConfig, error, schema::Statements, wake::Bell};

/// Every transaction of the store's own opens so, whatever the database's defaults.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
    SET LOCAL search_path = pg_catalog; SET LOCAL statement_timeout = '30s'; SET LOCAL jit = off; \
    SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off";

/// How often a transaction of the store's own is run again after it met another.
const RUNS_MAX: u32 = 10;

/// An outbox in PostgreSQL. Clones share it.
#[derive(Clone)]
pub struct PostgresStore {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) pool: PgPool,
    pub(crate) config: PostgresConfig,
    pub(crate) sql: Statements,
    pub(crate) bell: Bell,
    /// The first of the advisory locks that this outbox uses.
    pub(crate) lock_base: i64,
}

impl PostgresStore {
    /// An outbox in the table `public.outbox` of the pool's database.
    pub fn new(pool: PgPool) -> Self {
        let config = PostgresConfig::default();
        Self::assemble(pool, config)
    }

    /// An outbox with settings of its own.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Config`](outbox_core::StoreErrorKind::Config) for a name that is no plain identifier.
    pub fn with_config(pool: PgPool, config: PostgresConfig) -> Result<Self, StoreError> {
        config.check()?;
        Ok(Self::assemble(pool, config))
    }

    fn assemble(pool: PgPool, config: PostgresConfig) -> Self {
        let sql = Statements::new(&config);
        // Two outboxes that share a number only make each other's claims come again a moment later.
        let name = format!("outbox {}.{}", config.schema, config.table);
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let lock_base = (hash & !0x7ff).cast_signed() | 0x400;
        Self { shared: Arc::new(Shared { pool, config, sql, bell: Bell::default(), lock_base }) }
    }

    pub(crate) async fn begin(&self) -> Result<Transaction<'static, Postgres>, StoreError> {
        self.shared.pool.begin_with(BEGIN).await.map_err(error::doing("open a transaction"))
    }

    /// A statement of this outbox.
    pub(crate) fn query(&self, sql: &Arc<str>) -> Query<'static, Postgres, PgArguments> {
        sqlx::query(AssertSqlSafe(Arc::clone(sql))).persistent(self.shared.config.named_statements)
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

/// Runs a transaction of the store's own again when it met another.
macro_rules! again {
    ($run:expr) => {{
        let mut runs = 1;
        loop {
            match $run.await {
                Err(error) if error::met_another(&error) && runs < RUNS_MAX => runs += 1,
                done => break done,
            }
        }
    }};
}

#[async_trait]
impl Store for PostgresStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch, StoreError> {
        again!(self.claim_once(request))
    }

    async fn mark(&self, marks: &[Mark]) -> Result<MarkReport, StoreError> {
        again!(self.mark_once(marks))
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, StoreError> {
        again!(self.renew_once(leases, lease_for))
    }

    async fn wait(&self, at_most: Duration) -> Result<Wake, StoreError> {
        Ok(self.wait_for_hint(at_most).await)
    }

    async fn sweep(&self, retention: &Retention) -> Result<Swept, StoreError> {
        again!(self.sweep_once(retention))
    }

    async fn stats(&self, routed: &[Pattern]) -> Result<Stats, StoreError> {
        again!(self.stats_once(routed))
    }
}
