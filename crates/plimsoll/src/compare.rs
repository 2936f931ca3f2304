//! `plimsoll compare`: what changed from one trial to another. A regression is exit code 1.

use ::report::{CompareOptions, Verdict};
use command::failure::{Failure, misuse};
use trial::Trial;

use crate::{cli, output};

/// Compares two trials.
pub(crate) fn compare(flags: &cli::Compare) -> Result<(), Failure> {
    let before = Trial::open(&flags.before).map_err(misuse)?;
    let after = Trial::open(&flags.after).map_err(misuse)?;
    let options = CompareOptions {
        analysis: flags.analysis.options()?,
        margin: flags.margin / 100.0,
        between_run: flags.between_runs.map(|percent| percent / 100.0),
        ..CompareOptions::default()
    };
    let found = ::report::compare(&before, &after, &options).map_err(misuse)?;
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
