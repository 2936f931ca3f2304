//! The corpus of this crate's fuzz target, replayed: what `cargo fuzz` runs by chance runs here
//! always.

#[path = "../../../../tools/fuzz/checks/coding.rs"]
mod checks;
#[path = "../../../../tools/fuzz/checks/corpus.rs"]
mod corpus;

#[test]
fn accepted_codings_and_coded_bodies() {
    corpus::replay("coding", checks::input);
}
