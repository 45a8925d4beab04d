//! What arrives at a receiver.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ed25519_dalek::{Signature, VerifyingKey};
use outbox_core::{CloudEvents, Payload, SendContext, SendErrorKind, Sink};
use sink_http::{HttpConfig, HttpSink, Secret};
use standardwebhooks::Webhook;

use crate::receiver::{Arrived, Receiver, TIMEOUT, local, record, send};

const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEW: &str = "whsec_plJ3nmyCDGBKInavdOK15jsl/vIexb+a";
/// The first test vector of RFC 8032.
const ED25519: &str = "whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=";

/// Base64 by hand, so that the check shares no code with what it checks.
fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        let value = ALPHABET.iter().position(|letter| *letter == byte).unwrap();
        bits = bits << 6 | u32::try_from(value).unwrap();
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).unwrap());
        }
    }
    bytes
}

/// Verifies a `v1a` signature by the specification, with another library than the one that signs.
fn verify_v1a(public_key: &str, arrived: &Arrived) -> bool {
    let key: [u8; 32] = base64(public_key.strip_prefix("whpk_").unwrap()).try_into().unwrap();
    let key = VerifyingKey::from_bytes(&key).unwrap();
    let mut content =
        format!("{}.{}.", arrived.header("webhook-id"), arrived.header("webhook-timestamp")).into_bytes();
    content.extend_from_slice(&arrived.body);
    arrived
        .header("webhook-signature")
        .split(' ')
        .filter_map(|one| one.strip_prefix("v1a,"))
        .any(|one| key.verify_strict(&content, &Signature::from_slice(&base64(one)).unwrap()).is_ok())
}

/// K1: an accepted record gives a receipt.
#[tokio::test]
async fn the_payload_arrives_byte_for_byte() {
    let receiver = Receiver::accepting().await;
    let odd = r#"{"n":18446744073709551615,"x":1.10,"e":1e400,"z":"\u0000","b":1,"b":2}"#;
    let mut record = record();
    record.payload = Payload::Json(odd.into());
    record.headers.insert("traceparent".into(), "00-4bf9-00f0-01".into());
    let receipt = send(local(HttpConfig::to(receiver.url())), &record).await.unwrap();
    assert_eq!(receipt.as_str(), Some("204"));

    let arrived = receiver.only();
    assert_eq!((arrived.method.as_str(), arrived.path.as_str()), ("POST", "/in"));
    assert_eq!(arrived.body, odd.as_bytes());
    assert_eq!(arrived.header("content-type"), "application/json");
    assert_eq!(arrived.header("content-length"), odd.len().to_string());
    assert_eq!(arrived.header("traceparent"), "00-4bf9-00f0-01");
    // K3: the id travels in the destination's own fields.
    assert_eq!(arrived.header("webhook-id"), record.id.to_string());
    assert_eq!(arrived.header("idempotency-key"), record.id.to_string());
}

#[tokio::test]
async fn an_empty_payload_arrives_with_its_length() {
    let receiver = Receiver::accepting().await;
    let mut record = record();
    record.payload = Payload::Bytes(Vec::new());
    send(local(HttpConfig::to(receiver.url())), &record).await.unwrap();
    let arrived = receiver.only();
    assert!(arrived.body.is_empty());
    assert_eq!(arrived.header("content-length"), "0");
}

