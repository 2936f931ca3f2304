//! Rules that read lines: width, length, module docs, marks of unfinished work, machine paths.

use super::Finding;
use crate::rust::{masked, test_lines};
use crate::tree::Tree;

const COLUMNS_MAX: usize = 100;
const LINES_MAX: usize = 900;

/// Files that may be longer than `LINES_MAX`, each with the reason.
const LONG_FILES: &[(&str, &str)] = &[(
    "crates/http/http1/tests/smuggling_corpus/requests.rs",
    "a table of attacks, each with its control",
)];

/// The kinds of files people read line by line.
const READ_BY_PEOPLE: &[&str] = &[".rs", ".md", ".sh", ".py", "Makefile"];

pub(super) fn width(tree: &Tree, findings: &mut Vec<Finding>) {
    for suffix in READ_BY_PEOPLE {
        for (path, text) in tree.with_suffix(suffix) {
            for (number, line) in text.lines().enumerate() {
                let columns = line.chars().count();
                // A table's row or an address cannot be broken.
                let is_row = path.ends_with(".md") && line.trim_start().starts_with('|');
                if columns > COLUMNS_MAX && !is_row && !line.contains("://") {
                    let what = format!("a line of {columns} columns");
                    findings.push(Finding::at(path, number, what, "break it at 100"));
                }
            }
        }
    }
}

pub(super) fn length(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.with_suffix(".rs") {
        let lines = text.lines().count();
        if lines > LINES_MAX && !LONG_FILES.iter().any(|(long, _)| *long == path) {
            let what = format!("{lines} lines, at most {LINES_MAX}");
            let fix = "split it, or name it in LONG_FILES with the reason if it is a table";
            findings.push(Finding::whole(path, what, fix));
        }
    }
    for (path, _) in LONG_FILES {
        if tree.get(path).is_some_and(|text| text.lines().count() <= LINES_MAX) {
            findings.push(Finding::whole(path, "is not long any more", "drop it from LONG_FILES"));
        }
    }
}

pub(super) fn module_docs(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.with_suffix(".rs") {
        let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("#!"));
        let starts_with_docs = lines.next().is_some_and(|line| line.starts_with("//!"));
        if !starts_with_docs {
            let fix = "say in //! what it is, why, who owns it, what never happens";
            findings.push(Finding::whole(path, "no module docs", fix));
        }
    }
}

/// Marks that say "not done": what is not done does not land. Written in two halves so that this
/// table does not find itself.
const UNFINISHED: &[(&str, &str)] = &[
    ("TO", "DO"),
    ("FIX", "ME"),
    ("XX", "X "),
    ("to", "do!("),
    ("un", "implemented!("),
    ("#[ig", "nore"),
    ("allow(dead", "_code)"),
];

pub(super) fn unfinished(tree: &Tree, findings: &mut Vec<Finding>) {
    for suffix in READ_BY_PEOPLE {
        for (path, text) in tree.with_suffix(suffix) {
            for (number, line) in text.lines().enumerate() {
                for (head, tail) in UNFINISHED {
                    let mark = format!("{head}{tail}");
                    if line.contains(&mark) {
                        let what = format!("`{mark}`");
                        findings.push(Finding::at(path, number, what, "do it, or take it out"));
                    }
                }
            }
        }
    }
}

/// Directories that exist on one machine only.
const MACHINE_ROOTS: &[&str] = &["home", "root", "Users", "work", "workspace", "mnt"];

/// A path as it is written in the files, for the exemptions of `machine_paths`.
const MACHINE_PATHS_ALLOWED: &[(&str, &str)] = &[];

pub(super) fn machine_paths(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.iter() {
        if MACHINE_PATHS_ALLOWED.iter().any(|(allowed, _)| *allowed == path) {
            continue;
        }
        // A made-up path in a unit test (a log line, a /proc entry) names no real machine.
        let in_test = if path.ends_with(".rs") { test_lines(&masked(text)) } else { Vec::new() };
        let is_test = path.contains("/tests/") || path.contains("/corpus/");
        for (number, line) in text.lines().enumerate() {
            if is_test || in_test.get(number).copied().unwrap_or(false) {
                continue;
            }
            for root in MACHINE_ROOTS {
                if names_root(line, root) {
                    let what = format!("an absolute path under /{root}");
                    findings.push(Finding::at(path, number, what, "make it relative"));
                }
            }
        }
    }
}

/// Whether a path starts there: after a blank, a quote, a bracket or an equals sign.
fn names_root(line: &str, root: &str) -> bool {
    let needle = format!("/{root}/");
    line.match_indices(&needle).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| c.is_whitespace() || "\"'`(=<[".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_wide_line_is_found_and_a_table_or_an_address_is_not() {
        let wide = "é".repeat(101);
        assert_eq!(found(width, &[("a.rs", &format!("ok\n{wide}\n"))]), ["a.rs:2"]);
        assert_eq!(found(width, &[("a.md", &format!("{wide}\n"))]), ["a.md:1"]);
        assert_eq!(found(width, &[("a.rs", &"é".repeat(100))]), [""; 0]);
        assert_eq!(found(width, &[("a.md", &format!("| {wide} |"))]), [""; 0]);
        assert_eq!(found(width, &[("a.md", &format!("http://{wide}"))]), [""; 0]);
        assert_eq!(found(width, &[("a.snap", &wide)]), [""; 0]);
    }

    #[test]
    fn a_long_file_is_found() {
        assert_eq!(found(length, &[("a.rs", &"x\n".repeat(901))]), ["a.rs:0"]);
        assert_eq!(found(length, &[("a.rs", &"x\n".repeat(900))]), [""; 0]);
    }

    #[test]
    fn a_file_without_docs_is_found() {
        assert_eq!(found(module_docs, &[("a.rs", "use x;\n//! late\n")]), ["a.rs:0"]);
        assert_eq!(found(module_docs, &[("a.rs", "")]), ["a.rs:0"]);
        assert_eq!(found(module_docs, &[("a.rs", "#![no_main]\n\n//! What.\n")]), [""; 0]);
    }

    #[test]
    fn unfinished_work_is_found() {
        let text = format!("//! x\n// {}: later\n#[ig{}]\n", ["TO", "DO"].concat(), "nore");
        assert_eq!(found(unfinished, &[("a.rs", &text)]), ["a.rs:2", "a.rs:3"]);
    }

    #[test]
    fn a_machine_path_is_found() {
        let text = "open(\"/home/me/x\")\n# see /root/x\n";
        assert_eq!(found(machine_paths, &[("a.toml", text)]), ["a.toml:1", "a.toml:2"]);
        let fine = "/proc/1/stat\nhttp://h/home/x\n~/.cargo/bin\n";
        assert_eq!(found(machine_paths, &[("a.md", fine)]), [""; 0]);
        let test = "#[cfg(test)]\nmod tests {\n    const P: &str = \"/home/x\";\n}\n";
        assert_eq!(found(machine_paths, &[("a.rs", test)]), [""; 0]);
    }
}
