//! The checks of stores, and the harness that a store brings.

mod claim;
mod cost;
mod dedup;
mod enqueue;
mod harness;
mod key;
mod lapse;
mod lease;
mod operate;
mod retention;
mod route;
mod state;
mod time;
mod trial;

pub use claim::*;
pub use cost::*;
pub use dedup::*;
pub use enqueue::*;
pub use harness::{SetDue, StoreHarness};
pub use key::*;
pub use lapse::*;
pub use lease::*;
pub use operate::*;
pub use retention::*;
pub use route::*;
pub use state::*;
pub use time::*;

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
            // cost
            rows_behind_a_failing_key_hold_back_no_other
            many_blocked_keys_hold_back_no_other
            scheduled_rows_hold_back_no_other
            rows_of_other_kinds_hold_back_no_other
            rows_of_a_closed_destination_hold_back_no_other
            // dedup
            a_second_enqueue_of_a_dedup_key_adds_nothing
            a_dedup_key_counts_within_one_transaction
            a_dedup_key_belongs_to_its_kind
            a_dedup_key_is_forgotten_after_its_time
            a_dead_first_does_not_count_unless_asked
            a_rolled_back_dedup_key_does_not_count
            two_transactions_of_one_dedup_key_write_one_record
            producers_of_the_same_dedup_keys_do_not_deadlock
            the_inbox_accepts_an_id_once
            the_inbox_waits_for_an_open_first
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
            // key
            a_failing_head_holds_back_its_key_and_nothing_else
            records_of_a_key_go_in_runs
            a_key_waits_for_the_last_of_its_run
            a_broken_run_is_taken_up_in_order
            order_holds_over_the_kinds_of_a_key
            a_run_ends_at_a_record_of_another_route
            a_run_ends_before_a_record_that_may_not_go
            a_dead_record_blocks_its_key_if_told_to
            a_redriven_record_keeps_its_place
            a_scheduled_record_holds_its_key_from_when_it_is_due
            a_scheduled_record_holds_its_key_when_asked
            a_record_that_appears_late_waits_for_what_is_under_way
            a_lapsed_claim_is_not_renewed_beside_a_newer_one_of_its_key
            a_lapsed_run_goes_again_in_order
            the_empty_key_is_a_key
            a_key_goes_on_after_its_head_was_deleted_by_hand
            a_long_line_drains_in_order
            no_two_relays_hold_one_key
            // lapse
            what_a_dead_relay_held_goes_out_after_one_lease
            a_lapse_refunds_the_attempt_and_is_counted
            one_suspect_is_claimed_at_a_time
            no_suspect_is_claimed_unless_asked_for
            a_retry_sets_lapses_back
            a_suspect_goes_alone_of_its_key
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
            // operate
            a_pause_stops_what_it_covers_and_nothing_else
            a_paused_record_is_not_overtaken
            pauses_are_listed_with_their_reason
            records_are_listed_by_filter_and_page
            redrive_is_for_dead_records_alone
            records_are_redriven_and_resent_at_a_rate
            a_discarded_record_is_lost_to_its_holder
            what_a_mark_says_is_kept
            held_keys_are_listed_with_their_head
            // retention
            finished_records_are_kept_as_long_as_told
            a_sweep_deletes_in_bounded_batches
            an_unfinished_record_is_never_swept
            a_blocking_dead_record_is_never_swept
            dedup_and_inbox_have_a_retention_of_their_own
            // route
            only_the_kinds_asked_for_are_claimed
            a_full_route_does_not_lose_its_kinds_to_a_wider_one
            a_new_kind_is_seen_at_once
            a_route_takes_no_more_than_its_limit
            a_destination_takes_no_more_than_its_limit
            a_left_out_destination_is_passed_over
            a_record_without_a_route_is_left_alone_and_reported
            // state
            an_exhausted_record_is_found_again
            an_undecodable_row_is_returned_apart
            a_record_of_infinite_times_is_found
            every_record_is_counted_in_one_state
            // time
            a_delayed_record_goes_at_its_time
            waits_count_from_the_mark
            a_lease_lasts_as_long_as_asked
            an_idle_claim_says_when_to_come_back
            a_scheduled_record_of_a_key_is_announced
            an_idle_relay_wakes_when_a_lease_ends
            next_due_is_none_for_nothing_and_zero_for_more
            next_due_is_never_zero_after_an_empty_claim
            a_wait_ends_at_its_time
        }
    };
}
