//! The sink itself.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use outbox_core::{
    ErrorScope, Outcomes, Receipt, Record, SendContext, SendError, Sink, SinkLimits, async_trait,
};
use rdkafka::{ClientConfig, ClientContext, error::KafkaResult, producer::FutureProducer};
use tokio::time::Instant;

use crate::{
    ConnectError, KafkaConfig,
    client::{Client, Factory, Failure, Producer, refused},
    context::{Cluster, Context},
    error::of_code,
    message::Template,
    settings::{Origin, Settings},
};

/// What a relay hands over in one call: it costs the relay less than as many calls, and no record waits for another.
const BATCH_RECORDS_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(31);

/// Sends records to Kafka, each acknowledged by all in-sync replicas.
///
/// # Examples
///
/// ```no_run
/// use sink_kafka::{KafkaConfig, KafkaSink};
///
/// let kafka = KafkaSink::connect(KafkaConfig::new("localhost:9092").with_topic("shop.{kind}"))?;
/// let audit = kafka.for_topic("audit")?; // another route, the same connections
/// # Ok::<(), sink_kafka::ConnectError>(())
/// ```
pub struct KafkaSink {
    template: Template,
    limits: SinkLimits,
    client: Arc<Client>,
    solo: Arc<Client>,
    is_closed: AtomicBool,
}

impl KafkaSink {
    /// Makes a client for the cluster. It connects by itself, and again whenever it has to.
    ///
    /// # Errors
    ///
    /// When the configuration cannot hold; an absent cluster is no error here, but one of
    /// [`check`](Sink::check).
    pub fn connect(config: KafkaConfig) -> Result<Self, ConnectError> {
        let settings = config.settings(Origin::Own)?;
        let cluster = Arc::new(Cluster::default());
        let factory = factory(settings.client(), &cluster);
        let producer = factory().map_err(|error| ConnectError::of_client(&error))?;
        let client = Client::new(Some(producer), true, factory, cluster, settings.message_timeout);
        Self::assemble(&config, client, &settings)
    }

    /// Sends through a producer that the application has.
    ///
    /// `config` is made from the `ClientConfig` of that producer, by [`KafkaConfig::from_client`]: it
    /// must ask for idempotence and for a `message.timeout.ms` 2 s below the send timeout. `factory`
    /// makes another when the first meets an error that it does not survive; that one belongs to the
    /// sink. The first is never purged. Its partitioner is its own: librdkafka's default is not Java's.
    /// Its context is too: the sink hears of a lost connection only by the sends that fail of it, and
    /// what it hands over until then is withdrawn by `message.timeout.ms`.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub fn from_producer<C>(
        producer: FutureProducer<C>,
        config: KafkaConfig,
        factory: impl Fn() -> KafkaResult<FutureProducer<C>> + Send + Sync + 'static,
    ) -> Result<Self, ConnectError>
    where
        C: ClientContext + 'static,
    {
        let settings = config.settings(Origin::Foreign)?;
        let factory: Factory =
            Arc::new(move || factory().map(|producer| Arc::new(producer) as Arc<dyn Producer>));
        let cluster = Arc::new(Cluster::default());
        let client = Client::new(Some(Arc::new(producer)), false, factory, cluster, settings.message_timeout);
        Self::assemble(&config, client, &settings)
    }

    /// A sink that sends to this topic, or by this template, over the same connections.
    ///
    /// # Errors
    ///
    /// When the topic is none.
    pub fn for_topic(&self, topic: impl Into<String>) -> Result<Self, ConnectError> {
        let template = self.template.with_topic(topic.into())?;
        Ok(Self::new(template, self.limits, Arc::clone(&self.client), Arc::clone(&self.solo)))
    }

    fn assemble(
        config: &KafkaConfig,
        client: Arc<Client>,
        settings: &Settings<'_>,
    ) -> Result<Self, ConnectError> {
        let template = Template::new(config.topic.clone(), config.cloud_events.clone())?;
        let cluster = Arc::new(Cluster::default());
        let factory = factory(settings.solo_client(), &cluster);
        let solo = Client::new(None, true, factory, cluster, settings.solo_timeout());
        let batch = config.in_flight_max.min(BATCH_RECORDS_MAX);
        let batches = NonZeroUsize::new(config.in_flight_max.get() / batch).unwrap_or(NonZeroUsize::MIN);
        let limits = SinkLimits::default().with_batch_records(batch).with_batches_in_flight(batches);
        Ok(Self::new(template, limits, client, solo))
    }

    fn new(template: Template, limits: SinkLimits, client: Arc<Client>, solo: Arc<Client>) -> Self {
        client.open();
        solo.open();
        Self { template, limits, client, solo, is_closed: AtomicBool::new(false) }
    }
}

