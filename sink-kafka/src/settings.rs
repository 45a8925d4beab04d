//! What a configuration becomes for librdkafka, and what of it is refused.

use std::{collections::BTreeMap, time::Duration};

use rdkafka::{ClientConfig, config::RDKafkaLogLevel};

use crate::{ConnectError, ConnectErrorKind, KafkaConfig};

/// How much earlier than the send's own deadline the client withdraws a message. It looks for late
/// messages once a second; the rest is for what comes before the hand-over.
const WITHDRAWAL: Duration = Duration::from_secs(2);

impl KafkaConfig {
    /// Checks every property, and fills in what the sink chooses.
    pub(crate) fn settings(&self, origin: Origin) -> Result<Settings<'_>, ConnectError> {
        let mut settings = self.properties()?;
        if origin == Origin::Own {
            for (name, value) in CHOICES {
                settings.entry(name).or_insert_with(|| value.to_owned());
            }
        }
        self.refuse_weak(&settings)?;
        let message_timeout = self.message_timeout(&settings, origin)?;
        let millis = message_timeout.as_millis();
        settings.insert("message.timeout.ms", millis.to_string());
        // A topic that is gone, or back, is then taken for that before messages time out.
        settings
            .entry("topic.metadata.propagation.max.ms")
            .or_insert_with(|| (millis / 2).min(500).to_string());
        settings.insert("bootstrap.servers", self.brokers.clone());
        Ok(Settings { properties: settings, message_timeout })
    }

    fn properties(&self) -> Result<BTreeMap<&str, String>, ConnectError> {
        let mut settings = BTreeMap::new();
        for (name, value) in &self.properties {
            let refused =
                |why: &str| ConnectError::new(ConnectErrorKind::Property, format!("property {name:?} {why}"));
            let name = canonical(name);
            match name {
                "bootstrap.servers" => return Err(refused("is set by `brokers`")),
                "transactional.id" => {
                    return Err(refused("needs transactions, which the sink has no use for"));
                }
                "delivery.report.only.error" if is_true(value) => {
                    return Err(refused("would keep back the acknowledgements that the sink waits for"));
                }
                _ => {}
            }
            if settings.insert(name, value.clone()).is_some() {
                return Err(refused("is set twice, by another of its names too"));
            }
        }
        Ok(settings)
    }

    fn refuse_weak(&self, settings: &BTreeMap<&str, String>) -> Result<(), ConnectError> {
        for name in &self.weak_delivery {
            if !WEAKENING.iter().any(|rule| rule.name == canonical(name)) {
                let message = format!("property {name:?} cannot weaken delivery, so it needs no permission");
                return Err(ConnectError::new(ConnectErrorKind::Weak, message));
            }
        }
        for rule in WEAKENING {
            let value = settings.get(rule.name).map_or(rule.unset, String::as_str);
            let allowed = self.weak_delivery.iter().any(|name| canonical(name) == rule.name);
            if (rule.is_weak)(value) && !allowed {
                let message = format!(
                    "property \"{}\" of {value:?} weakens delivery: {}; allow it by name in `weak_delivery` if that is meant",
                    rule.name, rule.because
                );
                return Err(ConnectError::new(ConnectErrorKind::Weak, message));
            }
        }
        Ok(())
    }

    fn message_timeout(
        &self,
        settings: &BTreeMap<&str, String>,
        origin: Origin,
    ) -> Result<Duration, ConnectError> {
        let refused = |message: String| ConnectError::new(ConnectErrorKind::Timeout, message);
        let most = self.send_timeout.checked_sub(WITHDRAWAL).filter(|most| *most >= Duration::from_secs(1));
        let Some(most) = most else {
            return Err(refused(format!("a send timeout of {:?} is less than 3s", self.send_timeout)));
        };
        let given = match settings.get("message.timeout.ms") {
            Some(text) => text.parse().map(Duration::from_millis).map_err(|_| {
                refused("property \"message.timeout.ms\" is no number of milliseconds".to_owned())
            })?,
            None if origin == Origin::Own => most,
            None => Duration::from_secs(300),
        };
        if given.is_zero() || given > most {
            return Err(refused(format!(
                "property \"message.timeout.ms\" must be from 1 to {}, 2 s less than the send timeout of {:?}, \
                 so that late messages are withdrawn",
                most.as_millis(),
                self.send_timeout
            )));
        }
        Ok(given)
    }
}

