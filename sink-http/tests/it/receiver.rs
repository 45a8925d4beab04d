//! Receivers: one that keeps what it got and answers as told, and one that speaks bytes.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{HeaderMap, Request, Response},
};
use outbox_core::{Payload, Receipt, Record, SendContext, SendError, Sink, Uuid};
use sink_http::{HttpConfig, HttpSink};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Arrived {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A receiver that keeps what it got.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    arrived: Arc<Mutex<Vec<Arrived>>>,
}

impl Receiver {
    /// Answers each request as `answer` says.
    pub(crate) async fn start(
        answer: impl Fn(&Arrived) -> Response<Body> + Clone + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&arrived);
        let router = Router::new().fallback(move |request: Request<Body>| {
            let (kept, answer) = (Arc::clone(&kept), answer.clone());
            async move {
                let (head, body) = request.into_parts();
                let arrived = Arrived {
                    method: head.method.to_string(),
                    path: head.uri.to_string(),
                    headers: head.headers,
                    body: to_bytes(body, usize::MAX).await.unwrap().to_vec(),
                };
                let response = answer(&arrived);
                kept.lock().unwrap().push(arrived);
                response
            }
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, arrived }
    }

    /// Answers 204 to everything.
    pub(crate) async fn accepting() -> Self {
        Self::answering(204, &[]).await
    }

    /// Answers every request with this status and these headers.
    pub(crate) async fn answering(status: u16, headers: &[(&'static str, &'static str)]) -> Self {
        let headers = headers.to_vec();
        Self::start(move |_| {
            let mut response = Response::builder().status(status);
            for (name, value) in &headers {
                response = response.header(*name, *value);
            }
            response.body(Body::empty()).unwrap()
        })
        .await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/in", self.address)
    }

    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.arrived.lock().unwrap().clone()
    }

    /// The one request that has arrived.
    pub(crate) fn only(&self) -> Arrived {
        let mut arrived = self.arrived();
        assert_eq!(arrived.len(), 1);
        arrived.remove(0)
    }
}

/// A server that reads one request's head and first bytes of each connection, and then does as told.
pub(crate) async fn raw<F, Fut>(then: F) -> SocketAddr
where
    F: Fn(TcpStream) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let then = then.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                if stream.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {
                    then(stream).await;
                }
            });
        }
    });
    address
}

/// Writes until the other side hangs up; the bytes that went out.
pub(crate) async fn write_for_ever(stream: &mut TcpStream, chunk: &[u8], pause: Duration) -> u64 {
    let mut bytes = 0;
    while stream.write_all(chunk).await.is_ok() {
        bytes += chunk.len() as u64;
        if !pause.is_zero() {
            // real time: what is slow here is the other side of a socket.
            tokio::time::sleep(pause).await;
        }
    }
    bytes
}

pub(crate) fn record() -> Record {
    Record::new(1, Uuid::from_u128(7), "order.placed", Payload::Json(r#"{"total":1.10}"#.into()))
}

/// A configuration that may send to a receiver on loopback.
pub(crate) fn local(config: HttpConfig) -> HttpConfig {
    config.with_plain_http().with_loopback()
}

pub(crate) async fn send(config: HttpConfig, record: &Record) -> Result<Receipt, SendError> {
    HttpSink::connect(config).unwrap().send(record, &SendContext::new(TIMEOUT)).await
}
