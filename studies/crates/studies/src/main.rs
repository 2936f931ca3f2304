//! `plimsoll-study`: the experiments of the papers, run on this machine. `plimsoll study` runs it.
//!
//! It is a separate package, so that the server is built without the studies.
#![forbid(unsafe_code)]

mod cli;
mod run;

use std::process::ExitCode;

use clap::CommandFactory;
use command::output;

use crate::cli::{Cli, Verb};

fn main() -> ExitCode {
    command::run("plimsoll study", |cli: Cli| match cli.verb {
        None => run::list(),
        Some(Verb::All(flags)) => run::all(&flags),
        Some(Verb::Study(study)) => run::study(&study),
        Some(Verb::TruthServer(flags)) => run::truth_server(&flags),
        Some(Verb::Reference) => output::print(reference()),
    })
}

/// `docs/studies.md`.
fn reference() -> String {
    let mut out = String::from(
        "# Reference: the studies\n\nMade by `plimsoll study reference` from the flags of the \
         program; do not edit.\n",
    );
    for study in Cli::command().get_subcommands().filter(|study| !study.is_hide_set()) {
        command::reference::section(&format!("study {}", study.get_name()), study, &mut out);
    }
    out
}

#[cfg(test)]
#[path = "../../../../crates/plimsoll/tests/end_to_end/documentation/blocks.rs"]
#[allow(dead_code, reason = "the marks are for the tests of plimsoll")]
mod blocks;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::blocks::{blocks, commands, documents, lines};
    use crate::cli::Cli;

    #[test]
    fn every_study_in_the_documents_exists_with_its_flags() {
        let mut count = 0;
        for (path, text) in documents() {
            for block in blocks(&text).unwrap().into_iter().filter(|block| block.language == "sh") {
                for words in lines(&block.text).iter().flat_map(|line| commands(line)) {
                    let is_study = words.len() > 2 && words[..2] == ["plimsoll", "study"];
                    // The page about all of them has a NAME.
                    if is_study && words[2] != "NAME" {
                        let parsed = Cli::try_parse_from(&words[1..]);
                        assert!(parsed.is_ok(), "{path}:{}: {words:?}", block.line);
                        count += 1;
                    }
                }
            }
        }
        assert!(count > 15, "{count}");
    }

    #[test]
    fn the_checked_in_reference_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/studies.md");
        let there = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            there == super::reference(),
            "docs/studies.md is not up to date: \
             cargo run -p studies -- reference > docs/studies.md"
        );
    }
}
