//! The studies from their outside: `plimsoll study NAME`, run small.
//!
//! `cargo test -p studies` needs the server beside them: `cargo build -p plimsoll` first.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod studies;
#[allow(dead_code, reason = "the tests of the server use all of it")]
#[path = "../../../../../crates/plimsoll/tests/end_to_end/support.rs"]
mod support;

const STUDY: &str = env!("CARGO_BIN_EXE_plimsoll-study");
/// The server's program, in the same folder.
const PLIMSOLL: &str = STUDY.split_at(STUDY.len() - "-study".len()).0;
