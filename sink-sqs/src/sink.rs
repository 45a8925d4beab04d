//! The sink: records in, requests out, and each entry's answer back to its record.

use std::{fmt, time::Duration};

use aws_config::{BehaviorVersion, Region, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_sqs::{
    Client,
    config::{Credentials, StalledStreamProtectionConfig},
    operation::send_message_batch::SendMessageBatchOutput,
    types::QueueAttributeName,
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use outbox_core::{
    Outcome, Outcomes, Receipt, Record, SendContext, SendError, Sink, SinkLimits, async_trait,
};
use tokio::{
    sync::OnceCell,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    batch::{ENTRIES_MAX, Entry, Lanes, requests},
    config::{MESSAGE_BYTES_MAX, SqsConfig},
    error::{Failure, SqsError, SqsErrorKind, of_code, of_request},
    message::Template,
    queue::{Queue, Urls},
};

/// The longest that a [`check`](Sink::check) takes.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// How much longer than allowed an answer is waited for: by then the relay has dropped the send, and counts it.
const OVERTIME: Duration = Duration::from_secs(1);
/// The version of the SDK's defaults that this crate was tested with.
const BEHAVIOR: fn() -> BehaviorVersion = BehaviorVersion::v2026_01_12;

/// Sends records as messages of Amazon SQS.
///
/// # Examples
///
/// ```
/// use sink_sqs::{SqsConfig, SqsSink};
///
/// let sink = SqsSink::connect(SqsConfig::new("orders"))?;
/// # Ok::<(), sink_sqs::SqsError>(())
/// ```
pub struct SqsSink {
    config: SqsConfig,
    queue: Option<Queue>,
    template: Template,
    client: OnceCell<Client>,
    urls: Urls,
    limits: SinkLimits,
}

/// What became of one request.
struct Answered {
    queue: Queue,
    entries: Vec<Entry>,
    result: Result<SendMessageBatchOutput, Ended>,
}

/// How a request ended without an answer for each entry.
enum Ended {
    Failed(Failure),
    /// There was no time left to begin.
    NotBegun,
}

impl SqsSink {
    /// Makes the sink. Nothing is sent, and region and credentials are looked up at the first use.
    ///
    /// # Errors
    ///
    /// When a setting is out of its range.
    pub fn connect(config: SqsConfig) -> Result<Self, SqsError> {
        let setting = |message: &str| SqsError::new(SqsErrorKind::Setting, message);
        let queue = match &config.queue {
            Some(text) => Some(Queue::parse(text).map_err(|why| SqsError::new(SqsErrorKind::Queue, why))?),
            None => None,
        };
        if !(1_024..=MESSAGE_BYTES_MAX).contains(&config.message_bytes_max) {
            return Err(setting("message_bytes_max is not from 1,024 to 1,048,576"));
        }
        let delay_seconds = match config.delay {
            Some(delay) if delay.subsec_nanos() != 0 || delay > Duration::from_secs(900) => {
                return Err(setting("the delay is not in whole seconds up to 15 minutes"));
            }
            Some(_) if queue.as_ref().is_some_and(|queue| queue.is_fifo) => {
                return Err(setting("messages of a FIFO queue have no delay of their own"));
            }
            delay => delay.and_then(|delay| i32::try_from(delay.as_secs()).ok()),
        };
        Ok(Self {
            queue,
            template: Template::new(&config, delay_seconds),
            client: OnceCell::new(),
            urls: Urls::default(),
            limits: SinkLimits::default()
                .with_batch_records(std::num::NonZeroUsize::MIN.saturating_add(ENTRIES_MAX - 1))
                .with_batch_bytes(config.message_bytes_max)
                .with_batches_in_flight(config.in_flight_max),
            config,
        })
    }

    /// Makes the sink with a client of one's own: its HTTP stack, credentials, region and endpoint. Those of
    /// the configuration are not read. The client's retries and timeouts are replaced by this sink's.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub fn from_client(client: &Client, config: SqsConfig) -> Result<Self, SqsError> {
        let mut sink = Self::connect(config)?;
        let client = governed(client.config().to_builder(), &sink.config);
        sink.client = OnceCell::new_with(Some(client));
        Ok(sink)
    }

    async fn client(&self) -> Result<&Client, Failure> {
        self.client
            .get_or_try_init(|| async {
                let mut loader = aws_config::defaults(BEHAVIOR());
                if let Some(region) = &self.config.region {
                    loader = loader.region(Region::new(region.clone()));
                }
                if let Some(endpoint) = &self.config.endpoint {
                    loader = loader.endpoint_url(endpoint);
                }
                if let Some(given) = &self.config.credentials {
                    loader = loader.credentials_provider(Credentials::new(
                        &given.access_key_id,
                        &given.secret_access_key,
                        given.session_token.clone(),
                        None,
                        "configuration",
                    ));
                }
                // Boxed: the chain's future is large.
                let loaded = Box::pin(loader.load()).await;
                if loaded.region().is_none() {
                    return Err(Failure::sink_is_down("no region is configured or found"));
                }
                Ok(governed(aws_sdk_sqs::config::Builder::from(&loaded), &self.config))
            })
            .await
    }

    fn queue_of(&self, record: &Record) -> Result<Queue, SendError> {
        match (&record.destination, &self.queue) {
            (Some(destination), _) => Queue::parse(destination).map_err(SendError::permanent),
            (None, Some(queue)) => Ok(queue.clone()),
            (None, None) => {
                Err(SendError::permanent("the record names no destination and the sink no queue"))
            }
        }
    }

    /// The queue's URL, which SQS is asked for when only the name is known.
    async fn url(&self, client: &Client, queue: &Queue) -> Result<String, Failure> {
        if let Some(url) = self.urls.get(queue) {
            return Ok(url);
        }
        let answer = client.get_queue_url().queue_name(queue.name()).send().await;
        // A look-up writes no record, so none was received.
        let answer = answer.map_err(|error| of_request(&error).of_look_up())?;
        let url = answer.queue_url.ok_or_else(|| Failure::sink_is_down("SQS names no URL for the queue"))?;
        self.urls.keep(queue, &url);
        Ok(url)
    }

    async fn request(&self, queue: Queue, entries: Vec<Entry>, deadline: Instant) -> Answered {
        let result = self.ask(&queue, &entries, deadline).await;
        if let Err(Ended::Failed(failure)) = &result
            && failure.queue_is_gone
        {
            self.urls.forget(&queue);
        }
        Answered { queue, entries, result }
    }

    async fn ask(
        &self,
        queue: &Queue,
        entries: &[Entry],
        deadline: Instant,
    ) -> Result<SendMessageBatchOutput, Ended> {
        if Instant::now() >= deadline {
            return Err(Ended::NotBegun);
        }
        let prepared = async {
            let client = self.client().await?;
            Ok((client, self.url(client, queue).await?))
        };
        let (client, url) = match timeout_at(deadline, prepared).await {
            Ok(prepared) => prepared.map_err(Ended::Failed)?,
            Err(_) => {
                return Err(Ended::Failed(Failure::sink_is_down(
                    "region, credentials or the queue's URL were not found in time",
                )));
            }
        };
        let mut request = client.send_message_batch().queue_url(url);
        for (id, entry) in entries.iter().enumerate() {
            let entry = entry
                .message
                .entry(id)
                .map_err(|_| Ended::Failed(Failure::sink_is_down("the SDK cannot build the request")))?;
            request = request.entries(entry);
        }
        match timeout_at(deadline + OVERTIME, request.send()).await {
            Ok(answer) => answer.map_err(|error| Ended::Failed(of_request(&error))),
            Err(_) => Err(Ended::Failed(Failure::no_answer("no answer in time: it may have been received"))),
        }
    }

    /// Writes each entry's end; the lanes that may go on are returned.
    fn settle(
        &self,
        queue: &Queue,
        entries: Vec<Entry>,
        answer: &SendMessageBatchOutput,
        lanes: &mut Lanes,
        outcomes: &mut Outcomes,
    ) -> Vec<usize> {
        let mut free = Vec::new();
        for (id, entry) in entries.into_iter().enumerate() {
            let id = id.to_string();
            if let Some(refused) = answer.failed().iter().find(|failed| failed.id() == id) {
                let failure = of_code(refused.code(), refused.sender_fault());
                if failure.queue_is_gone {
                    self.urls.forget(queue);
                }
                lanes.fail(entry.lane, entry.at, failure.to_send_error(), outcomes);
            } else if let Some(taken) = answer.successful().iter().find(|taken| taken.id() == id) {
                outcomes.sent(entry.at, Receipt::new(format!("message {}", taken.message_id())));
                free.push(entry.lane);
            } else {
                // Not a word about it: it stays unknown, and what is behind it waits.
                lanes.stop(entry.lane, outcomes);
            }
        }
        free
    }
}

/// The client with one policy: no retries of its own, and no timeout but that of connecting.
fn governed(builder: aws_sdk_sqs::config::Builder, config: &SqsConfig) -> Client {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(config.connect_timeout)
        .disable_read_timeout()
        .disable_operation_timeout()
        .disable_operation_attempt_timeout()
        .build();
    Client::from_conf(
        builder
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts)
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .build(),
    )
}

