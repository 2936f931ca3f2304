//! The plimsoll command: flags, help, exit codes; glue only.
//!
//! Each verb is a file; what they do is done by the crates below. A verb ends well, or with one
//! line on stderr that says what is wrong and what mends it, and an exit status ([`failure`]).
#![forbid(unsafe_code)]

mod cli;
mod demo;
mod failure;
mod load;
mod record;
mod reference;
mod report;
mod serve;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Verb};
use crate::failure::{Failure, misuse};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("plimsoll: {failure}");
            failure.exit_code()
        }
    }
}

fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Serve(flags) => serve::serve(&flags),
        Verb::Load(flags) => load::load(&flags),
        Verb::Record(flags) => record::record(&flags),
        Verb::Report(flags) => report::report(&flags),
        Verb::Demo(flags) => demo::demo(&flags),
        Verb::Origin(flags) => serve::origin(&flags),
        Verb::NullServer(flags) => serve::null_server(&flags),
        Verb::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "plimsoll", &mut std::io::stdout());
            Ok(())
        }
        Verb::Man => {
            clap_mangen::Man::new(Cli::command()).render(&mut std::io::stdout()).map_err(misuse)
        }
        Verb::Reference => {
            print!("{}", reference::markdown());
            Ok(())
        }
    }
}
