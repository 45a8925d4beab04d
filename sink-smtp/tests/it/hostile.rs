//! Nothing that a record contains becomes protocol.

use outbox_core::{Payload, Record, SendErrorKind, Sink, Uuid};
use serde_json::{Value, json};
use sink_smtp::Email;

use crate::scripted::{Scripted, cx, unchecked, usual};

/// An email in JSON with `hostile` at one place.
fn email_with(place: &str, hostile: &str) -> Value {
    let mut email = json!({
        "from": {"name": "Shop", "address": "shop@example.com"},
        "to": [{"name": "Ann", "address": "ann@example.com"}],
        "subject": "Hello",
        "html": "<img src=\"cid:logo\">",
        "attachments": [{"name": "a.txt", "content_type": "text/plain", "content": "aGk="}],
        "inline": [{"id": "logo", "content_type": "image/png", "content": "aGk="}],
        "headers": {"X-Campaign": "one"},
        "list_unsubscribe": {"url": "https://example.com/u", "mailto": "u@example.com"},
    });
    match place {
        "header name" => email["headers"] = json!({hostile: "one"}),
        "bcc" | "cc" | "reply_to" => email[place] = json!([hostile]),
        "envelope_from" => email[place] = json!(hostile),
        _ => *email.pointer_mut(place).unwrap() = json!(hostile),
    }
    email
}

/// K6: permanent, before connecting, for every field and every kind of line break.
#[tokio::test]
async fn line_breaks_and_nul_are_permanent_before_connecting() {
    let server = Scripted::start(usual).await;
    let sink = server.sink();
    let places = [
        ("/from/name", "Shop"),
        ("/from/address", "shop@example.com"),
        ("/to/0/name", "Ann"),
        ("/to/0/address", "ann@example.com"),
        ("bcc", "eve@example.com"),
        ("cc", "eve@example.com"),
        ("reply_to", "eve@example.com"),
        ("envelope_from", "bounce@example.com"),
        ("/subject", "Hello"),
        ("/attachments/0/name", "a.txt"),
        ("/attachments/0/content_type", "text/plain"),
        ("/inline/0/id", "logo"),
        ("/inline/0/content_type", "image/png"),
        ("/headers/X-Campaign", "one"),
        ("header name", "X-Other"),
        ("/list_unsubscribe/url", "https://example.com/u"),
        ("/list_unsubscribe/mailto", "u@example.com"),
    ];
    for (place, usual) in places {
        for hostile in
            ["\r\nBcc: eve@example.com", "\n", "\r", "\0", "\r\n.\r\nMAIL FROM:<>", "\u{85}", "\u{2028}"]
        {
            for text in
                [format!("{usual}{hostile}x"), format!("{usual}{hostile}"), format!("{hostile}{usual}")]
            {
                let json = email_with(place, &text);
                let error = sink.send(&unchecked(&json.to_string()), &cx()).await.unwrap_err();
                assert_eq!(error.kind(), SendErrorKind::Permanent, "{place} {text:?}: {error}");
                assert!(!error.to_string().contains("eve@"), "{error}");
                // What the sink refuses the builder has refused before it was enqueued.
                let email: Email = serde_json::from_value(json).unwrap();
                assert!(email.record("mail.test").is_err(), "{place} {text:?}");
            }
        }
        assert!(sink.send(&unchecked(&email_with(place, usual).to_string()), &cx()).await.is_ok(), "{place}");
    }
    assert_eq!(server.connections(), 1, "a refused mail made a connection");
}

/// K6: names of headers that the email or the transport sets are not for the taking.
#[tokio::test]
async fn headers_that_the_email_sets_cannot_be_set_again() {
    let server = Scripted::start(usual).await;
    for name in [
        "Bcc",
        "to",
        "SUBJECT",
        "Content-Type",
        "Message-ID",
        "DKIM-Signature",
        "Received",
        "",
        "a b",
        "a:b",
        "ä",
    ] {
        let json = email_with("header name", name).to_string();
        let error = server.sink().send(&unchecked(&json), &cx()).await.unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::Permanent, "{name}: {error}");
    }
    assert_eq!(server.connections(), 0);
}

fn ready(message: impl Into<Vec<u8>>) -> Record {
    let mut record = Record::new(1, Uuid::now_v7(), "mail.test", Payload::Bytes(message.into()));
    record.content_type = "message/rfc822".into();
    record.headers.insert("outbox-mail-from".into(), "shop@example.com".into());
    record.headers.insert("outbox-rcpt-to".into(), "ann@example.com, bob@example.com".into());
    record
}

