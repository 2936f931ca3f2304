//! Tests of the public interface: rules by their sections, random frames, two endpoints that talk
//! to each other, and the corpora of the fuzz targets.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failing test panics")]

#[path = "../../../../../tools/fuzz/checks/http2.rs"]
mod checks;
#[path = "../../../../../tools/fuzz/checks/corpus.rs"]
mod corpus;
mod endpoints;
mod frames;
mod rules;

#[test]
fn corpus_frames() {
    corpus::replay("http2_frames", checks::frames);
}

#[test]
fn corpus_hpack() {
    corpus::replay("http2_hpack", checks::hpack);
}
