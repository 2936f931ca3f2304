//! Tests of the public interface: rules by their sections, random frames, two endpoints that talk
//! to each other, and the corpora of the fuzz targets.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failing test panics")]

#[path = "../../../../fuzz/checks/http2.rs"]
mod checks;
mod corpus;
mod endpoints;
mod frames;
mod rules;
