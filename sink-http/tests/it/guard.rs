//! The address guard and the proxy, with connections that are really made.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{body::Body, http::Response};
use outbox_core::{ErrorScope, SendContext, SendErrorKind, Sink};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use sink_http::{HttpConfig, HttpErrorKind, HttpSink};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::receiver::{Receiver, TIMEOUT, local, record, send};

/// Resolves every name to these addresses and counts how often it is asked.
struct Fixed(Vec<IpAddr>, AtomicUsize);

impl Fixed {
    fn to(addresses: impl IntoIterator<Item = IpAddr>) -> Arc<Self> {
        Arc::new(Self(addresses.into_iter().collect(), AtomicUsize::new(0)))
    }
}

impl Resolve for Fixed {
    fn resolve(&self, _: Name) -> Resolving {
        self.1.fetch_add(1, Ordering::SeqCst);
        let addresses: Vec<_> = self.0.iter().map(|ip| SocketAddr::new(*ip, 0)).collect();
        Box::pin(async move { Ok(Box::new(addresses.into_iter()) as Addrs) })
    }
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[tokio::test]
async fn a_name_that_resolves_to_loopback_is_refused_at_connect_time() {
    let receiver = Receiver::accepting().await;
    let port = receiver.address.port();
    let mut record = record();
    record.destination = Some(format!("http://localhost:{port}/s3cret"));
    let config = HttpConfig::by_destination().with_plain_http();
    let error = send(config.clone(), &record).await.unwrap_err();
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Permanent, ErrorScope::Record));
    assert_eq!(error.to_string(), "the address guard refuses loopback addresses");

    // A name of the public internet that points inside is no better.
    record.destination = Some(format!("http://hooks.example:{port}/in"));
    let inside = Fixed::to([LOOPBACK]);
    let sink = HttpSink::builder(config.clone()).resolver(inside).connect().unwrap();
    let error = sink.send(&record, &SendContext::new(TIMEOUT)).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Permanent);
    assert!(receiver.arrived().is_empty());

    // Allowed, the same record arrives: it is the guard that kept it.
    let inside = Fixed::to([LOOPBACK]);
    let sink = HttpSink::builder(config.with_loopback()).resolver(inside).connect().unwrap();
    sink.send(&record, &SendContext::new(TIMEOUT)).await.unwrap();
    receiver.only();
}

#[tokio::test]
async fn of_mixed_addresses_only_the_allowed_are_connected_to() {
    let receiver = Receiver::accepting().await;
    let mut record = record();
    record.destination = Some(format!("http://hooks.example:{}/in", receiver.address.port()));
    let config = HttpConfig::by_destination()
        .with_plain_http()
        .with_allowed_networks(["127.0.0.2/32".parse().unwrap()]);
    // Were 127.0.0.1 tried, the record would arrive.
    let mixed = Fixed::to([LOOPBACK, IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2))]);
    let sink = HttpSink::builder(config).resolver(mixed).connect().unwrap();
    let error = sink.send(&record, &SendContext::new(TIMEOUT)).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Unavailable);
    assert!(receiver.arrived().is_empty());
}

#[tokio::test]
async fn the_address_that_was_checked_is_the_one_connected_to() {
    let receiver = Receiver::accepting().await;
    let mut record = record();
    record.destination = Some(format!("http://hooks.example:{}/in", receiver.address.port()));
    let resolver = Fixed::to([LOOPBACK]);
    let sink = HttpSink::builder(local(HttpConfig::by_destination()))
        .resolver(Arc::clone(&resolver) as Arc<dyn Resolve>)
        .connect()
        .unwrap();
    sink.send(&record, &SendContext::new(TIMEOUT)).await.unwrap();
    assert_eq!(resolver.1.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_redirect_to_a_private_address_is_not_followed() {
    let inside = Receiver::accepting().await;
    let location = inside.url();
    let receiver = Receiver::start(move |_| {
        Response::builder().status(302).header("location", &location).body(Body::empty()).unwrap()
    })
    .await;
    let error = send(local(HttpConfig::to(receiver.url())), &record()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Transient);
    assert!(inside.arrived().is_empty());
}

/// A guard that refuses the configured URL must not kill every record.
#[tokio::test]
async fn a_configured_url_that_is_refused_is_the_sinks_fault() {
    let error = HttpSink::connect(HttpConfig::to("https://127.0.0.1/in")).unwrap_err();
    assert_eq!(error.kind(), HttpErrorKind::Url);

    let sink = HttpSink::connect(HttpConfig::to("https://localhost:1/in")).unwrap();
    let error = sink.send(&record(), &SendContext::new(TIMEOUT)).await.unwrap_err();
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Permanent, ErrorScope::Sink));
    assert!(sink.check().await.is_err());
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_the_destinations_and_was_never_written() {
    let sink = HttpSink::connect(HttpConfig::to("https://nobody.invalid/in")).unwrap();
    let error = sink.send(&record(), &SendContext::new(TIMEOUT)).await.unwrap_err();
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Unavailable, ErrorScope::Destination));
}

/// The environment is the process's, so the test runs itself in a process of its own.
#[tokio::test]
async fn a_proxy_in_the_environment_is_not_used() {
    const NAME: &str = "guard::a_proxy_in_the_environment_is_not_used";
    if std::env::var_os("HTTP_PROXY").is_none() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .envs([("HTTP_PROXY", "http://127.0.0.1:1"), ("http_proxy", "http://127.0.0.1:1")])
            .env_remove("NO_PROXY")
            .env_remove("no_proxy")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout).into_owned();
        assert!(child.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let receiver = Receiver::accepting().await;
    // A client that heeds the environment gets nowhere.
    assert!(reqwest::Client::new().get(receiver.url()).send().await.is_err());
    send(local(HttpConfig::to(receiver.url())), &record()).await.unwrap();
    receiver.only();
}

#[tokio::test]
async fn a_trusted_proxy_gets_the_request_and_resolves_the_name() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = vec![0; 4096];
        let bytes = stream.read(&mut buffer).await.unwrap();
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        String::from_utf8_lossy(&buffer[..bytes]).into_owned()
    });
    let config = HttpConfig::by_destination()
        .with_plain_http()
        .with_trusted_proxy(format!("http://me:s3cret@localhost:{}", proxy.port()));
    let mut record = record();
    record.destination = Some("http://hooks.example/in".into());
    send(config.clone(), &record).await.unwrap();
    let asked = asked.await.unwrap();
    assert!(asked.starts_with("POST http://hooks.example/in HTTP/1.1\r\n"), "{asked}");
    assert!(asked.to_ascii_lowercase().contains("proxy-authorization: basic"), "{asked}");

    // A proxy is no way around the guard for addresses.
    record.destination = Some("http://169.254.169.254/latest/meta-data".into());
    let error = send(config, &record).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Permanent);
}
