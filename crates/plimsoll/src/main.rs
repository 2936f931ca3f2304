//! The plimsoll command: flags, help, exit codes; glue only.
//!
//! Each verb is a file; what they do is done by the crates below. A verb ends well, or with one
//! line on stderr that says what is wrong and what mends it, and an exit status ([`failure`]).
#![forbid(unsafe_code)]

mod admin;
mod ask;
mod boost;
mod check;
mod cli;
mod compare;
mod demo;
mod doctor;
mod explain;
mod failure;
mod join;
mod load;
mod locks;
mod logs;
mod metrics;
mod output;
mod purge;
mod record;
mod reference;
mod report;
mod scratch;
mod serve;
mod study;
mod switchback;
mod top;
mod what_if;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Verb};
use crate::failure::{Failure, misuse};

/// So that `/metrics` can tell how many allocations the cores make.
#[global_allocator]
static ALLOCATOR: runtime::CountingAllocator = runtime::CountingAllocator;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(told) => return not_understood(&told),
    };
    match run(cli.verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("plimsoll: {failure}");
            failure.exit_code()
        }
    }
}

/// Help and the version as clap writes them; what is wrong with the flags in one line, as with
/// everything else.
fn not_understood(told: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion,
    };
    if let DisplayHelp | DisplayVersion | DisplayHelpOnMissingArgumentOrSubcommand = told.kind() {
        // A pager that was left early is no failure.
        let _ = told.print();
        return ExitCode::from(u8::try_from(told.exit_code()).unwrap_or(2));
    }
    let text = told.to_string();
    let what = text.split("\nUsage:").next().unwrap_or_default();
    let what = what.split("\nFor more information").next().unwrap_or_default();
    let what = what.strip_prefix("error: ").unwrap_or(what);
    let parts: Vec<String> = what
        .split("\n\n")
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|part| !part.is_empty())
        .collect();
    let verb =
        std::env::args().nth(1).filter(|word| Cli::command().find_subcommand(word).is_some());
    let see = verb.map_or_else(String::new, |verb| format!(" {verb}"));
    eprintln!("plimsoll: {}; see plimsoll{see} --help", parts.join("; "));
    ExitCode::from(2)
}

fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Serve(flags) => serve::serve(&flags),
        Verb::Check(flags) => check::check(&flags),
        Verb::Reload(flags) => ask::ask(flags.admin, "/reload"),
        Verb::Restart(flags) => ask::ask(flags.admin, "/restart"),
        Verb::Explain(flags) => explain::explain(&flags),
        Verb::Purge(flags) => purge::purge(&flags),
        Verb::Metrics(flags) => metrics::metrics(&flags),
        Verb::Locks(flags) => locks::locks(&flags),
        Verb::Load(flags) => load::load(&flags),
        Verb::Record(flags) => record::record(&flags),
        Verb::Top(flags) => top::top(&flags),
        Verb::Join(flags) => join::join(&flags),
        Verb::Logs(flags) => logs::logs(&flags),
        Verb::Report(flags) => report::report(&flags),
        Verb::WhatIf(flags) => what_if::what_if(&flags),
        Verb::Compare(flags) => compare::compare(&flags),
        Verb::Switchback(flags) => switchback::switchback(&flags),
        Verb::Boost(flags) => boost::boost(&flags),
        Verb::Doctor(flags) => doctor::doctor(&flags),
        Verb::DoctorTruth(flags) => doctor::tell(&flags),
        Verb::TruthServer(flags) => study::truth_server(&flags),
        Verb::RunqueueWalker(flags) => study::runqueue_walker(&flags),
        Verb::Demo(flags) => demo::demo(&flags),
        Verb::Study(flags) => study::study(&flags),
        Verb::Origin(flags) => serve::origin(&flags),
        Verb::NullServer(flags) => serve::null_server(&flags),
        Verb::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "plimsoll", &mut text);
            output::print(&text)
        }
        Verb::Man => {
            let mut text = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut text).map_err(misuse)?;
            output::print(&text)
        }
        Verb::Reference { configuration: true, .. } => {
            output::print(server::config_documents::markdown())
        }
        Verb::Reference { example: true, .. } => output::print(server::config_documents::example()),
        Verb::Reference { .. } => output::print(reference::markdown()),
    }
}
