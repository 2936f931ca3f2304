//! The corpora of the fuzz targets `condition_text` and `condition_tree`, replayed, and generated
//! conditions, which are compared with the evaluator of the crate `cel`.

#[path = "../../../../tools/fuzz/checks/conditions.rs"]
mod checks;
#[path = "../../../../tools/fuzz/checks/corpus.rs"]
mod corpus;

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

#[test]
fn texts_of_the_corpus() {
    corpus::replay("condition_text", checks::text);
}

#[test]
fn trees_of_the_corpus() {
    corpus::replay("condition_tree", |input| {
        checks::tree(input);
    });
}

/// Judges at least so many generated conditions, each for one request.
fn judged_as_by_cel(conditions: usize) {
    let judged = Cell::new(0);
    // An input has three conditions or more, on average.
    let cases = u32::try_from(conditions / 3).expect("a small number");
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let inputs = prop::collection::vec(any::<u8>(), 100..600);
    let check = |input: Vec<u8>| {
        judged.set(judged.get() + checks::tree(&input));
        Ok(())
    };
    let result = TestRunner::new(config).run(&inputs, check);
    result.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(judged.get() >= conditions, "{}", judged.get());
}

#[test]
fn generated_conditions_are_judged_as_by_cel() {
    judged_as_by_cel(1_000);
}

#[test]
fn nightly_generated_conditions_are_judged_as_by_cel() {
    judged_as_by_cel(10_000);
}
