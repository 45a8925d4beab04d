//! What the tests share: a sink that follows a script and keeps a log, and a relay to run.

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use outbox_core::{
    Filter, MemoryStore, NewRecord, Operate, Outcomes, Receipt, Record, RecordView, SendContext, SendError,
    Sink, SinkLimits, State, Store, TokioClock, Uuid, async_trait,
    relay::{Relay, RelayConfig, RelayError},
};
use tokio::{sync::oneshot, task::JoinHandle, time::Instant};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MILLI: Duration = Duration::from_millis(1);

/// What a send does after its time.
pub(crate) enum Do {
    Accept(Duration),
    Fail(Duration, SendError),
    Hang,
    Panic(&'static str),
    /// Says nothing about it.
    Forget,
}

/// One send, as the destination saw it.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) id: Uuid,
    pub(crate) seq: i64,
    pub(crate) kind: String,
    pub(crate) key: Option<String>,
    pub(crate) attempts: u32,
    pub(crate) begun: Instant,
    pub(crate) accepted: bool,
    /// The records of the same call.
    pub(crate) together: usize,
}

type Script = Arc<dyn Fn(&Record) -> Do + Send + Sync>;

/// A sink that does what its script says and logs what it was given.
#[derive(Clone)]
pub(crate) struct TestSink {
    script: Script,
    log: Arc<Mutex<Vec<Sent>>>,
    under_way: Arc<Mutex<(usize, usize)>>,
    limits: SinkLimits,
    unfit: Option<&'static str>,
}

impl TestSink {
    pub(crate) fn new(script: impl Fn(&Record) -> Do + Send + Sync + 'static) -> Self {
        Self {
            script: Arc::new(script),
            log: Arc::default(),
            under_way: Arc::default(),
            limits: SinkLimits::default(),
            unfit: None,
        }
    }

    pub(crate) fn accepting() -> Self {
        Self::new(|_| Do::Accept(Duration::ZERO))
    }

    pub(crate) fn in_batches(mut self, records: usize) -> Self {
        self.limits = self.limits.with_batch_records(NonZeroUsize::new(records).unwrap());
        self
    }

    pub(crate) fn unfit(mut self, why: &'static str) -> Self {
        self.unfit = Some(why);
        self
    }

    pub(crate) fn log(&self) -> Vec<Sent> {
        self.entries().clone()
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Sent>> {
        self.log.lock().unwrap()
    }

    pub(crate) fn sends(&self) -> usize {
        self.entries().len()
    }

    pub(crate) fn accepted(&self) -> usize {
        self.entries().iter().filter(|sent| sent.accepted).count()
    }

    /// How often each record was accepted.
    pub(crate) fn copies(&self) -> HashMap<Uuid, usize> {
        let mut copies = HashMap::new();
        for sent in self.entries().iter().filter(|sent| sent.accepted) {
            *copies.entry(sent.id).or_default() += 1;
        }
        copies
    }

    /// The most sends that were under way together.
    pub(crate) fn most_under_way(&self) -> usize {
        self.under_way.lock().unwrap().1
    }

    async fn one(&self, record: &Record, together: usize) -> Option<Result<Receipt, SendError>> {
        let place = {
            let mut log = self.entries();
            log.push(Sent {
                id: record.id,
                seq: record.seq,
                kind: record.kind.clone(),
                key: record.key.clone(),
                attempts: record.attempts,
                begun: Instant::now(),
                accepted: false,
                together,
            });
            log.len() - 1
        };
        let _under_way = UnderWay::new(Arc::clone(&self.under_way));
        match (self.script)(record) {
            Do::Accept(after) => {
                if !after.is_zero() {
                    tokio::time::sleep(after).await; // virtual time
                }
                self.entries()[place].accepted = true;
                Some(Ok(Receipt::new(format!("receipt {}", record.seq))))
            }
            Do::Fail(after, error) => {
                if !after.is_zero() {
                    tokio::time::sleep(after).await; // virtual time
                }
                Some(Err(error))
            }
            Do::Hang => std::future::pending().await,
            Do::Panic(text) => panic!("{text}"),
            Do::Forget => None,
        }
    }
}

struct UnderWay(Arc<Mutex<(usize, usize)>>);

impl UnderWay {
    fn new(count: Arc<Mutex<(usize, usize)>>) -> Self {
        {
            let mut count = count.lock().unwrap();
            count.0 += 1;
            count.1 = count.1.max(count.0);
        }
        Self(count)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.lock().unwrap().0 -= 1;
    }
}

#[async_trait]
impl Sink for TestSink {
    async fn send(&self, record: &Record, _: &SendContext) -> Result<Receipt, SendError> {
        match self.one(record, 1).await {
            Some(result) => result,
            None => Err(SendError::transient("forgotten")),
        }
    }

