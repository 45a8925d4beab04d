//! The end of claims: marks and renewals, each of which must name the newest fence.

use std::time::Duration;

use super::table::Table;
use crate::{Lease, Mark, Marked};

pub(super) fn mark(table: &mut Table, mark: &Mark, now: Duration) -> Marked {
    let lease = mark.lease;
    let Some(row) = table.row(lease.seq).filter(|row| row.id == lease.id) else { return Marked::Lost };
    if row.owner.is_none() || row.fence != lease.fence {
        let again = row.was_settled(lease.fence, &mark.settlement);
        return if again { Marked::AlreadyApplied } else { Marked::Lost };
    }
    table.change(lease.seq, |row| {
        row.settle(&mark.settlement, now);
        if mark.progress.is_some() {
            row.progress.clone_from(&mark.progress);
        }
    });
    Marked::Applied
}

/// Whether the lease was still there to extend.
///
/// A lease that has run out is extended as well, unless another record of its key has been claimed
/// since: two claims of one key must not be in force at once.
pub(super) fn renew(table: &mut Table, lease: &Lease, lease_for: Duration, now: Duration) -> bool {
    table.advance(now);
    let held = table
        .row(lease.seq)
        .filter(|row| row.id == lease.id && row.fence == lease.fence && row.owner.is_some())
        .filter(|row| {
            let key = row.key.as_deref();
            row.timed || !key.is_some_and(|key| table.key_is_live_besides(key, row.seq))
        });
    held.is_some() && table.change(lease.seq, |row| row.send_after = now.saturating_add(lease_for))
}
