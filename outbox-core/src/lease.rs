//! Who holds a claimed record, and the fence that tells an old holder from the present one.

use uuid::Uuid;

/// The number that one run of a relay draws for itself and writes on every record it claims.
///
/// Two runs never share one: it is drawn at random, not configured. A store may watch it to see
/// that the run has died (see [`Store::enter`](crate::Store::enter)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(i64);

impl Owner {
    /// An owner from 64 random bits.
    pub const fn from_random(bits: u64) -> Self {
        Self(bits as i64)
    }

    /// The number as stores write it, in the column `owner`.
    pub const fn value(self) -> i64 {
        self.0
    }
}

impl From<i64> for Owner {
    fn from(value: i64) -> Self {
        Self(value)
    }
}

/// The right to mark or renew one claimed record.
///
/// Every claim draws a new `fence` and every mark, release, lapse, redrive or discard raises it
/// again, so a lease that is no longer the newest changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The record's place in line.
    pub seq: i64,
    /// The record's identity; guards against a table that was emptied and numbered anew.
    pub id: Uuid,
    /// The number of this claim.
    pub fence: i64,
}

impl Lease {
    /// A lease on the record `(seq, id)` under the claim `fence`.
    pub const fn new(seq: i64, id: Uuid, fence: i64) -> Self {
        Self { seq, id, fence }
    }
}
