//! R4: what cannot hold is refused at start, by name.

use std::time::Duration;

use outbox_core::relay::{Relay, RelayError, Route};

use crate::world::*;

async fn refused(
    change: impl FnOnce(Relay<outbox_core::MemoryStore>) -> Relay<outbox_core::MemoryStore>,
) -> String {
    let error = start(change(Relay::new(outbox()))).end().await.unwrap_err();
    assert!(matches!(error, RelayError::Config(_)));
    error.to_string()
}

/// R4: settings that cannot hold are refused at start, by name.
#[tokio::test(start_paused = true)]
async fn settings_that_cannot_hold_are_refused_by_name() {
    let sink = TestSink::accepting;
    let check = |text: String, expected: &str| assert!(text.contains(expected), "{text}");
    check(refused(|relay| relay).await, "it has no route");
    check(refused(|relay| relay.route("a*", sink())).await, "\"a*\" is no pattern");
    check(refused(|relay| relay.route("a", sink()).route("a", sink())).await, "a has two routes");
    check(
        refused(|relay| relay.route("a", Route::to(sink()).concurrency(0))).await,
        "route a: its concurrency is zero",
    );
    check(
        refused(|relay| relay.route("a", Route::to(sink()).send_timeout(9 * SECOND))).await,
        "route a: its send_timeout of 9s does not fit a lease of 10s",
    );
    check(
        refused(|relay| relay.route("a", sink()).config(config().with_poll_interval(Duration::ZERO))).await,
        "poll_interval is zero",
    );
}
