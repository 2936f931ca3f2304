//! `plimsoll compare`: what changed from one trial to another; 1 if it is a change for the worse.

use ::report::{CompareOptions, Options, Verdict};
use command::failure::{Failure, misuse};
use trial::Trial;

use crate::{cli, output, report};

/// Compares two trials.
pub(crate) fn compare(flags: &cli::Compare) -> Result<(), Failure> {
    let before = Trial::open(&flags.before).map_err(misuse)?;
    let after = Trial::open(&flags.after).map_err(misuse)?;
    let options = CompareOptions {
        analysis: Options {
            above: flags.above.unwrap_or(0.0),
            groups: report::groups(flags.groups.as_deref())?,
            ..Options::default()
        },
        margin: flags.margin / 100.0,
        between_run: flags.between_runs / 100.0,
        ..CompareOptions::default()
    };
    let found = ::report::compare(&before, &after, &options).map_err(misuse)?;
    if flags.json {
        output::print_json(&found)?;
    } else {
        output::print(::report::terminal_comparison(&found, output::width()))?;
    }
    match found.verdict {
        Verdict::Improvement | Verdict::NoChange => Ok(()),
        Verdict::Regression => Err(Failure::Found(format!("a regression: {}", found.why))),
        Verdict::NotTold => Err(misuse(format!(
            "nothing can be told: {}; record for longer, or allow for more by --margin",
            found.why
        ))),
    }
}
