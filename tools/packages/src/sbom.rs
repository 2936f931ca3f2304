//! The list of the crates in a program, in the format of CycloneDX.
//!
//! Source: CycloneDX 1.5, JSON; package URLs by the purl specification, type `cargo`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::Stamp;
use crate::json::{Json, text};
use crate::tools;

/// Makes `cargo` list the crates of a build. Those that are only needed to build or to test are not
/// in the program.
const CRATES_OF_A_BUILD: &[&str] =
    &["tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}|{l}"];

/// What `Cargo.lock` says about a crate.
#[derive(Debug, Default)]
struct Locked {
    /// SHA-256, in hexadecimal digits. The crates of this repository have none.
    checksum: Option<String>,
    /// `name` or `name version`.
    dependencies: Vec<String>,
}

type Id = (String, String);

/// The list for a program. `lock` is the text of `Cargo.lock`; `tree` is the output of `cargo` with
/// the arguments that [`arguments`] returns.
///
/// # Errors
///
/// If a crate of `tree` is not in `lock`.
pub fn sbom(name: &str, lock: &str, tree: &str, stamp: &Stamp) -> io::Result<String> {
    let locked = locked(lock);
    let crates = crates(tree);
    let mut components = Vec::new();
    let mut graph = Vec::new();
    for (id, licence) in &crates {
        let known = locked
            .get(id)
            .ok_or_else(|| io::Error::other(format!("{} {} is not in Cargo.lock", id.0, id.1)))?;
        components.push(component(id, licence, known));
        let edges = known.dependencies.iter().filter_map(|named| found(named, &crates));
        let edges: BTreeSet<String> = edges.map(purl).collect();
        graph.push(Json::Object(vec![
            ("ref", text(purl(id))),
            ("dependsOn", Json::List(edges.into_iter().map(Json::Text).collect())),
        ]));
    }
    let program = Json::Object(vec![
        ("type", text("application")),
        ("name", text(name)),
        ("version", text(stamp.version.as_str())),
    ]);
    let metadata =
        Json::Object(vec![("timestamp", text(tools::date(stamp.epoch)?)), ("component", program)]);
    let list = Json::Object(vec![
        ("bomFormat", text("CycloneDX")),
        ("specVersion", text("1.5")),
        ("version", Json::Number(1)),
        ("metadata", metadata),
        ("components", Json::List(components)),
        ("dependencies", Json::List(graph)),
    ]);
    Ok(format!("{list}\n"))
}

/// The arguments with which `cargo` lists the crates of a build of `plimsoll` with these features.
pub fn arguments(features: &str) -> Vec<String> {
    let flags = ["--package", "plimsoll", "--no-default-features", "--features", features];
    CRATES_OF_A_BUILD.iter().copied().chain(flags).map(str::to_owned).collect()
}

fn component(id: &Id, licence: &str, known: &Locked) -> Json {
    let mut fields = vec![
        ("type", text("library")),
        ("bom-ref", text(purl(id))),
        ("name", text(id.0.as_str())),
        ("version", text(id.1.as_str())),
        ("purl", text(purl(id))),
    ];
    if let Some(sum) = &known.checksum {
        let hash = Json::Object(vec![("alg", text("SHA-256")), ("content", text(sum.as_str()))]);
        fields.push(("hashes", Json::List(vec![hash])));
    }
    if !licence.is_empty() {
        // Old crates write a slash for OR.
        let licence = Json::Object(vec![("expression", text(licence.replace('/', " OR ")))]);
        fields.push(("licenses", Json::List(vec![licence])));
    }
    Json::Object(fields)
}

fn purl((name, version): &Id) -> String {
    // A plus sign would be read as a space.
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

/// The crates in the output of `cargo tree`, with their licences.
fn crates(tree: &str) -> BTreeMap<Id, String> {
    let mut crates = BTreeMap::new();
    for line in tree.lines() {
        let (package, licence) = line.split_once('|').unwrap_or((line, ""));
        // `name v1.2.3 (/path)`; a crate that was listed before has ` (*)` at the end of the line.
        let mut words = package.split(' ');
        if let (Some(name), Some(version)) = (words.next(), words.next()) {
            let id = (name.to_owned(), version.trim_start_matches('v').to_owned());
            crates.insert(id, licence.trim_end_matches(" (*)").to_owned());
        }
    }
    crates
}

/// The crate that a dependency of `Cargo.lock` names, if the program has it.
fn found<'c>(named: &str, crates: &'c BTreeMap<Id, String>) -> Option<&'c Id> {
    let mut words = named.split(' ');
    let (name, version) = (words.next()?, words.next());
    crates.keys().find(|id| id.0 == name && version.is_none_or(|version| version == id.1))
}

fn locked(lock: &str) -> BTreeMap<Id, Locked> {
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            let after = package.lines().find_map(|line| line.strip_prefix(key))?;
            Some(after.strip_prefix(" = ")?.trim_matches('"').to_owned())
        };
        let (Some(name), Some(version)) = (value("name"), value("version")) else { continue };
        let list = package.split_once("dependencies = [").map_or("", |(_, after)| after);
        let list = list.split(']').next().unwrap_or_default();
        let dependencies = list.split('"').skip(1).step_by(2).map(str::to_owned).collect();
        let checksum = value("checksum");
        found.insert((name, version), Locked { checksum, dependencies });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Compression;

    const LOCK: &str = r#"version = 4

[[package]]
name = "a"
version = "1.0.0"
source = "registry"
checksum = "00ff"
dependencies = [
 "b 2.0.0+x",
 "unused",
]

[[package]]
name = "b"
version = "1.0.0"
checksum = "11"

[[package]]
name = "b"
version = "2.0.0+x"

[[package]]
name = "unused"
version = "0.1.0"
"#;

    #[test]
    fn only_crates_of_the_program_are_listed_with_their_sums_and_edges() {
        let tree = "a v1.0.0|MIT/Apache-2.0\nb v2.0.0+x (/somewhere/b)|MIT\n\
                    a v1.0.0|MIT/Apache-2.0 (*)\n";
        let stamp = Stamp { version: "3".to_owned(), epoch: 0, compression: Compression::Fast };
        let list = sbom("p", LOCK, tree, &stamp).unwrap();
        let expected = [
            r#""timestamp":"1970-01-01T00:00:00Z""#,
            r#""name":"a","version":"1.0.0","purl":"pkg:cargo/a@1.0.0","hashes":["#,
            r#"[{"alg":"SHA-256","content":"00ff"}]"#,
            r#""licenses":[{"expression":"MIT OR Apache-2.0"}]"#,
            r#"{"ref":"pkg:cargo/a@1.0.0","dependsOn":["pkg:cargo/b@2.0.0%2Bx"]}"#,
        ];
        for part in expected {
            assert!(list.contains(part), "{part}: {list}");
        }
        assert!(!list.contains("unused") && !list.contains("somewhere"), "{list}");
        assert!(!list.contains("pkg:cargo/b@1.0.0"), "{list}");
        let error = sbom("p", LOCK, "c v1.0.0|MIT\n", &stamp).unwrap_err();
        assert!(error.to_string().contains("c 1.0.0"), "{error}");
    }
}
