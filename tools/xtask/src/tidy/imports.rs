//! Rules on imports: no circle of more than three files, no import that points up between the named
//! floors of a crate.
//!
//! The graph has a node for each file of `src` and an edge for each file whose items another file
//! names, by `use` or by a path. An item that is re-exported counts for the file that defines it,
//! and a re-export alone is no edge: a parent that lists what its children offer does not use it.
//! What a file takes from a module that contains it is no edge either: a contract is defined in the
//! parent, and each of its children implements it. Test code is left out.
//!
//! What this cannot see: items reached through macros, through glob imports (the edge goes to the
//! module itself), and methods, which need no import.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::rust::{masked, test_lines};
use crate::tree::Tree;

/// The largest circle of files that is allowed.
const CIRCLE_FILES_MAX: usize = 3;

/// Crates with a larger circle, and its size. A circle that grows beyond its entry is a finding,
/// and so is an entry that is larger than its circle.
const LARGER_CIRCLES: &[(&str, usize)] = &[];

/// The floors inside a crate, from the ground up, by top-level module. A module may import from a
/// lower floor, nothing else. A crate that is listed here lists all of its modules.
const INSIDE: &[(&str, &[&[&str]])] = &[
    (
        "exchange",
        &[
            &["limits"],
            &["cluster"],
            &["listener", "shared"],
            &["snapshot", "seen"],
            &["worker"],
            &["request", "logged"],
            &["coded", "facts"],
            &["hit", "rules", "spread"],
            &["step"],
            &["plan", "fetch"],
            &["mirror"],
            &["auth"],
            &["routing", "error_pages"],
            &["guard"],
            &["serve", "from_disk", "connect", "own_answers", "quota", "upgrade"],
            &["passed_on"],
            &["from_files"],
            &["run"],
            &["explain"],
        ],
    ),
    ("proxy", &[&["encoded_heads", "h1"], &["coding"], &["h2"], &["h3"], &["serve"]]),
    (
        "server",
        &[
            &[
                "call",
                "certificates",
                "change",
                "control",
                "descriptors",
                "hold",
                "limits",
                "log_to",
                "start_error",
            ],
            &[
                "listening",
                "locks",
                "metrics_text",
                "name_lookups",
                "purge_api",
                "queries",
                "sockets",
            ],
            &["our_digest", "peer_digests"],
            &["core_task", "process"],
            &["dashboard"],
            &["admin", "handover"],
            &["core"],
            &["server"],
        ],
    ),
];

/// A path such as `crate::tls::{Peer, files}`, taken apart: `["crate", "tls", "Peer"]`.
type Names = Vec<String>;

/// One file of a crate, as the rules see it.
struct Source<'t> {
    path: &'t str,
    /// Its module's path below the crate, such as `["tls", "files"]`; empty for the root.
    module: Names,
    /// Each name in scope and the path it refers to.
    uses: Vec<(String, Names)>,
    /// Names of `uses` that are re-exported.
    exported: BTreeSet<String>,
    /// Paths that code names in full, such as `crate::limits::MAX`.
    paths: Vec<Names>,
    /// Code without imports, comments and tests.
    body: String,
}

/// The files of each crate that have more than one file.
fn crates<'t>(tree: &'t Tree) -> BTreeMap<&'t str, Vec<Source<'t>>> {
    let mut found: BTreeMap<&str, Vec<Source<'_>>> = BTreeMap::new();
    for (path, text) in tree.with_suffix(".rs") {
        let Some((root, inside)) = path.split_once("src/") else { continue };
        let is_fuzzing = root.starts_with("tools/fuzz");
        if inside.contains("tests/") || inside.ends_with("tests.rs") || is_fuzzing {
            continue;
        }
        found.entry(root).or_default().push(Source::read(path, inside, text));
    }
    found
}

