//! Tests of the public interface: rules by their sections, random streams, and the corpora of the
//! fuzz targets.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failing test panics")]

#[path = "../../../../../tools/fuzz/checks/http3.rs"]
mod checks;
#[path = "../../../../../tools/fuzz/checks/corpus.rs"]
mod corpus;
mod rules;
mod streams;

#[test]
fn corpus_messages() {
    corpus::replay("http3_messages", checks::messages);
}

#[test]
fn corpus_control() {
    corpus::replay("http3_control", checks::control);
}
