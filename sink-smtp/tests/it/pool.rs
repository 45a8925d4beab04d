//! Connections: kept, bounded, and good for another mail or replaced.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use outbox_core::{ErrorScope, SendContext, SendErrorKind, Sink};
use sink_smtp::SmtpSink;

use crate::scripted::{Act, Scripted, cx, email, record, usual};

#[tokio::test]
async fn one_connection_serves_one_mail_after_the_other_up_to_its_number() {
    let server = Scripted::start(usual).await;
    let config = server.config().with_mails_per_connection_max(NonZeroU32::new(5).unwrap());
    let sink = SmtpSink::connect(config).unwrap();
    sink.check().await.unwrap();
    for _ in 0..11 {
        sink.send(&record(&email(&["ann@example.com"])), &cx()).await.unwrap();
    }
    assert_eq!((server.connections(), server.taken().len()), (3, 11));
}

/// A server that closed an idle connection costs no attempt: the mail goes out at that one.
#[tokio::test]
async fn a_connection_closed_while_idle_is_replaced_at_that_attempt() {
    // It says so and closes, closes without a word, or says so only when spoken to.
    for first in [Some(Act::SayAndCut("421 4.4.2 idle for too long")), Some(Act::Cut), None] {
        let server = Scripted::start(move |at| match (&first, at.point.as_str()) {
            (Some(act), "MAIL") if at.connection == 0 => act.clone(),
            (None, "NOOP") if at.connection == 0 => Act::SayAndCut("250 ok"),
            _ => Act::Usual,
        })
        .await;
        let sink = server.sink();
        sink.check().await.unwrap();
        // The second check speaks to the connection that is there.
        sink.check().await.unwrap();
        sink.send(&record(&email(&["ann@example.com"])), &cx()).await.unwrap();
        assert_eq!((server.connections(), server.taken().len()), (2, 1));
    }
}

#[tokio::test]
async fn of_several_dead_connections_each_mail_replaces_its_own() {
    let dead = Arc::new(AtomicBool::new(false));
    let is_dead = dead.clone();
    let server = Scripted::start(move |at| {
        if at.point == "MAIL" && at.connection < 3 && is_dead.load(Ordering::SeqCst) {
            Act::Cut
        } else {
            Act::Usual
        }
    })
    .await;
    let sink = server.sink();
    let mail = record(&email(&["ann@example.com"]));
    let cx = cx();
    let (a, b, c) = tokio::join!(sink.send(&mail, &cx), sink.send(&mail, &cx), sink.send(&mail, &cx));
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    assert_eq!(server.connections(), 3);
    dead.store(true, Ordering::SeqCst);
    sink.send(&mail, &cx).await.unwrap();
    assert_eq!((server.connections(), server.taken().len()), (4, 4));
}

#[tokio::test]
async fn a_connection_idle_for_longer_than_allowed_is_not_used() {
    let server = Scripted::start(usual).await;
    let sink = SmtpSink::connect(server.config().with_idle_max(Duration::ZERO)).unwrap();
    for _ in 0..3 {
        sink.send(&record(&email(&["ann@example.com"])), &cx()).await.unwrap();
    }
    assert_eq!(server.connections(), 3);
}

/// A mail that waits for a connection in vain was never written to the wire: no attempt is counted.
#[tokio::test]
async fn no_more_connections_are_open_than_allowed() {
    let server = Scripted::start(|at| if at.point == "DATA" { Act::Hang } else { Act::Usual }).await;
    let config = server.config().with_connections_max(NonZeroUsize::MIN);
    let sink = SmtpSink::connect(config).unwrap();
    assert_eq!(sink.limits().batches_in_flight.get(), 1);
    let mail = record(&email(&["ann@example.com"]));
    let (long, short) =
        (SendContext::new(Duration::from_millis(800)), SendContext::new(Duration::from_millis(300)));
    let (first, second) = tokio::join!(sink.send(&mail, &long), sink.send(&mail, &short));
    assert_eq!(first.unwrap_err().kind(), SendErrorKind::Transient);
    let error = second.unwrap_err();
    // Nor does it count against the server.
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Unavailable, ErrorScope::Record), "{error}");
    assert_eq!(server.connections(), 1);
}

/// After a refusal the connection is as good as before.
#[tokio::test]
async fn a_refused_mail_leaves_the_connection_for_the_next() {
    for point in ["MAIL", "RCPT", "DATA", "DOT"] {
        let bad_mail = AtomicBool::new(false);
        let server = Scripted::start(move |at| {
            if at.point == "MAIL" {
                bad_mail.store(at.line.contains("bad"), Ordering::SeqCst);
            }
            let refuses = at.point == point && bad_mail.load(Ordering::SeqCst);
            if refuses { Act::Say("550 5.7.1 no") } else { Act::Usual }
        })
        .await;
        let sink = server.sink();
        let bad = email(&["ann@example.com"]).envelope_from("bad@example.com");
        let error = sink.send(&record(&bad), &cx()).await.unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::Permanent, "{point}: {error}");
        sink.send(&record(&email(&["ann@example.com"])), &cx()).await.unwrap();
        assert_eq!((server.connections(), server.taken().len()), (1, 1), "{point}");
    }
}

#[tokio::test]
async fn closing_says_goodbye_and_no_mail_follows() {
    let server = Scripted::start(usual).await;
    let sink = server.sink();
    sink.send(&record(&email(&["ann@example.com"])), &cx()).await.unwrap();
    sink.close(Duration::from_secs(1)).await;
    assert_eq!(server.said("QUIT").len(), 1);
    let error = sink.send(&record(&email(&["ann@example.com"])), &cx()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Unavailable);
}

#[tokio::test]
async fn times_without_end_are_times() {
    let server = Scripted::start(usual).await;
    let config = server.config().with_connect_timeout(Duration::MAX).with_idle_max(Duration::MAX);
    let sink = SmtpSink::connect(config).unwrap();
    sink.check().await.unwrap();
    sink.send(&record(&email(&["ann@example.com"])), &SendContext::new(Duration::MAX)).await.unwrap();
    sink.close(Duration::MAX).await;
    assert_eq!((server.connections(), server.taken().len()), (1, 1));
}
