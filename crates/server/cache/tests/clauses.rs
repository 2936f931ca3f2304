//! Everything that the table of clauses in `caching` names exists. The table names files and tests
//! of the server, too, so its test is here.

use std::path::Path;

const TABLE: &str = include_str!("../../../http/caching/src/clauses.md");

/// All sources below these directories.
fn sources(directories: &[&str]) -> String {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut left: Vec<_> = directories.iter().map(|directory| crates.join(directory)).collect();
    let mut text = String::new();
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory of this repository") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text += &std::fs::read_to_string(path).expect("a source of this repository");
            }
        }
    }
    text
}

/// The names in backquotes that are not links.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn every_clause_has_a_place_and_tests_and_all_of_them_exist() {
    let text = sources(&[
        "http/caching/src",
        "http/caching/tests",
        "server/cache/src",
        "server/exchange/src",
        "server/seam/src",
        "server/policy/src",
        "server/proxy/src",
        "server/server/tests",
    ]);
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let places = ["cache", "policy", "exchange", "seam", "proxy"]
        .map(|name| crates.join("server").join(name).join("src"));
    let mut clauses = 0;
    for row in TABLE.lines().filter_map(|line| line.strip_prefix("| ")) {
        let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        let [clause, _, place, tests] = cells[..] else { panic!("four cells: {row}") };
        if !clause.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        clauses += 1;
        assert!(!place.trim().is_empty() && names(tests).next().is_some(), "{row}");
        for file in names(place).filter(|name| name.ends_with(".rs")) {
            assert!(places.iter().any(|place| place.join(file).exists()), "no {file}: {row}");
        }
        for test in names(tests) {
            assert!(text.contains(&format!("fn {test}(")), "no test {test}: {row}");
        }
    }
    assert!(clauses > 60, "{clauses} clauses");
}