fn factory(config: ClientConfig, cluster: &Arc<Cluster>) -> Factory {
    let context = Context::new(Arc::clone(cluster));
    Arc::new(move || {
        let producer: FutureProducer<Context> = config.create_with_context(context.clone())?;
        Ok(Arc::new(producer) as Arc<dyn Producer>)
    })
}

/// The places of the records that go one after the other.
fn lanes(records: &[Record], pipelined_keys: bool) -> Vec<VecDeque<usize>> {
    let mut lanes: Vec<VecDeque<usize>> = Vec::with_capacity(records.len());
    let mut lane_of = HashMap::new();
    for (at, record) in records.iter().enumerate() {
        let lane = match record.key.as_deref().filter(|_| !pipelined_keys) {
            Some(key) => *lane_of.entry(key).or_insert(lanes.len()),
            None => lanes.len(),
        };
        if lane == lanes.len() {
            lanes.push(VecDeque::new());
        }
        lanes[lane].push_back(at);
    }
    lanes
}

fn closed() -> SendError {
    SendError::unavailable("the sink is closed").with_scope(ErrorScope::Sink)
}

/// Shows how it sends, and nothing of the client's settings.
impl fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSink")
            .field("template", &self.template)
            .field("limits", &self.limits)
            .field("is_closed", &self.is_closed)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Sink for KafkaSink {
    async fn send(&self, record: &Record, cx: &SendContext) -> Result<Receipt, SendError> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        let started = Instant::now();
        let message = self.template.message(record)?;
        let code = match self.client.send(&message, cx.timeout).await {
            Ok(receipt) => return Ok(receipt),
            Err(Failure::Told(error)) => return Err(error),
            Err(Failure::Batch(code)) => code,
        };
        // The broker refused a batch, and librdkafka takes none apart: it may be another record's fault.
        let left = cx.timeout.saturating_sub(started.elapsed());
        if self.solo.spare(left).is_none() {
            return Err(SendError::transient(of_code(code, "send in a batch").to_string()));
        }
        match self.solo.send(&message, left).await {
            Ok(receipt) => Ok(receipt),
            Err(Failure::Batch(code)) => Err(refused(code, &message)),
            Err(Failure::Told(error)) => Err(error),
        }
    }

    /// Keys side by side, the records of a key in sequence, as the default does; but a record for which the
    /// batch has no time left is not begun, since it could not be withdrawn in time.
    async fn send_batch(&self, records: &[Record], cx: &SendContext, outcomes: &mut Outcomes) {
        let end = Instant::now() + cx.timeout;
        let mut lanes = lanes(records, cx.pipelined_keys);
        let step = |lane: usize, at: usize| async move {
            let left = end.saturating_duration_since(Instant::now());
            let mut cx = *cx;
            // When the whole timeout is too short, the send itself says so.
            let is_late = self.client.spare(left).is_none() && self.client.spare(cx.timeout).is_some();
            if !is_late {
                cx.timeout = left;
            }
            (lane, at, if is_late { None } else { Some(self.send(&records[at], &cx).await) })
        };
        let mut under_way: FuturesUnordered<_> = lanes
            .iter_mut()
            .enumerate()
            .filter_map(|(lane, places)| places.pop_front().map(|at| step(lane, at)))
            .collect();
        while let Some((lane, at, result)) = under_way.next().await {
            let is_sent = matches!(result, Some(Ok(_)));
            match result {
                Some(result) => outcomes.set(at, result),
                None => outcomes.not_attempted(at),
            }
            while let Some(next) = lanes[lane].pop_front() {
                if is_sent {
                    under_way.push(step(lane, next));
                    break;
                }
                outcomes.not_attempted(next);
            }
        }
    }

    fn limits(&self) -> SinkLimits {
        self.limits
    }

    async fn check(&self) -> Result<(), SendError> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        self.client.check(self.template.fixed_topic()).await
    }

    async fn close(&self, grace: Duration) {
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            futures_util::future::join(self.client.close(grace), self.solo.close(grace)).await;
        }
    }
}
