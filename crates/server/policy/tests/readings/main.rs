//! What real origins read in a path, and that no spelling is treated more leniently by routes than
//! what one of them reads in it.
//!
//! Some hundreds of spellings are sent to each origin, which answers with the paths that its
//! programs see. `docs/readings.md` has the table. The servers are required.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod origins;
#[path = "../../../../core/transport/tests/common/ports.rs"]
mod ports;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Mutex;

use config::{Action, Group, Path, Query, Route};
use outcome::Refusal;
use policy::reading::Reading;
use policy::routes::{Choice, Routes};

use origins::Origin;

/// The path that rules protect, below the root or reached from below `/open`.
const NAMES: [&str; 6] =
    ["secret", "%73ecret", "secret;v=1", "secret%3Bv=1", "secret%00", "secret%00.html"];
const SLASHES: [&str; 8] = ["/", "//", "%2F", "%2f", "/./", "/%2e/", "/;v=1/", "%5C"];
const UP: [&str; 8] = ["..", "%2e%2e", ".%2E", "..;", "..;v=1", "%2e%2e;v", "..%3B", "..%00"];

/// Spellings that are not made of these parts.
const MORE: [&str; 22] = [
    "/",
    "//",
    "//open/secret/x",
    "//open%2Fsecret/x",
    "/%2Fopen/secret",
    "/%2f%2fopen/secret",
    "/%5Copen/secret",
    "/open/x/../../secret",
    "/open//../secret",
    "/open///..//secret",
    "/open/..//..//secret/x",
    "/secret/..",
    "/secret/../open",
    "/secret/%2e%2e/open",
    "/secret%2F..%2Fopen",
    "/open/%252e%252e/secret",
    "/open/..%252fsecret",
    "/open%3F/../secret",
    "/open%23/../secret",
    "/%C0%AFsecret",
    "/secret%20/x",
    "/;/secret",
];

fn spellings() -> BTreeSet<String> {
    let mut all: BTreeSet<String> = MORE.iter().map(|path| (*path).to_owned()).collect();
    for slash in SLASHES {
        for name in NAMES {
            // Before the first slash nothing can be encoded.
            let first = if slash.starts_with('/') { "" } else { "/" };
            all.insert(format!("{first}{slash}{name}"));
            all.insert(format!("/{name}{slash}x"));
        }
        for up in UP {
            for after in SLASHES {
                all.insert(format!("/open{slash}{up}{after}secret"));
            }
        }
    }
    all
}