impl<'t> Source<'t> {
    fn read(path: &'t str, inside: &str, text: &str) -> Source<'t> {
        let masked = masked(text);
        let tests = test_lines(&masked);
        let code: Vec<&str> = masked
            .lines()
            .zip(tests)
            .map(|(line, is_test)| if is_test { "" } else { line })
            .collect();
        let mut source = Source {
            path,
            module: module_of(inside),
            uses: Vec::new(),
            exported: BTreeSet::new(),
            paths: Vec::new(),
            body: String::new(),
        };
        source.take_uses(&code.join("\n"));
        source.paths = paths_in(&source.body);
        source
    }

    /// Splits the text into imports and the code that remains.
    fn take_uses(&mut self, code: &str) {
        let mut rest = code;
        while let Some(start) = next_use(rest) {
            let Some(length) = rest[start..].find(';') else { break };
            let before = &rest[..start];
            let line = before.rfind('\n').map_or(0, |at| at + 1);
            let is_exported = before[line..].trim_start().starts_with("pub");
            self.body.push_str(&before[..line]);
            let statement = &rest[start + "use ".len()..start + length];
            for (name, names) in expanded(statement) {
                if is_exported {
                    self.exported.insert(name.clone());
                }
                self.uses.push((name, names));
            }
            rest = &rest[start + length + 1..];
        }
        self.body.push_str(rest);
    }
}

/// Where the next `use` statement begins.
fn next_use(code: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + code[from..].find("use ")?;
        let line = code[..at].rfind('\n').map_or(0, |at| at + 1);
        let before = code[line..at].trim();
        if before.is_empty() || before == "pub" || before.starts_with("pub(") {
            return Some(at);
        }
        from = at + "use ".len();
    }
}

/// `tls/files.rs` is `["tls", "files"]`.
fn module_of(inside: &str) -> Names {
    let mut names: Names = inside.trim_end_matches(".rs").split('/').map(str::to_string).collect();
    if matches!(names.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        names.pop();
    }
    names
}

/// Each leaf of a `use` tree: the name that it brings into scope, and the path.
fn expanded(statement: &str) -> Vec<(String, Names)> {
    fn walk(text: &str, before: &Names, found: &mut Vec<(String, Names)>) {
        let text = text.trim();
        let (head, group) = match text.find('{') {
            Some(at) => (&text[..at], Some(text[at + 1..].trim_end().trim_end_matches('}'))),
            None => (text, None),
        };
        let (path, alias) = match head.split_once(" as ") {
            Some((path, alias)) => (path, Some(alias.trim())),
            None => (head, None),
        };
        let mut names = before.clone();
        names.extend(path.split("::").map(str::trim).filter(|n| !n.is_empty()).map(str::to_string));
        match group {
            Some(group) => split_at_commas(group).for_each(|part| walk(part, &names, found)),
            None => {
                if names.last().is_some_and(|name| name == "self") && names.len() > 1 {
                    names.pop();
                }
                if let Some(name) = alias.or(names.last().map(String::as_str)) {
                    found.push((name.to_string(), names));
                }
            }
        }
    }
    let mut found = Vec::new();
    walk(statement, &Names::new(), &mut found);
    found
}

/// The parts of a group, at its own commas.
fn split_at_commas(group: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    group
        .split(move |c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == ',' && depth == 0
        })
        .filter(|part| !part.trim().is_empty())
}

/// The paths with a `::` that code names.
fn paths_in(body: &str) -> Vec<Names> {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    body.split(|c| !is_path(c))
        .filter(|path| path.contains("::"))
        .map(|path| path.split("::").filter(|n| !n.is_empty()).map(str::to_string).collect())
        .collect()
}

/// The files of one crate and who uses whom, by index.
struct Graph<'s, 't> {
    files: &'s [Source<'t>],
    by_module: BTreeMap<&'s [String], usize>,
}