/// Whose client the settings are for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The sink makes it.
    Own,
    /// The application made it, with librdkafka's own defaults.
    Foreign,
}

/// Settings that have passed the checks.
#[derive(Clone)]
pub(crate) struct Settings<'a> {
    properties: BTreeMap<&'a str, String>,
    pub(crate) message_timeout: Duration,
}

impl Settings<'_> {
    pub(crate) fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        for (name, value) in &self.properties {
            client.set(*name, value);
        }
        // The rest is tracing's to filter.
        let level = if self.properties.contains_key("debug") {
            RDKafkaLogLevel::Debug
        } else {
            RDKafkaLogLevel::Info
        };
        client.set_log_level(level);
        client
    }

    /// Half as long: what comes to it has been refused once, and that took a part of the send's time.
    pub(crate) fn solo_timeout(&self) -> Duration {
        self.message_timeout.min((self.message_timeout / 2).max(Duration::from_secs(1)))
    }

    /// The client that sends each message in a request of its own.
    pub(crate) fn solo_client(&self) -> ClientConfig {
        let mut client = self.client();
        client.set("message.timeout.ms", self.solo_timeout().as_millis().to_string());
        client.set("batch.num.messages", "1").set("linger.ms", "0").set("statistics.interval.ms", "0");
        client
    }
}

/// What the sink sets unless the configuration does.
const CHOICES: [(&str, &str); 6] = [
    ("acks", "all"),
    ("enable.idempotence", "true"),
    // As Java's clients: equal keys meet in one partition, whichever language they are sent from.
    ("partitioner", "murmur2_random"),
    ("linger.ms", "1"),
    // A cluster that is back is noticed by the next probe or the one after.
    ("reconnect.backoff.max.ms", "1000"),
    ("statistics.interval.ms", "10000"),
];

struct Weakening {
    name: &'static str,
    /// What librdkafka takes when the property is not set.
    unset: &'static str,
    is_weak: fn(&str) -> bool,
    because: &'static str,
}

const WEAKENING: [Weakening; 5] = [
    Weakening {
        name: "acks",
        unset: "all",
        is_weak: |value| !matches!(value.trim(), "all" | "-1"),
        because: "a record counts as sent that not all in-sync replicas have",
    },
    Weakening {
        name: "enable.idempotence",
        unset: "false",
        is_weak: |value| !is_true(value),
        because: "the client's own retries can double and reorder records",
    },
    Weakening {
        name: "max.in.flight",
        // Idempotence, which has a rule of its own, brings it down to 5.
        unset: "5",
        is_weak: |value| value.trim().parse::<u32>().map_or(true, |requests| requests > 5),
        because: "more than 5 requests in flight can be reordered",
    },
    Weakening {
        name: "queuing.strategy",
        unset: "fifo",
        is_weak: |value| value.trim() != "fifo",
        because: "newer records overtake older ones",
    },
    Weakening {
        name: "retries",
        unset: "2147483647",
        is_weak: |value| value.trim().parse::<u32>().map_or(true, |retries| retries == 0),
        because: "each hiccup of a broker is then a failed attempt",
    },
];

fn is_true(value: &str) -> bool {
    matches!(value.trim().to_ascii_lowercase().as_str(), "true" | "t" | "1")
}

