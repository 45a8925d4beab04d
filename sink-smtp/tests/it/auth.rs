//! TLS and logins.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use outbox_core::{ErrorScope, SendErrorKind, Sink, async_trait};
use sink_smtp::{Credentials, SmtpConfig, SmtpSink, Tls, TokenSource};

use crate::scripted::{Act, At, Scripted, cx, email, record, usual};

fn starttls(server: &Scripted) -> SmtpConfig {
    SmtpConfig::new("localhost").with_port(server.port).with_root_certificate(&server.certificate)
}

async fn send(config: SmtpConfig) -> Result<outbox_core::Receipt, outbox_core::SendError> {
    SmtpSink::connect(config).unwrap().send(&record(&email(&["ann@example.com"])), &cx()).await
}

#[tokio::test]
async fn mail_goes_over_starttls_and_implicit_tls_by_certificate() {
    let server = Scripted::start(usual).await;
    send(starttls(&server)).await.unwrap();
    assert_eq!((server.said("STARTTLS").len(), server.said("EHLO").len()), (1, 2));
    let server = Scripted::start_tls(usual).await;
    send(starttls(&server).with_tls(Tls::Implicit)).await.unwrap();
    assert_eq!(server.taken().len(), 1);
}

#[tokio::test]
async fn without_starttls_or_a_certificate_that_holds_nothing_is_sent() {
    let no_tls = |at: &At| if at.point == "EHLO" { Act::Say("250 scripted") } else { Act::Usual };
    let server = Scripted::start(no_tls).await;
    let error = send(starttls(&server)).await.unwrap_err();
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Unavailable, ErrorScope::Sink));
    assert_eq!(error.to_string(), "the server does not offer STARTTLS");

    let refuses = |at: &At| if at.point == "STARTTLS" { Act::Say("454 4.7.0 not now") } else { Act::Usual };
    let server = Scripted::start(refuses).await;
    assert_eq!(send(starttls(&server)).await.unwrap_err().kind(), SendErrorKind::Unavailable);

    let server = Scripted::start(usual).await;
    let other = Scripted::start(usual).await;
    let unknown = starttls(&server).with_port(other.port);
    let error = send(unknown).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Unavailable);
    assert!(error.to_string().contains("certificate"), "{error}");
    assert!(other.said("MAIL").is_empty() && server.connections() == 0);
}

/// K1: what someone on the way says before TLS begins is not read as said within it.
#[tokio::test]
async fn replies_appended_to_that_of_starttls_end_the_connection() {
    let injects = |at: &At| match at.point.as_str() {
        "STARTTLS" => {
            Act::Say("220 go\r\n250 fake\r\n250 fake\r\n250 fake\r\n354 fake\r\n250 2.0.0 taken by nobody")
        }
        _ => Act::Usual,
    };
    let server = Scripted::start(injects).await;
    let error = send(starttls(&server)).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Unavailable);
    assert!(error.to_string().contains("more before TLS than its reply"), "{error}");
    assert!(server.taken().is_empty());
}

#[tokio::test]
async fn credentials_do_not_go_over_plain_text_unless_allowed() {
    let server = Scripted::start(usual).await;
    let config = server.config().with_credentials(Credentials::password("user", "s3cret"));
    let error = SmtpSink::connect(config.clone()).unwrap_err();
    assert_eq!(error.to_string(), "credentials would go over the wire in plain text");
    send(config.with_plain_credentials_allowed()).await.unwrap();
    assert_eq!(server.said("AUTH"), ["AUTH PLAIN AHVzZXIAczNjcmV0"]);
}

#[tokio::test]
async fn login_is_used_where_plain_is_not_offered() {
    let server = Scripted::start(|at| {
        if at.point == "EHLO" { Act::Say("250-scripted\r\n250 AUTH LOGIN") } else { Act::Usual }
    })
    .await;
    let config = server.config().with_credentials(Credentials::password("user", "s3cret"));
    send(config.with_plain_credentials_allowed()).await.unwrap();
    assert_eq!(server.said("ANSWER"), ["dXNlcg==", "czNjcmV0"]);
}

#[tokio::test]
async fn a_server_without_a_known_login_counts_as_down() {
    let server = Scripted::start(|at| {
        if at.point == "EHLO" { Act::Say("250-scripted\r\n250 AUTH GSSAPI") } else { Act::Usual }
    })
    .await;
    let config = server.config().with_credentials(Credentials::password("user", "s3cret"));
    let error = send(config.with_plain_credentials_allowed()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Unavailable);
    assert_eq!(error.to_string(), "the server does not offer AUTH PLAIN or LOGIN");
}

struct Counted(AtomicUsize);

#[async_trait]
impl TokenSource for Counted {
    async fn token(&self) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        match self.0.fetch_add(1, Ordering::SeqCst) {
            2.. => Err("none left: s3cret".into()),
            n => Ok(format!("token-{n}")),
        }
    }
}

#[tokio::test]
async fn xoauth2_asks_for_a_token_at_each_connection_and_its_refusal_is_read() {
    let server = Scripted::start(|at| match at.point.as_str() {
        // The error comes as a question; the refusal follows the empty answer.
        "AUTH" => Act::Say("334 eyJzdGF0dXMiOiI0MDEifQ=="),
        "ANSWER" => Act::Say("535 5.7.8 no"),
        _ => Act::Usual,
    })
    .await;
    let config = server.config().with_credentials(Credentials::oauth2("user", ""));
    let sink = SmtpSink::connect(config.with_plain_credentials_allowed()).unwrap();
    let sink = sink.with_tokens(Arc::new(Counted(AtomicUsize::new(0))));
    for _ in 0..2 {
        let error = sink.send(&record(&email(&["ann@example.com"])), &cx()).await.unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::Unavailable);
        assert_eq!(error.to_string(), "the server answered 535 at AUTH");
    }
    let error = sink.check().await.unwrap_err();
    assert_eq!(error.to_string(), "the source of tokens has none");
    let said = server.said("AUTH");
    // user=user^Aauth=Bearer token-0^A^A
    assert_eq!(said[0], "AUTH XOAUTH2 dXNlcj11c2VyAWF1dGg9QmVhcmVyIHRva2VuLTABAQ==");
    assert_ne!(said[0], said[1]);
    assert_eq!(server.said("ANSWER"), ["", ""]);
}
