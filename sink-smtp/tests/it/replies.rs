//! What each answer of a server means, over the wire.

use std::time::Duration;

use outbox_core::{ErrorScope, SendContext, SendErrorKind, Sink};

use crate::scripted::{Act, Scripted, cx, email, record, usual};

/// Codes mean what they mean by their stage, whatever the text says.
#[tokio::test]
async fn each_reply_is_classified_by_code_and_stage_and_never_by_its_text() {
    use ErrorScope::{Record, Sink as Whole};
    use SendErrorKind::{Permanent, Throttled, Transient, Unavailable};
    const DOWN: (SendErrorKind, ErrorScope) = (Unavailable, Whole);
    const LATER: (SendErrorKind, ErrorScope) = (Transient, Record);
    const NEVER: (SendErrorKind, ErrorScope) = (Permanent, Record);
    const BUSY: (SendErrorKind, ErrorScope) = (Throttled, Whole);
    // The texts lie.
    #[rustfmt::skip]
    let table = [
        // reply                            greeting AUTH MAIL   RCPT   DATA   DOT
        ("421 permanently ok",             [DOWN, DOWN, DOWN,  LATER, LATER, LATER]),
        ("450 5.1.1 no such user",         [DOWN, DOWN, LATER, LATER, LATER, LATER]),
        ("451 5.0.0 permanent failure",    [DOWN, DOWN, LATER, LATER, LATER, LATER]),
        ("452 5.0.0 never",                [DOWN, DOWN, BUSY,  LATER, LATER, LATER]),
        ("535 4.0.0 try again later",      [DOWN, DOWN, DOWN,  DOWN,  DOWN,  DOWN]),
        ("550 4.2.2 mailbox full, later",  [DOWN, DOWN, NEVER, NEVER, NEVER, NEVER]),
        ("552 4.0.0 temporary",            [DOWN, DOWN, NEVER, LATER, NEVER, NEVER]),
        ("554 4.7.1 try again in an hour", [DOWN, DOWN, NEVER, NEVER, NEVER, NEVER]),
    ];
    for (reply, expected) in table {
        for (point, expected) in ["GREETING", "AUTH", "MAIL", "RCPT", "DATA", "DOT"].into_iter().zip(expected)
        {
            let server =
                Scripted::start(move |at| if at.point == point { Act::Say(reply) } else { Act::Usual }).await;
            let config = server
                .config()
                .with_credentials(sink_smtp::Credentials::password("user", "s3cret"))
                .with_plain_credentials_allowed();
            let sink = sink_smtp::SmtpSink::connect(config).unwrap();
            let error = sink.send(&record(&email(&["ann@example.com"])), &cx()).await.unwrap_err();
            assert_eq!((error.kind(), error.scope()), expected, "{reply} at {point}: {error}");
            assert!(error.to_string().contains(&reply[..3]), "{error}");
            assert!(server.taken().is_empty());
        }
    }
}

/// K1: what the server says before the final dot is no acknowledgement.
#[tokio::test]
async fn a_mail_counts_as_taken_by_the_answer_to_the_final_dot_alone() {
    let server =
        Scripted::start(|at| if at.point == "DOT" { Act::Say("354 go on") } else { Act::Usual }).await;
    let error = server.sink().send(&record(&email(&["ann@example.com"])), &cx()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Transient, "{error}");

    let server =
        Scripted::start(|at| if at.point == "DATA" { Act::Say("250 got it") } else { Act::Usual }).await;
    let error = server.sink().send(&record(&email(&["ann@example.com"])), &cx()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Transient, "{error}");

    let server = Scripted::start(usual).await;
    let receipt = server.sink().send(&record(&email(&["ann@example.com"])), &cx()).await.unwrap();
    assert_eq!(receipt.as_str(), Some("250 2.0.0 queued as Q1"));
    assert!(server.taken()[0].message.ends_with("\r\nHi.\r\n.\r\n..dots\r\n\r\n"), "{:?}", server.taken());
}

/// K3: a mail that may have been taken goes out again as the same mail, byte for byte.
#[tokio::test]
async fn a_connection_cut_after_the_final_dot_sends_the_same_message_again() {
    let server =
        Scripted::start(|at| if at.point == "DOT" && at.connection == 0 { Act::Cut } else { Act::Usual })
            .await;
    let sink = server.sink();
    let mut record =
        record(&email(&["ann@example.com"]).html("<p>Hi</p>").attach("a.bin", "image/png", [0, 1]));
    record.created_at += Duration::from_secs(1_700_000_000);
    let error = sink.send(&record, &cx()).await.unwrap_err();
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Transient, ErrorScope::Record));
    assert!(error.to_string().ends_with("the mail may have been taken"), "{error}");
    record.attempts += 1;
    record.fence += 1;
    record.progress = error.progress().cloned();
    sink.send(&record, &cx()).await.unwrap();
    let taken = server.taken();
    assert_eq!(taken.len(), 2);
    assert_eq!(taken[0].message, taken[1].message);
    assert!(taken[0].message.contains(&format!("Message-ID: <{}@example.com>\r\n", record.id)));
    assert!(taken[0].message.contains("Date: Tue, 14 Nov 2023 22:13:20 +0000\r\n"));
}

