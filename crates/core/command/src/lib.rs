//! Code that the programs `plimsoll` and `plimsoll-study` share: flags, failures, and output.
#![forbid(unsafe_code)]

pub mod failure;
pub mod flags;
pub mod output;
pub mod reference;
pub mod scratch;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::{Failure, misuse};

/// Parses the flags and runs the command. A failure becomes one line on stderr and an exit code.
/// `name` is the command as the user typed it, such as `plimsoll study`.
pub fn run<C: Parser>(name: &str, verb: impl FnOnce(C) -> Result<(), Failure>) -> ExitCode {
    let flags = match C::try_parse() {
        Ok(flags) => flags,
        Err(error) => return usage_error::<C>(name, &error),
    };
    match verb(flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("plimsoll: {failure}");
            failure.exit_code()
        }
    }
}

/// Prints help and version as clap formats them, and a usage error in one line like any other
/// error.
fn usage_error<C: Parser>(name: &str, error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion,
    };
    if let DisplayHelp | DisplayVersion | DisplayHelpOnMissingArgumentOrSubcommand = error.kind() {
        // Printing fails if a pager exits early, which is not an error.
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    let text = error.to_string();
    let what = text.split("\nUsage:").next().unwrap_or_default();
    let what = what.split("\nFor more information").next().unwrap_or_default();
    let what = what.strip_prefix("error: ").unwrap_or(what);
    let parts: Vec<String> = what
        .split("\n\n")
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|part| !part.is_empty())
        .collect();
    let verb = std::env::args().nth(1).filter(|word| C::command().find_subcommand(word).is_some());
    let verb = verb.map_or_else(String::new, |verb| format!(" {verb}"));
    eprintln!("plimsoll: {}; see {name}{verb} --help", parts.join("; "));
    ExitCode::from(2)
}

/// A flag that SIGTERM and SIGINT set.
///
/// # Errors
/// [`Failure::Misuse`] if a signal handler cannot be installed.
pub fn stop_on_signal() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| misuse(format!("cannot install a signal handler: {error}")))?;
    }
    Ok(stop)
}
