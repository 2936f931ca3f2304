//! The corpus of this crate's fuzz target, replayed: what `cargo fuzz` runs by chance runs here
//! always.

#[path = "../../../../tools/fuzz/checks/cache.rs"]
mod checks;
#[path = "../../../../tools/fuzz/checks/corpus.rs"]
mod corpus;

#[test]
fn purges_and_changes_of_another_member() {
    corpus::replay("cluster_notices", checks::notices);
}
