//! Sinks that each break one rule, and the checks that must fail on them: a check that cannot fail shows nothing.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use outbox_core::{
    MemorySink, Outcome, Outcomes, Receipt, Record, SendContext, SendError, SendErrorKind, Sink, SinkLimits,
    Uuid, async_trait,
    conformance::{
        MemorySinkHarness,
        sink::{self as checks, Fault, Received, SinkHarness},
    },
};

use crate::must_fail::must_fail;

/// The rule that a sink breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    AcknowledgesEarly,
    DrawsNewIds,
    EverythingIsPermanent,
    ForgetsTheLast,
    InjectsHeaders,
    LeaksHeaders,
    LeaksThePayload,
    NeverRecovers,
    NothingIsPermanent,
    OneAfterTheOther,
    OvertakesFailures,
    QueuesWhileDown,
    ReordersOutcomes,
    SendsBackwards,
    SendsKeysInParallel,
    ShowsWhatItSent,
    TakesSilenceForYes,
    TriesAgainByItself,
}

macro_rules! wrong {
    ($($flaw:ident: $($check:ident),* $(,)?;)*) => {
        /// The checks that find a flaw.
        const CLAIMED: &[&str] = &[$($(stringify!($check)),*),*];

        $(#[allow(non_snake_case, reason = "the module is named as the flaw")]
        mod $flaw {
            $(#[test]
            fn $check() {
                super::on_wrong(super::Flaw::$flaw, async |harness| checks::$check(&harness).await);
            })*

            use super::checks;
        })*
    };
}

/// Runs a check that must fail, on a sink with this flaw.
fn on_wrong(flaw: Flaw, check: impl AsyncFnOnce(WrongHarness)) {
    outbox_core::conformance::run(async {
        must_fail(Duration::from_secs(60), check(WrongHarness::new(Some(flaw)))).await;
    });
}

wrong! {
    AcknowledgesEarly: what_is_acknowledged_has_arrived;
    DrawsNewIds: the_id_is_the_same_at_every_attempt;
    EverythingIsPermanent: a_failure_that_may_pass_is_not_permanent;
    ForgetsTheLast: each_record_of_a_batch_has_its_outcome;
    InjectsHeaders: nothing_in_a_record_becomes_protocol;
    LeaksHeaders: no_secret_is_shown;
    LeaksThePayload: no_secret_is_shown;
    NeverRecovers: an_abandoned_send_harms_no_other;
    NothingIsPermanent: a_refusal_for_ever_is_permanent_and_not_repeated,
        what_can_never_be_accepted_is_not_sent;
    OneAfterTheOther: a_key_waits_for_each_acknowledgement;
    OvertakesFailures: a_failure_stops_its_key_and_no_other;
    QueuesWhileDown: nothing_is_sent_late;
    ReordersOutcomes: a_batch_that_fails_in_part_says_which;
    SendsBackwards: records_of_a_key_arrive_in_order;
    SendsKeysInParallel: a_key_waits_for_each_acknowledgement;
    ShowsWhatItSent: no_secret_is_shown;
    TakesSilenceForYes: no_answer_is_no_acknowledgement;
    TriesAgainByItself: a_refusal_for_ever_is_permanent_and_not_repeated;
}

#[test]
fn every_sink_check_fails_on_a_wrong_sink() {
    let idle: Vec<_> = checks::CHECKS.iter().filter(|check| !CLAIMED.contains(check)).collect();
    assert!(idle.is_empty(), "no wrong sink is found by {idle:?}");
}

/// A wrong sink is wrong in its one rule alone: without a flaw, its wrapper passes.
mod right {
    outbox_core::sink_conformance!(super::WrongHarness::new(None));
}

/// A sink that breaks one rule, or none.
#[derive(Clone)]
struct WrongSink {
    inner: MemorySink,
    flaw: Option<Flaw>,
    queue: Arc<Mutex<Vec<Record>>>,
    busy: Arc<AtomicBool>,
}

impl fmt::Debug for WrongSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.inner.received().into_iter().filter(|_| self.is(Flaw::ShowsWhatItSent));
        let shown: Vec<_> =
            shown.map(|record| String::from_utf8_lossy(record.payload.as_bytes()).into_owned()).collect();
        f.debug_struct("WrongSink").field("sent", &shown).finish()
    }
}

