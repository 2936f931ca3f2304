//! Rules on crates: manifests, unused dependencies, dead files, fuzz targets.

use std::collections::BTreeSet;

use super::Finding;
use crate::rust::{has_word, line_of, masked, test_lines};
use crate::tree::{Tree, crate_of};

pub(super) fn manifests(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in manifests_of(tree) {
        if !text.contains("[lints]\nworkspace = true") {
            let fix = "add [lints] workspace = true";
            findings.push(Finding::whole(path, "the workspace's lints do not apply here", fix));
        }
        for key in ["version", "edition", "rust-version", "license", "publish"] {
            if !text.contains(&format!("\n{key}.workspace = true")) {
                let what = format!("{key} is not the workspace's");
                findings.push(Finding::whole(path, what, format!("add {key}.workspace = true")));
            }
        }
    }
}

/// Above a dependency that no file of the crate names: this, and the reason.
const NOT_NAMED: &str = "# Not named here: ";

pub(super) fn unused_dependencies(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in manifests_of(tree) {
        let directory = path.trim_end_matches("Cargo.toml");
        let code: Vec<String> = tree
            .with_suffix(".rs")
            .filter(|(file, _)| file.starts_with(directory))
            .map(|(_, text)| masked(text))
            .collect();
        for (number, dependency) in dependencies(text) {
            let word = dependency.replace('-', "_");
            let line_above = number.checked_sub(1).and_then(|above| text.lines().nth(above));
            let has_reason = line_above.is_some_and(|line| line.starts_with(NOT_NAMED));
            if !has_reason && !code.iter().any(|text| has_word(text, &word)) {
                let what = format!("{dependency} is not used");
                findings.push(Finding::at(path, number, what, "drop it"));
            }
        }
    }
}

/// Every part that others made is used, and ARCHITECTURE.md says why it was taken.
pub(super) fn parts_have_reasons(tree: &Tree, findings: &mut Vec<Finding>) {
    let Some(root) = tree.get("Cargo.toml") else { return };
    let reasons = tree.get("ARCHITECTURE.md").unwrap_or("");
    let own: Vec<&str> = manifests_of(tree).map(|(_, text)| package_name(text)).collect();
    for (number, part) in dependencies(root).into_iter().filter(|(_, part)| !own.contains(part)) {
        if !manifests_of(tree).any(|(_, text)| dependencies(text).iter().any(|(_, d)| *d == part)) {
            findings.push(Finding::at(
                "Cargo.toml",
                number,
                format!("no crate uses {part}"),
                "drop it",
            ));
        } else if !reasons.contains(&format!("`{part}`")) {
            let what = format!("ARCHITECTURE.md does not say why {part}");
            findings.push(Finding::at(
                "Cargo.toml",
                number,
                what,
                "give it a row, with the reason",
            ));
        }
    }
}

/// Manifests of the workspace's crates. The fuzz targets, which need a nightly compiler, and the
/// peer that the bench does not build are workspaces of their own.
pub(super) fn manifests_of(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.with_suffix("/Cargo.toml").filter(|(_, text)| !text.contains("\n[workspace]\n"))
}

pub(super) fn package_name(manifest: &str) -> &str {
    let line = manifest.lines().find(|line| line.starts_with("name"));
    line.and_then(|line| line.split('"').nth(1)).unwrap_or("")
}

/// Line (from 0) and name of each dependency, of every kind.
pub(super) fn dependencies(manifest: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (number, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            let header = line.trim_matches(['[', ']', ' ']);
            inside = header.ends_with("dependencies");
            // [dependencies.name], the long form
            if let Some((before, name)) = header.rsplit_once('.')
                && before.ends_with("dependencies")
            {
                found.push((number, name));
            }
        } else if inside && !line.starts_with('#') {
            let name = line.split(['.', '=', ' ']).next().unwrap_or("");
            if !name.is_empty() {
                found.push((number, name));
            }
        }
    }
    found
}

