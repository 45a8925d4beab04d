//! The producer behind a sink: when it may be handed a message, what became of one, and its renewal
//! after an error that it does not survive.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use outbox_core::{ErrorScope, Receipt, SendError};
use rdkafka::{
    ClientContext,
    error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code},
    metadata::Metadata,
    producer::{DeliveryFuture, FutureProducer, FutureRecord, Producer as _, PurgeConfig},
};
use tokio::{sync::Notify, task::JoinHandle, time::Instant};

use crate::{
    context::Cluster,
    error::{self, is_lost, is_unknown, may_be_anothers},
    lookup::{Lookup, Lookups},
    message::Message,
};

/// How long the client may take past a message's own timeout until it reports it: it looks once a second.
const SCAN: Duration = Duration::from_secs(1);
/// What is left of the grace, at the most, when flushing ends.
const ENDING: Duration = Duration::from_millis(500);
/// Room in the client's queue that is freed by others than this sink is noticed this soon.
const ROOM_POLL: Duration = Duration::from_millis(20);
/// A name that no topic can have: a broker answers, and creates none.
const NO_TOPIC: &str = ".";

/// A producer, whatever its context.
pub(crate) trait Producer: Send + Sync {
    fn produce<'a>(&self, record: FutureRecord<'a, [u8], [u8]>) -> Produced<'a>;
    /// Blocks.
    fn metadata(&self, topic: &str, timeout: Duration) -> KafkaResult<Metadata>;
    fn has_died(&self) -> bool;
    /// Blocks.
    fn flush(&self, timeout: Duration) -> bool;
    fn purge(&self);
}

type Produced<'a> = Result<DeliveryFuture, Box<(KafkaError, FutureRecord<'a, [u8], [u8]>)>>;

impl<C: ClientContext + 'static> Producer for FutureProducer<C> {
    fn produce<'a>(&self, record: FutureRecord<'a, [u8], [u8]>) -> Produced<'a> {
        self.send_result(record).map_err(Box::new)
    }

    fn metadata(&self, topic: &str, timeout: Duration) -> KafkaResult<Metadata> {
        self.client().fetch_metadata(Some(topic), timeout)
    }

    fn has_died(&self) -> bool {
        self.client().fatal_error().is_some()
    }

    fn flush(&self, timeout: Duration) -> bool {
        rdkafka::producer::Producer::flush(self, timeout).is_ok()
    }

    fn purge(&self) {
        rdkafka::producer::Producer::purge(self, PurgeConfig::default().queue().inflight());
    }
}

/// Makes a producer: the first, and another after an error that it does not survive.
pub(crate) type Factory = Arc<dyn Fn() -> KafkaResult<Arc<dyn Producer>> + Send + Sync>;

/// One producer at a time, shared by every sink made of it.
pub(crate) struct Client {
    live: RwLock<Live>,
    factory: Factory,
    renewing: tokio::sync::Mutex<()>,
    cluster: Arc<Cluster>,
    lookups: Lookups,
    message_timeout: Duration,
    room: Notify,
    /// Producers that have been replaced and are ending.
    endings: Mutex<Vec<JoinHandle<()>>>,
    /// The sinks that are not closed.
    open: AtomicUsize,
}

#[derive(Clone)]
struct Live {
    /// None before the first is needed, and after the last sink is closed.
    producer: Option<Arc<dyn Producer>>,
    generation: u64,
    /// Whether it is ours to purge.
    is_own: bool,
    is_closed: bool,
}

/// Why a message was not acknowledged, as far as the sink has to tell.
pub(crate) enum Failure {
    /// The broker refused the batch that the message was in.
    Batch(Code),
    /// All else.
    Told(SendError),
}

/// How one hand-over failed.
enum Attempt {
    Failed(Failure),
    /// The broker does not know the client any more, and did not write the message.
    Unknown(Code),
}