impl WrongSink {
    fn is(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn queue(&self, record: &Record) {
        self.queue.lock().unwrap().push(record.clone());
    }

    async fn send_queued(&self, cx: &SendContext) {
        let queued = std::mem::take(&mut *self.queue.lock().unwrap());
        for record in queued {
            if self.inner.send(&record, cx).await.is_err() {
                self.queue(&record);
            }
        }
    }

    /// One after the other, in this order, each into its place.
    async fn send_along(
        &self,
        order: impl Iterator<Item = usize>,
        records: &[Record],
        cx: &SendContext,
        outcomes: &mut Outcomes,
    ) {
        for at in order {
            outcomes.set(at, self.send(&records[at], cx).await);
        }
    }
}

#[async_trait]
impl Sink for WrongSink {
    async fn send(&self, record: &Record, cx: &SendContext) -> Result<Receipt, SendError> {
        let mut record = record.clone();
        match self.flaw {
            Some(Flaw::AcknowledgesEarly) => {
                self.send_queued(cx).await;
                self.queue(&record);
                return Ok(Receipt::none());
            }
            Some(Flaw::DrawsNewIds) => record.id = Uuid::now_v7(),
            Some(Flaw::InjectsHeaders) => {
                let lines: Vec<String> = record
                    .headers
                    .values()
                    .flat_map(|value| value.lines().skip(1))
                    .map(str::to_owned)
                    .collect();
                for (name, value) in lines.iter().filter_map(|line| line.split_once(':')) {
                    record.headers.insert(name.to_owned(), value.to_owned());
                }
            }
            Some(Flaw::NeverRecovers) if self.busy.swap(true, Ordering::Relaxed) => {
                return Err(SendError::unavailable("a send is under way"));
            }
            Some(Flaw::TakesSilenceForYes) => {
                let patience = Duration::from_millis(50);
                return match tokio::time::timeout(patience, self.inner.send(&record, cx)).await {
                    Ok(ended) => ended,
                    Err(_) => Ok(Receipt::none()),
                };
            }
            _ => {}
        }
        let mut ended = self.inner.send(&record, cx).await;
        self.busy.store(false, Ordering::Relaxed);
        match (self.flaw, &ended) {
            (Some(Flaw::QueuesWhileDown), Ok(_)) => self.send_queued(cx).await,
            (Some(Flaw::QueuesWhileDown), Err(error)) if error.kind() == SendErrorKind::Unavailable => {
                self.queue(&record);
            }
            (Some(Flaw::TriesAgainByItself), Err(_)) => ended = self.inner.send(&record, cx).await,
            (Some(Flaw::NothingIsPermanent), Err(error)) if error.kind() == SendErrorKind::Permanent => {
                ended = Err(SendError::transient("refused"));
            }
            (Some(Flaw::EverythingIsPermanent), Err(_)) => ended = Err(SendError::permanent("refused")),
            (Some(Flaw::LeaksThePayload), Err(_)) => {
                let payload = String::from_utf8_lossy(record.payload.as_bytes()).into_owned();
                ended = Err(SendError::transient("refused").with_source(payload));
            }
            (Some(Flaw::LeaksHeaders), Err(_)) => {
                ended = Err(SendError::transient(format!("refused with {:?}", record.headers)));
            }
            _ => {}
        }
        ended
    }

    async fn send_batch(&self, records: &[Record], cx: &SendContext, outcomes: &mut Outcomes) {
        let single = Single(self.clone());
        match self.flaw {
            Some(Flaw::ForgetsTheLast) => {
                let all_but_one = &records[..records.len().saturating_sub(1)];
                single.send_batch(all_but_one, cx, outcomes).await;
            }
            Some(Flaw::OneAfterTheOther | Flaw::OvertakesFailures) => {
                self.send_along(0..records.len(), records, cx, outcomes).await;
            }
            Some(Flaw::SendsBackwards) => {
                self.send_along((0..records.len()).rev(), records, cx, outcomes).await;
            }
            Some(Flaw::SendsKeysInParallel) => {
                single.send_batch(records, &cx.with_pipelined_keys(), outcomes).await;
            }
            Some(Flaw::ReordersOutcomes) => {
                let mut own = Outcomes::new(records.len());
                single.send_batch(records, cx, &mut own).await;
                // As they came in: what was sent first, and what failed at the end.
                let mut ended: Vec<Outcome> = (0..records.len()).map(|at| own.take(at).0).collect();
                ended.sort_by_key(|outcome| matches!(outcome, Outcome::Failed(_)));
                for (at, outcome) in ended.into_iter().enumerate() {
                    match outcome {
                        Outcome::Sent(receipt) => outcomes.sent(at, receipt),
                        Outcome::Failed(error) => outcomes.failed(at, error),
                        _ => outcomes.not_attempted(at),
                    }
                }
            }
            _ => single.send_batch(records, cx, outcomes).await,
        }
    }

    fn limits(&self) -> SinkLimits {
        self.inner.limits()
    }
}

/// The same sink without a batch of its own: the default sends it.
struct Single(WrongSink);

#[async_trait]
impl Sink for Single {
    async fn send(&self, record: &Record, cx: &SendContext) -> Result<Receipt, SendError> {
        self.0.send(record, cx).await
    }
}

struct WrongHarness {
    right: MemorySinkHarness,
    flaw: Option<Flaw>,
}

impl WrongHarness {
    fn new(flaw: Option<Flaw>) -> Self {
        Self { right: MemorySinkHarness::new(), flaw }
    }
}

#[async_trait]
impl SinkHarness for WrongHarness {
    type Sink = WrongSink;

    const FAULTS: &'static [Fault] = MemorySinkHarness::FAULTS;
    const FAULTS_OF_ONE: &'static [Fault] = MemorySinkHarness::FAULTS_OF_ONE;

    async fn sink(&self) -> WrongSink {
        let inner = self.right.sink().await;
        WrongSink { inner, flaw: self.flaw, queue: Arc::default(), busy: Arc::default() }
    }

    fn record(&self) -> Record {
        self.right.record()
    }

    async fn received(&self) -> Vec<Received> {
        self.right.received().await
    }

    async fn fail(&self, fault: Fault, of: Option<Uuid>) {
        self.right.fail(fault, of).await;
    }

    async fn heal(&self) {
        self.right.heal().await;
    }

    async fn asked(&self) -> Option<usize> {
        self.right.asked().await
    }

    fn unacceptable(&self) -> Vec<(&'static str, Record)> {
        self.right.unacceptable()
    }

    fn secrets(&self) -> Vec<String> {
        self.right.secrets()
    }
}