/// The one name of a property that has several.
pub(crate) fn canonical(name: &str) -> &str {
    match name {
        "metadata.broker.list" => "bootstrap.servers",
        "request.required.acks" => "acks",
        "delivery.timeout.ms" => "message.timeout.ms",
        "max.in.flight.requests.per.connection" => "max.in.flight",
        "message.send.max.retries" => "retries",
        "queue.buffering.max.ms" => "linger.ms",
        "compression.codec" => "compression.type",
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> KafkaConfig {
        KafkaConfig::new("localhost:9092").with_property(name, value)
    }

    fn refusal(config: &KafkaConfig) -> ConnectErrorKind {
        config.settings(Origin::Own).err().map(|error| error.kind()).expect("refused")
    }

    #[test]
    fn weak_delivery_is_refused_unless_it_is_asked_for_by_name() {
        for (name, value) in [
            ("acks", "1"),
            ("request.required.acks", "0"),
            ("enable.idempotence", "false"),
            ("max.in.flight", "6"),
            ("max.in.flight.requests.per.connection", "1000000"),
            ("queuing.strategy", "lifo"),
            ("retries", "0"),
            ("message.send.max.retries", "0"),
        ] {
            assert_eq!(refusal(&with(name, value)), ConnectErrorKind::Weak, "{name}={value}");
            let asked_for = with(name, value).with_weak_delivery(name);
            assert!(asked_for.settings(Origin::Own).is_ok(), "{name}={value}");
            let other = if canonical(name) == "acks" { "retries" } else { "acks" };
            let asked_otherwise = with(name, value).with_weak_delivery(other);
            assert_eq!(refusal(&asked_otherwise), ConnectErrorKind::Weak, "{name}={value}");
        }
        for (name, value) in [("acks", "-1"), ("acks", "all"), ("max.in.flight", "1"), ("retries", "3")] {
            assert!(with(name, value).settings(Origin::Own).is_ok(), "{name}={value}");
        }
    }

    #[test]
    fn permission_for_what_cannot_weaken_is_refused() {
        let config = KafkaConfig::new("localhost:9092").with_weak_delivery("ack");
        assert_eq!(refusal(&config), ConnectErrorKind::Weak);
    }

    #[test]
    fn what_the_sink_cannot_work_with_is_refused() {
        for (name, value) in [
            ("bootstrap.servers", "elsewhere:9092"),
            ("metadata.broker.list", "elsewhere:9092"),
            ("transactional.id", "t"),
            ("delivery.report.only.error", "true"),
        ] {
            assert_eq!(refusal(&with(name, value)), ConnectErrorKind::Property, "{name}");
        }
        let twice = with("acks", "all").with_property("request.required.acks", "all");
        assert_eq!(refusal(&twice), ConnectErrorKind::Property);
    }

    /// K5: a late message is withdrawn 2 s before the send's deadline, or the configuration is refused.
    #[test]
    fn messages_are_withdrawn_before_the_send_times_out() {
        let config = KafkaConfig::new("localhost:9092");
        let settings = config.settings(Origin::Own).unwrap();
        assert_eq!(settings.message_timeout, Duration::from_secs(3));
        assert_eq!(settings.client().get("message.timeout.ms"), Some("3000"));
        assert!(with("message.timeout.ms", "3000").settings(Origin::Own).is_ok());
        for (name, value) in [
            ("message.timeout.ms", "3001"),
            ("delivery.timeout.ms", "300000"),
            ("message.timeout.ms", "0"),
            ("message.timeout.ms", "soon"),
        ] {
            assert_eq!(refusal(&with(name, value)), ConnectErrorKind::Timeout, "{name}={value}");
        }
        let short = KafkaConfig::new("localhost:9092").with_send_timeout(Duration::from_millis(2_999));
        assert_eq!(refusal(&short), ConnectErrorKind::Timeout);
    }

    #[test]
    fn a_foreign_client_is_held_to_the_same_rules_by_librdkafkas_own_defaults() {
        let mut client = ClientConfig::new();
        client.set("metadata.broker.list", "localhost:9092").set("sasl.password", "s3cret");
        let kind = |client: &ClientConfig| {
            KafkaConfig::from_client(client).settings(Origin::Foreign).err().map(|error| error.kind())
        };
        assert_eq!(kind(&client), Some(ConnectErrorKind::Weak));
        client.set("enable.idempotence", "true");
        assert_eq!(kind(&client), Some(ConnectErrorKind::Timeout));
        client.set("delivery.timeout.ms", "2500");
        assert_eq!(kind(&client), None);

        let config = KafkaConfig::from_client(&client);
        let settings = config.settings(Origin::Foreign).unwrap();
        assert_eq!(settings.message_timeout, Duration::from_millis(2_500));
        let client = settings.client();
        assert_eq!(client.get("bootstrap.servers"), Some("localhost:9092"));
        assert_eq!(client.get("sasl.password"), Some("s3cret"));
        assert_eq!(client.get("partitioner"), None);
    }
}
