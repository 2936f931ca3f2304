//! The corpora of this crate's fuzz targets, replayed.

use std::path::Path;

use import::{Options, Source, import};
use proptest::prelude::*;

#[path = "../../../../tools/fuzz/checks/corpus.rs"]
mod corpus;

#[path = "../../../../tools/fuzz/checks/import.rs"]
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

#[test]
fn haproxy() {
    corpus::replay("import_haproxy", checks::haproxy);
}

#[test]
fn caddy() {
    corpus::replay("import_caddy", checks::caddy);
}

/// Each directive has a note.
#[test]
fn no_directive_is_without_a_fate() {
    for (source, target) in [
        (Source::Squid, "import_squid"),
        (Source::Nginx, "import_nginx"),
        (Source::Vcl, "import_vcl"),
        (Source::Haproxy, "import_haproxy"),
        (Source::Caddy, "import_caddy"),
    ] {
        for (name, text) in inputs(target) {
            let mut read = |_: &str| Err("it cannot be read".to_owned());
            let options = Options::default();
            let Ok(imported) = import(source, "file", &text, options, &mut read) else { continue };
            for (line, directives) in directives(source, &text) {
                let notes = imported.notes.iter().filter(|note| note.line == line).count();
                assert!(notes >= directives, "{target}/{name}:{line}: {:#?}", imported.notes);
            }
        }
    }
}

/// How many directives each line has, counted without the parsers.
fn directives(source: Source, text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut is_continued = false;
    for (at, line) in text.lines().enumerate() {
        let code = line.split(" #").next().unwrap_or_default().trim();
        let is_comment = code.is_empty() || code.starts_with('#') || code.starts_with("//");
        let was_continued = std::mem::replace(&mut is_continued, code.ends_with('\\'));
        if is_comment || was_continued || code.contains("\\\"") || code.contains("_lua_block") {
            continue;
        }
        // Without quoted texts.
        let code: String = code.split(['"', '\'']).step_by(2).collect();
        let ends = |sign: char| code.matches(sign).count();
        let count = match source {
            Source::Squid | Source::Haproxy => 1,
            // A directive ends with `;` or opens a block.
            Source::Nginx => ends(';') + ends('{') - code.matches("${").count(),
            // A list has one note for all its entries.
            Source::Vcl if code.starts_with("acl") => 1,
            Source::Vcl => ends(';'),
            // A line that opens a block is a directive, or has addresses.
            Source::Caddy => usize::from(code.len() > 1 && code.ends_with('{')),
        };
        found.push((at + 1, count));
    }
    found
}

/// The names and the texts of a corpus.
fn inputs(target: &str) -> Vec<(String, String)> {
    let corpus =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tools/fuzz/corpus").join(target);
    let entries = std::fs::read_dir(corpus).expect("the corpus is checked in");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("a listed file").path();
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        (name, std::fs::read_to_string(&path).expect("text"))
    };
    entries.map(read).collect()
}

/// The words of all inputs of a corpus, with their spaces.
fn words(target: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (_, text) in inputs(target) {
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
            ("import_haproxy", checks::haproxy),
            ("import_caddy", checks::caddy),
        ] {
            let words = words(target);
            let text: String = picks.iter().map(|pick| pick.get(&words).as_str()).collect();
            check(text.as_bytes());
        }
    }
}
