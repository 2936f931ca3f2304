//! `plimsoll logs`: summarises whole access logs.

use ::logs::survey::{SurveySpec, survey};
use command::failure::{Failure, misuse};
use command::output;

use crate::cli;

/// Reads the logs and prints the summary. It is an error if not one line is a request.
pub(crate) fn logs(flags: &cli::Logs) -> Result<(), Failure> {
    let spec = SurveySpec {
        files: flags.files.clone(),
        format: flags.format.clone().unwrap_or_default(),
        redact: flags.redact,
        ..SurveySpec::default()
    };
    let survey = survey(&spec).map_err(misuse)?;
    output::show(flags.json, &survey, |survey| format!("{survey}\n"))?;
    if survey.requests > 0 || survey.lines == 0 {
        return Ok(());
    }
    let cause = survey.causes.first().map_or("no line is a request", String::as_str);
    Err(misuse(cause))
}
