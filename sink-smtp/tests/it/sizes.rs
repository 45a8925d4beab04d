//! Sizes and characters that a server may not take.

use outbox_core::{SendErrorKind, Sink};
use sink_smtp::SmtpSink;

use crate::scripted::{Act, Scripted, cx, email, record, usual};

#[tokio::test]
async fn a_mail_beyond_the_configured_size_is_permanent_before_connecting() {
    let server = Scripted::start(usual).await;
    let sink = SmtpSink::connect(server.config().with_message_bytes_max(1_000)).unwrap();
    let large = email(&["ann@example.com"]).text("x".repeat(1_000));
    let error = sink.send(&record(&large), &cx()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Permanent);
    assert!(error.to_string().ends_with("more than the 1000 allowed"), "{error}");
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_mail_beyond_the_size_that_the_server_names_is_permanent_before_mail() {
    let server = Scripted::start(usual).await;
    let sink = server.sink();
    let large = email(&["ann@example.com"]).attach("a", "image/png", vec![0; 100_000]);
    let error = sink.send(&record(&large), &cx()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Permanent);
    assert!(error.to_string().contains("and the server takes 100000"), "{error}");
    assert!(server.said("MAIL").is_empty());

    let fits = email(&["ann@example.com"]).attach("a", "image/png", vec![0; 60_000]);
    sink.send(&record(&fits), &cx()).await.unwrap();
    assert!(server.said("MAIL")[0].contains(" SIZE=8"), "{:?}", server.said("MAIL"));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_server_without_a_size_limit_is_asked_without_size() {
    let server =
        Scripted::start(|at| if at.point == "EHLO" { Act::Say("250 scripted") } else { Act::Usual }).await;
    let large = email(&["ann@example.com"]).attach("a", "image/png", vec![0; 100_000]);
    server.sink().send(&record(&large), &cx()).await.unwrap();
    assert_eq!(server.said("MAIL"), ["MAIL FROM:<shop@example.com>"]);
}

#[tokio::test]
async fn addresses_beyond_ascii_go_by_smtputf8_or_are_refused() {
    let international = record(&email(&["änn@bücher.example"]));
    let server = Scripted::start(usual).await;
    server.sink().send(&international, &cx()).await.unwrap();
    assert_eq!(server.said("MAIL"), ["MAIL FROM:<shop@example.com> BODY=8BITMIME SMTPUTF8"]);
    assert_eq!(server.said("RCPT"), ["RCPT TO:<änn@xn--bcher-kva.example>"]);

    let old =
        Scripted::start(|at| if at.point == "EHLO" { Act::Say("250 scripted") } else { Act::Usual }).await;
    let error = old.sink().send(&international, &cx()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Permanent);
    assert!(error.to_string().contains("the server lacks SMTPUTF8"), "{error}");
    // A domain alone has a spelling in ASCII.
    old.sink().send(&record(&email(&["ann@bücher.example"])), &cx()).await.unwrap();
    assert_eq!(old.taken()[0].to, ["ann@xn--bcher-kva.example"]);
}

#[tokio::test]
async fn a_ready_message_in_eight_bits_goes_by_8bitmime_or_is_refused() {
    let mut eight_bit = record(&email(&["ann@example.com"]));
    eight_bit.payload = outbox_core::Payload::Bytes("From: a@example.com\r\n\r\nGrüße\r\n".into());
    eight_bit.content_type = "message/rfc822; charset=utf-8".into();
    eight_bit.headers.insert("outbox-mail-from".into(), "<>".into());
    eight_bit.headers.insert("Outbox-Rcpt-To".into(), "ann@example.com".into());
    let server = Scripted::start(usual).await;
    server.sink().send(&eight_bit, &cx()).await.unwrap();
    assert_eq!(server.said("MAIL"), ["MAIL FROM:<> BODY=8BITMIME"]);
    let old =
        Scripted::start(|at| if at.point == "EHLO" { Act::Say("250 scripted") } else { Act::Usual }).await;
    let error = old.sink().send(&eight_bit, &cx()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Permanent);
    assert!(error.to_string().contains("the server lacks 8BITMIME"), "{error}");
    assert!(old.said("MAIL").is_empty());
}
