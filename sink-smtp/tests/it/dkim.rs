//! Signatures, verified by a verifier that shares neither code nor cryptography with the signer.

use std::collections::HashMap;

use aws_lc_rs::{
    encoding::{AsDer, Pkcs8V1Der},
    rsa::{KeyPair as RsaKeyPair, KeySize},
    signature::{Ed25519KeyPair, KeyPair},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use outbox_core::{Payload, Sink};
use rsa::{Pkcs1v15Sign, RsaPublicKey, pkcs1::DecodeRsaPublicKey};
use sha2::{Digest, Sha256};
use sink_smtp::{DkimConfig, Email, SmtpSink};

use crate::{
    mailbox::Mta,
    scripted::{Scripted, cx, email, record, usual},
};

enum PublicKey {
    Rsa(Box<RsaPublicKey>),
    Ed25519(ed25519_dalek::VerifyingKey),
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// A key of each algorithm: what signs, and what verifies.
fn keys() -> Vec<(DkimConfig, PublicKey)> {
    let rsa = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let private: Pkcs8V1Der<'_> = rsa.as_der().unwrap();
    let public = RsaPublicKey::from_pkcs1_der(rsa.public_key().as_ref()).unwrap();
    let ed25519 = Ed25519KeyPair::generate().unwrap();
    let ed25519_private = ed25519.to_pkcs8v1().unwrap();
    let ed25519_public: [u8; 32] = ed25519.public_key().as_ref().try_into().unwrap();
    let config =
        |selector: &str, der: &[u8]| DkimConfig::new("example.test", selector, pem("PRIVATE KEY", der));
    vec![
        (config("rsa", private.as_ref()), PublicKey::Rsa(Box::new(public))),
        (
            config("ed", ed25519_private.as_ref()),
            PublicKey::Ed25519(ed25519_dalek::VerifyingKey::from_bytes(&ed25519_public).unwrap()),
        ),
    ]
}

/// Verifies the first signature of a message, after RFC 6376 section 6.1.3. Says what is wrong.
fn verify(message: &str, key: &PublicKey) -> Result<(), String> {
    let (head, body) = message.split_once("\r\n\r\n").ok_or("no body")?;
    let mut headers: Vec<(String, String)> = Vec::new();
    for line in head.split("\r\n") {
        match headers.last_mut() {
            Some((_, value)) if line.starts_with([' ', '\t']) => {
                value.push_str("\r\n");
                value.push_str(line);
            }
            _ => {
                let (name, value) = line.split_once(':').ok_or("no header")?;
                headers.push((name.to_lowercase(), value.to_owned()));
            }
        }
    }
    let signature = headers.iter().position(|(name, _)| name == "dkim-signature").ok_or("no signature")?;
    let (_, signature) = headers.remove(signature);
    let tags: HashMap<String, String> = signature
        .split(';')
        .filter_map(|tag| tag.split_once('='))
        .map(|(name, value)| (name.trim().to_owned(), value.split_whitespace().collect()))
        .collect();
    if tags["c"] != "relaxed/relaxed" || tags["v"] != "1" {
        return Err("another canonicalisation".into());
    }

    let words =
        |line: &str| line.split([' ', '\t']).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    let mut lines: Vec<String> = Vec::new();
    for line in body.split("\r\n") {
        let indent = if line.starts_with([' ', '\t']) && !line.trim().is_empty() { " " } else { "" };
        lines.push(format!("{indent}{}", words(line)));
    }
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    let canonical: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    if BASE64_STANDARD.encode(Sha256::digest(canonical)) != tags["bh"] {
        return Err("the body differs".into());
    }

    let relaxed = |name: &str, value: &str| format!("{name}:{}", words(&value.replace("\r\n", "")));
    let mut input = String::new();
    for name in tags["h"].split(':') {
        // From the bottom up, each once; one that is not there counts as empty.
        if let Some(at) = headers.iter().rposition(|(known, _)| known == name) {
            let (name, value) = headers.remove(at);
            input.push_str(&relaxed(&name, &value));
            input.push_str("\r\n");
        }
    }
    let (before, _) = signature.rsplit_once("b=").ok_or("no b")?;
    input.push_str(&relaxed("dkim-signature", &format!("{before}b=")));
    let signed = BASE64_STANDARD.decode(&tags["b"]).map_err(|error| error.to_string())?;
    let hash = Sha256::digest(input);
    match (key, tags["a"].as_str()) {
        (PublicKey::Rsa(key), "rsa-sha256") => key
            .verify(Pkcs1v15Sign::new::<Sha256>(), &hash, &signed)
            .map_err(|_| "the headers differ".to_owned()),
        (PublicKey::Ed25519(key), "ed25519-sha256") => {
            let signed = ed25519_dalek::Signature::from_slice(&signed).map_err(|error| error.to_string())?;
            key.verify_strict(&hash, &signed).map_err(|_| "the headers differ".to_owned())
        }
        (_, other) => Err(format!("algorithm {other}")),
    }
}

fn rich(to: &str) -> Email {
    Email::new("Größe <shop@example.test>")
        .to(to)
        .subject(format!("Grüße   mit  Lücken {}", "lang".repeat(300)))
        .text("  eingerückt  \n\n\ttab \n\n\n")
        .html("<p>Hi</p>")
        .attach("a.bin", "application/octet-stream", vec![7; 10_000])
        .header("References", "<a@example.test>  <b@example.test>")
}

#[tokio::test]
async fn signatures_hold_after_an_mta() {
    let Some(mta) = Mta::found() else { return };
    for (config, key) in keys() {
        let sink = SmtpSink::connect(mta.starttls().with_dkim(config)).unwrap();
        let record = record(&rich("ann@example.test"));
        sink.send(&record, &cx()).await.unwrap();
        let found = mta.messages("Message-ID", &record.id.to_string(), 1).await;
        verify(std::str::from_utf8(&found[0]).unwrap(), &key).unwrap();
    }
}

#[tokio::test]
async fn a_changed_message_fails_and_a_repeated_attempt_is_the_same_to_the_byte() {
    for (config, key) in keys() {
        let server = Scripted::start(usual).await;
        let sink = SmtpSink::connect(server.config().with_dkim(config)).unwrap();
        let mail = record(&rich("ann@example.test"));
        for _ in 0..2 {
            sink.send(&mail, &cx()).await.unwrap();
        }
        let taken = server.taken();
        assert_eq!(taken[0].message, taken[1].message);
        let message = &taken[0].message;
        verify(message, &key).unwrap();
        for (changed, why) in [
            (message.replace("<p>Hi</p>", "<p>Ho</p>"), "the body differs"),
            (message.replace("To: ann@", "To: eve@"), "the headers differ"),
            (message.replace("\r\nSubject: ", "\r\nSubject: Re: "), "the headers differ"),
            // A second author is signed as not being there.
            (message.replace("\r\nFrom: ", "\r\nFrom: eve@example.test\r\nFrom: "), "the headers differ"),
        ] {
            assert_ne!(&changed, message);
            assert_eq!(verify(&changed, &key).unwrap_err(), why);
        }
    }
}

#[tokio::test]
async fn ready_messages_are_signed_and_keep_what_they_are() {
    for (config, key) in keys() {
        let server = Scripted::start(usual).await;
        let sink = SmtpSink::connect(server.config().with_dkim(config)).unwrap();
        let mut ready = record(&email(&[]));
        ready.payload = Payload::Bytes("From: a@example.test\nSubject: x\n\n".into());
        ready.content_type = "message/rfc822".into();
        ready.headers.insert("outbox-mail-from".into(), "a@example.test".into());
        ready.headers.insert("outbox-rcpt-to".into(), "b@example.test".into());
        sink.send(&ready, &cx()).await.unwrap();
        let message = &server.taken()[0].message;
        verify(message, &key).unwrap();
        assert!(message.ends_with("From: a@example.test\r\nSubject: x\r\n\r\n"), "{message}");
    }
}