/// K5: a server that does not answer costs no attempt before it has the mail to judge, and one after.
#[tokio::test]
async fn silence_ends_within_the_timeout_by_its_stage() {
    for (point, kind) in [
        ("GREETING", SendErrorKind::Unavailable),
        ("EHLO", SendErrorKind::Unavailable),
        ("MAIL", SendErrorKind::Transient),
        ("RCPT", SendErrorKind::Transient),
        ("DOT", SendErrorKind::Transient),
    ] {
        let server = Scripted::start(move |at| if at.point == point { Act::Hang } else { Act::Usual }).await;
        let config = server.config().with_connect_timeout(Duration::from_millis(200));
        let sink = sink_smtp::SmtpSink::connect(config).unwrap();
        let cx = SendContext::new(Duration::from_millis(400));
        let mail = record(&email(&["ann@example.com"]));
        let sending = sink.send(&mail, &cx);
        let error = tokio::time::timeout(cx.timeout, sending).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), kind, "{point}: {error}");
    }
}

#[tokio::test]
async fn a_server_that_breaks_off_or_speaks_no_smtp_kills_nothing() {
    let answers = [
        Act::Cut,
        Act::Say("what"),
        Act::Say("999 what"),
        Act::SayAndCut("250-half"),
        Act::Say("250 \u{fffd}"),
    ];
    for point in ["GREETING", "EHLO", "MAIL", "RCPT", "DATA", "DOT"] {
        for act in answers.clone() {
            let is_fine = matches!(&act, Act::Say(say) if say.starts_with("250 ")) && point != "DATA";
            let shown = format!("{act:?} at {point}");
            let server =
                Scripted::start(move |at| if at.point == point { act.clone() } else { Act::Usual }).await;
            let result = server.sink().send(&record(&email(&["ann@example.com"])), &cx()).await;
            if is_fine {
                // A greeting of 250 is odd, and a yes.
                assert!(result.is_ok(), "{shown}: {result:?}");
                continue;
            }
            let error = result.unwrap_err();
            let before = ["GREETING", "EHLO", "MAIL"].contains(&point);
            let expected = if before { SendErrorKind::Unavailable } else { SendErrorKind::Transient };
            assert_eq!(error.kind(), expected, "{shown}: {error}");
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_costs_no_attempt() {
    let port = Scripted::start(usual).await.port;
    let config = sink_smtp::SmtpConfig::new("127.0.0.1").with_port(port).with_tls(sink_smtp::Tls::Off);
    let sink = sink_smtp::SmtpSink::connect(config).unwrap();
    let error = sink.send(&record(&email(&["ann@example.com"])), &cx()).await.unwrap_err();
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Unavailable, ErrorScope::Sink), "{error}");
    assert_eq!(sink.check().await.unwrap_err().kind(), SendErrorKind::Unavailable);
}

/// K7: neither what the server repeats nor what the mail holds is shown.
#[tokio::test]
async fn errors_show_no_address_no_login_and_no_mail() {
    let server = Scripted::start(|at| match at.point.as_str() {
        "RCPT" => Act::Say("550 5.1.1 <ann@example.com>: no such user"),
        _ => Act::Usual,
    })
    .await;
    let error = server.sink().send(&record(&email(&["ann@example.com"])), &cx()).await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(!error.to_string().contains("ann@"), "{shown}");
    assert_eq!(
        error.to_string(),
        "1 of 1 recipients refused; recipient 1: 550 5.1.1 <address> no such user (at RCPT)"
    );

    let server = Scripted::start(|at| match at.point.as_str() {
        "AUTH" => Act::Say("535 not with s3cret"),
        _ => Act::Usual,
    })
    .await;
    let config = server
        .config()
        .with_credentials(sink_smtp::Credentials::password("user", "s3cret"))
        .with_plain_credentials_allowed();
    let sink = sink_smtp::SmtpSink::connect(config).unwrap();
    let error = sink.send(&record(&email(&["ann@example.com"])), &cx()).await.unwrap_err();
    let shown = format!("{error} {error:?} {sink:?}");
    assert!(!shown.contains("s3cret"), "{shown}");
}
