//! Against a real MTA: what arrives is parsed by a parser that has nothing to do with the sink.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use mailparse::{MailHeaderMap, ParsedMail};
use outbox_core::{ErrorScope, Payload, Record, SendContext, SendErrorKind, Sink, Uuid};
use sink_smtp::{Credentials, Email, ListUnsubscribe, SmtpConfig, SmtpSink};

use crate::{mailbox::Mta, scripted::record};

fn cx() -> SendContext {
    SendContext::new(Duration::from_secs(20))
}

/// An address at which nobody else gets mail.
fn somebody() -> String {
    format!("{}@example.test", Uuid::now_v7().simple())
}

async fn send(config: SmtpConfig, record: &Record) -> Result<outbox_core::Receipt, outbox_core::SendError> {
    SmtpSink::connect(config).unwrap().send(record, &cx()).await
}

fn parts<'a>(mail: &'a ParsedMail<'a>) -> Vec<&'a ParsedMail<'a>> {
    mail.parts().filter(|part| part.subparts.is_empty()).collect()
}

#[tokio::test]
async fn a_mail_arrives_as_it_was_written() {
    let Some(mta) = Mta::found() else { return };
    let everyone: Vec<String> = (0..20).map(|_| somebody()).collect();
    let hidden = somebody();
    let subject = format!("Grüße, 你好 🎉 und {} {}", "Wort".repeat(40), "ascii".repeat(300));
    let text = format!("Zeile eins\n.\n..zwei\n{}\n=_ ende\n", "läng ".repeat(400));
    let attachment: Vec<u8> = (0..1_048_576_u32).map(|n| (n * 31 % 251) as u8).collect();
    let mut email = Email::new(("Größe, \"Shop\"", "shop@example.test"))
        .bcc(&*hidden)
        .reply_to("Hilfe <help@example.test>")
        .subject(&subject)
        .text(&text)
        .html("<p>Grüße <img src=\"cid:logo.1\"></p>")
        .inline("logo.1", "image/png", [0x89, b'P', 0, b'\r', b'\n', 0xff])
        .attach("Rechnung „März“ 2026.pdf", "application/pdf", attachment.clone())
        .attach("lines.txt", "text/plain", "a\nb\rc\0")
        .header("X-Campaign", "Frühling")
        .header("In-Reply-To", "<one@example.test>")
        .list_unsubscribe(
            ListUnsubscribe::one_click("https://example.test/u?a=1&b=2").with_mailto("u@example.test"),
        );
    for (at, to) in everyone.iter().enumerate() {
        email = match at {
            0..10 => email.to((format!("Empfänger {at}, der mit dem langen Namen"), to)),
            _ => email.cc(to.as_str()),
        };
    }
    let mut record = record(&email);
    record.created_at += Duration::from_secs(1_700_000_000);
    let receipt = send(mta.starttls(), &record).await.unwrap();
    assert!(receipt.as_str().unwrap().starts_with("250 2.0.0 Ok: queued as"), "{receipt:?}");

    let id = record.id.to_string();
    let messages = mta.messages("Message-ID", &id, 21).await;
    let delivered: BTreeSet<String> = messages
        .iter()
        .map(|message| mailparse::parse_headers(message).unwrap().0.get_first_value("Delivered-To").unwrap())
        .collect();
    let expected: BTreeSet<String> = everyone.iter().cloned().chain([hidden.clone()]).collect();
    assert_eq!((messages.len(), delivered), (21, expected));

    let seen_by_ann = messages.iter().find(|message| !String::from_utf8_lossy(message).contains(&hidden));
    let mail = mailparse::parse_mail(seen_by_ann.unwrap()).unwrap();
    let header = |name: &str| mail.headers.get_first_value(name).unwrap();
    assert_eq!(header("Subject"), subject);
    assert_eq!(header("Message-ID"), format!("<{id}@example.test>"));
    assert_eq!(header("Date"), "Tue, 14 Nov 2023 22:13:20 +0000");
    assert_eq!(header("X-Campaign"), "Frühling");
    assert_eq!(header("In-Reply-To"), "<one@example.test>");
    assert_eq!(header("List-Unsubscribe"), "<https://example.test/u?a=1&b=2>, <mailto:u@example.test>");
    assert_eq!(header("List-Unsubscribe-Post"), "List-Unsubscribe=One-Click");
    assert!(mail.headers.get_first_value("Bcc").is_none());
    let addresses = |name: &str| {
        let header = mail.headers.get_first_header(name).unwrap();
        mailparse::addrparse_header(header).unwrap()
    };
    assert_eq!((addresses("To").count_addrs(), addresses("Cc").count_addrs()), (10, 10));
    let from = addresses("From").extract_single_info().unwrap();
    assert_eq!((from.display_name.as_deref(), &*from.addr), (Some("Größe, \"Shop\""), "shop@example.test"));
    match &addresses("To")[3] {
        mailparse::MailAddr::Single(to) => {
            assert_eq!(to.display_name.as_deref(), Some("Empfänger 3, der mit dem langen Namen"));
            assert_eq!(to.addr, everyone[3]);
        }
        group => panic!("{group:?}"),
    }

    let parts = parts(&mail);
    let types: Vec<&str> = parts.iter().map(|part| part.ctype.mimetype.as_str()).collect();
    assert_eq!(types, ["text/plain", "text/html", "image/png", "application/pdf", "text/plain"]);
    assert_eq!(parts[0].get_body().unwrap().replace("\r\n", "\n").trim_end(), text.trim_end());
    assert_eq!(parts[1].get_body().unwrap().trim_end(), "<p>Grüße <img src=\"cid:logo.1\"></p>");
    assert_eq!(parts[2].headers.get_first_value("Content-ID").unwrap(), "<logo.1>");
    assert_eq!(parts[2].get_body_raw().unwrap(), [0x89, b'P', 0, b'\r', b'\n', 0xff]);
    let disposition = parts[3].get_content_disposition();
    assert_eq!(disposition.params["filename"], "Rechnung „März“ 2026.pdf");
    assert!(parts[3].get_body_raw().unwrap() == attachment, "the attachment differs");
    assert_eq!(parts[4].get_body_raw().unwrap(), b"a\nb\rc\0");
}

