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
/// A lease that has run out is extended as well, unless another relay has claimed a record of
/// its key since: two must not hold one key at once.
pub(super) fn renew(table: &mut Table, lease: &Lease, lease_for: Duration, now: Duration) -> bool {
    table.advance(now);
    let held = table
        .row(lease.seq)
        .filter(|row| row.id == lease.id && row.fence == lease.fence && row.owner.is_some())
        .filter(|row| row.timed || !table.key_is_with_another(row));
    held.is_some() && table.change(lease.seq, |row| row.send_after = now.saturating_add(lease_for))
}
