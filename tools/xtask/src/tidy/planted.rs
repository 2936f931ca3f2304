//! The rules on planted bugs: each of the list is in the code, once, and in the table of the
//! documentation, with the test that finds it, which is in a suite that `cargo xtask planted` runs.

use super::Finding;
use crate::planted::{LIST, SUITES, bugs_in};
use crate::rust::{line_of, masked};
use crate::tree::Tree;

pub(super) fn bugs_have_one_place(tree: &Tree, findings: &mut Vec<Finding>) {
    let Some(list) = tree.get(LIST) else { return };
    let code: Vec<(&str, String)> = tree
        .with_suffix(".rs")
        .filter(|(path, _)| path.starts_with("crates/") && *path != LIST)
        .map(|(path, text)| (path, masked(text)))
        .collect();
    for bug in bugs_in(list) {
        let (suite, test) = bug.found_by.split_once(": ").unwrap_or_default();
        if !SUITES.iter().any(|(_, target, _)| *target == suite) {
            let what = format!("{} is found by the suite {suite:?}, which is not run", bug.variant);
            findings.push(Finding::whole(
                LIST,
                what,
                "add the suite to tools/xtask/src/planted.rs",
            ));
        }
        let head = format!("fn {}(", test.rsplit("::").next().unwrap_or_default());
        if !code.iter().any(|(_, text)| text.contains(&head)) {
            let what = format!("{} is found by a test that is not there: {test}", bug.variant);
            findings.push(Finding::whole(LIST, what, "name one that finds it"));
        }
        let call = format!("planted::is(planted::Bug::{})", bug.variant);
        let places: Vec<(&str, usize)> = code
            .iter()
            .flat_map(|(path, text)| {
                text.match_indices(&call).map(move |(at, _)| (*path, line_of(text, at)))
            })
            .collect();
        match places[..] {
            [] => {
                let what = format!("the bug {} is planted nowhere", bug.variant);
                findings.push(Finding::whole(LIST, what, "plant it, or drop it from the list"));
            }
            [_] => {}
            [_, (path, line), ..] => {
                let what = format!("the bug {} is planted twice", bug.variant);
                findings.push(Finding::at(path, line, what, "one place, or two bugs"));
            }
        }
    }
}

/// Where people read of them.
const TABLE: &str = "CONTRIBUTING.md";

pub(super) fn bugs_are_listed(tree: &Tree, findings: &mut Vec<Finding>) {
    let (Some(list), Some(table)) = (tree.get(LIST), tree.get(TABLE)) else { return };
    let bugs = bugs_in(list);
    let rows: Vec<String> = bugs
        .iter()
        .map(|bug| format!("| `{}` | {} | `{}` |", bug.name, bug.what, bug.found_by))
        .collect();
    for row in rows.iter().filter(|row| !table.lines().any(|line| line == *row)) {
        let what = format!("the planted bugs have no row {row:?}");
        findings.push(Finding::whole(TABLE, what, "write it as the list has it"));
    }
    let listed = table.lines().filter(|line| {
        let mut cells = line.split(" | ");
        line.starts_with("| `") && cells.nth(2).is_some_and(|cell| cell.contains(": "))
    });
    if listed.count() > rows.len() {
        findings.push(Finding::whole(TABLE, "a bug that is not planted", "drop its row"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    const TESTS: &str = "fn finds_one() {}\nfn finds_two() {}\n";

    fn list() -> String {
        let bug = |variant: &str, name: &str| {
            format!("    {variant} = \"{name}\", \"a bug\",\n        \"twin: finds_{name}\";\n")
        };
        format!("\nbugs! {{\n{}{}}}\n", bug("One", "one"), bug("Two", "two"))
    }

    #[test]
    fn a_bug_that_is_not_listed_or_not_planted_is_found() {
        let row = |name: &str| format!("| `{name}` | a bug | `twin: finds_{name}` |\n");
        let of = |table: &str| found(bugs_are_listed, &[(LIST, &list()), (TABLE, table)]).len();
        assert_eq!(of(&(row("one") + &row("two"))), 0);
        assert_eq!(of(&row("one")), 1);
        assert_eq!(of(&(row("one") + &row("two") + &row("three"))), 1);
    }

    #[test]
    fn a_bug_that_is_nowhere_or_twice_is_found() {
        let list = list();
        let once = "fn f() -> bool { planted::is(planted::Bug::One) }\n";
        let twice = once.repeat(2);
        let tests = ("crates/a/src/tests.rs", TESTS);
        let of = |text: &str| {
            found(bugs_have_one_place, &[(LIST, &list), tests, ("crates/a/src/b.rs", text)])
        };
        assert_eq!(of(once), [format!("{LIST}:0")], "Two is nowhere");
        let mut both = of(&twice);
        both.sort();
        assert_eq!(both, ["crates/a/src/b.rs:2".to_owned(), format!("{LIST}:0")], "One is twice");
    }

    #[test]
    fn a_bug_whose_suite_or_test_is_not_run_is_found() {
        let both = "planted::is(planted::Bug::One) || planted::is(planted::Bug::Two)";
        let code = format!("fn f() -> bool {{ {both} }}\n");
        let of = |list: &str| {
            let code = [(LIST, list), ("crates/a/src/b.rs", &code), ("crates/a/src/t.rs", TESTS)];
            found(bugs_have_one_place, &code).len()
        };
        assert_eq!(of(&list()), 0);
        assert_eq!(of(&list().replace("twin: finds_two", "twins: finds_two")), 1);
        assert_eq!(of(&list().replace("twin: finds_two", "twin: finds_too")), 1);
    }
}