pub(super) fn dead_files(tree: &Tree, findings: &mut Vec<Finding>) {
    for (manifest, _) in manifests_of(tree) {
        let src = format!("{}src/", manifest.trim_end_matches("Cargo.toml"));
        let mut reached = BTreeSet::new();
        for (path, _) in tree.with_suffix(".rs") {
            let Some(inside) = path.strip_prefix(src.as_str()) else { continue };
            let program = inside.strip_prefix("bin/").is_some_and(|rest| {
                !rest.contains('/') || rest.ends_with("/main.rs") && rest.matches('/').count() == 1
            });
            if inside == "lib.rs" || inside == "main.rs" || program {
                reach(tree, path, &mut reached);
            }
        }
        for (path, _) in tree.with_suffix(".rs") {
            if path.starts_with(&src) && !reached.contains(path) {
                let fix = "declare it with mod, or delete it";
                findings.push(Finding::whole(path, "no module reaches this file", fix));
            }
        }
    }
}

/// Marks the file and what its `mod` lines, `#[path]`s and `include!`s lead to.
fn reach(tree: &Tree, path: &str, reached: &mut BTreeSet<String>) {
    let Some(text) = tree.get(path) else { return };
    if !reached.insert(path.to_string()) {
        return;
    }
    let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
    let own = match file {
        "lib.rs" | "main.rs" | "mod.rs" => directory.to_string(),
        _ => path.trim_end_matches(".rs").to_string(),
    };
    let masked = masked(text);
    let mut named = None;
    let mut inline: Vec<String> = Vec::new();
    for (line, whole) in masked.lines().zip(text.lines()) {
        let line = line.trim();
        if line.starts_with("#[path") || line.contains("include!(") {
            named = whole.split('"').nth(1).map(|name| format!("{directory}/{name}"));
        }
        if line.contains("include!(") {
            named.take().inspect(|file| reach(tree, file, reached));
        }
        if line == "}" && whole.starts_with('}') {
            inline.clear();
        }
        let Some(name) = module_name(line) else { continue };
        if line.ends_with('{') {
            inline.push(name.to_string());
            continue;
        }
        let mut base = own.clone();
        for part in &inline {
            base = format!("{base}/{part}");
        }
        match named.take() {
            Some(file) => reach(tree, &file, reached),
            None => {
                reach(tree, &format!("{base}/{name}.rs"), reached);
                reach(tree, &format!("{base}/{name}/mod.rs"), reached);
            }
        }
    }
}

/// `pub(crate) mod name;` or `mod name {`
fn module_name(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("mod ").or_else(|| {
        line.starts_with("pub").then(|| line.split_once(" mod ")).flatten().map(|(_, rest)| rest)
    })?;
    let name = rest.trim_end_matches([';', '{', ' ', '}']);
    name.chars().all(|c| c.is_alphanumeric() || c == '_').then_some(name)
}

/// A parser of bytes that somebody else wrote, and the fuzz target that holds it.
struct Parser {
    file: &'static str,
    function: &'static str,
    target: &'static str,
}

