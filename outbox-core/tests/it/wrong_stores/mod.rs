//! Stores that each break one rule, and the checks that must fail on them: a check that cannot fail shows nothing.

mod before;
mod harness;
mod store;

use std::time::Duration;

use outbox_core::conformance::store as checks;

use crate::must_fail::must_fail;

/// The rule that a store breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    AlwaysAnnounces,
    AlwaysTakesSuspects,
    AnswersOutOfOrder,
    CachesKinds,
    ClaimsNothing,
    ClaimsOverTheLimit,
    CountsClaimedAsPending,
    CountsDeadFirsts,
    DeadNeverBlocks,
    DedupForEver,
    DedupIgnoresCase,
    DeletedHeadsStay,
    DiscardsNothing,
    DropsTheExhausted,
    EmptyKeyIsNone,
    EnqueuesAtOnce,
    EnqueuesOneByOne,
    FenceStandsStillAtTheEnd,
    ForgetsDedup,
    ForgetsProgress,
    ForgetsToAnnounce,
    FullRoutesFallThrough,
    HidesTheUndecodable,
    IgnoresDelays,
    IgnoresDestinationLimits,
    IgnoresHoldKey,
    IgnoresPauses,
    IgnoresRoutes,
    IgnoresRunMax,
    IgnoresTheFence,
    IgnoresTheIdentity,
    IgnoresTheRate,
    IgnoresWaits,
    InboxForgets,
    InventsContentType,
    KeepsTheFirstReason,
    KeysOvertake,
    KeysPerKind,
    LapsesCostAttempts,
    LapsesNeverCount,
    LeasesForEver,
    ListsBackwards,
    ListsNoHeldKeys,
    LocksWhileSending,
    MarksFromTheEnd,
    NormalizesJson,
    OneDestinationFillsTheRest,
    RedriveIsNotDue,
    RedriveTakesTheSent,
    RefusesVaguely,
    RenewsAnything,
    RenewsNothing,
    RepeatsAreLost,
    ReportsOutOfOrder,
    RetriesAreDeferred,
    RollbackCommits,
    ScansFromTheFront,
    ScheduledHoldsItsKey,
    SentIsForgotten,
    SharesRecords,
    Spins,
    SweepsAtOnce,
    SweepsBlockingDead,
    SweepsEverything,
    SweepsOldRows,
    TakesManySuspects,
    Unsorted,
    WaitsForEver,
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

/// Runs a check that must fail, on a store with this flaw.
fn on_wrong(flaw: Flaw, check: impl AsyncFnOnce(harness::WrongHarness)) {
    outbox_core::conformance::run(async {
        must_fail(Duration::from_secs(60), check(harness::WrongHarness::new(flaw))).await;
    });
}

