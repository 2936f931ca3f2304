//! Tests of the public interface: rules by their sections, random streams, and the corpora of the
//! fuzz targets.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failing test panics")]

#[path = "../../../../fuzz/checks/http3.rs"]
mod checks;
mod corpus;
mod rules;
mod streams;