const PARSERS: &[Parser] = &[
    Parser {
        file: "crates/server/conditions/src/syntax.rs",
        function: "parse",
        target: "tools/fuzz/fuzz_targets/condition_text.rs",
    },
    Parser {
        file: "crates/http/http1/src/request.rs",
        function: "parse_request",
        target: "tools/fuzz/fuzz_targets/request_head.rs",
    },
    Parser {
        file: "crates/http/http1/src/authority.rs",
        function: "parse_authority",
        target: "tools/fuzz/fuzz_targets/request_head.rs",
    },
    Parser {
        file: "crates/http/http1/src/response.rs",
        function: "parse_response",
        target: "tools/fuzz/fuzz_targets/response_head.rs",
    },
    Parser {
        file: "crates/http/http1/src/body.rs",
        function: "decode",
        target: "tools/fuzz/fuzz_targets/chunked_body.rs",
    },
    Parser {
        file: "crates/http/http2/src/connection/mod.rs",
        function: "next_event",
        target: "tools/fuzz/fuzz_targets/http2_frames.rs",
    },
    Parser {
        file: "crates/http/http2/src/priority.rs",
        function: "from_field",
        target: "tools/fuzz/fuzz_targets/http2_frames.rs",
    },
    Parser {
        file: "crates/http/http2/src/hpack/decoder.rs",
        function: "decode",
        target: "tools/fuzz/fuzz_targets/http2_hpack.rs",
    },
    Parser {
        file: "crates/http/http3/src/message.rs",
        function: "next_event",
        target: "tools/fuzz/fuzz_targets/http3_messages.rs",
    },
    Parser {
        file: "crates/http/http3/src/control.rs",
        function: "next_event",
        target: "tools/fuzz/fuzz_targets/http3_control.rs",
    },
    Parser {
        file: "crates/http/http3/src/qpack/mod.rs",
        function: "decode",
        target: "tools/fuzz/fuzz_targets/http3_messages.rs",
    },
    Parser {
        file: "crates/http/caching/src/date.rs",
        function: "parse",
        target: "tools/fuzz/fuzz_targets/caching_fields.rs",
    },
    Parser {
        file: "crates/http/caching/src/directives.rs",
        function: "parse",
        target: "tools/fuzz/fuzz_targets/caching_fields.rs",
    },
    Parser {
        file: "crates/http/caching/src/etag.rs",
        function: "parse",
        target: "tools/fuzz/fuzz_targets/caching_fields.rs",
    },
    Parser {
        file: "crates/lab/logs/src/formats/format.rs",
        function: "parse",
        target: "tools/fuzz/fuzz_targets/record_logs.rs",
    },
    Parser {
        file: "crates/lab/logs/src/formats/squid.rs",
        function: "parse",
        target: "tools/fuzz/fuzz_targets/record_logs.rs",
    },
    Parser {
        file: "crates/lab/logs/src/formats/haproxy.rs",
        function: "parse",
        target: "tools/fuzz/fuzz_targets/record_logs.rs",
    },
    Parser {
        file: "crates/lab/logs/src/formats/clf.rs",
        function: "parse",
        target: "tools/fuzz/fuzz_targets/record_logs.rs",
    },
    Parser {
        file: "crates/lab/logs/src/formats/w3c.rs",
        function: "parse",
        target: "tools/fuzz/fuzz_targets/record_logs.rs",
    },
    Parser {
        file: "crates/lab/record/src/procfs.rs",
        function: "stat",
        target: "tools/fuzz/fuzz_targets/record_logs.rs",
    },
    Parser {
        file: "crates/core/transport/src/proxy_protocol.rs",
        function: "parse_header",
        target: "tools/fuzz/fuzz_targets/proxy_header.rs",
    },
    Parser {
        file: "crates/server/policy/src/client_hello.rs",
        function: "push",
        target: "tools/fuzz/fuzz_targets/client_hello.rs",
    },
    Parser {
        file: "crates/server/policy/src/reading/path.rs",
        function: "all",
        target: "tools/fuzz/fuzz_targets/readings.rs",
    },
    Parser {
        file: "crates/server/policy/src/reading/host.rs",
        function: "all",
        target: "tools/fuzz/fuzz_targets/readings.rs",
    },
    Parser {
        file: "crates/core/dns/src/wire.rs",
        function: "read",
        target: "tools/fuzz/fuzz_targets/dns_reply.rs",
    },
    Parser {
        file: "crates/http/coding/src/accept.rs",
        function: "parse",
        target: "tools/fuzz/fuzz_targets/coding.rs",
    },
    Parser {
        file: "crates/http/coding/src/codec.rs",
        function: "decode",
        target: "tools/fuzz/fuzz_targets/coding.rs",
    },
    Parser {
        file: "crates/core/dns/src/files.rs",
        function: "of_resolv_conf",
        target: "tools/fuzz/fuzz_targets/proxy_texts.rs",
    },
    Parser {
        file: "crates/server/access_log/src/template.rs",
        function: "parse",
        target: "tools/fuzz/fuzz_targets/proxy_texts.rs",
    },
    Parser {
        file: "crates/server/config/src/routes.rs",
        function: "parse",
        target: "tools/fuzz/fuzz_targets/proxy_texts.rs",
    },
    Parser {
        file: "crates/server/store/src/disk/superblock.rs",
        function: "decode",
        target: "tools/fuzz/fuzz_targets/disk_store.rs",
    },
    Parser {
        file: "crates/server/store/src/disk/journal.rs",
        function: "decode",
        target: "tools/fuzz/fuzz_targets/disk_store.rs",
    },
    Parser {
        file: "crates/server/store/src/disk/saved_index.rs",
        function: "decode_head",
        target: "tools/fuzz/fuzz_targets/disk_store.rs",
    },
    Parser {
        file: "crates/server/store/src/disk/saved_index.rs",
        function: "decode_slice_header",
        target: "tools/fuzz/fuzz_targets/disk_store.rs",
    },
    Parser {
        file: "crates/server/store/src/disk/record.rs",
        function: "decode",
        target: "tools/fuzz/fuzz_targets/disk_store.rs",
    },
    Parser {
        file: "crates/server/store/src/purges/saved.rs",
        function: "restored",
        target: "tools/fuzz/fuzz_targets/disk_store.rs",
    },
    Parser {
        file: "crates/http/peering/src/icp.rs",
        function: "read",
        target: "tools/fuzz/fuzz_targets/icp_message.rs",
    },
    Parser {
        file: "crates/http/peering/src/htcp/mod.rs",
        function: "read",
        target: "tools/fuzz/fuzz_targets/htcp_message.rs",
    },
    Parser {
        file: "crates/http/peering/src/digest.rs",
        function: "read",
        target: "tools/fuzz/fuzz_targets/cache_digest.rs",
    },
    Parser {
        file: "crates/server/cache/src/changes.rs",
        function: "decode_all",
        target: "tools/fuzz/fuzz_targets/cluster_notices.rs",
    },
    Parser {
        file: "crates/server/import/src/squid/lines.rs",
        function: "parse",
        target: "tools/fuzz/fuzz_targets/import_squid.rs",
    },
    Parser {
        file: "crates/server/haproxy_import/src/lines.rs",
        function: "parse",
        target: "tools/fuzz/fuzz_targets/import_haproxy.rs",
    },
    Parser {
        file: "crates/server/import/src/nginx/blocks.rs",
        function: "parse",
        target: "tools/fuzz/fuzz_targets/import_nginx.rs",
    },
    Parser {
        file: "crates/server/vcl_import/src/parser.rs",
        function: "parse",
        target: "tools/fuzz/fuzz_targets/import_vcl.rs",
    },
    Parser {
        file: "crates/server/caddy_import/src/blocks.rs",
        function: "parse",
        target: "tools/fuzz/fuzz_targets/import_caddy.rs",
    },
];

