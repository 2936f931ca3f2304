//! The tests of the parser and the writer, as one program.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failing test panics")]

mod corpus;
#[path = "../../../../../tools/fuzz/checks/http1.rs"]
mod fuzzing;
mod messages;
mod refusals;
mod repairs;
mod smuggling;
mod writing;
