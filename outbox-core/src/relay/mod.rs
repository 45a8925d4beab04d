//! The relay: claims records, sends them and marks the outcome.
//!
//! ```
//! use outbox_core::{MemorySink, MemoryStore, NewRecord, relay::Relay};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let outbox = MemoryStore::new();
//! let mut tx = outbox.begin();
//! outbox.enqueue(&mut tx, NewRecord::json("order.placed", "o-17")?).await?;
//! tx.commit();
//!
//! let sink = MemorySink::new();
//! let sent = async {
//!     while sink.received().is_empty() {
//!         tokio::task::yield_now().await;
//!     }
//! };
//! // A service would pass its shutdown signal.
//! Relay::new(outbox).route("order.*", sink.clone()).run(sent).await?;
//! # Ok(()) }
//! ```
//!
//! Claim, send and mark overlap: the next claim is under way while records are being sent, and
//! outcomes are gathered and written together. How much is held in memory follows from what the
//! sinks take, so a slow sink slows its own claims and nothing else.

mod breaker;
mod config;
mod driver;
mod health;
mod held;
mod lane;
mod rate;
mod route;
mod send;
mod store_calls;
pub mod telemetry;

use std::{future::Future, str::FromStr, sync::Arc};

use tokio::sync::watch;

pub use config::{RelayConfig, RelayError};
pub use health::{Health, HealthWatch, RouteHealth};
pub use rate::RateLimit;
pub use route::Route;

use crate::{Pattern, Router, Store};

/// The loop that claims, sends and marks.
///
/// Any number of relays may run on one outbox, in one process or in many.
#[derive(Debug)]
pub struct Relay<S> {
    store: Arc<S>,
    config: RelayConfig,
    routes: Router<Route>,
    refused: Option<String>,
    seed: Option<u64>,
    health: watch::Sender<Health>,
}

impl<S: Store> Relay<S> {
    /// A relay on `store`, without a route yet.
    pub fn new(store: S) -> Self {
        Self {
            store: Arc::new(store),
            config: RelayConfig::default(),
            routes: Router::default(),
            refused: None,
            seed: None,
            health: watch::Sender::default(),
        }
    }

    /// Sets what the relay goes by.
    #[must_use]
    pub fn config(mut self, config: RelayConfig) -> Self {
        self.config = config;
        self
    }

    /// Sends the records of these kinds through a sink: an exact kind, a prefix as `order.*`, or `*`
    /// for every kind without a route of its own. The most specific pattern wins.
    ///
    /// A pattern that cannot be read or that is taken is an error of [`run`](Self::run).
    #[must_use]
    pub fn route(mut self, pattern: &str, route: impl Into<Route>) -> Self {
        let added = Pattern::from_str(pattern).map_err(|error| error.to_string()).and_then(|pattern| {
            let text = pattern.to_string();
            self.routes.insert(pattern, route.into()).map_err(|_| format!("{text} has two routes"))
        });
        if let Err(why) = added {
            self.refused.get_or_insert(why);
        }
        self
    }

    /// Makes every random choice follow from `seed`: for tests that replay a run.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Follows the relay's health from elsewhere.
    pub fn health(&self) -> HealthWatch {
        HealthWatch(self.health.subscribe())
    }

    /// Runs until `shutdown` completes, then stops within [`RelayConfig::grace`]: no new claims, what
    /// is with a sink is finished or abandoned, outcomes are written, what was never handed to a sink
    /// is given back.
    ///
    /// # Cancellation
    ///
    /// Dropping the future abandons what is being sent. Nothing is lost: it goes out again when its
    /// lease ends, or when the store sees that the run is over.
    ///
    /// # Errors
    ///
    /// At start: settings that cannot hold, or tables that are missing or of another version. A
    /// database that is away is no error: the relay waits for it.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), RelayError> {
        if let Some(why) = self.refused {
            return Err(RelayError::Config(why));
        }
        let random = self.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let driver = driver::Driver::new(self.store, self.config, &self.routes, random, self.health)?;
        driver.run(shutdown).await
    }
}