impl Client {
    /// A client that has its producer, or makes it for the first message.
    pub(crate) fn new(
        producer: Option<Arc<dyn Producer>>,
        is_own: bool,
        factory: Factory,
        cluster: Arc<Cluster>,
        message_timeout: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            live: RwLock::new(Live { producer, generation: 0, is_own, is_closed: false }),
            factory,
            renewing: tokio::sync::Mutex::new(()),
            cluster,
            lookups: Lookups::new(message_timeout),
            message_timeout,
            room: Notify::new(),
            endings: Mutex::default(),
            open: AtomicUsize::new(0),
        })
    }

    /// Hands the message over and waits for its acknowledgement.
    ///
    /// A broker that no longer knows the client has written nothing: the message goes once more through
    /// another, if there is time for it.
    pub(crate) async fn send(&self, message: &Message<'_>, timeout: Duration) -> Result<Receipt, Failure> {
        let started = Instant::now();
        let mut ended = self.attempt(message, timeout).await;
        if let Err(Attempt::Unknown(_)) = ended {
            let left = timeout.saturating_sub(started.elapsed());
            if self.spare(left).is_some() {
                ended = self.attempt(message, left).await;
            }
        }
        ended.map_err(|attempt| match attempt {
            Attempt::Failed(failure) => failure,
            Attempt::Unknown(code) => Failure::Told(died(code)),
        })
    }

    /// K5: the client cannot withdraw a single message, but it withdraws each by itself after the
    /// message timeout. So a message is handed over only while that and the client's next look at its
    /// queue still fit into `timeout`, and only when the cluster has just shown that it is there.
    async fn attempt(&self, message: &Message<'_>, timeout: Duration) -> Result<Receipt, Attempt> {
        let started = Instant::now();
        let Some(spare) = self.spare(timeout) else {
            let reason = format!(
                "a send timeout of {timeout:?} is too short to withdraw a late message: lower the sink's \
                 `send_timeout` to it, or raise the route's"
            );
            return Err(told(SendError::unavailable(reason).with_scope(ErrorScope::Sink)));
        };
        self.producer().await.map_err(told)?;
        if !self.cluster.is_ready(&message.topic) {
            match tokio::time::timeout(spare, self.look_up(&message.topic)).await {
                Ok(Lookup::Ready { .. }) => {}
                Ok(Lookup::Topic(code)) => return Err(told(error::of_code(code, "look up the topic"))),
                Ok(Lookup::Cluster(code)) => return Err(told(self.no_answer(code))),
                // Too little time says nothing of the cluster.
                Err(_) if spare < SCAN / 2 => {
                    let reason = "no time is left to look up the topic";
                    return Err(told(SendError::unavailable(reason).with_scope(ErrorScope::Record)));
                }
                Err(_) => return Err(told(self.no_answer(Code::OperationTimedOut))),
            }
        }

        let mut record = message.record();
        let (delivery, generation) = loop {
            let (producer, generation) = self.producer().await.map_err(told)?;
            let produced = producer.produce(record);
            // Not held while waiting: the last to hold it ends it, which blocks.
            drop(producer);
            match produced {
                Ok(delivery) => break (delivery, generation),
                Err(refused) => {
                    let (error, back) = *refused;
                    if error.rdkafka_error_code() != Some(Code::QueueFull) {
                        return Err(self.failed(&error, generation, message, Stage::HandOver).await);
                    }
                    if started.elapsed() >= spare {
                        return Err(told(error::of_code(Code::QueueFull, "hand over the record")));
                    }
                    record = back;
                    let _ = tokio::time::timeout(ROOM_POLL, self.room.notified()).await;
                }
            }
        };
        let delivered = delivery.await;
        self.room.notify_one();
        match delivered {
            Ok(Ok(at)) => Ok(Receipt::new(format!("{}[{}]@{}", message.topic, at.partition, at.offset))),
            Ok(Err((error, _))) => Err(self.failed(&error, generation, message, Stage::Delivery).await),
            Err(_) => Err(self.failed(&KafkaError::Canceled, generation, message, Stage::Delivery).await),
        }
    }

    /// How long a send of this timeout may wait before the hand-over. None: there is no time for it.
    pub(crate) fn spare(&self, timeout: Duration) -> Option<Duration> {
        timeout.checked_sub(self.message_timeout + SCAN)
    }

    /// Whether the topic can be sent to. Without a topic, whether the cluster is there.
    pub(crate) async fn check(&self, topic: Option<&str>) -> Result<(), SendError> {
        let (producer, generation) = self.producer().await?;
        if producer.has_died() {
            self.renew(generation).await;
        }
        drop(producer);
        match self.look_up(topic.unwrap_or(NO_TOPIC)).await {
            Lookup::Ready { .. } => Ok(()),
            Lookup::Topic(_) if topic.is_none() => Ok(()),
            Lookup::Topic(code) => Err(error::of_code(code, "look up the topic")),
            Lookup::Cluster(code) => Err(self.no_answer(code)),
        }
    }

    async fn failed(
        &self,
        error: &KafkaError,
        generation: u64,
        message: &Message<'_>,
        stage: Stage,
    ) -> Attempt {
        let topic = &*message.topic;
        let code = match error {
            // Its producer was dropped while it waited.
            KafkaError::Canceled => Code::PurgeQueue,
            error => error.rdkafka_error_code().unwrap_or(Code::Unknown),
        };
        let live = self.live();
        let is_dead =
            live.generation != generation || live.producer.is_some_and(|producer| producer.has_died());
        if is_dead || is_lost(code) {
            self.renew(generation).await;
        }
        if may_be_anothers(code) {
            // What the client itself refuses at the hand-over, it refuses for this record alone.
            return match stage {
                Stage::HandOver => told(refused(code, message)),
                Stage::Delivery => Attempt::Failed(Failure::Batch(code)),
            };
        }
        if is_unknown(code) {
            return Attempt::Unknown(code);
        }
        if is_dead || is_lost(code) {
            return told(died(code));
        }
        self.cluster.forget(topic);
        if code != Code::MessageTimedOut {
            return told(error::of_code(code, "send"));
        }
        // It says nothing of the reason: cluster, topic, partition, or this record.
        match tokio::time::timeout(SCAN / 2, self.look_up(topic)).await {
            Err(_) => told(self.no_answer(Code::OperationTimedOut)),
            Ok(Lookup::Cluster(code)) => told(self.no_answer(code)),
            Ok(Lookup::Topic(code)) => told(error::of_code(code, "send")),
            Ok(Lookup::Ready { leaderless: true }) => {
                let reason = "not acknowledged in time, while a partition has no leader";
                told(SendError::unavailable(reason).with_scope(ErrorScope::Record))
            }
            Ok(Lookup::Ready { leaderless: false }) => told(error::of_code(code, "send")),
        }
    }

    fn no_answer(&self, code: Code) -> SendError {
        let why = match self.cluster.refusal() {
            Some(refusal) => format!("the cluster did not let us in: {}", error::text(refusal)),
            None => format!("no answer from the cluster: {}", error::text(code)),
        };
        SendError::unavailable(why).with_scope(ErrorScope::Sink)
    }

    async fn look_up(&self, topic: &str) -> Lookup {
        self.lookups.look_up(topic, self.live().producer, &self.cluster).await
    }

    /// Puts another producer in the place of the dead one of this generation, once.
    async fn renew(&self, generation: u64) {
        let _renewing = self.renewing.lock().await;
        if self.live().generation != generation {
            return;
        }
        let factory = Arc::clone(&self.factory);
        let made = tokio::task::spawn_blocking(move || factory()).await;
        let Ok(Ok(producer)) = made else {
            tracing::error!("the Kafka client is dead and another cannot be made; the next send tries again");
            return;
        };
        let (old, was_own) = {
            let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
            if live.is_closed {
                return;
            }
            live.generation += 1;
            (live.producer.replace(producer), std::mem::replace(&mut live.is_own, true))
        };
        if let Some(old) = old {
            self.cluster.forget_all();
            tracing::warn!("the Kafka client met an error that it does not survive; another takes its place");
            // Nobody waits for the old one but `close`.
            let ending = end(old, Duration::ZERO, was_own);
            let mut endings = self.endings();
            endings.retain(|ending| !ending.is_finished());
            endings.push(ending);
        }
    }

    /// The producer and its generation; made now, if it is the first time.
    async fn producer(&self) -> Result<(Arc<dyn Producer>, u64), SendError> {
        let mut live = self.live();
        if live.producer.is_none() && !live.is_closed {
            self.renew(live.generation).await;
            live = self.live();
        }
        let missing = if live.is_closed { "the sink is closed" } else { "the Kafka client cannot be made" };
        let generation = live.generation;
        live.producer
            .map(|producer| (producer, generation))
            .ok_or_else(|| SendError::unavailable(missing).with_scope(ErrorScope::Sink))
    }

    pub(crate) fn open(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for what was handed over. With the last sink the producer ends, and what is left in it.
    pub(crate) async fn close(&self, grace: Duration) {
        let is_last = self.open.fetch_sub(1, Ordering::AcqRel) == 1;
        let Live { producer, is_own, .. } = if is_last {
            let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
            live.is_closed = true;
            Live { producer: live.producer.take(), ..*live }
        } else {
            self.live()
        };
        let Some(producer) = producer else { return };
        // Ending the client itself takes a moment too.
        let flush = grace - (grace / 4).min(ENDING);
        let mut endings = vec![end(producer, flush, is_last && is_own)];
        if is_last {
            endings.append(&mut self.endings());
        }
        if tokio::time::timeout(grace, join_all(endings)).await.is_err() {
            tracing::warn!("the Kafka client did not end within the grace");
        }
    }

    fn live(&self) -> Live {
        self.live.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn endings(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.endings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far a message came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The client did not take it.
    HandOver,
    /// The client gave it back.
    Delivery,
}

fn told(error: SendError) -> Attempt {
    Attempt::Failed(Failure::Told(error))
}

fn died(code: Code) -> SendError {
    let text = format!("the client met an error that it does not survive: {}", error::text(code));
    SendError::unavailable(text).with_scope(ErrorScope::Sink)
}

/// The refusal of one message for what it is. It names the size.
pub(crate) fn refused(code: Code, message: &Message<'_>) -> SendError {
    error::of_code(code, &format!("send a message of {} bytes to {}", message.bytes(), message.topic))
}

/// Flushes, purges if told, and drops, on a thread that may block.
fn end(producer: Arc<dyn Producer>, grace: Duration, purge: bool) -> JoinHandle<()> {
    tokio::task::spawn_blocking(move || {
        if !producer.flush(grace) && purge {
            producer.purge();
        }
    })
}
