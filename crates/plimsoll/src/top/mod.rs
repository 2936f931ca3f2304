//! `plimsoll top`: a recording while it goes on.
//!
//! ```text
//! plimsoll record, or a thread of ours -- trial -- watcher -- model -- screen | text | JSON
//! ```
//!
//! | module | what it owns |
//! | --- | --- |
//! | `model` | what there is to show: the last intervals, the line through all of them |
//! | `watcher` | when the trial is looked at, and how much that may cost |
//! | `recording` | a recording of our own, where no trial is named |
//! | `view` | which part is looked at, and what the keys do |
//! | `screen`, `tables` | a model and a view as lines: pure |
//! | `terminal` | the terminal, given back however it ends |
//!
//! All figures are `report`'s. The trial is opened for each look and let go again, so that neither
//! holds up the other.

mod model;
mod recording;
mod screen;
mod tables;
mod terminal;
mod view;
mod watcher;

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

use self::model::Model;
use self::recording::Recording;
use self::watcher::Watcher;
use crate::cli;
use crate::report;

/// How often the trial is asked whether it grew.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Columns of the text where there is no terminal to ask.
const TEXT_COLUMNS: usize = 100;

/// Watches a trial, or records and watches.
pub(crate) fn top(flags: &cli::Top) -> Result<(), Failure> {
    let stop = stop_on_signal()?;
    // A terminal that is closed ends what was recorded for it.
    signal_hook::flag::register(SIGHUP, Arc::clone(&stop))
        .map_err(|error| misuse(format!("signals cannot be watched: {error}")))?;
    let options =
        Options { groups: report::groups(flags.groups.as_deref())?, ..Options::default() };
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

/// Where the figures come from.
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

    /// Whether nothing more will be written by us.
    fn ended(&self) -> bool {
        self.recording.as_ref().is_some_and(Recording::has_ended)
    }
}

/// Text or JSON, without a terminal.
fn in_lines(
    flags: &cli::Top,
    mut watcher: Watcher,
    source: &Source,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    // Of a recording of a known length the end is worth more than the beginning.
    let only_the_end = flags.once && source.recording.is_some() && flags.what.duration.is_some();
    loop {
        // Asked before the look: what is written until then is seen.
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
                    "{}: no interval in it yet; ask again when one is over",
                    source.path.display()
                )));
            }
        }
        if ended || stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        std::thread::sleep(ASK_EVERY);
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
