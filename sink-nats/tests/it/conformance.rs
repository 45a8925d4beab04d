//! K1 to K8 by the shared suite.

use outbox_core::{
    Payload, Record, Uuid, async_trait,
    conformance::sink::{Fault, Received, SinkHarness},
};
use sink_nats::{NatsConfig, NatsSink, async_nats};

use crate::{
    broker::{self, Stream},
    proxy::{Proxy, Weather},
};

struct Nats {
    proxy: Proxy,
    stream: Stream,
    sink: std::sync::Mutex<Option<NatsSink>>,
}

impl Nats {
    async fn new(url: &str) -> Self {
        let stream = Stream::new(broker::client(url).await).await;
        Self { proxy: Proxy::before(url).await, stream, sink: std::sync::Mutex::default() }
    }
}

/// The client connects by itself, in its own time.
async fn connected(sink: &NatsSink) {
    for _ in 0..250 {
        if outbox_core::Sink::check(sink).await.is_ok() {
            return;
        }
        // real time: the client connects.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("not connected");
}

#[async_trait]
impl SinkHarness for Nats {
    type Sink = NatsSink;

    const FAULTS: &'static [Fault] = &[Fault::RefusedForNow, Fault::Held, Fault::Down];
    // A server treats all messages of a stream alike.
    const FAULTS_OF_ONE: &'static [Fault] = &[];

    async fn sink(&self) -> NatsSink {
        let config = NatsConfig::new(self.proxy.url()).with_subject(self.stream.subject());
        let options = async_nats::ConnectOptions::new().user_and_password("relay".into(), "hunter2".into());
        let sink = NatsSink::connect_with(config, options).await.unwrap();
        self.sink.lock().unwrap().replace(sink.clone());
        connected(&sink).await;
        sink
    }

    fn record(&self) -> Record {
        let payload = Payload::Json(r#"{"card":"4111-1111"}"#.into());
        Record::new(1, Uuid::now_v7(), "order.placed", payload)
    }

    async fn received(&self) -> Vec<Received> {
        let messages = self.stream.messages().await;
        messages.into_iter().map(|(id, names)| Received::new(Some(id), names)).collect()
    }

    async fn fail(&self, fault: Fault, _: Option<Uuid>) {
        match fault {
            Fault::RefusedForNow => {
                let mut config = self.stream.config();
                config.max_bytes = 1;
                self.stream.set(config).await;
            }
            Fault::Held => self.proxy.set(Weather::Silent).await,
            Fault::Down => {
                self.proxy.set(Weather::Down).await;
                // Down, and known to be: what is under way at that moment may have been stored.
                let sink = self.sink.lock().unwrap().clone().unwrap();
                while outbox_core::Sink::check(&sink).await.is_ok() {}
            }
            other => panic!("{other:?} is not listed"),
        }
    }

    async fn heal(&self) {
        self.stream.set(self.stream.config()).await;
        self.proxy.set(Weather::Fair).await;
        let sink = self.sink.lock().unwrap().clone();
        if let Some(sink) = sink {
            connected(&sink).await;
        }
    }

    fn unacceptable(&self) -> Vec<(&'static str, Record)> {
        let to = |destination: &str| {
            let mut record = self.record();
            record.destination = Some(destination.into());
            record
        };
        let mut large = self.record();
        large.payload = Payload::Bytes(vec![b'x'; 200_000]);
        let mut larger = self.record();
        larger.payload = Payload::Bytes(vec![b'x'; 2_000_000]);
        vec![
            ("a space in the subject", to("a b")),
            ("a line in the subject", to("a\r\nPUB x 1")),
            ("an empty token", to("a..b")),
            ("a wildcard", to("*")),
            ("the other wildcard", to(">")),
            ("larger than the stream takes", large),
            ("larger than the server takes", larger),
        ]
    }

    fn secrets(&self) -> Vec<String> {
        vec!["hunter2".into(), "4111-1111".into()]
    }
}

outbox_core::sink_conformance!(match broker::url() {
    Some(url) => Nats::new(&url).await,
    None => return,
});