#[tokio::test]
async fn logins_go_over_starttls_and_implicit_tls_and_a_wrong_one_kills_nothing() {
    let Some(mta) = Mta::found() else { return };
    for config in [mta.submission(), mta.implicit()] {
        let record = record(&Email::new("shop@example.test").to(somebody()).text("Hi."));
        let config = config.with_credentials(Credentials::password(&mta.user, &mta.password));
        send(config.clone(), &record).await.unwrap();
        assert_eq!(mta.messages("Message-ID", &record.id.to_string(), 1).await.len(), 1);

        let wrong = config.with_credentials(Credentials::password(&mta.user, "wr0ng"));
        let error = send(wrong, &record).await.unwrap_err();
        assert_eq!((error.kind(), error.scope()), (SendErrorKind::Unavailable, ErrorScope::Sink));
        assert_eq!(error.to_string(), "the server answered 535 at AUTH");
    }
}

#[tokio::test]
async fn an_mta_that_wants_a_login_or_is_unknown_kills_nothing() {
    let Some(mta) = Mta::found() else { return };
    let record = record(&Email::new("shop@example.test").to(somebody()).text("Hi."));
    let mut stranger = mta.starttls();
    stranger.root_certificates.clear();
    let error = send(stranger, &record).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Unavailable);
    assert!(error.to_string().contains("certificate"), "{error}");
}

/// K2: each recipient by what the MTA says of it.
#[tokio::test]
async fn an_mta_is_asked_again_for_those_alone_that_it_has_put_off() {
    let Some(mta) = Mta::found() else { return };
    let (ann, bob) = (somebody(), somebody());
    let mut email = Email::new("shop@example.test").text("Hi.");
    for to in [
        &*ann,
        "gone@example.test",
        "defer@example.test",
        "full@example.test",
        "hup@example.test",
        "policy@example.test",
        &*bob,
    ] {
        email = email.to(to);
    }
    let mut record = record(&email);
    let error = send(mta.starttls(), &record).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Transient, "{error}");
    assert!(error.to_string().starts_with("3 of 7 recipients put off"), "{error}");
    record.progress = error.progress().cloned();
    let error = send(mta.starttls(), &record).await.unwrap_err();
    assert!(error.to_string().starts_with("3 of 7 recipients put off"), "{error}");
    let id = record.id.to_string();
    assert_eq!(mta.messages("Message-ID", &id, 2).await.len(), 2);
    assert_eq!(mta.count("Message-ID", &id).await, 2);
    for to in [&ann, &bob] {
        assert_eq!(mta.messages("Delivered-To", to, 1).await.len(), 1);
    }
}

#[tokio::test]
async fn the_size_that_an_mta_takes_is_known_before_it_is_sent() {
    let Some(mta) = Mta::found() else { return };
    let large = Email::new("shop@example.test").to(somebody()).attach("a", "image/png", vec![0; 2_000_000]);
    let error = send(mta.starttls(), &record(&large)).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Permanent);
    assert!(error.to_string().contains("and the server takes 2000000"), "{error}");
}

#[tokio::test]
async fn international_addresses_and_ready_messages_arrive() {
    let Some(mta) = Mta::found() else { return };
    let name = format!("änn-{}", Uuid::now_v7().simple());
    let international =
        record(&Email::new("shop@example.test").to(format!("{name}@example.test")).text("Hi."));
    send(mta.starttls(), &international).await.unwrap();
    assert_eq!(mta.messages("Message-ID", &international.id.to_string(), 1).await.len(), 1);

    let message = "From: shop@example.test\r\nSubject: ready\r\n\r\n.dot\r\nGrüße\r\n";
    let mut ready = Record::new(1, Uuid::now_v7(), "mail.test", Payload::Bytes(message.into()));
    ready.content_type = "message/rfc822".into();
    ready.headers.insert("outbox-mail-from".into(), "<>".into());
    ready.headers.insert("outbox-rcpt-to".into(), somebody());
    send(mta.starttls(), &ready).await.unwrap();
    let found = mta.messages("Message-ID", &ready.id.to_string(), 1).await;
    assert!(found[0].ends_with(message.as_bytes()), "{}", String::from_utf8_lossy(&found[0]));
}

/// What is written in two pieces waits 40 ms for an acknowledgement at each mail.
#[tokio::test]
async fn mail_over_implicit_tls_goes_as_fast_as_over_starttls() {
    let Some(mta) = Mta::found() else { return };
    let mut took = Vec::new();
    for config in [mta.submission(), mta.implicit()] {
        let config = config.with_credentials(Credentials::password(&mta.user, &mta.password));
        let sink = SmtpSink::connect(config).unwrap();
        sink.check().await.unwrap();
        let to = somebody();
        let begun = Instant::now();
        for _ in 0..50 {
            sink.send(&record(&Email::new("shop@example.test").to(&*to).text("Hi.")), &cx()).await.unwrap();
        }
        took.push(begun.elapsed());
    }
    assert!(took[1] < took[0] * 2 + Duration::from_secs(1), "{took:?}");
}
