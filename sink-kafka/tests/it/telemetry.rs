//! What the client says by itself reaches `metrics` and `tracing`.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use outbox_core::Sink;
use sink_kafka::{KafkaConfig, KafkaSink};
use tokio::time::Instant;
use tracing::{Event, span};

use crate::{
    broker::{self, create_topic, record},
    send::CX,
};

/// Notes the names of metrics that were written to, and the targets of events.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<BTreeSet<String>>>);

struct Note(String, Notes);

impl Notes {
    fn names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, key: &Key) -> Arc<Note> {
        let labels: Vec<_> = key.labels().map(metrics::Label::key).collect();
        Arc::new(Note(format!("{} {}", key.name(), labels.join(",")), self.clone()))
    }
}

impl CounterFn for Note {
    fn increment(&self, _: u64) {}

    fn absolute(&self, value: u64) {
        if value > 0 {
            self.1.names().insert(self.0.clone());
        }
    }
}

impl GaugeFn for Note {
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {}

    fn set(&self, _: f64) {
        self.1.names().insert(self.0.clone());
    }
}

impl Recorder for Notes {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.note(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.note(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

impl tracing::Subscriber for Notes {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "librdkafka"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        self.names().insert(format!("event {}", event.metadata().target()));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The client has threads of its own, so only a recorder and a subscriber for the whole process hear of them.
#[tokio::test]
async fn the_clients_statistics_are_metrics_and_its_log_is_traced() {
    let Some(brokers) = broker::brokers() else { return };
    let notes = Notes::default();
    metrics::set_global_recorder(notes.clone()).unwrap();
    tracing::subscriber::set_global_default(notes.clone()).unwrap();
    let topic = create_topic(&brokers, "telemetry", 1, &[]).await;
    let config = KafkaConfig::new(&brokers)
        .with_topic(&topic)
        .with_property("statistics.interval.ms", "50")
        .with_property("debug", "broker");
    let sink = KafkaSink::connect(config).unwrap();
    sink.send(&record("1"), &CX).await.unwrap();
    let wanted = [
        "event librdkafka",
        "outbox_kafka_broker_in_flight_requests client,broker",
        "outbox_kafka_broker_round_trip_seconds client,broker",
        "outbox_kafka_broker_up client,broker",
        "outbox_kafka_message_bytes_total client",
        "outbox_kafka_messages_total client",
        "outbox_kafka_queue_bytes client",
        "outbox_kafka_queue_messages client",
    ];
    let end = Instant::now() + Duration::from_secs(10);
    while !wanted.iter().all(|name| notes.names().contains(*name)) {
        assert!(Instant::now() < end, "{:?}", notes.names());
        // real time: the client reports by its own clock.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