/// Functions that look like a parser of foreign bytes and are none.
const NOT_PARSERS: &[(&str, &str)] = &[];

/// Crates that read what somebody else wrote.
const READERS_OF_FOREIGN_BYTES: &[&str] = &[
    "http1", "http2", "http3", "caching", "logs", "record", "exchange", "peering", "proxy",
    "plimsoll", "store",
];

pub(super) fn fuzz_targets(tree: &Tree, findings: &mut Vec<Finding>) {
    targets_exist(tree, PARSERS, findings);
    for (path, text) in tree.with_suffix(".rs") {
        let Some((name, inside)) = crate_of(path) else { continue };
        if !inside.starts_with("src/") || !READERS_OF_FOREIGN_BYTES.contains(&name) {
            continue;
        }
        for (number, function) in parsers_in(text) {
            let known = PARSERS.iter().any(|p| p.file == path && p.function == function)
                || NOT_PARSERS.contains(&(path, function.as_str()));
            if !known {
                let what = format!("the parser {function} has no fuzz target");
                let fix = "write one and name it in xtask, PARSERS";
                findings.push(Finding::at(path, number, what, fix));
            }
        }
    }
}

fn targets_exist(tree: &Tree, parsers: &[Parser], findings: &mut Vec<Finding>) {
    for parser in parsers {
        let Some(text) = tree.get(parser.file) else { continue };
        if !has_word(text, parser.function) {
            let what = format!("has no parser {} any more", parser.function);
            findings.push(Finding::whole(parser.file, what, "update PARSERS in xtask"));
        }
        if !tree.exists(parser.target) {
            let what = format!("the fuzz target {} is not there", parser.target);
            findings.push(Finding::whole(parser.file, what, "write it"));
        }
    }
}

