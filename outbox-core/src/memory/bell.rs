//! The hint that there is something to claim.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

/// Wakes everyone who waits, or else the next who does.
#[derive(Debug, Default)]
pub(super) struct Bell(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    rung: bool,
    waiting: BTreeMap<u64, Option<Waker>>,
    waits: u64,
}

impl Bell {
    pub(super) fn ring(&self) {
        let waiting = {
            let mut inner = self.inner();
            let waiting = std::mem::take(&mut inner.waiting);
            inner.rung = waiting.is_empty();
            waiting
        };
        waiting.into_values().flatten().for_each(Waker::wake);
    }

    /// Completes at the next ring, or at once after one that nobody heard.
    pub(super) async fn rings(&self) {
        let place = {
            let mut inner = self.inner();
            if std::mem::take(&mut inner.rung) {
                return;
            }
            inner.waits += 1;
            let place = inner.waits;
            inner.waiting.insert(place, None);
            Waiting { bell: self, place }
        };
        poll_fn(|cx| match self.inner().waiting.get_mut(&place.place) {
            Some(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(()),
        })
        .await;
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a waiter out again when its future is dropped.
struct Waiting<'b> {
    bell: &'b Bell,
    place: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.bell.inner().waiting.remove(&self.place);
    }
}
