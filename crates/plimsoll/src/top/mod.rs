//! `plimsoll top`: shows a recording live.
//!
//! ```text
//! plimsoll record, or our recorder thread -- trial -- watcher -- model -- screen | text | JSON
//! ```
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`crate::watch`] | when the trial is read, how much CPU time that may take, and the figures |
//! | `recording` | our own recording, if the user names no trial |
//! | `view` | the selected part of the screen, and the keys |
//! | `screen`, `tables` | turn a model and a view into lines, without I/O |
//! | `terminal` | the terminal, which is restored however the program ends |
//!
//! `report` computes all figures. The trial is opened and closed for each read, so that reader and
//! writer do not block each other.

mod recording;
mod screen;
mod tables;
mod terminal;
mod view;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::report::Options;
use command::failure::{Failure, misuse};
use command::output;
use command::stop_on_signal;
use signal_hook::consts::SIGHUP;

use self::recording::Recording;
use crate::cli;
use crate::watch::Watcher;
use crate::watch::model::Model;

/// How often to check whether the trial has grown.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Columns of the text if there is no terminal.
const TEXT_COLUMNS: usize = 100;

/// Watches a trial, or records and watches.
pub(crate) fn top(flags: &cli::Top) -> Result<(), Failure> {
    let stop = stop_on_signal()?;
    // Closing the terminal ends the recording.
    signal_hook::flag::register(SIGHUP, Arc::clone(&stop))
        .map_err(|error| misuse(format!("cannot install a signal handler: {error}")))?;
    let options = Options { groups: flags.groups.read()?, ..Options::default() };
    let begun_ns = load::sys::wall_ns();
    let mut source = Source::open(flags, &stop)?;
    let awaited = source.recording.is_some().then_some(begun_ns);
    let watcher = Watcher::new(source.path.clone(), usize::from(flags.last), options, awaited);
    let shown = if flags.json || flags.once || !std::io::stdout().is_terminal() {
        in_lines(flags, watcher, &source, &stop)
    } else {
        terminal::show(watcher, &source, &stop)
    };
    stop.store(true, Ordering::Relaxed);
    let ended = source.recording.take().map_or(Ok(None), Recording::end);
    let summary = shown.and(ended)?;
    match summary.filter(|_| flags.output.is_some() && !flags.json) {
        Some(summary) => output::print(format!("{summary}\n")),
        None => Ok(()),
    }
}

/// The trial that is shown.
struct Source {
    path: PathBuf,
    recording: Option<Recording>,
}

impl Source {
    fn open(flags: &cli::Top, stop: &Arc<AtomicBool>) -> Result<Source, Failure> {
        match &flags.trial {
            Some(path) => Ok(Source { path: path.clone(), recording: None }),
            None => {
                let recording = Recording::begin(flags, Arc::clone(stop))?;
                Ok(Source { path: recording.path().to_owned(), recording: Some(recording) })
            }
        }
    }

    /// Whether our own recording has ended.
    fn ended(&self) -> bool {
        self.recording.as_ref().is_some_and(Recording::has_ended)
    }
}

/// Prints text or JSON, without a terminal.
fn in_lines(
    flags: &cli::Top,
    mut watcher: Watcher,
    source: &Source,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    // For a recording of known length, show the end rather than the beginning.
    let only_the_end =
        flags.once && source.recording.is_some() && flags.recording.duration.is_some();
    loop {
        // Checked before the read, so that nothing written until then is missed.
        let ended = source.ended();
        if ended || !only_the_end {
            let looked = watcher.look().map_err(misuse)?;
            if let Some(mut model) = looked {
                if watcher.fit_is_due() || flags.once {
                    watcher.fit(&mut model).map_err(misuse)?;
                }
                model.watch_percent = watcher.cost_percent();
                show(flags, &model)?;
                if flags.once || model.recent.complete {
                    return Ok(());
                }
            } else if flags.once && source.recording.is_none() {
                return Err(misuse(format!(
                    "{} has no complete interval yet; try again when it has one",
                    source.path.display()
                )));
            }
        }
        if ended || stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn show(flags: &cli::Top, model: &Model) -> Result<(), Failure> {
    if flags.json {
        return output::print(serde_json::to_string(model).map_err(misuse)? + "\n");
    }
    let columns = output::columns().unwrap_or(TEXT_COLUMNS);
    let text = screen::text(model, load::sys::wall_ns(), columns);
    output::print(if flags.once { text } else { text + "\n" })
}