/// Line (from 0) and name of each function `parse…`, public or the crate's own, that takes bytes.
fn parsers_in(text: &str) -> Vec<(usize, String)> {
    let masked = masked(text);
    let is_test = test_lines(&masked);
    let mut found = Vec::new();
    for (at, _) in masked.match_indices("fn parse") {
        let before = masked[..at].rsplit('\n').next().unwrap_or("").trim_start();
        if !before.starts_with("pub") {
            continue;
        }
        let rest = &masked[at + "fn ".len()..];
        let signature = rest.split('{').next().unwrap_or("");
        let name = signature.split(['(', '<']).next().unwrap_or("").to_string();
        let line = line_of(&masked, at);
        if signature.contains("[u8]") && !is_test[line] {
            found.push((line, name));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_manifest_that_goes_its_own_way_is_found() {
        let own = "[package]\nname = \"store\"\nversion = \"9\"\nedition.workspace = true\n\
                   rust-version.workspace = true\nlicense.workspace = true\n\
                   publish.workspace = true\n[lints]\nworkspace = true\n";
        assert_eq!(
            found(manifests, &[("crates/server/store/Cargo.toml", own)]),
            ["crates/server/store/Cargo.toml:0"]
        );
        let apart = format!("{own}\n[workspace]\n");
        assert_eq!(found(manifests, &[("tools/fuzz/Cargo.toml", &apart)]), [""; 0]);
    }

    #[test]
    fn an_unused_dependency_is_found() {
        let manifest = "[package]\nname = \"a\"\n[dependencies]\n\
                        serde_json.workspace = true\nio-uring = \"1\"\n";
        let code = "// serde_json\nuse io_uring::IoUring;\n";
        let files = [("crates/a/Cargo.toml", manifest), ("crates/a/src/lib.rs", code)];
        assert_eq!(found(unused_dependencies, &files), ["crates/a/Cargo.toml:4"]);
    }

    #[test]
    fn a_part_without_use_or_reason_is_found() {
        let root = "[workspace.dependencies]\na = { path = \"crates/a\" }\nserde = \"1\"\n\
                    libc = \"0.2\"\nslab = \"0.4\"\n";
        let files = [
            ("Cargo.toml", root),
            ("ARCHITECTURE.md", "| `serde` | because |\n"),
            ("crates/a/Cargo.toml", "name = \"a\"\n[dependencies]\nserde = \"1\"\nlibc = \"1\"\n"),
        ];
        assert_eq!(found(parts_have_reasons, &files), ["Cargo.toml:4", "Cargo.toml:5"]);
    }

    #[test]
    fn a_dead_file_is_found() {
        let files = [
            ("crates/a/Cargo.toml", ""),
            (
                "crates/a/src/lib.rs",
                "pub mod b;\nmod c {\n    mod d;\n}\n#[path = \"odd.rs\"]\n\
                 mod e;\n// mod dead;\n",
            ),
            ("crates/a/src/b/mod.rs", "pub(crate) mod deep;\n"),
            ("crates/a/src/b/deep.rs", ""),
            ("crates/a/src/c/d.rs", ""),
            ("crates/a/src/odd.rs", ""),
            ("crates/a/src/dead.rs", ""),
            ("crates/a/src/bin/tool.rs", ""),
            ("crates/a/tests/x.rs", ""),
        ];
        assert_eq!(found(dead_files, &files), ["crates/a/src/dead.rs:0"]);
    }

    #[test]
    fn a_parser_without_a_fuzz_target_is_found() {
        let text = "//! x\npub fn parse_new<'b>(buf: &'b [u8]) -> bool { true }\n\
                    pub fn parse_flag(text: &str) -> bool { true }\n\
                    pub(super) fn parse_more(buf: &[u8]) -> bool { true }\n\
                    fn parse_part(buf: &[u8]) -> bool { true }\n";
        let path = "crates/http/http1/src/x.rs";
        let of = |lines: [&str; 2]| lines.map(|line| format!("{path}:{line}"));
        assert_eq!(found(fuzz_targets, &[(path, text)]), of(["2", "4"]));
        let parsers = [Parser { file: path, function: "parse_new", target: "fuzz/new.rs" }];
        let mut findings = Vec::new();
        targets_exist(&Tree::of(&[(path, text)]), &parsers, &mut findings);
        assert_eq!(findings.len(), 1, "the target is not there");
        for name in ["icp", "htcp/mod", "digest"] {
            let path = &format!("crates/http/peering/src/{name}.rs");
            let text = "pub fn read(bytes: &[u8]) {}\npub fn parse(bytes: &[u8]) {}\n";
            let of = [format!("{path}:0"), format!("{path}:2")];
            assert_eq!(found(fuzz_targets, &[(path, text)]), of);
        }
        findings.clear();
        targets_exist(&Tree::of(&[(path, "//! x\n")]), &parsers, &mut findings);
        assert_eq!(findings.len(), 2, "the parser is gone as well");
    }
}
