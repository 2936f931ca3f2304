//! The `plimsoll` command: flags, help and exit codes. It contains only glue.
//!
//! Each subcommand is a file that calls the crates below. A subcommand that fails prints one line
//! on stderr, which says what is wrong and how to fix it, and exits with a code
//! ([`command::failure`]).
#![forbid(unsafe_code)]

#[cfg(not(feature = "lab"))]
mod absent;
mod admin;
mod boost;
mod check;
mod cli;
#[cfg(feature = "measure")]
mod compare;
#[cfg(feature = "lab")]
mod dashboard;
#[cfg(feature = "measure")]
mod demo;
#[cfg(feature = "measure")]
mod doctor;
mod explain;
#[cfg(feature = "lab")]
mod exports;
#[cfg(feature = "lab")]
mod fleet;
mod import;
mod init;
#[cfg(feature = "measure")]
mod join;
#[cfg(feature = "measure")]
mod keep;
#[cfg(feature = "measure")]
mod load;
mod locks;
#[cfg(feature = "lab")]
mod logs;
mod metrics;
#[cfg(feature = "lab")]
mod otlp;
#[cfg(feature = "measure")]
mod progress;
mod purge;
#[cfg(feature = "measure")]
mod record;
mod reference;
#[cfg(feature = "measure")]
mod report;
mod serve;
#[cfg(feature = "lab")]
mod ship;
#[cfg(feature = "measure")]
mod study;
#[cfg(feature = "measure")]
mod switchback;
#[cfg(feature = "lab")]
mod top;
#[cfg(feature = "measure")]
mod trials;
mod version;
#[cfg(feature = "lab")]
mod watch;
mod welcome;
#[cfg(feature = "measure")]
mod what_if;

use std::process::ExitCode;

use clap::CommandFactory;
use command::failure::{Failure, misuse};
use command::output;

#[cfg(all(feature = "measure", not(feature = "lab")))]
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
        #[cfg(feature = "server")]
        Verb::ImportInside(flags) => {
            import_try::inside(&flags.role);
            Ok(())
        }
        Verb::Reload(flags) => admin::post(flags.admin, "/reload"),
        Verb::Restart(flags) => admin::post(flags.admin, "/restart"),
        Verb::Explain(flags) => explain::explain(&flags),
        Verb::Purge(flags) => purge::purge(&flags),
        Verb::Metrics(flags) => metrics::metrics(&flags),
        Verb::Locks(flags) => locks::locks(&flags),
        #[cfg(feature = "measure")]
        Verb::Load(flags) => load::load(&flags),
        #[cfg(feature = "measure")]
        Verb::Record(flags) => match &flags.keep {
            Some(directory) => keep::record(&flags, directory),
            None => record::record(&flags),
        },
        #[cfg(feature = "measure")]
        Verb::Top(flags) => top::top(&flags),
        #[cfg(feature = "measure")]
        Verb::Dashboard(flags) => dashboard::dashboard(&flags),
        #[cfg(feature = "measure")]
        Verb::Join(flags) => join::join(&flags),
        #[cfg(feature = "measure")]
        Verb::Logs(flags) => logs::logs(&flags),
        #[cfg(feature = "measure")]
        Verb::Ship(flags) => ship::ship(&flags),
        #[cfg(feature = "measure")]
        Verb::Fleet(verb) => fleet::fleet(&verb),
        #[cfg(feature = "measure")]
        Verb::Report(flags) => report::report(&flags),
        #[cfg(feature = "measure")]
        Verb::WhatIf(flags) => what_if::what_if(&flags),
        #[cfg(feature = "measure")]
        Verb::Compare(flags) => compare::compare(&flags),
        #[cfg(feature = "measure")]
        Verb::Switchback(flags) => switchback::switchback(&flags),
        Verb::Boost(flags) => boost::boost(&flags),
        #[cfg(feature = "measure")]
        Verb::Doctor(flags) => doctor::doctor(&flags),
        #[cfg(feature = "measure")]
        Verb::DoctorTruth(flags) => doctor::do_known_work(&flags),
        #[cfg(feature = "measure")]
        Verb::Demo(flags) => demo::demo(&flags),
        #[cfg(feature = "measure")]
        Verb::Study(flags) => study::study(&flags.arguments),
        #[cfg(feature = "measure")]
        Verb::Origin(flags) => serve::origin(&flags),
        #[cfg(feature = "measure")]
        Verb::NullServer(flags) => serve::null_server(&flags),
        Verb::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "plimsoll", &mut text);
            output::print(&text)
        }
        Verb::Man { out: Some(directory) } => clap_mangen::generate_to(Cli::command(), &directory)
            .map_err(|error| misuse(format!("{}: {error}", directory.display()))),
        Verb::Man { out: None } => {
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
