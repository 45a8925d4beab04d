//! The checks of stores, and the harness that a store brings.

mod claim;
mod enqueue;
mod harness;
mod lease;
mod trial;

pub use claim::*;
pub use enqueue::*;
pub use harness::{SetDue, StoreHarness};
pub use lease::*;

/// The name of every check.
pub const CHECKS: &[&str] = crate::__store_checks! { (crate::__check_names) () };

/// Hands the names of all checks to another macro, behind what that macro is given.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_checks {
    (($($then:tt)*) $args:tt) => {
        $($then)* ! { $args
            // claim
            a_claim_is_committed_before_it_is_returned
            nothing_is_locked_while_records_are_sent
            concurrent_claims_never_share_a_record
            a_claim_never_takes_more_than_its_limit
            claimed_records_come_back_in_seq_order
            // enqueue
            a_rolled_back_transaction_sends_nothing
            a_committed_record_is_claimed_until_it_is_sent
            a_record_is_not_seen_before_its_commit
            a_plain_insert_is_a_full_citizen
            what_is_enqueued_is_what_is_claimed
            the_payload_is_kept_to_the_letter
            a_bad_record_is_refused_and_the_transaction_stays_usable
            a_second_record_of_one_id_is_refused_by_its_kind
            many_records_are_enqueued_in_one_call
            // lease
            a_stale_fence_marks_nothing
            two_claims_by_one_owner_have_two_fences
            the_fence_rises_at_a_claim_and_at_its_end
            a_repeated_mark_changes_nothing
            of_two_marks_for_one_lease_the_first_counts
            marks_are_reported_in_input_order
            a_late_renewal_moves_no_backoff
            a_renewed_lease_holds_longer
            a_lapsed_lease_that_nobody_took_may_still_be_marked
            attempts_are_never_negative
            a_lease_on_another_identity_marks_nothing
        }
    };
}