impl<'s, 't> Graph<'s, 't> {
    fn of(files: &'s [Source<'t>]) -> Graph<'s, 't> {
        let by_module = files.iter().enumerate().map(|(at, file)| (&file.module[..], at)).collect();
        Graph { files, by_module }
    }

    /// The files that this one uses.
    fn used_by(&self, at: usize) -> BTreeSet<usize> {
        let file = &self.files[at];
        let words: BTreeSet<&str> = file
            .body
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| !word.is_empty())
            .collect();
        let is_named = |name: &String| !file.exported.contains(name) || words.contains(&name[..]);
        let imported = file.uses.iter().filter(|(name, _)| is_named(name)).map(|(_, names)| names);
        let mut used: BTreeSet<usize> =
            imported.chain(&file.paths).filter_map(|names| self.definer(at, names, 0)).collect();
        used.retain(|&other| !file.module.starts_with(&self.files[other].module));
        used
    }

    /// The file that defines what a path names, seen from this file.
    fn definer(&self, at: usize, names: &[String], depth: usize) -> Option<usize> {
        let (first, rest) = names.split_first()?;
        let mut module = self.files[at].module.clone();
        let mut rest = rest;
        match first.as_str() {
            "crate" => module.clear(),
            "self" => {}
            "super" => {
                module.pop();
                while let Some(("super", further)) =
                    rest.split_first().map(|(name, further)| (name.as_str(), further))
                {
                    module.pop();
                    rest = further;
                }
            }
            // A child module, or a name that an import brought into scope.
            name => {
                let child = [&module[..], &[name.to_string()]].concat();
                if self.by_module.contains_key(&child[..]) {
                    rest = names;
                } else {
                    let (_, path) = self.files[at].uses.iter().find(|(used, _)| used == name)?;
                    if depth > 8 || path.first() == Some(first) {
                        return None;
                    }
                    return self.definer(at, &[path, rest].concat(), depth + 1);
                }
            }
        }
        let mut found = *self.by_module.get(&module[..])?;
        while let Some((next, further)) = rest.split_first() {
            module.push(next.clone());
            match self.by_module.get(&module[..]) {
                Some(&deeper) => (found, rest) = (deeper, further),
                None => break,
            }
        }
        // What a module re-exports is defined elsewhere.
        if let Some(name) = rest.first()
            && self.files[found].exported.contains(name)
            && depth <= 8
            && let Some((_, path)) = self.files[found].uses.iter().find(|(used, _)| used == name)
            && let Some(definer) = self.definer(found, path, depth + 1)
        {
            return Some(definer);
        }
        Some(found)
    }

    /// The circles: sets of files of which each reaches each other.
    fn circles(&self) -> Vec<Vec<usize>> {
        let edges: Vec<BTreeSet<usize>> =
            (0..self.files.len()).map(|at| self.used_by(at)).collect();
        let reached: Vec<BTreeSet<usize>> =
            (0..edges.len()).map(|at| reached(&edges, at)).collect();
        let mut circles = Vec::new();
        let mut placed: BTreeSet<usize> = BTreeSet::new();
        for at in 0..edges.len() {
            if placed.contains(&at) || !reached[at].contains(&at) {
                continue;
            }
            let circle: Vec<usize> =
                reached[at].iter().copied().filter(|&other| reached[other].contains(&at)).collect();
            placed.extend(&circle);
            circles.push(circle);
        }
        circles
    }
}

/// What can be reached from a node by one edge or more.
fn reached(edges: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        open.extend(edges[at].iter().filter(|&&next| found.insert(next)));
    }
    found
}

pub(super) fn circles(tree: &Tree, findings: &mut Vec<Finding>) {
    for (root, files) in &crates(tree) {
        let known = LARGER_CIRCLES.iter().find(|(path, _)| path == root).map(|(_, size)| *size);
        let graph = Graph::of(files);
        let circles = graph.circles();
        let largest = circles.iter().map(Vec::len).max().unwrap_or(0);
        if known.is_some_and(|known| largest < known) {
            let what = format!("the largest circle has {largest} files");
            let fix = "lower its entry in LARGER_CIRCLES in xtask, or drop it";
            findings.push(Finding::whole(files[0].path, what, fix));
        }
        for circle in circles {
            if circle.len() > known.unwrap_or(CIRCLE_FILES_MAX) {
                let paths: Vec<&str> = circle.iter().map(|&at| files[at].path).collect();
                let what = format!(
                    "{} files import each other in a circle: {}",
                    circle.len(),
                    paths.join(", ")
                );
                let fix = "move what they share to a file below them";
                findings.push(Finding::whole(paths[0], what, fix));
            }
        }
    }
}

pub(super) fn floors_inside(tree: &Tree, findings: &mut Vec<Finding>) {
    check_floors_inside(INSIDE, tree, findings);
}

