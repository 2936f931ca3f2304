//! The tests of the trial file, in one binary: round trips and damage.
#![allow(clippy::unwrap_used)]

mod bpf;
mod classes;
mod common;
mod counters;
mod damage;
mod profile;
mod recent;
mod round_trip;
mod stretches;
mod thin;
