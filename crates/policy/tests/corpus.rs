//! The corpus of the fuzz target `readings`, replayed, and generated paths: routes against a slow
//! second implementation of readings.

#[path = "../../../fuzz/checks/readings.rs"]
mod checks;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;

use proptest::prelude::*;

#[test]
fn readings_of_the_corpus() {
    corpus::replay("readings", checks::routes);
}

#[rustfmt::skip]
const PIECES: &[&str] = &[
    "/", "/", "//", "%2F", "%2f", "%5C", "\\", ";", "%3B", ".", "..", "%2e", "%00", "%25", "%",
    "a", "b", "s", "u", "k", "admin", "%61dmin", "moved", "h", "=1", "\u{e9}",
];

fn pieces() -> impl Strategy<Value = Vec<&'static str>> {
    proptest::collection::vec(proptest::sample::select(PIECES), 0..10)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn routes_judge_as_a_slow_implementation_does(host: u8, pieces in pieces()) {
        checks::routes(&[&[host], pieces.concat().as_bytes()].concat());
    }
}
