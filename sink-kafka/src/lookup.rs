//! Asking the cluster for a topic, before the first message for it and whenever it is in doubt.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Either, Shared, WeakShared, select},
};
use rdkafka::{
    error::{KafkaResult, RDKafkaErrorCode as Code},
    metadata::Metadata,
};
use tokio::sync::Semaphore;

use crate::{client::Producer, context::Cluster};

/// A topic that the broker makes by itself takes a moment: it is asked again after these.
const CREATION: [Duration; 2] = [Duration::from_millis(150), Duration::from_millis(350)];
/// Look-ups at a time: each holds a thread.
const LOOKUPS_MAX: usize = 8;

/// What the cluster says of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// Every partition has a leader, or some have.
    Ready { leaderless: bool },
    /// The topic cannot be sent to.
    Topic(Code),
    /// The cluster gave no answer.
    Cluster(Code),
}

/// The questions under way.
pub(crate) struct Lookups {
    under_way: Mutex<HashMap<String, WeakShared<BoxFuture<'static, Lookup>>>>,
    at_once: Arc<Semaphore>,
    timeout: Duration,
}

impl Lookups {
    /// Each question waits this long for its answer.
    pub(crate) fn new(timeout: Duration) -> Self {
        let at_once = Arc::new(Semaphore::new(LOOKUPS_MAX));
        Self { under_way: Mutex::default(), at_once, timeout }
    }

    /// What the cluster says of the topic, or that it does not let us in, which it says at once.
    pub(crate) async fn look_up(
        &self,
        topic: &str,
        producer: Option<Arc<dyn Producer>>,
        cluster: &Arc<Cluster>,
    ) -> Lookup {
        let (answer, refused) = (self.ask(topic, producer, cluster), cluster.refused());
        match select(answer, pin!(refused)).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => Lookup::Cluster(Code::Authentication),
        }
    }

    /// Asks the cluster for the topic. Those who ask for the same one meanwhile share the answer.
    fn ask(
        &self,
        topic: &str,
        producer: Option<Arc<dyn Producer>>,
        cluster: &Arc<Cluster>,
    ) -> Shared<BoxFuture<'static, Lookup>> {
        let mut lookups = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(under_way) = lookups.get(topic).and_then(WeakShared::upgrade)
            && under_way.peek().is_none()
        {
            return under_way;
        }
        lookups.retain(|_, lookup| lookup.upgrade().is_some_and(|lookup| lookup.peek().is_none()));
        let (at_once, timeout, cluster) = (Arc::clone(&self.at_once), self.timeout, Arc::clone(cluster));
        let name = topic.to_owned();
        let lookup = async move {
            let Some(producer) = producer else { return Lookup::Cluster(Code::DestroyBroker) };
            let Ok(permit) = at_once.acquire_owned().await else {
                return Lookup::Cluster(Code::DestroyBroker);
            };
            let asked = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                // Recorded here, so that an answer counts that comes after everyone stopped waiting.
                let mut answer = read(producer.metadata(&name, timeout));
                for pause in CREATION {
                    if !matches!(
                        answer,
                        Lookup::Topic(
                            Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::LeaderNotAvailable
                        )
                    ) {
                        break;
                    }
                    std::thread::sleep(pause);
                    answer = read(producer.metadata(&name, timeout));
                }
                if matches!(answer, Lookup::Ready { .. }) {
                    cluster.set_ready(name);
                }
                answer
            });
            asked.await.unwrap_or(Lookup::Cluster(Code::Fail))
        };
        let lookup = lookup.boxed().shared();
        if let Some(weak) = lookup.downgrade() {
            lookups.insert(topic.to_owned(), weak);
        }
        lookup
    }
}

fn read(answer: KafkaResult<Metadata>) -> Lookup {
    let metadata = match answer {
        Ok(metadata) => metadata,
        Err(error) => return Lookup::Cluster(error.rdkafka_error_code().unwrap_or(Code::Unknown)),
    };
    let Some(topic) = metadata.topics().first() else {
        return Lookup::Topic(Code::UnknownTopicOrPartition);
    };
    if let Some(error) = topic.error() {
        return Lookup::Topic(error.into());
    }
    let leaderless = topic.partitions().iter().filter(|partition| partition.leader() < 0).count();
    if leaderless == topic.partitions().len() {
        return Lookup::Topic(Code::LeaderNotAvailable);
    }
    Lookup::Ready { leaderless: leaderless > 0 }
}