#[tokio::test]
async fn a_payload_of_any_bytes_and_a_mebibyte_arrives() {
    let receiver = Receiver::accepting().await;
    let mut record = record();
    let bytes: Vec<u8> = (0..1_048_576_u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
    record.payload = Payload::Bytes(bytes.clone());
    record.content_type = "application/octet-stream".into();
    send(local(HttpConfig::to(receiver.url())), &record).await.unwrap();
    assert_eq!(receiver.only().body, bytes);
}

#[tokio::test]
async fn the_receivers_own_library_verifies_v1() {
    let receiver = Receiver::accepting().await;
    let config = local(HttpConfig::to(receiver.url())).with_secret(NEW.parse().unwrap());
    send(config, &record()).await.unwrap();
    let arrived = receiver.only();
    Webhook::new(NEW).unwrap().verify(&arrived.body, &arrived.headers).unwrap();
    // The check can fail: another secret, another body.
    Webhook::new(OLD).unwrap().verify(&arrived.body, &arrived.headers).unwrap_err();
    Webhook::new(NEW).unwrap().verify(b"{}", &arrived.headers).unwrap_err();
}

#[tokio::test]
async fn an_independent_library_verifies_v1a() {
    let receiver = Receiver::accepting().await;
    let secret: Secret = ED25519.parse().unwrap();
    let public_key = secret.public_key().unwrap();
    send(local(HttpConfig::to(receiver.url())).with_secret(secret), &record()).await.unwrap();
    let mut arrived = receiver.only();
    assert!(verify_v1a(&public_key, &arrived));
    arrived.body.push(b' ');
    assert!(!verify_v1a(&public_key, &arrived));
}

#[tokio::test]
async fn during_a_rotation_holders_of_either_secret_verify() {
    let receiver = Receiver::accepting().await;
    let ed25519: Secret = ED25519.parse().unwrap();
    let public_key = ed25519.public_key().unwrap();
    let config = local(HttpConfig::to(receiver.url()))
        .with_secret(NEW.parse().unwrap())
        .with_secret(OLD.parse().unwrap())
        .with_secret(ed25519);
    send(config, &record()).await.unwrap();
    let arrived = receiver.only();
    for secret in [OLD, NEW] {
        Webhook::new(secret).unwrap().verify(&arrived.body, &arrived.headers).unwrap();
    }
    assert!(verify_v1a(&public_key, &arrived));
}

#[tokio::test]
async fn the_signed_body_is_the_one_that_is_sent() {
    let receiver = Receiver::accepting().await;
    let config = local(HttpConfig::to(receiver.url()))
        .with_secret(NEW.parse().unwrap())
        .with_cloud_events(CloudEvents::structured("/orders"));
    send(config, &record()).await.unwrap();
    let arrived = receiver.only();
    Webhook::new(NEW).unwrap().verify(&arrived.body, &arrived.headers).unwrap();
    assert_eq!(arrived.header("content-type"), "application/cloudevents+json");
    let envelope: serde_json::Value = serde_json::from_slice(&arrived.body).unwrap();
    assert_eq!(envelope["type"], "order.placed");
    assert_eq!(envelope["id"], record().id.to_string());
    assert!(String::from_utf8(arrived.body).unwrap().ends_with(r#""data":{"total":1.10}}"#));
}

#[tokio::test]
async fn a_binary_event_arrives_with_its_attributes_as_headers() {
    let receiver = Receiver::accepting().await;
    let config = local(HttpConfig::to(receiver.url())).with_cloud_events(CloudEvents::binary("/orders"));
    send(config, &record()).await.unwrap();
    let arrived = receiver.only();
    assert_eq!(arrived.header("ce-id"), record().id.to_string());
    assert_eq!(arrived.header("ce-type"), "order.placed");
    assert_eq!(arrived.body, record().payload.as_bytes());
}

#[tokio::test]
async fn each_attempt_has_its_own_time_and_the_same_id() {
    let receiver = Receiver::accepting().await;
    let clock = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(1_000));
    let read = std::sync::Arc::clone(&clock);
    let sink = HttpSink::builder(local(HttpConfig::to(receiver.url())))
        .clock(move || UNIX_EPOCH + Duration::from_secs(read.load(std::sync::atomic::Ordering::SeqCst)))
        .connect()
        .unwrap();
    for time in [1_000, 2_000] {
        clock.store(time, std::sync::atomic::Ordering::SeqCst);
        sink.send(&record(), &SendContext::new(TIMEOUT)).await.unwrap();
    }
    let arrived = receiver.arrived();
    assert_eq!(arrived[0].header("webhook-timestamp"), "1000");
    assert_eq!(arrived[1].header("webhook-timestamp"), "2000");
    assert_eq!(arrived[0].header("webhook-id"), arrived[1].header("webhook-id"));
}

#[tokio::test]
async fn the_time_of_an_attempt_is_the_systems_unless_told() {
    let receiver = Receiver::accepting().await;
    send(local(HttpConfig::to(receiver.url())), &record()).await.unwrap();
    let sent: u64 = receiver.only().header("webhook-timestamp").parse().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!(now - sent < 60);
}

#[tokio::test]
async fn a_record_goes_to_its_destination_and_one_without_to_the_default() {
    let (named, default) = (Receiver::accepting().await, Receiver::accepting().await);
    let config = local(HttpConfig::by_destination()).with_default_url(default.url());
    let mut record = record();
    send(config.clone(), &record).await.unwrap();
    record.destination = Some(named.url());
    send(config, &record).await.unwrap();
    assert_eq!((named.arrived().len(), default.arrived().len()), (1, 1));
}

#[tokio::test]
async fn a_fixed_url_does_not_read_destinations() {
    let receiver = Receiver::accepting().await;
    let mut record = record();
    record.destination = Some("https://elsewhere.example/".into());
    send(local(HttpConfig::to(receiver.url())), &record).await.unwrap();
    receiver.only();
}

#[tokio::test]
async fn a_record_without_a_destination_is_dead_when_there_is_no_default() {
    let error = send(local(HttpConfig::by_destination()), &record()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Permanent);
}

#[tokio::test]
async fn each_destination_is_signed_with_its_own_secret() {
    let (first, second) = (Receiver::accepting().await, Receiver::accepting().await);
    let first_url = first.url();
    let sink = HttpSink::builder(local(HttpConfig::by_destination()))
        .secrets_for(move |url| vec![if url == first_url { OLD } else { NEW }.parse().unwrap()])
        .connect()
        .unwrap();
    for (receiver, secret) in [(&first, OLD), (&second, NEW)] {
        let mut record = record();
        record.destination = Some(receiver.url());
        sink.send(&record, &SendContext::new(TIMEOUT)).await.unwrap();
        let arrived = receiver.only();
        Webhook::new(secret).unwrap().verify(&arrived.body, &arrived.headers).unwrap();
    }
}

#[tokio::test]
async fn nothing_goes_unsigned_to_a_destination_whose_secret_is_missing() {
    let receiver = Receiver::accepting().await;
    let mut record = record();
    record.destination = Some(receiver.url());
    let config = local(HttpConfig::by_destination());
    let sink = HttpSink::builder(config.clone()).secrets_for(|_| Vec::new()).connect().unwrap();
    let error = sink.send(&record, &SendContext::new(TIMEOUT)).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Unavailable);
    assert!(receiver.arrived().is_empty());

    let config = config.with_secret(NEW.parse().unwrap());
    let sink = HttpSink::builder(config).secrets_for(|_| Vec::new()).connect().unwrap();
    sink.send(&record, &SendContext::new(TIMEOUT)).await.unwrap();
    let arrived = receiver.only();
    Webhook::new(NEW).unwrap().verify(&arrived.body, &arrived.headers).unwrap();
}

#[tokio::test]
async fn configured_headers_go_with_every_request() {
    let receiver = Receiver::accepting().await;
    let config = local(HttpConfig::to(receiver.url()))
        .with_header("Authorization", "Bearer t0ken")
        .with_header("user-agent", "shop/7");
    send(config, &record()).await.unwrap();
    let arrived = receiver.only();
    assert_eq!(arrived.header("authorization"), "Bearer t0ken");
    assert_eq!(arrived.header("user-agent"), "shop/7");
}

/// K6: a hostile record reaches nobody.
#[tokio::test]
async fn a_header_that_ends_its_line_sends_nothing() {
    let receiver = Receiver::accepting().await;
    let mut record = record();
    record.headers.insert("x-shop".into(), "main\r\n\r\nPOST /admin HTTP/1.1\r\nhost: a".into());
    let error = send(local(HttpConfig::to(receiver.url())), &record).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Permanent);
    assert!(receiver.arrived().is_empty());
}