/// What the origins have read: spelling, name of the origin, path.
type Read = (String, &'static str, origins::Path);

fn all_read() -> Vec<Read> {
    let (spellings, read) = (spellings(), Mutex::new(Vec::new()));
    let directory = tempfile::tempdir().unwrap();
    let origins = Origin::start_all(directory.path());
    std::thread::scope(|scope| {
        for origin in &origins {
            let (spellings, read) = (&spellings, &read);
            scope.spawn(move || {
                let mut answers = 0;
                for spelling in spellings {
                    for path in origin.reads(spelling) {
                        answers += 1;
                        read.lock().unwrap().push((spelling.clone(), origin.name, path));
                    }
                }
                let least = spellings.len() / 4;
                assert!(answers > least, "{} answered {answers} times only", origin.name);
            });
        }
    });
    read.into_inner().unwrap()
}

/// The plain spelling of a path that an origin has read.
fn plain(path: &origins::Path) -> String {
    let mut out = String::new();
    for byte in &path.bytes {
        match byte {
            b'%' if path.is_encoded => out.push('%'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b';' => {
                out.push(char::from(*byte));
            }
            byte => write!(out, "%{byte:02X}").unwrap(),
        }
    }
    out
}

/// How routes treat a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Treated {
    Denied,
    Refused,
    /// Passed on to this upstream ...
    Unstored(String),
    /// ... and looked up in the store.
    Stored(String),
}

fn treated(routes: &Routes, path: &str) -> Treated {
    let reading = Reading::of(b"origin", path.as_bytes());
    let at = match routes.find(reading, None) {
        Ok(chosen) => chosen.at.expect("no rule answers"),
        Err(Refusal::Ambiguous) => return Treated::Refused,
        Err(_) => return Treated::Denied,
    };
    match (&routes.all()[at].config.action, routes.choose(reading, || None)) {
        (Action::Group(to), Choice::Barred) => Treated::Unstored(to.clone()),
        (Action::Group(to), _) => Treated::Stored(to.clone()),
        _ => Treated::Denied,
    }
}

/// Whether one is at least as strict as the other. No upstream is stricter than another.
fn is_as_strict(one: &Treated, other: &Treated) -> bool {
    match (one, other) {
        (Treated::Denied | Treated::Refused, _) => true,
        (_, Treated::Denied | Treated::Refused) => false,
        (Treated::Stored(_), Treated::Unstored(_)) => false,
        (Treated::Unstored(one) | Treated::Stored(one), Treated::Stored(other)) => one == other,
        (Treated::Unstored(one), Treated::Unstored(other)) => one == other,
    }
}

const TO_ANOTHER: &str = "to another upstream";

/// Routes that treat a prefix in another way than all else.
fn tables(prefix: &str) -> Vec<(&'static str, Routes)> {
    let groups = ["first", "other"].map(|name| Group::of(name, []));
    let route = |path: &str, to: &str| Route { path: Path::Prefix(path.into()), ..Route::to(to) };
    let denied = |path: &str| {
        let action = Action::Answer { status: 403, body: String::new() };
        Route { action, ..route(path, "") }
    };
    let all = || route("/", "first");
    let mut keyed = route(prefix, "first");
    keyed.key.query = Query::None;
    let unstored = Route { store: false, ..route(prefix, "first") };
    [
        ("denied", vec![all(), denied(prefix)]),
        ("all else denied", vec![denied("/"), route(prefix, "first")]),
        ("all else without a route", vec![route(prefix, "first")]),
        ("not stored", vec![all(), unstored]),
        ("with its key", vec![all(), keyed]),
        (TO_ANOTHER, vec![all(), route(prefix, "other")]),
    ]
    .map(|(name, routes)| (name, Routes::new(&routes, &groups)))
    .into()
}

#[test]
fn no_spelling_is_treated_more_leniently_than_what_a_real_origin_reads_in_it() {
    let read = all_read();
    let mut lenient = Vec::new();
    for prefix in ["/secret", "/open", "/open/secret", "/x", "/secret/x"] {
        for (table, routes) in tables(prefix) {
            let mut known = BTreeMap::new();
            let mut treated = |path: &str| {
                known.entry(path.to_owned()).or_insert_with(|| treated(&routes, path)).clone()
            };
            for (spelling, origin, path) in &read {
                // Clients join two parts with a slash each, so this is not refused for leading to
                // another upstream.
                if table == TO_ANOTHER && spelling.starts_with("//") {
                    continue;
                }
                let (is, must) = (treated(spelling), treated(&plain(path)));
                if !is_as_strict(&is, &must) {
                    let path = path.bytes.escape_ascii();
                    lenient.push(format!(
                        "{prefix} {table}: {spelling} is {is:?}, but {origin} reads {path}, \
                         which is {must:?}"
                    ));
                }
            }
        }
    }
    assert!(lenient.is_empty(), "{} of them:\n{}", lenient.len(), lenient.join("\n"));
    // A control: each origin but Node's raw URL resolves or decodes something.
    let differ: BTreeSet<&str> = read
        .iter()
        .filter(|(spelling, _, path)| spelling.as_bytes() != path.bytes)
        .map(|(_, origin, _)| *origin)
        .collect();
    assert_eq!(differ.len(), origins::ORIGINS, "{differ:?}");
    if let Ok(file) = std::env::var("PLIMSOLL_READINGS") {
        std::fs::write(file, table(&read)).unwrap();
    }
}

/// The spellings of the table in `docs/readings.md`.
const SHOWN: [&str; 14] = [
    "/open/../secret",
    "/open/%2e%2e/secret",
    "/open%2F..%2Fsecret",
    "/secret%2Fx",
    "/secret;v=1",
    "/open/..;/secret",
    "/secret%3Bv=1",
    "/open/..%3B/secret",
    "/secret//x",
    "//open/secret/x",
    "/open//../secret",
    "/secret%5Cx",
    "/secret%00.html",
    "/open/..%252fsecret",
];

/// What each origin has read, as a table of Markdown.
fn table(read: &[Read]) -> String {
    let origins: BTreeSet<&str> = read.iter().map(|(_, origin, _)| *origin).collect();
    let names: Vec<&str> = origins.iter().copied().collect();
    let mut out = format!("| spelling | {} |\n", names.join(" | "));
    out += &format!("| --- |{}\n", " --- |".repeat(names.len()));
    for shown in SHOWN {
        let of = |origin: &str| {
            let mut paths: Vec<String> = Vec::new();
            for (spelling, by, path) in read {
                let path = format!("`{}`", path.bytes.escape_ascii());
                if spelling == shown && *by == origin && !paths.contains(&path) {
                    paths.push(path);
                }
            }
            if paths.is_empty() { "refused".to_owned() } else { paths.join(", ") }
        };
        let cells: Vec<String> = names.iter().map(|name| of(name)).collect();
        out += &format!("| `{shown}` | {} |\n", cells.join(" | "));
    }
    out
}
