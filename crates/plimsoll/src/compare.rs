//! `plimsoll compare`: what changed from one trial to another. A regression gives exit code 1.

use ::report::{CompareOptions, Verdict};
use command::failure::{Failure, misuse};
use trial::Trial;

use crate::{cli, keep, output};

/// Compares two trials, or two spans of a folder of trials.
pub(crate) fn compare(flags: &cli::Compare) -> Result<(), Failure> {
    let options = CompareOptions {
        analysis: flags.analysis.options()?,
        margin: flags.margin / 100.0,
        between_run: flags.between_runs.map(|percent| percent / 100.0),
        ..CompareOptions::default()
    };
    let found = match &flags.other {
        Some(after) => {
            let (before, after) = (Trial::open(&flags.trial), Trial::open(after));
            ::report::compare(&before.map_err(misuse)?, &after.map_err(misuse)?, &options)
                .map_err(misuse)?
        }
        None if flags.trial.is_dir() => {
            let (what, found) = keep::compared(flags, &options)?;
            if !flags.json {
                output::print(format!("{what}\n\n"))?;
            }
            found
        }
        None => {
            return Err(misuse(format!(
                "{} is not a folder of trials: give the trial after the change, too",
                flags.trial.display()
            )));
        }
    };
    if let Some(path) = &flags.html {
        output::write(path, &::report::html_comparison(&found))?;
    }
    output::show(flags.json, &found, |found| {
        ::report::terminal_comparison(found, output::width())
    })?;
    match found.verdict {
        Verdict::Improvement | Verdict::NoChange => Ok(()),
        Verdict::Regression => Err(Failure::CheckFailed(format!("a regression: {}", found.why))),
        Verdict::Inconclusive => {
            let advice = found.advice.iter().map(|advice| format!("; {advice}"));
            Err(misuse(format!("inconclusive: {}{}", found.why, advice.collect::<String>())))
        }
    }
}
