//! Checks that nothing of a record becomes protocol, and nothing secret becomes text: K6, K7.

use super::{
    Fault, SinkHarness,
    trial::{Trial, can, text_of},
};
use crate::{ErrorScope, Record, SendErrorKind};

/// The name that must not come up at the destination.
const INJECTED: &str = "outbox-injected";

/// K6: line breaks, NUL and the like in any field are refused as permanent or carried as content; they never
/// become a header, a second message or another destination.
pub async fn nothing_in_a_record_becomes_protocol<H: SinkHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let spells = [
        format!("a\r\n{INJECTED}: 1"),
        format!("a\n{INJECTED}: 1\n\n"),
        format!("a\r{INJECTED}: 1"),
        format!("a\0{INJECTED}: 1"),
        format!("a\r\n\r\n{INJECTED}: 1\r\n.\r\n"),
        format!("a\u{2028}{INJECTED}: 1"),
    ];
    type Cast = fn(&mut Record, String);
    let fields: [(&str, Cast); 6] = [
        ("kind", |record, spell| record.kind = spell),
        ("key", |record, spell| record.key = Some(spell)),
        ("content type", |record, spell| record.content_type = format!("text/plain;{spell}")),
        ("header value", |record, spell| _ = record.headers.insert("x-note".into(), spell)),
        ("header name", |record, spell| _ = record.headers.insert(spell, "1".into())),
        ("destination", |record, spell| {
            if let Some(destination) = &mut record.destination {
                destination.push_str(&spell);
            }
        }),
    ];
    let mut acknowledged = 0;
    for (field, cast) in fields {
        for spell in &spells {
            let mut record = harness.record();
            cast(&mut record, spell.clone());
            match trial.send(&record).await {
                Ok(_) => acknowledged += 1,
                Err(error) => assert_eq!(
                    (error.kind(), error.scope()),
                    (SendErrorKind::Permanent, ErrorScope::Record),
                    "{spell:?} in the {field}: {error}"
                ),
            }
        }
    }
    trial.send(&harness.record()).await.expect("other records go");
    let received = harness.received().await;
    for message in &received {
        for name in &message.names {
            assert!(!name.trim().eq_ignore_ascii_case(INJECTED), "a header was injected");
        }
    }
    assert_eq!(received.len(), acknowledged + 1, "a message was injected, or lost");
}

/// K7: no payload, header value or credential is in an error, in its sources, or in any `Debug`.
pub async fn no_secret_is_shown<H: SinkHarness>(harness: &H) {
    let trial = Trial::new(harness).await;
    let mut secrets = harness.secrets();
    assert!(!secrets.is_empty(), "the harness names what must not be shown");
    let header = "header-value-not-to-be-shown";
    secrets.push(header.to_owned());
    let see = |what: &str, text: &str| {
        for (at, secret) in secrets.iter().enumerate() {
            assert!(!text.contains(secret.as_str()), "{what} shows secret {at}");
        }
    };
    see("the sink's Debug", &format!("{:?}", trial.sink));
    let marked = |mut record: Record| {
        record.headers.insert("x-note".into(), header.into());
        record
    };
    see("a record's Debug", &format!("{:?}", marked(harness.record())));
    for fault in [Fault::RefusedForever, Fault::RefusedForNow, Fault::Throttled, Fault::Cut, Fault::Down] {
        if can::<H>(fault) {
            harness.fail(fault, None).await;
            let error = trial.send(&marked(harness.record())).await.expect_err("it fails");
            see(&format!("the error while {fault:?}"), &text_of(&error));
            harness.heal().await;
        }
    }
    for (what, record) in harness.unacceptable() {
        if let Err(error) = trial.send(&record).await {
            see(what, &text_of(&error));
        }
    }
    trial.send(&marked(harness.record())).await.expect("a good record is sent");
    see("the sink's Debug after sends", &format!("{:?}", trial.sink));
}
