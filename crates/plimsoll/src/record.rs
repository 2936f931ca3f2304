//! `plimsoll record`: observes a live server and writes a trial.

use std::path::Path;

use ::record::{Ended, ProfileSpec, Spec};
use command::failure::{Failure, misuse};
use command::output;
use command::stop_on_signal;
use indicatif::ProgressBar;

use crate::{cli, progress};

/// The recording that the flags describe, into this trial.
pub(crate) fn spec(flags: &cli::Recording, trial: &Path) -> Result<Spec, Failure> {
    let target = flags.observed.target();
    let target = target.ok_or_else(|| misuse("no server given: use --pid N or --name NAME"))?;
    let mut spec = flags.observed.spec(target, trial.to_owned());
    spec.redact = flags.redact;
    spec.interval = flags.interval;
    spec.duration = flags.duration;
    spec.profile = (!flags.no_profile).then_some(ProfileSpec { hz: flags.profile });
    (spec.counters, spec.locks, spec.files) = (flags.counters, flags.locks, flags.files);
    Ok(spec)
}

/// Records, with a progress line on a terminal.
pub(crate) fn record(flags: &cli::Record) -> Result<(), Failure> {
    let mut spec = spec(&flags.recording, &flags.output)?;
    spec.overwrite = flags.force;
    let stop = stop_on_signal()?;
    let bar = progress::bar(ProgressBar::new_spinner(), "{elapsed} {msg}", flags.json);
    let summary = ::record::record(&spec, &stop, &mut |interval| {
        let seconds = interval.length_ns as f64 / 1e9;
        let busy = interval.server.as_ref().map_or(0.0, |s| s.total_ns as f64 / 1e9 / seconds);
        bar.set_message(format!(
            "interval {}: {:.0} requests/s, {busy:.3} CPUs",
            interval.index,
            interval.requests / seconds
        ));
        bar.tick();
    })
    .map_err(failure)?;
    bar.finish_and_clear();
    output::show(flags.json, &summary, |summary| format!("{summary}\n"))?;
    if summary.intervals > 0 {
        return Ok(());
    }
    Err(misuse(match summary.ended {
        Ended::ServerGone => NO_INTERVAL,
        _ => "no interval was recorded: the recording was stopped too early; record for longer",
    }))
}

/// The server ended too early.
pub(crate) const NO_INTERVAL: &str =
    "no interval was recorded: the server ended before the first one was complete";

/// Names the flag that fixes an error, if there is one.
pub(crate) fn failure(error: ::record::Error) -> Failure {
    match error {
        ::record::Error::Trial(trial::Error::Exists { path }) => misuse(format!(
            "{} exists already: choose another name, or give --force to overwrite it",
            path.display()
        )),
        error => misuse(error),
    }
}
