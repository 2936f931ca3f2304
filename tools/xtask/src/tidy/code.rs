//! Rules that read code: banned calls by crate, and where `unsafe` may live.
//!
//! They read the masked text, so that a comment or a message may name what is banned.

use super::Finding;
use crate::rust::{has_word, masked, test_lines};
use crate::tree::{Tree, crate_of};

/// A call that some crates must not make outside tests.
struct Ban {
    call: &'static str,
    /// Crates it is banned in; empty: everywhere but in the tools.
    crates: &'static [&'static str],
    /// Files (by the end of their path) it is allowed in all the same, each with the reason.
    except: &'static [(&'static str, &'static str)],
    fix: &'static str,
}

const NO_IO: &[&str] = &["http1", "http2", "http3", "caching", "regress"];
const DATA_PLANE: &[&str] = &[
    "http1",
    "http2",
    "http3",
    "caching",
    "store",
    "readiness",
    "runtime",
    "dns",
    "transport",
    "access_log",
    "core_io",
    "upstream",
    "cache",
    "policy",
    "exchange",
    "files",
    "proxy",
    "server",
];
const NO_CLOCK: &[&str] = &["http1", "http2", "http3", "caching", "regress", "report"];
const LIBRARIES: &[&str] = &[
    "access_log",
    "cache",
    "config",
    "core_io",
    "dns",
    "metrics",
    "outcome",
    "policy",
    "server",
    "transport",
    "upstream",
    "caching",
    "http1",
    "http2",
    "http3",
    "interpose",
    "load",
    "logs",
    "exchange",
    "proxy",
    "readiness",
    "record",
    "regress",
    "report",
    "runtime",
    "store",
    "study",
    "trial",
];

const BANS: &[Ban] = &[
    Ban {
        call: ".unwrap()",
        crates: &[],
        except: &[],
        fix: "say which invariant holds: expect(\"slots are dense\")",
    },
    Ban { call: "dbg!(", crates: &[], except: &[], fix: "take it out" },
    Ban {
        call: "thread::sleep",
        crates: DATA_PLANE,
        except: &[],
        fix: "the data plane never blocks: sleep on the runtime's timer",
    },
    Ban { call: "SystemTime::now", crates: NO_CLOCK, except: &[], fix: "now is an argument here" },
    Ban { call: "Instant::now", crates: NO_CLOCK, except: &[], fix: "now is an argument here" },
    Ban { call: "std::fs", crates: NO_IO, except: &[], fix: "no I/O here: take bytes" },
    Ban { call: "std::net::Tcp", crates: NO_IO, except: &[], fix: "no I/O here: take bytes" },
    Ban { call: "std::env", crates: NO_IO, except: &[], fix: "take it as an argument" },
    Ban { call: "println!(", crates: LIBRARIES, except: &[], fix: "return text, or trace" },
    Ban { call: "print!(", crates: LIBRARIES, except: &[], fix: "return text, or trace" },
    Ban { call: "Host::Exact", crates: BEHIND_ROUTES, except: OPEN_RULES, fix: TAKE_A_READING },
    Ban { call: "Host::Below", crates: BEHIND_ROUTES, except: OPEN_RULES, fix: TAKE_A_READING },
    Ban { call: "Host::Captured", crates: BEHIND_ROUTES, except: OPEN_RULES, fix: TAKE_A_READING },
    Ban { call: "Path::Exact", crates: BEHIND_ROUTES, except: OPEN_RULES, fix: TAKE_A_READING },
    Ban { call: "Path::Prefix", crates: BEHIND_ROUTES, except: OPEN_RULES, fix: TAKE_A_READING },
    Ban { call: "Path::Pattern", crates: BEHIND_ROUTES, except: OPEN_RULES, fix: TAKE_A_READING },
];

/// Crates that serve requests. To compare a path or a host with a rule, code has to open the rule,
/// and only these files do. All others take a reading, so that no spelling leads around a rule.
const BEHIND_ROUTES: &[&str] = &[
    "access_log",
    "cache",
    "core_io",
    "exchange",
    "policy",
    "proxy",
    "server",
    "transport",
    "upstream",
];
const OPEN_RULES: &[(&str, &str)] = &[
    ("policy/src/routes.rs", "it judges every reading of a request"),
    ("policy/src/captures.rs", "it matches patterns for routes.rs"),
    ("policy/src/quota/mod.rs", "it makes a route of what a quota is for"),
];
const TAKE_A_READING: &str = "take a policy::reading::Reading and ask policy::routes";

