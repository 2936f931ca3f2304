//! `plimsoll record`: observe a live server and write its trial.

use std::io::IsTerminal;
use std::path::Path;

use ::record::{Ended, ProfileSpec, Spec, Target};
use command::failure::{Failure, misuse};
use command::output;
use command::stop_on_signal;
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli;

/// What the flags ask for, into this trial.
pub(crate) fn spec(flags: &cli::Recording, out: &Path) -> Result<Spec, Failure> {
    let target = match (flags.pid, &flags.name) {
        (Some(pid), _) => Target::Pid(pid),
        (None, Some(name)) => Target::Name(name.clone()),
        (None, None) => return Err(misuse("say which server: --pid N or --name NAME")),
    };
    let mut spec = Spec::new(target, flags.access_log.clone(), out);
    spec.log_format = flags.log_format.clone().unwrap_or_default();
    spec.requests_from = flags.requests_from.clone();
    spec.redact = flags.redact;
    spec.interval = flags.interval;
    spec.duration = flags.duration;
    spec.profile = (!flags.no_profile).then_some(ProfileSpec { hz: flags.profile });
    (spec.counters, spec.locks, spec.files) = (flags.counters, flags.locks, flags.files);
    Ok(spec)
}

/// Records, with a line of progress on a terminal.
pub(crate) fn record(flags: &cli::Record) -> Result<(), Failure> {
    let mut spec = spec(&flags.what, &flags.output)?;
    spec.overwrite = flags.force;
    let stop = stop_on_signal()?;
    let bar = if flags.json || !std::io::stderr().is_terminal() {
        ProgressBar::hidden()
    } else {
        ProgressBar::new_spinner()
    };
    if let Ok(style) = ProgressStyle::with_template("{elapsed} {msg}") {
        bar.set_style(style);
    }
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
    .map_err(refused)?;
    bar.finish_and_clear();
    if flags.json {
        output::print_json(&summary)?;
    } else {
        output::print(format!("{summary}\n"))?;
    }
    if summary.intervals > 0 {
        return Ok(());
    }
    Err(misuse(match summary.ended {
        Ended::ServerGone => "not one interval was recorded: the server ended before the first",
        _ => "not one interval was recorded: it was stopped before the first; record for longer",
    }))
}

/// Names the flag where a flag is the mend.
pub(crate) fn refused(error: ::record::Error) -> Failure {
    match error {
        ::record::Error::Trial(trial::Error::Exists { path }) => misuse(format!(
            "{} exists already: choose another name, or give --force to overwrite it",
            path.display()
        )),
        error => misuse(error),
    }
}
