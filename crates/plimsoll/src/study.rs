//! `plimsoll study`: the experiments of the papers, on this machine.

use std::io::IsTerminal;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use study::swapin::{self, Outcome, Plan};

use crate::cli::{self, Studies};
use crate::failure::{Failure, misuse};
use crate::output;
use crate::report::{width, write};
use crate::serve::stop_on_signal;

/// Runs a study, or lists them.
pub(crate) fn study(flags: &cli::Study) -> Result<(), Failure> {
    match &flags.which {
        Some(Studies::Swapin(flags)) => swapin(flags),
        None => {
            let mut text = String::from("The studies; run one with plimsoll study NAME:\n\n");
            for (name, asks) in study::STUDIES {
                text.push_str(&format!("  {name}  {asks}\n"));
            }
            output::print(text)
        }
    }
}

fn swapin(flags: &cli::Swapin) -> Result<(), Failure> {
    if let Some(out) = &flags.out {
        std::fs::create_dir_all(out)
            .map_err(|error| misuse(format!("{} cannot be made: {error}", out.display())))?;
    }
    let stop = stop_on_signal()?;
    let plan = Plan {
        path: flags.path.clone().unwrap_or_else(std::env::temp_dir),
        objects: flags.objects as usize,
        rounds: flags.rounds as usize,
        time: flags.duration,
        seed: flags.seed,
        squid: !flags.no_squid,
    };
    // On a terminal one line that changes; elsewhere nothing but what is asked for.
    let progress = if std::io::stderr().is_terminal() {
        ProgressBar::no_length()
    } else {
        ProgressBar::hidden()
    };
    if let Ok(style) = ProgressStyle::with_template("swapin: {msg} ({elapsed})") {
        progress.set_style(style);
    }
    let outcome = swapin::run(&plan, &stop, &mut |step| {
        progress.set_message(step.to_owned());
        progress.tick();
    });
    progress.finish_and_clear();
    let outcome = outcome.map_err(misuse)?;
    if let Some(out) = &flags.out {
        write_all(out, &outcome)?;
    }
    if flags.json {
        output::print_json(&outcome)
    } else {
        output::print(swapin::text(&outcome, width()))
    }
}

/// The figures and the result. A figure of what was not measured this time is none: one of an
/// earlier run is removed.
fn write_all(out: &Path, outcome: &Outcome) -> Result<(), Failure> {
    for (cache, name) in [("warm", "swapin.svg"), ("cold", "swapin-cold.svg")] {
        let path = out.join(name);
        match swapin::figure(outcome, cache) {
            Some(figure) => write(&path, &figure)?,
            None => {
                let _ = std::fs::remove_file(&path);
            }
        }
    }
    let json = serde_json::to_string(outcome).map_err(misuse)?;
    write(&out.join("swapin.json"), &(json + "\n"))
}
