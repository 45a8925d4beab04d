//! Runs a check that has to fail.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;

/// Panics when the check passes; a check that hangs has failed as well.
pub(crate) async fn must_fail(at_most: Duration, check: impl Future<Output = ()>) {
    let ended = tokio::time::timeout(at_most, AssertUnwindSafe(check).catch_unwind()).await;
    assert!(!matches!(ended, Ok(Ok(()))), "the check passed on an implementation that breaks its rule");
}
