//! How a `KafkaSink` is configured.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    num::NonZeroUsize,
    time::Duration,
};

use outbox_core::CloudEvents;
use rdkafka::ClientConfig;
use serde::{Deserialize, Serialize};

use crate::settings::canonical;

/// Which cluster, which topic, and every setting of librdkafka.
///
/// It can be read from a file. Its `Debug` shows the names of the properties, not their values.
///
/// # Examples
///
/// ```
/// use sink_kafka::KafkaConfig;
///
/// let config = KafkaConfig::new("kafka-1:9092,kafka-2:9092")
///     .with_topic("shop.{kind}")
///     .with_property("compression.type", "zstd");
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct KafkaConfig {
    /// Where the cluster is found: `host:port`, several of them with commas between.
    pub brokers: String,
    /// The topic of records that name no destination: a name, or a template in which `{kind}` stands for
    /// the record's kind. Default: none, and a record without a destination is dead.
    #[serde(default)]
    pub topic: Option<String>,
    /// Sends CloudEvents. Default: none, the payload goes as it is.
    #[serde(default)]
    pub cloud_events: Option<CloudEvents>,
    /// The send timeout of the routes that lead here: 3 s or more, default 5 s as the relay's own.
    /// What the broker has not acknowledged 2 s before it is withdrawn from the client. Short, and the first
    /// record of a new client may be late, for which the client has to be made known to the cluster. Longer than a route's, and the sink refuses that route's sends, since it could not withdraw them in time.
    #[serde(default = "send_timeout")]
    pub send_timeout: Duration,
    /// How many records may be under way, unless the route says otherwise. Default: 1,000. Few, and
    /// throughput is bound by round trips. A relay hands them over by up to 32 in a call, which is what a
    /// route's `concurrency` counts.
    #[serde(default = "in_flight_max")]
    pub in_flight_max: NonZeroUsize,
    /// [Properties of librdkafka](https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md),
    /// handed on as they are. They go before the sink's own choices, which are `acks=all`,
    /// `enable.idempotence=true`, `partitioner=murmur2_random`, `linger.ms=1`,
    /// `reconnect.backoff.max.ms=1000`, `statistics.interval.ms=10000` and timeouts that follow from [`send_timeout`](Self::send_timeout).
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// Names of properties that may weaken delivery: `acks`, `enable.idempotence`, `max.in.flight`,
    /// `queuing.strategy`, `retries`. Default: none, and a weak value is refused. With one here,
    /// acknowledged records can be lost, doubled or reordered by the cluster.
    #[serde(default)]
    pub weak_delivery: BTreeSet<String>,
}

fn send_timeout() -> Duration {
    Duration::from_secs(5)
}

fn in_flight_max() -> NonZeroUsize {
    NonZeroUsize::MIN.saturating_add(999)
}

impl KafkaConfig {
    /// The cluster that is found at these addresses.
    pub fn new(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            topic: None,
            cloud_events: None,
            send_timeout: send_timeout(),
            in_flight_max: in_flight_max(),
            properties: BTreeMap::new(),
            weak_delivery: BTreeSet::new(),
        }
    }

    /// The cluster and the properties of a client that the application has, for
    /// [`KafkaSink::from_producer`](crate::KafkaSink::from_producer).
    pub fn from_client(client: &ClientConfig) -> Self {
        let mut config = Self::new("");
        for name in client.config_map().into_keys() {
            let value = client.get(name).unwrap_or_default().to_owned();
            match canonical(name) {
                "bootstrap.servers" => config.brokers = value,
                name => {
                    config.properties.insert(name.to_owned(), value);
                }
            }
        }
        config
    }

    /// The topic of records that name no destination, or a template for it.
    #[must_use]
    pub fn with_topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    /// Sends CloudEvents.
    #[must_use]
    pub fn with_cloud_events(mut self, cloud_events: CloudEvents) -> Self {
        self.cloud_events = Some(cloud_events);
        self
    }

    /// The send timeout of the routes that lead here.
    #[must_use]
    pub fn with_send_timeout(mut self, timeout: Duration) -> Self {
        self.send_timeout = timeout;
        self
    }

    /// How many records may be under way.
    #[must_use]
    pub fn with_in_flight_max(mut self, records: NonZeroUsize) -> Self {
        self.in_flight_max = records;
        self
    }

    /// Sets a property of librdkafka.
    #[must_use]
    pub fn with_property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// Lets this property weaken delivery; see [`weak_delivery`](Self::weak_delivery).
    #[must_use]
    pub fn with_weak_delivery(mut self, property: impl Into<String>) -> Self {
        self.weak_delivery.insert(property.into());
        self
    }
}

/// Shows the names of the properties, not their values: passwords and keys are among them.
impl fmt::Debug for KafkaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaConfig")
            .field("brokers", &self.brokers)
            .field("topic", &self.topic)
            .field("cloud_events", &self.cloud_events)
            .field("send_timeout", &self.send_timeout)
            .field("in_flight_max", &self.in_flight_max)
            .field("properties", &self.properties.keys())
            .field("weak_delivery", &self.weak_delivery)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K7: a configuration shows no value of a property.
    #[test]
    fn debug_shows_no_secret() {
        let config = KafkaConfig::new("localhost:9092")
            .with_property("sasl.password", "s3cret")
            .with_property("ssl.key.pem", "s3cret");
        let shown = format!("{config:?}");
        assert!(!shown.contains("s3cret") && shown.contains("sasl.password"), "{shown}");
    }

    #[test]
    fn a_file_can_hold_it() {
        let config: KafkaConfig = serde_json::from_str(
            r#"{
                "brokers": "localhost:9092",
                "topic": "shop.{kind}",
                "properties": {"compression.type": "zstd"},
                "cloud_events": {"source": "/orders"}
            }"#,
        )
        .unwrap();
        assert_eq!(config.send_timeout, Duration::from_secs(5));
        assert_eq!(config.properties["compression.type"], "zstd");
        assert!(serde_json::from_str::<KafkaConfig>(r#"{"brokers": "a", "topics": "b"}"#).is_err());
    }
}
