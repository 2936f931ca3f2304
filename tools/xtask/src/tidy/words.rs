//! The rule on words: text and names use the words of the field.
//!
//! It reads comments, messages, documents, names and flags alike: a line is cut into words at
//! everything that is no letter, at underscores, and where a small letter meets a capital, so that
//! `requests_told` and `ToldUs` are found too. A word can be right in one place: `EXCEPTIONS` lists
//! these places with a reason each. An exception that nothing needs any more is a finding.

use super::Finding;
use crate::tree::Tree;

/// A word or phrase, in lower case, and what to write instead.
const WORDS: &[(&str, &str)] = &[
    ("anew", "again, from scratch"),
    ("at hand", "in memory, available"),
    ("burnt", "spent, saturated, exhausted"),
    ("dear", "expensive"),
    ("dearer", "costs more"),
    ("foretell", "predict"),
    ("foretelling", "predicting"),
    ("foretells", "predicts"),
    ("foretold", "predicted"),
    ("he", "the user"),
    ("heed", "honour, respect"),
    ("heeded", "honoured, respected"),
    ("heeding", "honouring, respecting"),
    ("heeds", "honours, respects"),
    ("held against", "compared with, checked against"),
    ("hold against", "compare with, check against"),
    ("lend", "share, map"),
    ("lending", "sharing, mapping"),
    ("lends", "shares, maps"),
    ("lent", "shared, mapped"),
    ("mend", "fix"),
    ("mended", "fixed"),
    ("mending", "fixing"),
    ("mends", "fixes"),
    ("nobody", "no client, no request"),
    ("not to be trusted", "unreliable: REASON"),
    ("of its own", "its own"),
    ("of ours", "our"),
    ("stands at", "is at"),
    ("stands before", "comes before"),
    ("stands beside", "is beside"),
    ("stands in", "is in, is listed in"),
    ("stands on", "is on, uses"),
    ("tells", "reports, shows"),
    ("told", "notified, reported, configured with; name the thing"),
    ("under way", "in flight, in progress"),
    ("underway", "in flight, in progress"),
    ("used up", "exhausted"),
    ("what is left", "the remainder"),
    ("what is stored", "the stored response"),
    ("what was asked for", "the requested URL"),
    ("who asks", "the client, the caller"),
    ("whoever", "the client, the caller, the user"),
];

/// Names of files and types that say too little, and what to name them by.
const NAMES: &[(&str, &str)] = &[
    ("arrival", "connection setup"),
    ("because", "decision rule"),
    ("behind", "background revalidation"),
    ("door", "listener context"),
    ("hop", "via"),
    ("land", "response handling"),
    ("site", "configuration snapshot"),
    ("way", "routing"),
];

/// The kinds of files whose words count.
const READ_BY_PEOPLE: &[&str] = &[".rs", ".md", ".html", ".sh", ".py", ".toml", ".c", "Makefile"];

/// Path (or its beginning), word, and why it is right there.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("crates/plimsoll/tests/end_to_end/bad_input.rs", "nobody", "a user of the system"),
    ("crates/plimsoll/tests/end_to_end/settings.rs", "nobody", "a user of the system"),
    ("crates/lab/record/tests/profile.rs", "nobody", "a user of the system"),
    ("crates/server/store/src/disk/zero_copy.rs", "lent", "the name of a file in existing stores"),
    ("crates/server/store/tests/disk/real.rs", "lent", "the name of a file in existing stores"),
    ("docs/disk.md", "lent", "the name of a file in existing stores"),
];

/// Files and types whose names are to be replaced yet, or are right.
const NAMES_KEPT: &[(&str, &str)] =
    &[("crates/http/http1/src/hop.rs", "hop-by-hop is the term of RFC 9110")];

/// The file of this rule has to spell the words.
const OWN_FILE: &str = "tools/xtask/src/tidy/words.rs";

pub(super) fn words(tree: &Tree, findings: &mut Vec<Finding>) {
    check_words(EXCEPTIONS, tree, findings);
}

