//! What librdkafka says by itself: errors, log lines, statistics.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use metrics::{counter, gauge};
use rdkafka::{
    ClientContext, Statistics,
    config::RDKafkaLogLevel,
    error::{KafkaError, RDKafkaErrorCode as Code},
};

use tokio::sync::Notify;

use crate::error::{is_refusal, text};

/// Topics remembered as ready. Past that they are forgotten, and looked up once more.
const READY_MAX: usize = 10_000;

/// What is known of the cluster: which topics can be sent to right now.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    known: Mutex<Known>,
    refused: Notify,
}

#[derive(Debug, Default)]
struct Known {
    ready: HashSet<String>,
    refusal: Option<Code>,
}

impl Cluster {
    /// Whether the cluster answered for this topic and nothing has gone wrong since.
    pub(crate) fn is_ready(&self, topic: &str) -> bool {
        self.known().ready.contains(topic)
    }

    pub(crate) fn set_ready(&self, topic: String) {
        let mut known = self.known();
        known.refusal = None;
        if known.ready.len() >= READY_MAX {
            known.ready.clear();
        }
        known.ready.insert(topic);
    }

    pub(crate) fn forget(&self, topic: &str) {
        self.known().ready.remove(topic);
    }

    pub(crate) fn forget_all(&self) {
        self.known().ready.clear();
    }

    /// Why the cluster did not let us in, when that was the last thing heard of it.
    pub(crate) fn refusal(&self) -> Option<Code> {
        self.known().refusal
    }

    fn heard(&self, code: Code) {
        let mut known = self.known();
        known.ready.clear();
        if is_refusal(code) {
            known.refusal = Some(code);
            self.refused.notify_waiters();
        }
    }

    /// Waits until the cluster does not let us in.
    pub(crate) async fn refused(&self) {
        self.refused.notified().await;
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ties a client of ours to its [`Cluster`], to `tracing` and to `metrics`.
#[derive(Clone)]
pub(crate) struct Context {
    cluster: Arc<Cluster>,
}

impl Context {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster }
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error => tracing::error!(target: "librdkafka", facility, "{message}"),
            RDKafkaLogLevel::Warning => tracing::warn!(target: "librdkafka", facility, "{message}"),
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
                tracing::info!(target: "librdkafka", facility, "{message}");
            }
            RDKafkaLogLevel::Debug => tracing::debug!(target: "librdkafka", facility, "{message}"),
        }
    }

    /// Any error of the client as a whole puts what was ready in doubt: it costs one look-up.
    fn error(&self, error: KafkaError, reason: &str) {
        let Some(code) = error.rdkafka_error_code() else { return };
        self.cluster.heard(code);
        tracing::warn!(target: "librdkafka", error = text(code), "{reason}");
    }

    fn stats(&self, statistics: Statistics) {
        record(&statistics);
    }
}

/// Gauges and counters of one client, by its `client.id` and the broker's name.
#[allow(clippy::cast_precision_loss, reason = "a gauge is a float")]
fn record(statistics: &Statistics) {
    let client = || statistics.client_id.clone();
    gauge!("outbox_kafka_queue_messages", "client" => client()).set(statistics.msg_cnt as f64);
    gauge!("outbox_kafka_queue_bytes", "client" => client()).set(statistics.msg_size as f64);
    counter!("outbox_kafka_messages_total", "client" => client()).absolute(unsigned(statistics.txmsgs));
    counter!("outbox_kafka_message_bytes_total", "client" => client())
        .absolute(unsigned(statistics.txmsg_bytes));
    for broker in statistics.brokers.values().filter(|broker| broker.nodeid >= 0) {
        let labels = [("client", client()), ("broker", format!("{}:{}", broker.nodeid, broker.nodename))];
        let up = if broker.state == "UP" { 1.0 } else { 0.0 };
        gauge!("outbox_kafka_broker_up", &labels).set(up);
        gauge!("outbox_kafka_broker_in_flight_requests", &labels).set(broker.waitresp_cnt as f64);
        counter!("outbox_kafka_broker_retries_total", &labels).absolute(broker.txretries);
        counter!("outbox_kafka_broker_timeouts_total", &labels).absolute(broker.req_timeouts);
        if let Some(rtt) = &broker.rtt {
            gauge!("outbox_kafka_broker_round_trip_seconds", &labels).set(rtt.avg as f64 / 1e6);
        }
    }
}

fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_client_puts_every_topic_in_doubt() {
        let cluster = Arc::new(Cluster::default());
        let context = Context::new(Arc::clone(&cluster));
        cluster.set_ready("orders".into());
        assert!(cluster.is_ready("orders"));
        context.error(KafkaError::Global(Code::AllBrokersDown), "1/1 brokers are down");
        assert!(!cluster.is_ready("orders"));
        assert_eq!(cluster.refusal(), None);

        context.error(KafkaError::Global(Code::Authentication), "wrong");
        context.error(KafkaError::Global(Code::AllBrokersDown), "1/1 brokers are down");
        assert_eq!(cluster.refusal(), Some(Code::Authentication));
        cluster.set_ready("orders".into());
        assert_eq!(cluster.refusal(), None);
    }

    #[test]
    fn topics_remembered_are_bounded() {
        let cluster = Cluster::default();
        for topic in 0..=READY_MAX {
            cluster.set_ready(topic.to_string());
        }
        assert!(cluster.is_ready(&READY_MAX.to_string()) && !cluster.is_ready("0"));
    }
}
