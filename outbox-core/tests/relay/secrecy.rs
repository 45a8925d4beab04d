//! K7: what the relay logs.

use std::{
    fmt::{Debug, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::ThreadId,
    time::Duration,
};

use outbox_core::{
    ErrorScope, SendError, State,
    relay::{Relay, Route},
};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use crate::world::*;

/// Keeps every word of every span and event of one thread. It stands for the whole process, since what
/// other threads see first is cached for all.
#[derive(Clone)]
struct Ear(Arc<Mutex<String>>, ThreadId);

impl Visit for Ear {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if std::thread::current().id() != self.1 {
            return;
        }
        let _ = writeln!(self.0.lock().unwrap(), "{field}={value:?}");
    }
}

impl Subscriber for Ear {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        span.record(&mut self.clone());
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        values.record(&mut self.clone());
    }
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// K7: a whole run with every way to fail shows no payload, no header and no part of a URL that may hide one.
#[tokio::test(start_paused = true)]
async fn no_log_shows_a_payload_or_a_secret() {
    let ear = Ear(Arc::default(), std::thread::current().id());
    tracing::subscriber::set_global_default(ear.clone()).unwrap();
    tracing::callsite::rebuild_interest_cache();
    let store = outbox();
    let turn = AtomicUsize::new(0);
    let sink = TestSink::new(move |_| match turn.fetch_add(1, Ordering::Relaxed) % 8 {
        0 => Do::Fail(MILLI, SendError::transient("odd")),
        1 => Do::Fail(MILLI, SendError::unavailable("down").with_scope(ErrorScope::Destination)),
        2 => Do::Fail(MILLI, SendError::permanent("no")),
        3 => Do::Panic("bug"),
        4 => Do::Hang,
        5 => Do::Forget,
        _ => Do::Accept(Duration::ZERO),
    });
    let records = (0..60).map(|at| {
        let new = outbox_core::NewRecord::json("a", "marker-payload").unwrap();
        let new = new.header("authorization", "marker-header");
        new.destination(format!("https://u:marker-password@h{}.test/marker-path?marker-query", at % 5))
    });
    enqueue(&store, records).await;
    store.by_hand().insert_undecodable("a");
    let relay = start(Relay::new(store.clone()).seed(5).route("*", Route::to(sink).attempts_max(3)));
    let over = within(600 * SECOND, async || {
        count(&store, State::Sent).await + count(&store, State::Dead).await == 61
    });
    assert!(over.await);
    relay.stop().await.unwrap();
    let said = ear.0.lock().unwrap();
    for expected in ["a record is dead", "a destination is down", "a row cannot be read", "relay stopped"] {
        assert!(said.contains(expected), "the log lacks {expected:?}");
    }
    let told = said.lines().find(|line| line.contains("marker"));
    assert_eq!(told, None);
}