fn check_words(exceptions: &[(&str, &str, &str)], tree: &Tree, findings: &mut Vec<Finding>) {
    let mut needed = vec![false; exceptions.len()];
    for (path, text) in tree.iter() {
        if path == OWN_FILE || !READ_BY_PEOPLE.iter().any(|suffix| path.ends_with(suffix)) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let spaced = spaced(line);
            for (word, instead) in WORDS {
                if !spaced.contains(&format!(" {word} ")) {
                    continue;
                }
                let excepted = exceptions
                    .iter()
                    .position(|(start, exempt, _)| path.starts_with(start) && exempt == word);
                match excepted {
                    Some(at) => needed[at] = true,
                    None => {
                        let what = format!("the word \"{word}\"");
                        let fix = format!("rewrite the sentence or name (for example: {instead})");
                        findings.push(Finding::at(path, number, what, fix));
                    }
                }
            }
        }
    }
    let unneeded = exceptions.iter().zip(&needed).filter(|(_, needed)| !**needed);
    for ((path, word, _), _) in unneeded.filter(|((path, ..), _)| tree.exists(path)) {
        let what = format!("\"{word}\" does not occur here any more");
        findings.push(Finding::whole(path, what, "drop it from EXCEPTIONS in xtask"));
    }
}

/// The words of a line in lower case, with one space before and behind each.
fn spaced(line: &str) -> String {
    let mut out = String::with_capacity(line.len() + 16);
    out.push(' ');
    let mut was_small = false;
    for c in line.chars() {
        let starts_word = c.is_uppercase() && was_small;
        if (starts_word || !c.is_alphanumeric()) && !out.ends_with(' ') {
            out.push(' ');
        }
        if c.is_alphanumeric() {
            out.extend(c.to_lowercase());
        }
        was_small = c.is_lowercase();
    }
    if !out.ends_with(' ') {
        out.push(' ');
    }
    out
}

pub(super) fn names(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.with_suffix(".rs") {
        if path == OWN_FILE || NAMES_KEPT.iter().any(|(kept, _)| *kept == path) {
            continue;
        }
        let parts = path.trim_end_matches(".rs").split('/');
        for (name, instead) in NAMES {
            if parts.clone().any(|part| part == *name) {
                let fix = format!("rename it (for example: {instead})");
                findings.push(Finding::whole(path, format!("a file named {name}"), fix));
            }
        }
        for (number, line) in text.lines().enumerate() {
            let Some(defined) = defined_type(line) else { continue };
            if let Some((_, instead)) =
                NAMES.iter().find(|(name, _)| defined.eq_ignore_ascii_case(name))
            {
                let what = format!("a type named {defined}");
                let fix = format!("rename it (for example: {instead})");
                findings.push(Finding::at(path, number, what, fix));
            }
        }
    }
}

/// The name of the type that the line begins to define.
fn defined_type(line: &str) -> Option<&str> {
    let mut words = line.trim_start().split(|c: char| !c.is_alphanumeric() && c != '_');
    let kind = words.find(|word| !matches!(*word, "pub" | "crate" | "super" | "" | "in"))?;
    matches!(kind, "struct" | "enum" | "trait" | "type").then(|| words.next()).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn words_are_found_in_text_and_in_names_of_any_case() {
        for text in ["// We told it.", "fn is_told() {}", "struct ToldUs;", "\"Told\"", "--told-x"]
        {
            assert_eq!(found(words, &[("crates/x/src/a.rs", text)]), ["crates/x/src/a.rs:1"]);
        }
        for text in ["// amended", "fn recommend() {}", "spend", "HTTPTOLDX"] {
            assert_eq!(found(words, &[("crates/x/src/a.rs", text)]), [""; 0], "{text}");
        }
        assert_eq!(found(words, &[("notes/a.md", "x\na test of ours.\n")]), ["notes/a.md:2"]);
        assert_eq!(found(words, &[("crates/x/data.bin", "told")]), [""; 0]);
    }

    #[test]
    fn an_exception_is_for_one_place_and_must_be_needed() {
        let exceptions = &[("notes/a.md", "told", "a quotation")][..];
        let check = |files: &[(&str, &str)]| {
            let mut findings = Vec::new();
            check_words(exceptions, &Tree::of(files), &mut findings);
            findings.len()
        };
        assert_eq!(check(&[("notes/a.md", "told")]), 0);
        assert_eq!(check(&[("notes/a.md", "told"), ("notes/b.md", "told")]), 1);
        assert_eq!(check(&[("notes/a.md", "said")]), 1);
    }

    #[test]
    fn files_and_types_have_names_of_the_field() {
        assert_eq!(found(names, &[("crates/x/src/door.rs", "")]), ["crates/x/src/door.rs:0"]);
        let text = "pub(crate) enum Way<'x> {}\nstruct Highway;\nfn way() {}\n";
        assert_eq!(found(names, &[("crates/x/src/a.rs", text)]), ["crates/x/src/a.rs:1"]);
    }
}
