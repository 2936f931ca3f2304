//! `plimsoll logs`: summarises whole access logs.

use ::record::survey::{SurveySpec, survey};
use command::failure::{Failure, misuse};
use command::output;

use crate::cli;

/// Reads the logs and prints the summary. It is an error if not one line can be parsed.
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
    Err(misuse("no line could be parsed: try --format with a format name or format string"))
}
