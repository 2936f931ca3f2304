//! The tests of the trial file, in one binary: what comes back, and what damage does.
#![allow(clippy::unwrap_used)]

mod bpf;
mod classes;
mod common;
mod counters;
mod damage;
mod profile;
mod recent;
mod round_trip;
