//! What a sink brings so that the checks can be run against it.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use uuid::Uuid;

use crate::{Record, Sink};

/// What a destination can be made to do to what it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// Answers that it will never take the record.
    RefusedForever,
    /// Answers that it cannot take the record now.
    RefusedForNow,
    /// Asks for less.
    Throttled,
    /// Takes what is sent, and never answers.
    Held,
    /// Takes what is sent, and closes the connection without an answer.
    Cut,
    /// Cannot be reached.
    Down,
}

/// A message as the destination has taken and acknowledged it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// The identity, read from the destination's own field for dropping duplicates.
    pub id: Option<Uuid>,
    /// The names of the protocol's headers or attributes with which it arrived, as a parser that is not the
    /// sink's own found them.
    pub names: Vec<String>,
}

impl Received {
    /// A message with this identity and these headers.
    pub fn new(id: Option<Uuid>, names: impl IntoIterator<Item = String>) -> Self {
        Self { id, names: names.into_iter().collect() }
    }
}

/// A sink under test and the destination that it sends to.
///
/// Both belong to one check: the macro makes a harness for each. What cannot fail in a test panics.
#[async_trait]
pub trait SinkHarness: Send + Sync {
    /// The sink.
    type Sink: Sink + fmt::Debug;

    /// What the destination can be made to do to everything that it is sent. A check that needs a fault which is not
    /// listed shows nothing.
    const FAULTS: &'static [Fault];

    /// What it can be made to do to one record, by its id, while it takes the others.
    const FAULTS_OF_ONE: &'static [Fault];

    /// The sink, connected to a destination that takes everything.
    ///
    /// Its [`limits`](Sink::limits) are kept to, but for a sink of single records: such a one leaves
    /// [`Sink::send_batch`] to the default, which takes any number.
    async fn sink(&self) -> Self::Sink;

    /// A record that the destination takes, with a new id and without a key.
    fn record(&self) -> Record;

    /// What the destination has taken and acknowledged, in order.
    async fn received(&self) -> Vec<Received>;

    /// Makes the destination do this from now on, to everything or to one record.
    async fn fail(&self, fault: Fault, of: Option<Uuid>);

    /// Makes the destination take everything again.
    async fn heal(&self);

    /// How many requests have reached the destination, taken or not. None: it cannot tell.
    async fn asked(&self) -> Option<usize> {
        None
    }

    /// Records that can never be accepted, each with what is wrong with it: too large, to a destination that is
    /// none.
    fn unacceptable(&self) -> Vec<(&'static str, Record)> {
        Vec::new()
    }

    /// What no error and no `Debug` may show: the credentials that the sink is configured with, and a text that
    /// stands in the payload of every [`record`](Self::record).
    fn secrets(&self) -> Vec<String>;

    /// How long a check waits for what should not happen, and at the most how long a good send takes.
    /// Default: half a second, and 20 times that.
    fn patience(&self) -> Duration {
        Duration::from_millis(500)
    }
}