wrong! {
    AlwaysAnnounces: a_record_of_infinite_times_is_found, next_due_is_none_for_nothing_and_zero_for_more;
    AlwaysTakesSuspects: no_suspect_is_claimed_unless_asked_for;
    AnswersOutOfOrder: many_records_are_enqueued_in_one_call;
    CachesKinds: a_new_kind_is_seen_at_once;
    ClaimsNothing: a_claim_is_committed_before_it_is_returned;
    ClaimsOverTheLimit: a_claim_never_takes_more_than_its_limit;
    CountsClaimedAsPending: every_record_is_counted_in_one_state;
    CountsDeadFirsts: a_dead_first_does_not_count_unless_asked;
    DeadNeverBlocks: a_dead_record_blocks_its_key_if_told_to;
    DedupForEver: a_dedup_key_is_forgotten_after_its_time;
    DedupIgnoresCase: a_dedup_key_belongs_to_its_kind;
    DeletedHeadsStay: a_key_goes_on_after_its_head_was_deleted_by_hand;
    DiscardsNothing: a_discarded_record_is_lost_to_its_holder;
    DropsTheExhausted: an_exhausted_record_is_found_again;
    EmptyKeyIsNone: the_empty_key_is_a_key, what_is_enqueued_is_what_is_claimed;
    EnqueuesAtOnce: a_record_is_not_seen_before_its_commit;
    EnqueuesOneByOne: a_bad_record_is_refused_and_the_transaction_stays_usable;
    FenceStandsStillAtTheEnd: the_fence_rises_at_a_claim_and_at_its_end;
    ForgetsDedup: a_second_enqueue_of_a_dedup_key_adds_nothing,
        a_dedup_key_counts_within_one_transaction,
        two_transactions_of_one_dedup_key_write_one_record,
        producers_of_the_same_dedup_keys_do_not_deadlock;
    ForgetsProgress: what_a_mark_says_is_kept;
    ForgetsToAnnounce: an_idle_claim_says_when_to_come_back,
        a_scheduled_record_of_a_key_is_announced,
        an_idle_relay_wakes_when_a_lease_ends;
    FullRoutesFallThrough: a_full_route_does_not_lose_its_kinds_to_a_wider_one;
    HidesTheUndecodable: an_undecodable_row_is_returned_apart;
    IgnoresDelays: a_delayed_record_goes_at_its_time;
    IgnoresDestinationLimits: a_destination_takes_no_more_than_its_limit,
        a_run_ends_before_a_record_that_may_not_go;
    IgnoresHoldKey: a_scheduled_record_holds_its_key_when_asked;
    IgnoresPauses: a_pause_stops_what_it_covers_and_nothing_else, a_paused_record_is_not_overtaken;
    IgnoresRoutes: only_the_kinds_asked_for_are_claimed,
        a_route_takes_no_more_than_its_limit,
        a_record_without_a_route_is_left_alone_and_reported,
        a_run_ends_at_a_record_of_another_route;
    IgnoresRunMax: records_of_a_key_go_in_runs;
    IgnoresTheFence: a_stale_fence_marks_nothing, two_claims_by_one_owner_have_two_fences;
    IgnoresTheIdentity: a_lease_on_another_identity_marks_nothing;
    IgnoresTheRate: records_are_redriven_and_resent_at_a_rate;
    IgnoresWaits: waits_count_from_the_mark;
    InboxForgets: the_inbox_accepts_an_id_once, the_inbox_waits_for_an_open_first;
    InventsContentType: a_plain_insert_is_a_full_citizen;
    KeepsTheFirstReason: pauses_are_listed_with_their_reason;
    KeysOvertake: a_failing_head_holds_back_its_key_and_nothing_else,
        a_key_waits_for_the_last_of_its_run,
        a_broken_run_is_taken_up_in_order,
        a_record_that_appears_late_waits_for_what_is_under_way,
        a_lapsed_run_goes_again_in_order,
        a_long_line_drains_in_order,
        no_two_relays_hold_one_key,
        a_suspect_goes_alone_of_its_key;
    KeysPerKind: order_holds_over_the_kinds_of_a_key;
    LapsesCostAttempts: a_lapse_refunds_the_attempt_and_is_counted;
    LapsesNeverCount: a_retry_sets_lapses_back;
    LeasesForEver: what_a_dead_relay_held_goes_out_after_one_lease, a_lease_lasts_as_long_as_asked;
    ListsBackwards: records_are_listed_by_filter_and_page;
    ListsNoHeldKeys: held_keys_are_listed_with_their_head;
    LocksWhileSending: nothing_is_locked_while_records_are_sent;
    MarksFromTheEnd: of_two_marks_for_one_lease_the_first_counts;
    NormalizesJson: the_payload_is_kept_to_the_letter;
    OneDestinationFillsTheRest: a_left_out_destination_is_passed_over;
    RedriveIsNotDue: a_redriven_record_keeps_its_place;
    RedriveTakesTheSent: redrive_is_for_dead_records_alone;
    RefusesVaguely: a_second_record_of_one_id_is_refused_by_its_kind;
    RenewsAnything: a_late_renewal_moves_no_backoff,
        a_lapsed_claim_is_not_renewed_beside_a_newer_one_of_its_key;
    RenewsNothing: a_renewed_lease_holds_longer, a_lapsed_lease_that_nobody_took_may_still_be_marked;
    RepeatsAreLost: a_repeated_mark_changes_nothing;
    ReportsOutOfOrder: marks_are_reported_in_input_order;
    RetriesAreDeferred: attempts_are_never_negative, a_retry_sets_lapses_back;
    RollbackCommits: a_rolled_back_transaction_sends_nothing, a_rolled_back_dedup_key_does_not_count;
    ScansFromTheFront: rows_behind_a_failing_key_hold_back_no_other,
        many_blocked_keys_hold_back_no_other,
        scheduled_rows_hold_back_no_other,
        rows_of_other_kinds_hold_back_no_other,
        rows_of_a_closed_destination_hold_back_no_other;
    ScheduledHoldsItsKey: a_scheduled_record_holds_its_key_from_when_it_is_due;
    SentIsForgotten: a_committed_record_is_claimed_until_it_is_sent;
    SharesRecords: concurrent_claims_never_share_a_record;
    Spins: next_due_is_never_zero_after_an_empty_claim;
    SweepsAtOnce: finished_records_are_kept_as_long_as_told, dedup_and_inbox_have_a_retention_of_their_own;
    SweepsBlockingDead: a_blocking_dead_record_is_never_swept;
    SweepsEverything: a_sweep_deletes_in_bounded_batches;
    SweepsOldRows: an_unfinished_record_is_never_swept;
    TakesManySuspects: one_suspect_is_claimed_at_a_time;
    Unsorted: claimed_records_come_back_in_seq_order;
    WaitsForEver: a_wait_ends_at_its_time;
}

#[test]
fn every_store_check_fails_on_a_wrong_store() {
    let idle: Vec<_> = checks::CHECKS.iter().filter(|check| !CLAIMED.contains(check)).collect();
    assert!(idle.is_empty(), "no wrong store is found by {idle:?}");
}

/// A wrong store is wrong in its one rule alone: without a flaw, its wrapper passes.
mod right {
    outbox_core::store_conformance!(super::harness::WrongHarness::right());
}
