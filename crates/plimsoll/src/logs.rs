//! `plimsoll logs`: whole access logs, read after the fact.

use ::record::survey::{SurveySpec, survey};
use command::failure::{Failure, misuse};
use command::output;

use crate::cli;

/// Reads the logs and prints what they amount to. Logs of which no line is understood are misuse.
pub(crate) fn logs(flags: &cli::Logs) -> Result<(), Failure> {
    let spec = SurveySpec {
        files: flags.files.clone(),
        format: flags.format.clone().unwrap_or_default(),
        redact: flags.redact,
        ..SurveySpec::default()
    };
    let survey = survey(&spec).map_err(misuse)?;
    if flags.json {
        output::print_json(&survey)?;
    } else {
        output::print(format!("{survey}\n"))?;
    }
    if survey.requests > 0 || survey.lines == 0 {
        return Ok(());
    }
    Err(misuse("no line was understood: name the format by --format, or give its string"))
}
