//! `plimsoll what-if`: the capacity if a group of procedures cost something else. The answer is
//! kept in the trial, so that `compare` can grade it when the change is there.

use std::path::Path;

use ::report::{Instead, Options, WhatIf};
use command::failure::{Failure, misuse};
use trial::{Trial, Writer};

use crate::{cli, output, report};

/// Answers, and keeps the answer.
pub(crate) fn what_if(flags: &cli::WhatIf) -> Result<(), Failure> {
    let instead = match (flags.scale, flags.cost) {
        (Some(scale), _) => Instead::Scale(scale),
        (None, Some(cost)) => Instead::Cost(cost.as_secs_f64()),
        (None, None) => return Err(misuse("say what it would cost: --scale 0, or --cost 2.86ms")),
    };
    let trial = Trial::open(&flags.trial).map_err(misuse)?;
    let options = Options {
        above: flags.above.unwrap_or(0.0),
        groups: report::groups(flags.groups.as_deref())?,
        ..Options::default()
    };
    let told = ::report::what_if(&trial, &options, &flags.group, instead).map_err(misuse)?;
    if flags.json {
        output::print_json(&told)?;
    } else {
        output::print(::report::terminal_what_if(&told, output::width()))?;
    }
    if flags.no_keep {
        return Ok(());
    }
    keep(&flags.trial, &trial, &told)
}

/// Adds the prediction to the trial's ledger, once.
fn keep(path: &Path, trial: &Trial, told: &WhatIf) -> Result<(), Failure> {
    let prediction = told.prediction(::load::sys::wall_ns());
    let same = |kept: &trial::Prediction| {
        kept.name == prediction.name
            && kept.quantity == prediction.quantity
            && kept.value == prediction.value
    };
    if trial.predictions().iter().any(same) {
        return Ok(());
    }
    let not_kept = |why: String| misuse(format!("the prediction was not kept: {why}"));
    if !trial.complete() {
        let name = path.display();
        let why = format!("{name} is not finished; ask again when it is, or give --no-keep");
        return Err(not_kept(why));
    }
    let write = || -> Result<(), trial::Error> {
        let mut writer = Writer::reopen(path)?;
        writer.prediction(&prediction)?;
        writer.finish().map(drop)
    };
    write().map_err(|error| not_kept(format!("{error}; give --no-keep to go without")))
}
