//! The checks of sinks, and the harness that a sink brings.

mod acknowledge;
mod harness;
mod order;
mod refuse;
mod safety;
mod trial;

pub use acknowledge::*;
pub use harness::{Fault, Received, SinkHarness};
pub use order::*;
pub use refuse::*;
pub use safety::*;

/// The name of every check.
pub const CHECKS: &[&str] = crate::__sink_checks! { (crate::__check_names) () };

/// Hands the names of all checks to another macro, behind what that macro is given.
#[doc(hidden)]
#[macro_export]
macro_rules! __sink_checks {
    (($($then:tt)*) $args:tt) => {
        $($then)* ! { $args
            // acknowledge
            what_is_acknowledged_has_arrived
            no_answer_is_no_acknowledgement
            each_record_of_a_batch_has_its_outcome
            a_batch_that_fails_in_part_says_which
            the_id_is_the_same_at_every_attempt
            // order
            records_of_a_key_arrive_in_order
            a_failure_stops_its_key_and_no_other
            a_key_waits_for_each_acknowledgement
            // refuse
            a_refusal_for_ever_is_permanent_and_not_repeated
            what_can_never_be_accepted_is_not_sent
            a_failure_that_may_pass_is_not_permanent
            an_abandoned_send_harms_no_other
            nothing_is_sent_late
            // safety
            nothing_in_a_record_becomes_protocol
            no_secret_is_shown
        }
    };
}