    async fn send_batch(&self, records: &[Record], _: &SendContext, outcomes: &mut Outcomes) {
        for (at, record) in records.iter().enumerate() {
            if let Some(result) = self.one(record, records.len()).await {
                outcomes.set(at, result);
            }
        }
    }

    fn limits(&self) -> SinkLimits {
        self.limits
    }

    async fn check(&self) -> Result<(), SendError> {
        match self.unfit {
            Some(why) => Err(SendError::unavailable(why)),
            None => Ok(()),
        }
    }

    fn name(&self) -> &str {
        "test"
    }
}

/// An outbox on the test's clock.
pub(crate) fn outbox() -> MemoryStore {
    MemoryStore::with_clock(TokioClock::new())
}

pub(crate) fn record(kind: &str) -> NewRecord {
    NewRecord::json(kind, &17).unwrap()
}

/// Enqueues in one committed transaction.
pub(crate) async fn enqueue(store: &MemoryStore, records: impl IntoIterator<Item = NewRecord>) -> Vec<Uuid> {
    let mut tx = store.begin();
    let mut ids = Vec::new();
    for record in records {
        ids.push(store.enqueue(&mut tx, record).await.unwrap().id());
    }
    tx.commit();
    ids
}

/// A relay under way.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), RelayError>>,
}

pub(crate) fn start<S: Store>(relay: Relay<S>) -> Running {
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(relay.run(async move {
        let _ = stopped.await;
    }));
    Running { stop: Some(stop), task }
}

impl Running {
    /// Asks it to stop and waits for its end.
    pub(crate) async fn stop(mut self) -> Result<(), RelayError> {
        drop(self.stop.take());
        self.task.await.unwrap()
    }

    /// Ends it as a SIGKILL would: nothing is written any more.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    /// Its end, when it ends by itself.
    pub(crate) async fn end(self) -> Result<(), RelayError> {
        self.task.await.unwrap()
    }
}

pub(crate) fn config() -> RelayConfig {
    RelayConfig::default()
}

/// Waits until `test` holds, for at most this much of the test's time.
pub(crate) async fn within(time: Duration, test: impl AsyncFn() -> bool) -> bool {
    let end = Instant::now() + time;
    let step = MILLI.max(time / 5_000);
    while Instant::now() < end {
        if test().await {
            return true;
        }
        tokio::time::sleep(step).await; // virtual time
    }
    test().await
}

pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await; // virtual time
}

pub(crate) async fn in_state(store: &MemoryStore, state: State) -> Vec<RecordView> {
    let mut found = Vec::new();
    loop {
        let after = found.last().map_or(0, |view: &RecordView| view.seq);
        let page = store.list(&Filter::state(state), after, 1_000).await.unwrap();
        if page.is_empty() {
            return found;
        }
        found.extend(page);
    }
}

pub(crate) async fn count(store: &MemoryStore, state: State) -> usize {
    in_state(store, state).await.len()
}

pub(crate) async fn all_sent(store: &MemoryStore, records: usize, time: Duration) {
    let sent = within(time, async || count(store, State::Sent).await == records).await;
    assert!(sent, "{} of {records} sent", count(store, State::Sent).await);
}

pub(crate) async fn view(store: &MemoryStore, id: Uuid) -> RecordView {
    store.show(id).await.unwrap().expect("the record is kept").0
}
