//! What answers, and their absence, mean.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{body::Body, http::Response};
use outbox_core::{ErrorScope, SendContext, SendErrorKind, Sink};
use sink_http::{HttpConfig, HttpSink};
use tokio::{io::AsyncWriteExt, net::TcpListener};

use crate::receiver::{Receiver, local, raw, record, send, write_for_ever};

fn to(address: std::net::SocketAddr) -> HttpConfig {
    local(HttpConfig::to(format!("http://{address}/in")))
}

/// K4: what can never be accepted is permanent, after one request.
#[tokio::test]
async fn a_permanent_status_is_tried_once() {
    for status in [400, 404, 410, 413, 422] {
        let receiver = Receiver::answering(status, &[("retry-after", "5")]).await;
        let error = send(local(HttpConfig::to(receiver.url())), &record()).await.unwrap_err();
        assert_eq!((error.kind(), error.scope()), (SendErrorKind::Permanent, ErrorScope::Record));
        assert_eq!(error.to_string(), format!("answered {status}"));
        assert_eq!(error.retry_after(), None);
        receiver.only();
    }
}

#[tokio::test]
async fn a_throttling_answer_says_for_how_long() {
    for (status, kind) in [(429, SendErrorKind::Throttled), (503, SendErrorKind::Unavailable)] {
        let receiver = Receiver::answering(status, &[("retry-after", "120")]).await;
        let error = send(local(HttpConfig::to(receiver.url())), &record()).await.unwrap_err();
        assert_eq!((error.kind(), error.scope()), (kind, ErrorScope::Destination));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(120)));
    }
}

#[tokio::test]
async fn a_redirect_is_a_failure_and_is_not_followed() {
    for status in [301, 302, 303, 307, 308] {
        let receiver = Receiver::start(move |arrived| {
            let moved = if arrived.path == "/in" { status } else { 200 };
            Response::builder().status(moved).header("location", "/s3cret").body(Body::empty()).unwrap()
        })
        .await;
        let error = send(local(HttpConfig::to(receiver.url())), &record()).await.unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::Transient);
        assert_eq!(error.to_string(), format!("answered {status}, a redirect, which is not followed"));
        receiver.only();
    }
}

/// K7: a body may repeat the payload, so it is kept only when asked for.
#[tokio::test]
async fn a_failures_body_is_kept_only_when_asked_for() {
    let receiver = Receiver::start(|arrived| {
        Response::builder().status(500).body(Body::from(arrived.body.clone())).unwrap()
    })
    .await;
    let config = local(HttpConfig::to(receiver.url()));
    let error = send(config.clone(), &record()).await.unwrap_err();
    assert_eq!(error.to_string(), "answered 500");
    let error = send(config.with_error_body_bytes_max(8), &record()).await.unwrap_err();
    assert_eq!(error.to_string(), r#"answered 500: {"total""#);
}

#[tokio::test]
async fn a_receipt_holds_the_status_and_the_named_header() {
    let receiver = Receiver::answering(202, &[("x-request-id", "r-17"), ("x-other", "no")]).await;
    let config = local(HttpConfig::to(receiver.url())).with_receipt_header("X-Request-Id");
    let receipt = send(config, &record()).await.unwrap();
    assert_eq!(receipt.as_str(), Some("202 x-request-id=r-17"));
}

#[tokio::test]
async fn a_refused_connection_is_the_destinations_and_was_never_written() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = send(to(address), &record()).await.unwrap_err();
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Unavailable, ErrorScope::Destination));
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn a_connection_cut_after_the_request_may_have_been_received() {
    let address = raw(|stream| async move { drop(stream) }).await;
    let error = send(to(address), &record()).await.unwrap_err();
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Transient, ErrorScope::Record));
    assert!(error.to_string().contains("may have been received"), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_no_http_may_have_been_received() {
    let address = raw(|mut stream| async move {
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.6\r\n").await;
    })
    .await;
    let error = send(to(address), &record()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Transient);
}

/// K5: a send that nobody drops ends by itself, shortly after its timeout.
#[tokio::test]
async fn silence_ends_the_send_and_may_have_been_received() {
    let address = raw(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let sink = HttpSink::connect(to(address)).unwrap();
    let (started, timeout) = (Instant::now(), Duration::from_millis(400));
    let error = sink.send(&record(), &SendContext::new(timeout)).await.unwrap_err();
    assert!(started.elapsed() > timeout && started.elapsed() < timeout + Duration::from_secs(3));
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Transient, ErrorScope::Record));
    assert_eq!(error.to_string(), "no answer in time: it may have been received");
}

