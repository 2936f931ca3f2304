//! The rule on size: a crate stays small enough to be read.

use std::collections::BTreeMap;

use super::Finding;
use crate::rust::{masked, test_lines};
use crate::tree::Tree;

/// Lines of code of the largest crate: without tests, comments and blank lines.
const CRATE_LINES_MAX: usize = 9_000;

pub(super) fn crate_size(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for (root, text) in code(tree) {
        *lines.entry(root).or_default() += code_lines(text);
    }
    for (root, lines) in lines {
        if lines > CRATE_LINES_MAX {
            let what = format!("{lines} lines of code; at most {CRATE_LINES_MAX}");
            let fix = "split the crate, or delete what is not worth its size";
            findings.push(Finding::whole(&format!("{root}Cargo.toml"), what, fix));
        }
    }
}

/// The lines of code of the crate in this folder.
pub(crate) fn code_lines_in(tree: &Tree, folder: &str) -> usize {
    code(tree).filter(|(root, _)| *root == folder).map(|(_, text)| code_lines(text)).sum()
}

/// The folder of the crate and the text of each file that is not a test's.
fn code(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.with_suffix(".rs").filter_map(|(path, text)| {
        let (root, inside) = path.split_once("src/")?;
        let is_test = inside.contains("tests/") || inside.ends_with("tests.rs");
        (!is_test).then_some((root, text))
    })
}

/// Lines that are neither blank, nor only a comment, nor part of a test.
fn code_lines(text: &str) -> usize {
    let is_test = test_lines(&masked(text));
    text.lines()
        .zip(is_test)
        .map(|(line, is_test)| (line.trim(), is_test))
        .filter(|(line, is_test)| !is_test && !line.is_empty() && !line.starts_with("//"))
        .count()
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn code_is_counted_without_tests_comments_and_blank_lines() {
        let text =
            "//! x\n\nfn f() {\n    // y\n    g();\n}\n#[cfg(test)]\nmod tests {\n    f();\n}\n";
        assert_eq!(code_lines(text), 3);
    }

    #[test]
    fn a_crate_that_is_too_large_is_found() {
        let (half, one) = ("f();\n".repeat(CRATE_LINES_MAX / 2), "f();\n");
        let mut files = vec![("crates/x/src/a.rs", &half[..]), ("crates/x/src/b.rs", &half[..])];
        assert_eq!(found(crate_size, &files), [""; 0]);
        files.push(("crates/x/src/lib.rs", one));
        files.push(("crates/x/tests/t.rs", &half));
        assert_eq!(found(crate_size, &files), ["crates/x/Cargo.toml:0"]);
    }
}
