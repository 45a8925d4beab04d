//! TLS: certificates that are trusted, and those that are not.

use std::{net::SocketAddr, sync::Arc};

use outbox_core::{ErrorScope, SendErrorKind};
use sink_http::{HttpConfig, HttpErrorKind, HttpSink};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

use crate::receiver::{record, send};

/// A receiver that speaks TLS with a certificate of its own for `localhost`; its address and the
/// certificate in PEM.
async fn receiver() -> (SocketAddr, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let pem = made.cert.pem();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
            let _ = stream.shutdown().await;
        }
    });
    (address, pem)
}

fn to(address: SocketAddr) -> HttpConfig {
    HttpConfig::to(format!("https://localhost:{}/in", address.port())).with_loopback()
}

#[tokio::test]
async fn a_trusted_certificate_is_sent_to() {
    let (address, pem) = receiver().await;
    send(to(address).with_root_certificate(pem), &record()).await.unwrap();
}

#[tokio::test]
async fn an_untrusted_certificate_is_the_destinations_and_nothing_was_written() {
    let (address, _) = receiver().await;
    let error = send(to(address), &record()).await.unwrap_err();
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Unavailable, ErrorScope::Destination));
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test]
async fn a_certificate_of_another_name_is_refused() {
    let (address, pem) = receiver().await;
    let config = HttpConfig::to(format!("https://127.0.0.1:{}/in", address.port()))
        .with_loopback()
        .with_root_certificate(pem);
    let error = send(config, &record()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Unavailable);
}

#[test]
fn a_root_certificate_that_is_none_is_refused() {
    for pem in ["", "s3cret", "-----BEGIN CERTIFICATE-----\ns3cret\n-----END CERTIFICATE-----\n"] {
        let config = HttpConfig::to("https://hooks.example").with_root_certificate(pem);
        let error = HttpSink::connect(config).unwrap_err();
        assert_eq!(error.kind(), HttpErrorKind::Tls);
        assert!(!error.to_string().contains("s3cret"));
    }
}
