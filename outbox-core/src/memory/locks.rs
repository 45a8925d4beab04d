//! What open transactions have written and others must wait for: the stand-in for a database's row locks.

use std::{collections::HashMap, task::Waker};

use uuid::Uuid;

/// A row that two transactions could write at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum LockKey {
    /// The dedup key of a kind.
    Dedup(String, String),
    /// A receiver and an id of its inbox.
    Inbox(String, Uuid),
}

/// What came of asking for a lock.
pub(super) enum Asked {
    Granted,
    /// Another transaction has it, and the waker is called when one ends.
    Wait,
    /// Another has it, and waits for one that waits for this one.
    Deadlock,
}

/// Locks by transaction, which are kept until it ends.
#[derive(Debug, Default)]
pub(super) struct Locks {
    held: HashMap<LockKey, u64>,
    waits_for: HashMap<u64, u64>,
    wakers: Vec<Waker>,
}

impl Locks {
    pub(super) fn ask(&mut self, key: &LockKey, transaction: u64, waker: &Waker) -> Asked {
        self.waits_for.remove(&transaction);
        let holder = *self.held.entry(key.clone()).or_insert(transaction);
        if holder == transaction {
            return Asked::Granted;
        }
        let mut behind = Some(holder);
        while let Some(other) = behind {
            if other == transaction {
                return Asked::Deadlock;
            }
            behind = self.waits_for.get(&other).copied();
        }
        self.waits_for.insert(transaction, holder);
        self.wakers.push(waker.clone());
        Asked::Wait
    }

    /// Ends a transaction, and returns whom to wake.
    pub(super) fn release(&mut self, transaction: u64, keys: &[LockKey]) -> Vec<Waker> {
        for key in keys {
            self.held.remove(key);
        }
        self.waits_for.remove(&transaction);
        std::mem::take(&mut self.wakers)
    }
}
