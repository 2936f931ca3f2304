//! The style rules. Each rule is a function from the tree to findings. Exceptions are listed in a
//! table next to the rule, with a reason.
//!
//! | rule | file |
//! | --- | --- |
//! | width, length, module docs, marks of unfinished work, machine paths | `text.rs` |
//! | banned calls, where `unsafe` may live | `code.rs` |
//! | houses, floors | `houses.rs` |
//! | manifests, dependencies, dead files, fuzz targets | `house.rs` |
//! | circles of imports, floors inside a crate | `imports.rs` |
//! | the number of parameters | `parameters.rs` |
//! | the size of a crate | `size.rs` |
//! | words and names of the field | `words.rs` |
//! | links between documents | `links.rs` |
//! | the pictures of ARCHITECTURE.md | `pictures.rs` |
//! | bugs planted on purpose | `planted.rs` |
//!
//! Whatever rustc, rustfmt and clippy already check is not checked here.

mod code;
mod house;
pub(crate) mod houses;
mod imports;
mod links;
mod parameters;
mod pictures;
mod planted;
pub(crate) mod size;
mod text;
mod words;

use std::fmt;

use crate::tree::Tree;

/// One finding. Lines count from 1; 0 speaks of the file as a whole.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
    fix: String,
}

impl Finding {
    /// `line` counts from 0, as the iterators over lines do.
    fn at(path: &str, line: usize, what: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { path: path.to_string(), line: line + 1, what: what.into(), fix: fix.into() }
    }

    fn whole(path: &str, what: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { path: path.to_string(), line: 0, what: what.into(), fix: fix.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line.max(1);
        write!(f, "{}:{line}: {}; {}", self.path, self.what, self.fix)
    }
}

type Rule = fn(&Tree, &mut Vec<Finding>);

const RULES: &[Rule] = &[
    text::width,
    text::length,
    text::module_docs,
    text::unfinished,
    text::machine_paths,
    code::banned_calls,
    code::unsafe_where_allowed,
    houses::houses,
    houses::files_next_door,
    houses::floors,
    pictures::map_is_current,
    house::manifests,
    house::unused_dependencies,
    house::parts_have_reasons,
    house::dead_files,
    house::fuzz_targets,
    imports::circles,
    imports::floors_inside,
    parameters::parameters,
    size::crate_size,
    words::words,
    words::names,
    links::resolve,
    links::listed,
    planted::bugs_have_one_place,
    planted::bugs_are_listed,
];

/// All findings of all rules, in the order of the files.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in RULES {
        rule(tree, &mut findings);
    }
    findings.sort();
    findings.dedup();
    findings
}

/// Runs one rule over the files of a test and returns `path:line` of what it found.
#[cfg(test)]
fn found(rule: Rule, files: &[(&str, &str)]) -> Vec<String> {
    let mut findings = Vec::new();
    rule(&Tree::of(files), &mut findings);
    findings.iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_where_what_and_the_fix() {
        let finding = Finding::at("a.rs", 6, "a line of 120 columns", "break it");
        assert_eq!(finding.to_string(), "a.rs:7: a line of 120 columns; break it");
    }

    #[test]
    fn findings_come_in_the_order_of_the_files_and_once() {
        let long = "x".repeat(101);
        let tree = Tree::of(&[("b.rs", &long), ("a.rs", &long)]);
        let paths: Vec<String> = check(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["a.rs", "a.rs", "b.rs", "b.rs"]); // each too wide, and without docs
    }
}
