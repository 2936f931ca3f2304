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

/// A third of so many random cases, or all of them if `PLIMSOLL_ALL_SEEDS` is set, as by `make
/// nightly`.
fn some(cases: u32) -> u32 {
    if std::env::var_os("PLIMSOLL_ALL_SEEDS").is_some() { cases } else { cases.div_ceil(3) }
}

#[test]
fn corpus_frames() {
    corpus::replay("http2_frames", checks::frames);
}

#[test]
fn corpus_hpack() {
    corpus::replay("http2_hpack", checks::hpack);
}
