//! Hints that there is something to claim, within this process. Across processes polling finds it.

use std::time::Duration;

use outbox_core::Wake;
use tokio::sync::Notify;

use crate::PostgresStore;

#[derive(Default)]
pub(crate) struct Bell(Notify);

impl Bell {
    pub(crate) fn ring(&self) {
        self.0.notify_one();
    }

    pub(crate) async fn wait(&self, at_most: Duration) -> Wake {
        match tokio::time::timeout(at_most, self.0.notified()).await {
            Ok(()) => Wake::Hint,
            Err(_) => Wake::Timeout,
        }
    }
}

impl PostgresStore {
    /// Wakes a relay that waits on this store, after a commit. A hint: nothing is lost without it.
    pub fn wake(&self) {
        self.shared.bell.ring();
    }
}