fn check_floors_inside(table: &[(&str, &[&[&str]])], tree: &Tree, findings: &mut Vec<Finding>) {
    let crates = crates(tree);
    for (name, floors) in table {
        let end = format!("/{name}/");
        let Some(files) = crates.iter().find(|(root, _)| root.ends_with(&end)) else { continue };
        let files = files.1;
        let graph = Graph::of(files);
        let floor = |at: usize| {
            let top = files[at].module.first()?;
            Some((top, floors.iter().position(|modules| modules.contains(&top.as_str()))))
        };
        for (at, file) in files.iter().enumerate() {
            let Some((top, own)) = floor(at) else { continue };
            let Some(own) = own else {
                let what = format!("the module {top} is on no floor of {name}");
                findings.push(Finding::whole(file.path, what, "add it to INSIDE in xtask"));
                continue;
            };
            for used in graph.used_by(at) {
                let Some((other, Some(below))) = floor(used) else { continue };
                if other == top || below < own {
                    continue;
                }
                let what = format!("{top} imports {other}, which is not below it");
                let fix = "move what it needs to a lower floor";
                findings.push(Finding::whole(file.path, what, fix));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    /// `n` files of which each imports the next, and the last the first.
    fn ring(n: usize) -> Vec<(String, String)> {
        let mut files: Vec<(String, String)> = (0..n)
            .map(|at| {
                let text = format!("//! x\nuse crate::f{}::T;\n", (at + 1) % n);
                (format!("crates/x/src/f{at}.rs"), text)
            })
            .collect();
        files.push(("crates/x/src/lib.rs".into(), "//! x\n".into()));
        files
    }

    fn circles_of(files: &[(String, String)]) -> Vec<String> {
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (&p[..], &t[..])).collect();
        found(circles, &files)
    }

    #[test]
    fn a_planted_circle_of_four_files_is_found() {
        assert_eq!(circles_of(&ring(4)), ["crates/x/src/f0.rs:0"]);
        assert_eq!(circles_of(&ring(3)), [""; 0]);
    }

    #[test]
    fn a_circle_through_paths_groups_and_re_exports_is_found() {
        let files = [
            ("crates/x/src/lib.rs", "pub mod a;\npub use a::A;\n"),
            ("crates/x/src/a/mod.rs", "mod b;\npub use b::B;\nfn f() { super::c::g(); }\n"),
            ("crates/x/src/a/b.rs", "use crate::e::{self, F};\n"),
            ("crates/x/src/c.rs", "use crate::d;\nfn g() { d::h() }\n"),
            ("crates/x/src/d.rs", "use crate::{a::B, e};\n"),
            ("crates/x/src/e.rs", "fn f() { crate::a::f() }\n"),
        ];
        let files = files.map(|(path, text)| (path.to_string(), text.to_string()));
        assert_eq!(circles_of(&files), ["crates/x/src/a/b.rs:0"]);
    }

    #[test]
    fn a_parent_that_re_exports_its_children_is_in_no_circle() {
        let mut files: Vec<(String, String)> = (0..6)
            .map(|at| {
                (format!("crates/x/src/p/c{at}.rs"), "use super::Shared;\nstruct T;\n".to_string())
            })
            .collect();
        let list: String = (0..6).map(|at| format!("mod c{at};\npub use c{at}::T;\n")).collect();
        files.push(("crates/x/src/p/mod.rs".into(), list + "struct Shared;\n"));
        assert_eq!(circles_of(&files), [""; 0]);
    }

    #[test]
    fn tests_are_in_no_circle() {
        let mut files = ring(5);
        files[4].1 = "//! x\n#[cfg(test)]\nmod tests {\n    use crate::f0::T;\n}\n".into();
        assert_eq!(circles_of(&files), [""; 0]);
    }

    #[test]
    fn an_import_that_points_up_inside_a_crate_is_found() {
        let table: &[(&str, &[&[&str]])] = &[("x", &[&["ground"], &["left", "right"]])];
        let check = |path: &str, text: &str| {
            let files = [
                ("crates/x/src/lib.rs", "struct Root;\n"),
                ("crates/x/src/ground.rs", ""),
                ("crates/x/src/left.rs", ""),
                ("crates/x/src/right.rs", ""),
            ];
            let files: Vec<(&str, &str)> =
                files.into_iter().filter(|(p, _)| *p != path).chain([(path, text)]).collect();
            let mut findings = Vec::new();
            check_floors_inside(table, &Tree::of(&files), &mut findings);
            findings.len()
        };
        assert_eq!(check("crates/x/src/left.rs", "use crate::ground::A;\n"), 0);
        assert_eq!(check("crates/x/src/left.rs", "use crate::right::A;\n"), 1);
        assert_eq!(check("crates/x/src/ground.rs", "use crate::left::A;\n"), 1);
        assert_eq!(check("crates/x/src/ground.rs", "use crate::Root;\n"), 0);
        assert_eq!(check("crates/x/src/attic.rs", ""), 1);
    }
}