/// K7: neither the sink nor its errors show what is secret.
#[tokio::test]
async fn debug_and_errors_show_no_secret() {
    let config = HttpConfig::to("https://hooks.example/s3cret?token=s3cret").with_header("x-key", "s3cret");
    let builder = HttpSink::builder(config.with_secret(OLD.parse().unwrap()));
    let mut shown = format!("{builder:?}");
    shown.push_str(&format!("{:?}", builder.connect().unwrap()));
    assert!(!shown.contains("s3cret") && !shown.contains("MfKQ"), "{shown}");

    // Nobody listens on port 1 of loopback.
    let mut record = record();
    record.payload = Payload::Json(r#""s3cret""#.into());
    record.destination = Some("http://127.0.0.1:1/s3cret?s3cret".into());
    let error = send(local(HttpConfig::by_destination()).with_header("x-key", "s3cret"), &record).await;
    let error = error.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
}

#[tokio::test]
async fn the_limits_are_single_records_side_by_side() {
    let limits = HttpSink::connect(HttpConfig::to("https://hooks.example")).unwrap().limits();
    assert_eq!((limits.batch_records.get(), limits.batches_in_flight.get()), (1, 64));
}

#[tokio::test]
async fn a_check_asks_the_fixed_url_and_sends_no_record() {
    let receiver = Receiver::answering(405, &[]).await;
    let sink = HttpSink::connect(local(HttpConfig::to(receiver.url()))).unwrap();
    sink.check().await.unwrap();
    let arrived = receiver.only();
    assert_eq!(arrived.method, "HEAD");
    assert_eq!(arrived.header("webhook-id"), "");

    let gone = HttpSink::connect(local(HttpConfig::to("http://127.0.0.1:1/"))).unwrap();
    assert_eq!(gone.check().await.unwrap_err().kind(), SendErrorKind::Unavailable);
    HttpSink::connect(HttpConfig::by_destination()).unwrap().check().await.unwrap();
}