#[async_trait]
impl Sink for SqsSink {
    async fn send(&self, record: &Record, cx: &SendContext) -> Result<Receipt, SendError> {
        let mut outcomes = Outcomes::new(1);
        self.send_batch(std::slice::from_ref(record), cx, &mut outcomes).await;
        match outcomes.take(0).0 {
            Outcome::Sent(receipt) => Ok(receipt),
            Outcome::Failed(error) => Err(error),
            Outcome::NotAttempted => Err(SendError::unavailable("there was no time left to send")),
            _ => Err(SendError::transient("SQS said nothing about the message: it may have been received")),
        }
    }

    async fn send_batch(&self, records: &[Record], cx: &SendContext, outcomes: &mut Outcomes) {
        let deadline = Instant::now() + cx.timeout;
        let mut lanes =
            Lanes::new(records, cx, |record| self.queue_of(record).ok().map(|queue| queue.is_fifo));
        let mut free = lanes.all();
        let mut under_way = FuturesUnordered::new();
        loop {
            let mut ready = Vec::with_capacity(free.len());
            for lane in free.drain(..) {
                let Some(at) = lanes.next(lane) else { continue };
                let Some(record) = records.get(at) else { continue };
                let made = self.queue_of(record).and_then(|queue| {
                    let message = self.template.message(record, &queue)?;
                    Ok((queue, Entry { lane, at, message }))
                });
                match made {
                    Ok(made) => ready.push(made),
                    Err(error) => lanes.fail(lane, at, error, outcomes),
                }
            }
            for (queue, entries) in requests(ready, self.config.message_bytes_max) {
                under_way.push(self.request(queue, entries, deadline));
            }
            let Some(Answered { queue, entries, result }) = under_way.next().await else { return };
            match result {
                Ok(answer) => free = self.settle(&queue, entries, &answer, &mut lanes, outcomes),
                // SQS refused the request for a record and does not say for which: each goes alone.
                Err(Ended::Failed(failure)) if failure.is_of_a_record() && entries.len() > 1 => {
                    for entry in entries {
                        under_way.push(self.request(queue.clone(), vec![entry], deadline));
                    }
                }
                Err(Ended::Failed(failure)) => {
                    for entry in entries {
                        lanes.fail(entry.lane, entry.at, failure.to_send_error(), outcomes);
                    }
                }
                Err(Ended::NotBegun) => {
                    for entry in entries {
                        outcomes.not_attempted(entry.at);
                        lanes.stop(entry.lane, outcomes);
                    }
                }
            }
        }
    }

    fn limits(&self) -> SinkLimits {
        self.limits
    }

    /// Asks for the attributes of the configured queue, which needs `sqs:GetQueueAttributes`. With queues by
    /// destination there is nothing to ask.
    async fn check(&self) -> Result<(), SendError> {
        let Some(queue) = &self.queue else { return Ok(()) };
        let asked = async {
            let client = self.client().await?;
            let url = self.url(client, queue).await?;
            let request =
                client.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::QueueArn);
            request.send().await.map_err(|error| of_request(&error).of_look_up())
        };
        match timeout(CHECK_TIMEOUT, asked).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(failure)) => {
                if failure.queue_is_gone {
                    self.urls.forget(queue);
                }
                Err(failure.to_send_error())
            }
            Err(_) => Err(Failure::sink_is_down("no answer in time").to_send_error()),
        }
    }

    fn name(&self) -> &str {
        "sqs"
    }
}

impl fmt::Debug for SqsSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsSink").field("config", &self.config).finish_non_exhaustive()
    }
}