/// K5: without a connection nothing was written, however the time ran out.
#[tokio::test]
async fn a_connection_that_never_stands_was_never_written() {
    // A TLS handshake that nobody answers.
    let address = raw(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let config = HttpConfig::to(format!("https://{address}/in")).with_loopback();
    for config in [config.clone().with_connect_timeout(Duration::from_millis(100)), config] {
        let sink = HttpSink::connect(config).unwrap();
        let (started, timeout) = (Instant::now(), Duration::from_millis(400));
        let error = sink.send(&record(), &SendContext::new(timeout)).await.unwrap_err();
        assert!(started.elapsed() < timeout);
        assert_eq!((error.kind(), error.scope()), (SendErrorKind::Unavailable, ErrorScope::Destination));
    }
}

#[tokio::test]
async fn an_endless_slow_body_does_not_hold_up_its_outcome() {
    for (status, accepted) in [("200 OK", true), ("500 Oops", false)] {
        let address = raw(move |mut stream| async move {
            let head = format!("HTTP/1.1 {status}\r\ntransfer-encoding: chunked\r\n\r\n");
            let _ = stream.write_all(head.as_bytes()).await;
            write_for_ever(&mut stream, b"1\r\na\r\n", Duration::from_millis(20)).await;
        })
        .await;
        let started = Instant::now();
        let result = send(to(address).with_error_body_bytes_max(1_024), &record()).await;
        assert_eq!(result.is_ok(), accepted);
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    }
}

/// K1: an answer that came in time counts, however late its body is.
#[tokio::test]
async fn a_slow_body_does_not_outlive_the_timeout() {
    let address = raw(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n").await;
        std::future::pending::<()>().await;
    })
    .await;
    let sink = HttpSink::connect(to(address)).unwrap();
    let (started, timeout) = (Instant::now(), Duration::from_millis(400));
    sink.send(&record(), &SendContext::new(timeout)).await.unwrap();
    assert!(started.elapsed() < timeout);
}

#[tokio::test]
async fn a_body_of_ten_gigabytes_is_not_read() {
    for head in [
        "HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n",
        // Without a length, it is read as far as the bound.
        "HTTP/1.1 200 OK\r\n\r\n",
    ] {
        let written = Arc::new(AtomicU64::new(0));
        let (counted, ended) = (Arc::clone(&written), Arc::new(tokio::sync::Notify::new()));
        let end = Arc::clone(&ended);
        let address = raw(move |mut stream| {
            let (counted, end) = (Arc::clone(&counted), Arc::clone(&end));
            async move {
                let _ = stream.write_all(head.as_bytes()).await;
                let bytes = write_for_ever(&mut stream, &[b'a'; 65_536], Duration::ZERO).await;
                counted.store(bytes, Ordering::SeqCst);
                end.notify_one();
            }
        })
        .await;
        send(to(address), &record()).await.unwrap();
        ended.notified().await;
        // What the sockets' buffers took is not what was read.
        assert!(written.load(Ordering::SeqCst) < 100_000_000);
    }
}

#[tokio::test]
async fn an_endless_head_is_cut_off() {
    let address = raw(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n").await;
        write_for_ever(&mut stream, b"x-more: and more\r\n", Duration::ZERO).await;
    })
    .await;
    let started = Instant::now();
    let error = send(to(address), &record()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Transient);
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn an_answer_before_the_end_of_the_request_counts() {
    let address = raw(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n").await;
        std::future::pending::<()>().await;
    })
    .await;
    let mut record = record();
    // More than the sockets' buffers take.
    record.payload = outbox_core::Payload::Bytes(vec![b'a'; 32 * 1024 * 1024]);
    let error = send(to(address), &record).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Permanent);
}

#[tokio::test]
async fn a_connection_serves_again_after_a_short_body() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let address = raw(move |mut stream| {
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            use tokio::io::AsyncReadExt;
            let mut buffer = [0; 4096];
            loop {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\nthank you!\n";
                if stream.write_all(answer).await.is_err() {
                    break;
                }
                if !stream.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {
                    break;
                }
            }
        }
    })
    .await;
    let sink = HttpSink::connect(to(address)).unwrap();
    for _ in 0..5 {
        sink.send(&record(), &SendContext::new(Duration::from_secs(5))).await.unwrap();
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_dropped_send_closes_its_connection() {
    let closed = Arc::new(tokio::sync::Notify::new());
    let close = Arc::clone(&closed);
    let address = raw(move |mut stream| {
        let close = Arc::clone(&close);
        async move {
            use tokio::io::AsyncReadExt;
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
            close.notify_one();
        }
    })
    .await;
    let sink = HttpSink::connect(to(address)).unwrap();
    let record = record();
    let cx = SendContext::new(Duration::from_secs(60));
    let send = sink.send(&record, &cx);
    assert!(tokio::time::timeout(Duration::from_millis(200), send).await.is_err());
    tokio::time::timeout(Duration::from_secs(5), closed.notified()).await.unwrap();
}
