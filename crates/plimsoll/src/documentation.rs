//! Tests of the documents: each command in the documents exists with its flags, and each
//! configuration key exists too.
//!
//! Commands that are marked are run by an end-to-end test instead. `blocks.rs` has the marks.

#[path = "../tests/end_to_end/documentation/blocks.rs"]
mod blocks;

use std::path::Path;

use clap::Parser;

use crate::cli::Cli;
use blocks::{Block, Mark, blocks, commands, documents, lines};

/// What is wrong with a command that is not run.
fn fault(words: &[String]) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match words[0].as_str() {
        // The crate of the studies checks these.
        "plimsoll" if words.get(1).is_some_and(|verb| verb == "study") => None,
        "plimsoll" => Cli::try_parse_from(words).err().map(|error| error.to_string()),
        "make" => {
            let makefile = std::fs::read_to_string(root.join("Makefile"));
            let makefile = makefile.expect("the Makefile is in the root");
            let has = |target: &String| makefile.contains(&format!("\n{target}:"));
            (!words[1..].iter().all(has)).then(|| "the Makefile has no such target".to_owned())
        }
        "cargo" => {
            let packages = words.windows(2).filter(|pair| pair[0] == "-p").map(|pair| &pair[1]);
            let lock = std::fs::read_to_string(root.join("Cargo.lock"));
            let lock = lock.expect("the lock file is in the root");
            let is_known = |name: &&String| lock.contains(&format!("\nname = \"{name}\"\n"));
            packages.into_iter().find(|name| !is_known(name)).map(|name| format!("no crate {name}"))
        }
        other => Some(format!("{other} is not checked: mark the block as run, or why it is not")),
    }
}

/// What a part of a configuration may lack: the rest of the file, and the files that it names.
const PARTIAL: &[&str] = &[
    "there is no listener",
    "there is no group with the name",
    "no listener has this role",
    "needs somewhere to send requests",
    "without a parent",
    "none of these is this server",
    "No such file or directory",
    // Each name is replaced by an address.
    "only the name of a host has several addresses",
];

/// The beginning of a file in `conditions.md`.
const BEGINNING: &str = "[[listen]]\naddress = '127.0.0.1:8080'\nname = 'outside'\n\
    [[upstream]]\nname = 'site'\nserver = [{ url = 'http://127.0.0.1:8000' }]\n\
    [[upstream]]\nname = 'canary'\nserver = [{ url = 'http://127.0.0.1:8001' }]\n";

/// What is wrong with a part of a configuration file.
fn faults_of_keys(text: &str) -> Vec<String> {
    // What an example expects is tested behind the beginning of a file.
    let begun = format!("{BEGINNING}{text}");
    let text = if text.contains("[[expect]]") { &begun } else { text };
    // No name is looked up: each is another address of this machine.
    let mut parts = text.split("://");
    let mut local = parts.next().unwrap_or_default().to_owned();
    for (part, number) in parts.zip(1..) {
        let host = part.find([':', '/', '"']).unwrap_or(part.len());
        local.push_str(&format!("://127.0.0.{number}{}", &part[host..]));
    }
    if text.contains("[[expect]]") {
        // Its servers are addresses.
        local = text.to_owned();
    }
    let directory = tempfile::tempdir().expect("there is room for a file");
    let file = directory.path().join("part.toml");
    std::fs::write(&file, local).expect("there is room for a file");
    let read = server::Settings::read(&file);
    if let Ok(settings) = &read {
        return server::dry::unmet(&settings.config);
    }
    let problems = read.err().into_iter().flat_map(|unusable| unusable.problems);
    let messages = problems.map(|problem| problem.message);
    messages.filter(|text| !PARTIAL.iter().any(|partial| text.contains(partial))).collect()
}

fn faults(block: &Block) -> Vec<String> {
    let Block { language, mark, text, .. } = block;
    let all = || lines(text).iter().flat_map(|line| commands(line)).collect::<Vec<_>>();
    match (language.as_str(), mark) {
        ("", _) => vec!["the block has no language: sh, toml, text, ...".to_owned()],
        ("bash" | "shell" | "console", _) => vec!["write sh, so that it is checked".to_owned()],
        ("sh", Mark::Prints) => vec!["a block of commands prints nothing".to_owned()],
        // A command that is run is known to work. If it is not run for a reason, ours still parse.
        ("sh", Mark::NotRun) => {
            all().iter().filter(|words| words[0] == "plimsoll").filter_map(|w| fault(w)).collect()
        }
        ("sh", Mark::None) => all().iter().filter_map(|words| fault(words)).collect(),
        ("sh", Mark::Run(_)) => Vec::new(),
        ("toml", _) => faults_of_keys(text),
        _ if text.lines().any(|line| line.trim_start_matches("$ ").starts_with("plimsoll ")) => {
            vec!["a command in a block that is not sh".to_owned()]
        }
        _ => Vec::new(),
    }
}

#[test]
fn every_command_in_the_documents_exists() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (path, text) in documents() {
        match blocks(&text) {
            Ok(blocks) => {
                for block in &blocks {
                    count += usize::from(block.language == "sh");
                    let faults = faults(block).into_iter();
                    wrong.extend(faults.map(|fault| format!("{path}:{}: {fault}", block.line)));
                }
            }
            Err(why) => wrong.push(format!("{path}:{why}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 80, "{count} blocks of commands");
}

#[test]
fn a_wrong_command_is_found() {
    let found =
        |text: &str| -> Vec<String> { blocks(text).unwrap().iter().flat_map(faults).collect() };
    for wrong in [
        "```sh\nplimsoll serve --no-such-flag\n```",
        "```sh\nplimsoll serve --listen :80 --origin http://10.0.0.1\n```",
        "<!-- not run: for a reason -->\n```sh\nplimsoll no-such-verb\n```",
        "```sh\necho x && plimsoll fleet capacity\n```",
        "```sh\nmake no-such-target\n```",
        "```sh\ncargo test -p no-such-crate\n```",
        "```sh\ncurl http://127.0.0.1\n```",
        "```console\nls\n```",
        "```\nls\n```",
        "```text\n$ plimsoll serve\n```",
        "```toml\n[store]\nmemroy = \"1GiB\"\n```",
        "```toml\n[[upstream.server]\n```",
    ] {
        assert!(!found(wrong).is_empty(), "{wrong}");
    }
    for right in [
        "```sh\nplimsoll check a.toml  # a comment\nplimsoll logs a b > c | plimsoll man\n```",
        "```sh\nplimsoll record --pid $(cat a b) \\\n  -o 'a b.trial' 2>/dev/null\n```",
        "<!-- not run: for a reason -->\n```sh\nA=1 no-such-program\n```",
        "<!-- run -->\n```sh\ncurl http://127.0.0.1\n```",
        "```toml\n[[listen]]\naddress = \"0.0.0.0:443\"\n```",
    ] {
        assert_eq!(found(right), Vec::<String>::new(), "{right}");
    }
    for unmarked in ["a\n\n    plimsoll serve\n", "<!-- runs -->\n", "<!-- not run: -->\n"] {
        assert!(blocks(unmarked).is_err(), "{unmarked}");
    }
}
