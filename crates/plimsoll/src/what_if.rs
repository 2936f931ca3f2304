//! `plimsoll what-if`: the capacity if a group of procedures had another cost. The prediction is
//! saved in the trial, so that `compare` can grade it after the change.

use std::path::Path;

use ::report::{Instead, WhatIf};
use command::failure::{Failure, misuse};
use trial::{Trial, Writer};

use crate::{cli, output};

/// Prints the prediction and saves it.
pub(crate) fn what_if(flags: &cli::WhatIf) -> Result<(), Failure> {
    let instead = match (flags.scale, flags.cost) {
        (Some(scale), _) => Instead::Scale(scale),
        (None, Some(cost)) => Instead::Cost(cost.as_secs_f64()),
        (None, None) => return Err(misuse("give the new cost: --scale 0, or --cost 2.86ms")),
    };
    let trial = Trial::open(&flags.trial).map_err(misuse)?;
    let options = flags.analysis.options()?;
    let answer = ::report::what_if(&trial, &options, &flags.group, instead).map_err(misuse)?;
    output::show(flags.json, &answer, |answer| {
        ::report::terminal_what_if(answer, output::width())
    })?;
    if flags.no_keep { Ok(()) } else { save(&flags.trial, &trial, &answer) }
}

/// Adds the prediction to the trial, unless it is there already.
fn save(path: &Path, trial: &Trial, answer: &WhatIf) -> Result<(), Failure> {
    let prediction = answer.prediction(::load::sys::wall_ns());
    let same = |saved: &trial::Prediction| {
        saved.name == prediction.name
            && saved.quantity == prediction.quantity
            && saved.value == prediction.value
    };
    if trial.predictions().iter().any(same) {
        return Ok(());
    }
    let not_saved = |why: String| misuse(format!("the prediction was not saved: {why}"));
    if !trial.complete() {
        let name = path.display();
        let why = format!("{name} is not finished; try again when it is, or use --no-keep");
        return Err(not_saved(why));
    }
    let write = || -> Result<(), trial::Error> {
        let mut writer = Writer::reopen(path)?;
        writer.prediction(&prediction)?;
        writer.finish().map(drop)
    };
    write().map_err(|error| not_saved(format!("{error}; try --no-keep")))
}