#[tokio::test]
async fn a_ready_message_goes_as_it_is_with_an_id_and_a_date_when_it_has_none() {
    let server = Scripted::start(usual).await;
    let sink = server.sink();
    let whole = "From: a@example.com\r\nMessage-ID: <own@example.com>\r\nDate: Thu, 1 Jan 1970 00:00:00 +0000\r\n\r\n.dot\r\n";
    sink.send(&ready(whole), &cx()).await.unwrap();
    let bare = ready("From: a@example.com\nSubject: b\n\nbody\n");
    sink.send(&bare, &cx()).await.unwrap();
    let taken = server.taken();
    assert_eq!(taken[0].message, whole);
    assert_eq!(taken[0].to, ["ann@example.com", "bob@example.com"]);
    let expected = format!(
        "Date: Thu, 01 Jan 1970 00:00:00 +0000\r\nMessage-ID: <{}@example.com>\r\n\
         From: a@example.com\r\nSubject: b\r\n\r\nbody\r\n",
        bare.id
    );
    assert_eq!(taken[1].message, expected);
}

/// K6: a ready message that servers could cut in two, or that lacks what it needs, is permanent.
#[tokio::test]
async fn a_ready_message_that_cannot_go_is_permanent_before_connecting() {
    let server = Scripted::start(usual).await;
    let sink = server.sink();
    for message in [
        "From: a@example.com\r\n\r\nbody\n.\nMAIL FROM:<>\r\n",
        "From: a@example.com\r\n\r\nbody\r.\r\n",
        "From: a@example.com\r\n\r\nbo\0dy\r\n",
        "no header\r\n\r\nbody\r\n",
        "Subject: from nobody\r\n\r\nbody\r\n",
        "From: a@example.com\r\nBcc: eve@example.com\r\n\r\nbody\r\n",
        "",
        &format!("From: a@example.com\r\n\r\n{}\r\n", "x".repeat(999)),
    ] {
        let error = sink.send(&ready(message), &cx()).await.unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::Permanent, "{message:?}: {error}");
    }
    for (name, value) in [
        ("outbox-rcpt-to", "ann@example.com\r\nDATA"),
        ("outbox-rcpt-to", ""),
        ("outbox-rcpt-to", "ann@example.com,,bob@example.com"),
        ("outbox-mail-from", "shop@example.com> SIZE=1"),
    ] {
        let mut record = ready("From: a@example.com\r\n\r\nbody\r\n");
        record.headers.insert(name.into(), value.into());
        let error = sink.send(&record, &cx()).await.unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::Permanent, "{value:?}: {error}");
    }
    for name in ["outbox-rcpt-to", "outbox-mail-from"] {
        let mut record = ready("From: a@example.com\r\n\r\nbody\r\n");
        record.headers.remove(name);
        let error = sink.send(&record, &cx()).await.unwrap_err();
        assert_eq!(error.to_string(), format!("header {name} is missing"));
    }
    assert_eq!(server.connections(), 0);
}

/// K4: what is no email can never be accepted. K7: and its text is not shown.
#[tokio::test]
async fn a_payload_that_is_no_email_is_permanent_and_not_shown() {
    let server = Scripted::start(usual).await;
    let sink = server.sink();
    for json in [
        r#"{"hush": 1}"#,
        r#"["hush"]"#,
        r#"{"from": "a@example.com", "to": "b@example.com", "hush": "hush"}"#,
        r#"{"from": "hush", "to": "b@example.com"}"#,
        r#"{"from": "a@example.com", "subject": "hush"}"#,
        r#"{"from": "a@example.com", "to": "b@example.com", "attachments": [{"name": "a", "content": "hush!"}]}"#,
        r#"{"from": "a@example.com", "to": "b@example.com", "attachments": [{"name": "a", "content_type": "multipart/mixed", "content": ""}]}"#,
        r#"{"from": "a@example.com", "to": "b@example.com", "list_unsubscribe": {"url": "http://hush"}}"#,
    ] {
        let error = sink.send(&unchecked(json), &cx()).await.unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::Permanent, "{json}: {error}");
        assert!(!format!("{error:?}").contains("hush"), "{error:?}");
    }
    let mut other = unchecked("{}");
    other.content_type = "text/plain".into();
    assert_eq!(sink.send(&other, &cx()).await.unwrap_err().kind(), SendErrorKind::Permanent);
    assert_eq!(server.connections(), 0);
}