pub(super) fn banned_calls(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.with_suffix(".rs") {
        let Some((name, inside)) = crate_of(path) else { continue };
        if TOOLS.contains(&name) {
            continue;
        }
        // Tests, benches, examples and small programs beside a library may print and unwrap.
        if !inside.starts_with("src/") || inside.starts_with("src/bin/") || is_test_file(path) {
            continue;
        }
        let masked = masked(text);
        let is_test = test_lines(&masked);
        for (number, line) in masked.lines().enumerate() {
            if is_test[number] {
                continue;
            }
            for ban in BANS {
                let concerned = ban.crates.is_empty() || ban.crates.contains(&name);
                let excepted = ban.except.iter().any(|(end, _)| path.ends_with(end));
                if concerned && !excepted && calls(line, ban.call) {
                    let what = format!("`{}` in {name}", ban.call);
                    findings.push(Finding::at(path, number, what, ban.fix));
                }
            }
        }
    }
}

/// Programs for developers, which print, and may end with a panic.
const TOOLS: &[&str] = &["bench", "fuzz", "xtask"];

/// `eprintln!(` is no `println!(`.
fn calls(line: &str, call: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let starts_with_word = call.starts_with(is_word);
    line.match_indices(call)
        .any(|(at, _)| !(starts_with_word && line[..at].chars().next_back().is_some_and(is_word)))
}

/// Crates whose work is system calls and raw memory; every block there has its SAFETY line, which
/// clippy sees to. All others forbid it.
const UNSAFE_ALLOWED: &[&str] =
    &["readiness", "runtime", "record", "logs", "load", "interpose", "bench"];

pub(super) fn unsafe_where_allowed(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.with_suffix(".rs") {
        let name = crate_of(path).map_or("", |(name, _)| name);
        if UNSAFE_ALLOWED.contains(&name) {
            continue;
        }
        let is_root = path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
        if is_root && !text.contains("#![forbid(unsafe_code)]") {
            let fix = "add #![forbid(unsafe_code)]";
            findings.push(Finding::whole(path, "unsafe code is not forbidden", fix));
        }
        for (number, line) in masked(text).lines().enumerate() {
            if has_word(line, "unsafe") {
                let what = format!("unsafe in {name}");
                let fix = "it lives in readiness, runtime, record, load, interpose and bench only";
                findings.push(Finding::at(path, number, what, fix));
            }
        }
    }
}

/// A module of tests in its own file, declared under `#[cfg(test)]`.
fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.ends_with("_tests.rs") || path.contains("/tests/")
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn every_ban_can_fail() {
        for ban in BANS {
            let name = ban.crates.first().copied().unwrap_or("proxy");
            let path = format!("crates/{name}/src/x.rs");
            let text = format!("//! x\nfn f() {{ a {} }}\n", ban.call);
            assert!(!found(banned_calls, &[(&path, &text)]).is_empty(), "{}", ban.call);
        }
    }

    #[test]
    fn tests_comments_and_strings_may_name_what_is_banned() {
        let text = "// .unwrap()\nconst A: &str = \".unwrap()\";\n\
                    #[cfg(test)]\nmod tests {\n    fn f() { x.unwrap(); }\n}\n";
        assert_eq!(found(banned_calls, &[("crates/http/http1/src/x.rs", text)]), [""; 0]);
        let call = "fn f() { x.unwrap(); }\n";
        assert_eq!(found(banned_calls, &[("crates/http/http1/tests/x.rs", call)]), [""; 0]);
        assert_eq!(
            found(banned_calls, &[("crates/http/http1/src/x.rs", call)]),
            ["crates/http/http1/src/x.rs:1"]
        );
    }

    #[test]
    fn a_call_is_a_whole_word() {
        assert!(calls("std::println!()", "println!(") && calls("x.unwrap()", ".unwrap()"));
        assert!(!calls("eprintln!()", "println!("));
    }

    #[test]
    fn a_ban_concerns_its_own_crates() {
        let call = "fn f() { std::thread::sleep(d); }\n";
        assert_eq!(found(banned_calls, &[("crates/lab/load/src/x.rs", call)]), [""; 0]);
        let path = "crates/server/proxy/src/x.rs";
        assert_eq!(found(banned_calls, &[(path, call)]), ["crates/server/proxy/src/x.rs:1"]);
    }

    #[test]
    fn unsafe_lives_where_it_is_allowed() {
        let block = "fn f() { unsafe { g() } }\n";
        assert_eq!(
            found(unsafe_where_allowed, &[("crates/core/readiness/src/x.rs", block)]),
            [""; 0]
        );
        let path = "crates/server/store/src/x.rs";
        assert_eq!(
            found(unsafe_where_allowed, &[(path, block)]),
            ["crates/server/store/src/x.rs:1"]
        );
        let bare = "//! x\n";
        let root = "crates/server/store/src/lib.rs";
        assert_eq!(
            found(unsafe_where_allowed, &[(root, bare)]),
            ["crates/server/store/src/lib.rs:0"]
        );
        let sealed = "//! x\n#![forbid(unsafe_code)]\n";
        assert_eq!(found(unsafe_where_allowed, &[(root, sealed)]), [""; 0]);
    }
}
