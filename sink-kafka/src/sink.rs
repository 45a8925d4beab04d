//! The sink itself.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use outbox_core::{ErrorScope, Receipt, Record, SendContext, SendError, Sink, SinkLimits, async_trait};
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
        let limits = SinkLimits::default().with_batches_in_flight(config.in_flight_max);
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
