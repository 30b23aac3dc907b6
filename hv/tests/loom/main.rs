//! The post, enter, sleep protocol, under every interleaving.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release -p hv --test loom`;
//! without that flag the file is empty. The guest is a variable: a post is
//! "seen" when the owner takes it, or when a kick or wake-up that is under
//! way makes it look again.
//!
//! Each model is run once more with every mistake in the protocol that it is
//! there for, and must fail.
#![cfg(loom)]

#[macro_use]
#[path = "../../../tests/models.rs"]
mod models;

mod invalidate;
mod machine;
mod posts;

use invalidate::*;
use machine::*;
use posts::*;

models! {
    post_and_post_against_enter: |mistake| enter_once(&BOTH, mistake),
        finds_late_entry EntersLate finds_late_post PostsLate;
    the_same_twice_against_enter: |mistake| enter_once(&[SWI0, SWI0], mistake),
        finds_late_entry EntersLate finds_late_post PostsLate;
    post_and_post_against_exits: exits,
        finds_late_entry EntersLate finds_kicks_taken_last KicksLast;
    post_and_post_against_a_kick_for_swi0: kick_for_swi0,
        finds_who_looks_once LooksOnce;
    post_and_post_against_leave_and_enter_again: leave_and_enter_again,
        finds_late_entry EntersLate finds_late_post PostsLate;
    what_a_post_is_about_is_seen_with_it: what_a_post_is_about,
        finds_late_writing WritesLate;
    what_is_posted_already_is_seen_or_told: what_is_posted_already,
        finds_no_fence NoFence;
    post_and_post_against_sleep: sleep,
        finds_late_sleep SleepsLate finds_late_post PostsLate;
    post_against_poll_and_sleep: poll_and_sleep,
        finds_late_sleep SleepsLate finds_late_post PostsLate;
    post_and_post_against_sleep_from_the_guest: sleep_from_the_guest,
        finds_late_sleep SleepsLate;
    masked_post_against_sleep_leaves_it_asleep: masked_post,
        finds_who_wakes_for_all WakesForAll;
    post_after_a_masked_post_against_sleep: post_after_a_masked_post,
        finds_late_post PostsLate;
    post_and_post_against_a_move_to_another_cpu: move_to_another_cpu,
        finds_late_entry EntersLate finds_late_post PostsLate;
    post_against_a_move_in_its_sleep: move_in_its_sleep,
        finds_late_sleep SleepsLate finds_late_post PostsLate;
    a_flush_is_done_before_the_guest_goes_on: flush,
        finds_who_does_not_wait FlushedAtOnce;
    invalidate_and_post_against_enter: invalidate_against_post_and_enter,
        finds_who_does_not_wait FlushedAtOnce finds_late_entry EntersLate;
    invalidate_and_post_against_sleep: invalidate_against_post_and_sleep,
        finds_late_sleep SleepsLate finds_late_post PostsLate;
    invalidate_and_post_against_a_move: invalidate_against_a_move,
        finds_who_does_not_wait FlushedAtOnce finds_late_entry EntersLate;
    notes_where_to_move: notes_where_to_move_are_read,
        finds_late_entry EntersLate finds_late_post PostsLate;
}
