//! The contract suite: every case on every backend, each pair as a separate test.
//!
//! A case is a function of a [`World`]: a poller, and descriptors that are real sockets or
//! simulated ones. `cargo test -p readiness --test contract epoll::` runs one backend, with
//! `data_and_fin` in place of `epoll::` one case on all. No case asserts a duration; expected
//! events are waited for with a time limit that only a failure reaches.

#![expect(clippy::unwrap_used, reason = "the cases are functions beside the #[test]s")]

mod ends;
mod interest;
mod many;
mod model;
mod promises;
mod registration;
mod waiting;
mod world;

use readiness::Kind;
use world::World;

macro_rules! each_case {
    ($kind:expr; $($module:ident::$case:ident,)*) => {
        $(
            #[test]
            fn $case() {
                if let Some(mut world) = $crate::World::open($kind) {
                    $crate::$module::$case(&mut world);
                }
            }
        )*
    };
}

/// Cases for all backends.
macro_rules! suite {
    ($kind:expr) => {
        use readiness::Kind;
        each_case! { $kind;
            interest::read_is_delivered_until_drained,
            interest::write_is_delivered_until_full_and_again_when_drained,
            interest::directions_are_distinguished,
            interest::a_direction_not_asked_for_is_not_delivered,
            interest::a_short_read_is_delivered_again,
            interest::without_interest_there_is_silence,
            interest::ready_before_registration_is_delivered,
            ends::peer_close_is_readable_until_removed,
            ends::half_close_leaves_the_other_direction,
            ends::a_half_close_is_not_delivered_to_a_writer,
            ends::reset_wakes_both_directions,
            ends::data_and_fin_in_one_segment,
            ends::a_writer_alone_is_woken_by_a_reset,
            ends::both_halves_closed_is_delivered,
            registration::misuse_is_refused,
            registration::a_change_keeps_what_is_pending,
            registration::a_new_token_replaces_the_old,
            registration::a_small_wait_between_two_large_ones_loses_nothing,
            registration::an_interest_taken_away_and_given_back,
            registration::a_removed_descriptor_is_silent,
            registration::removed_while_its_event_found_no_room,
            registration::a_reused_descriptor_never_gets_the_old_event,
            registration::many_owners_of_one_number,
            registration::closing_after_removal_closes_at_once,
            registration::closing_after_the_poller_is_gone_closes,
            waiting::nothing_ready_delivers_nothing,
            waiting::a_wake_before_the_wait_ends_it,
            waiting::a_wake_is_not_an_event,
            waiting::a_wake_from_another_thread,
            waiting::every_wake_comes_through,
            waiting::a_waker_outlives_its_poller,
            many::thousands_ready_at_once,
            many::few_among_thousands,
            many::thousands_come_and_go,
            many::no_descriptor_starves,
            model::random_histories,
            model::a_half_close_that_found_no_room_ends_no_registration,
        }
    };
}

/// Cases in which the kernel itself takes part.
macro_rules! real_suite {
    ($kind:expr) => {
        suite! { $kind }
        each_case! { $kind;
            ends::a_connection_makes_a_listener_readable,
            ends::a_refused_connection_is_delivered,
            ends::a_pipe_without_readers_is_delivered,
            registration::a_descriptor_that_is_not_open,
            waiting::sleeps_until_another_thread_writes,
            waiting::a_time_out_ends_the_wait,
            waiting::a_signal_is_no_error,
        }
    };
}

mod select {
    real_suite! { Kind::Select }
}
mod scalable_select {
    real_suite! { Kind::ScalableSelect }
}
mod poll {
    real_suite! { Kind::Poll }
}
mod epoll {
    real_suite! { Kind::Epoll }
}
mod io_uring {
    real_suite! { Kind::IoUring }
}
mod simulated {
    suite! { Kind::Simulated }
}

#[test]
fn the_preferred_backend_opens() {
    let poller = readiness::Poller::open(readiness::Choice::Preferred).unwrap();
    assert_ne!(poller.kind(), Kind::Simulated);
    assert_eq!(poller.counters(), readiness::Counters::default());
}

#[test]
fn the_simulated_backend_is_not_opened_by_name() {
    let refused = readiness::Poller::open(readiness::Choice::Named(Kind::Simulated));
    assert!(matches!(refused, Err(readiness::OpenError::NotSupported { .. })));
}
