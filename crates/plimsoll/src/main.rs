//! The `plimsoll` command: flags, help and exit codes. It contains only glue.
//!
//! Each subcommand is a file that calls the crates below. If it fails, it prints one line on
//! stderr, which says what is wrong and how to fix it, and exits with a code
//! ([`command::failure`]).
#![forbid(unsafe_code)]

#[cfg(not(feature = "extras"))]
mod absent;
mod admin;
mod boost;
mod check;
mod cli;
mod compare;
#[cfg(feature = "extras")]
mod dashboard;
mod demo;
mod doctor;
mod explain;
#[cfg(feature = "extras")]
mod exports;
#[cfg(feature = "extras")]
mod fleet;
mod import;
mod init;
mod join;
mod load;
mod locks;
#[cfg(feature = "extras")]
mod logs;
mod metrics;
#[cfg(feature = "extras")]
mod otlp;
mod progress;
mod purge;
mod record;
mod reference;
mod report;
mod serve;
#[cfg(feature = "extras")]
mod ship;
mod study;
mod switchback;
#[cfg(feature = "extras")]
mod top;
mod trials;
mod version;
#[cfg(feature = "extras")]
mod watch;
mod welcome;
mod what_if;

use std::process::ExitCode;

use clap::CommandFactory;
use command::failure::{Failure, misuse};
use command::output;

#[cfg(not(feature = "extras"))]
use crate::absent::{dashboard, exports, fleet, logs, ship, top};
use crate::cli::{Cli, Verb};

/// Counts allocations for `/metrics`.
#[global_allocator]
static ALLOCATOR: runtime::CountingAllocator = runtime::CountingAllocator;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(screen) = welcome::screen(&arguments) {
        eprint!("{screen}");
        // That of a usage error.
        return ExitCode::from(2);
    }
    command::run("plimsoll", |cli: Cli| run(cli.verb))
}

fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Serve(flags) => serve::serve(&flags),
        Verb::Init(flags) => init::init(&flags),
        Verb::Check(flags) => check::check(&flags),
        Verb::Import(flags) => import::import(&flags),
        Verb::Reload(flags) => admin::post(flags.admin, "/reload"),
        Verb::Restart(flags) => admin::post(flags.admin, "/restart"),
        Verb::Explain(flags) => explain::explain(&flags),
        Verb::Purge(flags) => purge::purge(&flags),
        Verb::Metrics(flags) => metrics::metrics(&flags),
        Verb::Locks(flags) => locks::locks(&flags),
        Verb::Load(flags) => load::load(&flags),
        Verb::Record(flags) => record::record(&flags),
        Verb::Top(flags) => top::top(&flags),
        Verb::Dashboard(flags) => dashboard::dashboard(&flags),
        Verb::Join(flags) => join::join(&flags),
        Verb::Logs(flags) => logs::logs(&flags),
        Verb::Ship(flags) => ship::ship(&flags),
        Verb::Fleet(verb) => fleet::fleet(&verb),
        Verb::Report(flags) => report::report(&flags),
        Verb::WhatIf(flags) => what_if::what_if(&flags),
        Verb::Compare(flags) => compare::compare(&flags),
        Verb::Switchback(flags) => switchback::switchback(&flags),
        Verb::Boost(flags) => boost::boost(&flags),
        Verb::Doctor(flags) => doctor::doctor(&flags),
        Verb::DoctorTruth(flags) => doctor::do_known_work(&flags),
        Verb::Demo(flags) => demo::demo(&flags),
        Verb::Study(flags) => study::study(&flags.arguments),
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
        Verb::Version { json } => version::version(json),
        Verb::Reference { configuration: true, .. } => {
            output::print(server::config_documents::markdown())
        }
        Verb::Reference { example: true, .. } => output::print(server::config_documents::example()),
        Verb::Reference { .. } => output::print(reference::markdown()),
    }
}

#[cfg(test)]
mod documentation;
