//! The corpora of this crate's fuzz targets, replayed.

use std::path::Path;

use proptest::prelude::*;

#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;

#[path = "../../../fuzz/checks/import.rs"]
mod checks;

#[test]
fn squid() {
    corpus::replay("import_squid", checks::squid);
}

#[test]
fn nginx() {
    corpus::replay("import_nginx", checks::nginx);
}

#[test]
fn vcl() {
    corpus::replay("import_vcl", checks::vcl);
}

/// The words of all inputs of a corpus, with their spaces.
fn words(target: &str) -> Vec<String> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut words = Vec::new();
    for entry in std::fs::read_dir(corpus).expect("the corpus is checked in") {
        let text = std::fs::read_to_string(entry.expect("a listed file").path()).expect("text");
        words.extend(text.split_inclusive(char::is_whitespace).map(str::to_owned));
        words.extend(text.split_inclusive('\n').map(str::to_owned));
    }
    words
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// The words and lines of the corpora in any order.
    #[test]
    fn in_any_order(picks in prop::collection::vec(any::<prop::sample::Index>(), 0..60)) {
        for (target, check) in [
            ("import_squid", checks::squid as fn(&[u8])),
            ("import_nginx", checks::nginx),
            ("import_vcl", checks::vcl),
        ] {
            let words = words(target);
            let text: String = picks.iter().map(|pick| pick.get(&words).as_str()).collect();
            check(text.as_bytes());
        }
    }
}
