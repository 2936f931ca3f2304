//! The rule on planted bugs: each of the list is in the code, once.

use super::Finding;
use crate::planted::{LIST, bugs_in};
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

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_bug_that_is_nowhere_or_twice_is_found() {
        let list = "bugs! {\n    One = \"one\", \"a bug\";\n    Two = \"two\", \"another\";\n}\n";
        let once = "fn f() -> bool { planted::is(planted::Bug::One) }\n";
        let twice = once.repeat(2);
        let of =
            |text: &str| found(bugs_have_one_place, &[(LIST, list), ("crates/a/src/b.rs", text)]);
        assert_eq!(of(once), [format!("{LIST}:0")], "Two is nowhere");
        let mut both = of(&twice);
        both.sort();
        assert_eq!(both, ["crates/a/src/b.rs:2".to_owned(), format!("{LIST}:0")], "One is twice");
    }
}
