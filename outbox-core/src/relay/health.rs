//! What a readiness probe asks of a relay.

use tokio::sync::watch;

use crate::Pattern;

/// How a relay stands. A snapshot; ask [`HealthWatch`] for the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Whether the relay runs: set once it has entered its store, and taken back when it stops.
    pub running: bool,
    /// The last error of the store, while it lasts.
    pub store_error: Option<String>,
    /// Each route, in the order in which they were added.
    pub routes: Vec<RouteHealth>,
}

impl Health {
    /// Whether the relay runs, its store answers and every sink is fit.
    pub fn is_ready(&self) -> bool {
        self.running
            && self.store_error.is_none()
            && self.routes.iter().all(|route| route.sink_error.is_none())
    }
}

/// How the sink of one route stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteHealth {
    /// The route.
    pub pattern: Pattern,
    /// The name of its sink.
    pub sink: String,
    /// Why the sink is taken to be down: its own words at its check or at a send. Nothing is handed to
    /// it but probes; the other routes go on.
    pub sink_error: Option<String>,
}

/// Follows the health of a relay from elsewhere, such as an HTTP handler for readiness.
#[derive(Clone, Debug)]
pub struct HealthWatch(pub(super) watch::Receiver<Health>);

impl HealthWatch {
    /// How the relay stands now.
    pub fn now(&self) -> Health {
        let mut health = self.0.borrow().clone();
        // A relay that was dropped, or that ended with an error, cannot say so any more.
        health.running &= self.0.has_changed().is_ok();
        health
    }

    /// Waits until it passes a test, such as [`Health::is_ready`]; false when the relay has ended.
    pub async fn wait_for(&mut self, test: impl FnMut(&Health) -> bool) -> bool {
        self.0.wait_for(test).await.is_ok()
    }
}
