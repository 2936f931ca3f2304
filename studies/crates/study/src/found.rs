//! How a study is run, and what it gives.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use harness::Error;
use report::sheet::Sheet;
use serde::Serialize;
use serde_json::Value;

use crate::page::Page;

/// A run of a study: it goes on until it is stopped, and names each of its steps.
pub struct Steps<'s> {
    /// Whether it has to stop.
    pub stop: &'s AtomicBool,
    /// Is called with each step.
    pub say: &'s mut dyn FnMut(&str),
    /// This program, whose hidden verbs are run as child processes.
    pub study: &'s Path,
    /// The server, whose verbs `serve`, `origin` and `boost` are run.
    pub plimsoll: &'s Path,
}

impl Steps<'_> {
    pub(crate) fn say(&mut self, step: &str) {
        (self.say)(step);
    }

    /// # Errors
    /// [`Error::Interrupted`] if the run has to stop.
    pub(crate) fn interrupted(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// The result of a study.
pub struct Found {
    /// Its text and tables.
    pub sheet: Sheet,
    /// Its figures by the names of their files; `None` if nothing was measured for a figure.
    pub figures: Vec<(PathBuf, Option<String>)>,
    /// The whole outcome as JSON, for a file and for a reader.
    pub json: [String; 2],
    /// The reason why it counts as failed, if it does.
    pub failed: Option<&'static str>,
    /// Whether it has a page besides the one of all studies.
    pub page: bool,
}

impl Found {
    /// An outcome, shown by a page. `more` are the results for the page that are computed from the
    /// outcome.
    pub(crate) fn of(name: &str, page: &str, outcome: &impl Serialize, more: Value) -> Found {
        let json = [serde_json::to_string(outcome), serde_json::to_string_pretty(outcome)];
        let json = json.map(|text| text.expect("the keys of an outcome are strings") + "\n");
        let (page, all) = (Page::read(page), with(outcome, more));
        let figures = page.figure(&all).map(|figure| (format!("{name}.svg").into(), Some(figure)));
        let figures = figures.into_iter().collect();
        Found { sheet: page.sheet(&all), figures, json, failed: None, page: false }
    }

    pub(crate) fn with(mut self, file: &str, figure: Option<String>) -> Found {
        self.figures.push((file.into(), figure));
        self
    }

    pub(crate) fn failed(self, failed: bool, why: &'static str) -> Found {
        Found { failed: failed.then_some(why), ..self }
    }
}

/// A part of an outcome as JSON.
pub(crate) fn value(part: &impl Serialize) -> Value {
    serde_json::to_value(part).expect("the keys of an outcome are strings")
}

/// A row or an outcome as JSON, with more values.
pub(crate) fn with(part: &impl Serialize, more: Value) -> Value {
    let mut part = value(part);
    if let (Value::Object(part), Value::Object(more)) = (&mut part, more) {
        part.extend(more);
    }
    part
}

/// Steps of a test, which says nothing.
#[cfg(test)]
pub(crate) fn quietly<T>(stop: bool, work: impl FnOnce(&mut Steps<'_>) -> T) -> T {
    let stop = &AtomicBool::new(stop);
    let (study, plimsoll) = (Path::new("unused"), Path::new("unused"));
    work(&mut Steps { stop, say: &mut |_| {}, study, plimsoll })
}
