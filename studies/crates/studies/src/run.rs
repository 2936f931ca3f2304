//! Runs one study, or all of them with a page that has a chapter each.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;
use command::failure::{Failure, misuse};
use command::output::{self, make_directory, width, write};
use command::stop_on_signal;
use indicatif::{ProgressBar, ProgressStyle};
use report::sheet::{Chapter, Sheet, page, sheet};
use serde::Serialize;
use study::truth;

use crate::cli::{self, Given, Studies};
use crate::each;

/// Lists the studies.
pub(crate) fn list() -> Result<(), Failure> {
    let mut text = String::from("The studies; run one with plimsoll study NAME:\n\n");
    for (name, asks) in study::STUDIES {
        text.push_str(&format!("  {name:8}  {asks}\n"));
    }
    output::print(text)
}

/// Runs a study, or all of them.
pub(crate) fn study(which: &Studies) -> Result<(), Failure> {
    let stop = stop_on_signal()?;
    if let Studies::All(flags) = which {
        return all(flags, &stop);
    }
    let (name, Given { out, json, .. }) = which.given();
    if let Some(out) = out {
        make_directory(out)?;
    }
    let found = each::run(which, &By { stop: &stop, prefix: String::new() })?;
    found.write(name, out.as_deref())?;
    if *json {
        output::print(found.pretty)?;
    } else {
        output::print(sheet(&found.sheet, width()))?;
    }
    found.failed.map_or(Ok(()), |why| Err(Failure::CheckFailed(why.into())))
}

/// The path of this program, to run a hidden verb of it as a child process.
pub(crate) fn this_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(misuse)
}

/// The server, which most studies measure.
pub(crate) fn plimsoll() -> Result<PathBuf, Failure> {
    let beside = this_program()?.with_file_name("plimsoll");
    if beside.is_file() {
        return Ok(beside);
    }
    Err(misuse(format!(
        "{} is missing: build the server with cargo build --release -p plimsoll",
        beside.display()
    )))
}

/// The result of a study.
pub(crate) struct Found {
    sheet: Sheet,
    /// Its figures by the names of their files; `None` if nothing was measured for a figure.
    figures: Vec<(String, Option<String>)>,
    /// The whole outcome as JSON, for a file and for a reader.
    json: String,
    pretty: String,
    /// The reason why it counts as failed, if it does.
    failed: Option<&'static str>,
    /// Whether it has a page besides the one of all studies.
    page: bool,
}

impl Found {
    pub(crate) fn of(sheet: Sheet, outcome: &impl Serialize) -> Result<Found, Failure> {
        Ok(Found {
            sheet,
            figures: Vec::new(),
            json: serde_json::to_string(outcome).map_err(misuse)? + "\n",
            pretty: serde_json::to_string_pretty(outcome).map_err(misuse)? + "\n",
            failed: None,
            page: false,
        })
    }

    pub(crate) fn with(mut self, file: String, figure: Option<String>) -> Found {
        self.figures.push((file, figure));
        self
    }

    pub(crate) fn failed(mut self, why: Option<&'static str>) -> Found {
        self.failed = why;
        self
    }

    pub(crate) fn with_page(mut self) -> Found {
        self.page = true;
        self
    }

    /// Its chapter of a page.
    fn chapter(&self, name: &str) -> Chapter {
        let figures = self.figures.iter().filter_map(|(_, figure)| figure.clone()).collect();
        Chapter { figures, ..chapter(name, self.sheet.clone()) }
    }

    /// Writes the figures and the result to the directory `out`. If a figure was not measured this
    /// time, the one of an earlier run is removed.
    fn write(&self, name: &str, out: Option<&Path>) -> Result<(), Failure> {
        let Some(out) = out else { return Ok(()) };
        for (file, figure) in &self.figures {
            let path = out.join(file);
            match figure {
                Some(figure) => write(&path, figure)?,
                None => {
                    let _ = std::fs::remove_file(&path);
                }
            }
        }
        if self.page {
            let lead = format!("plimsoll study {name}, {}", env!("CARGO_PKG_VERSION"));
            let page = page(&self.sheet.title, &lead, &[self.chapter(name)]);
            write(&out.join("index.html"), &page)?;
        }
        write(&out.join(format!("{name}.json")), &self.json)
    }
}

/// How a study is run: until it is stopped, with a line that shows its progress.
pub(crate) struct By<'s> {
    stop: &'s AtomicBool,
    /// The beginning of that line: the number of the study.
    prefix: String,
}

impl By<'_> {
    /// Shows the progress on a terminal; otherwise nothing but the result is printed.
    pub(crate) fn run<T, E: std::fmt::Display>(
        &self,
        name: &str,
        work: impl FnOnce(&AtomicBool, &mut dyn FnMut(&str)) -> Result<T, E>,
    ) -> Result<T, Failure> {
        let progress = if std::io::stderr().is_terminal() {
            ProgressBar::no_length()
        } else {
            ProgressBar::hidden()
        };
        let line = format!("{}{name}: {{msg}} ({{elapsed}})", self.prefix);
        if let Ok(style) = ProgressStyle::with_template(&line) {
            progress.set_style(style);
        }
        let worked = work(self.stop, &mut |step| {
            progress.set_message(step.to_owned());
            progress.tick();
        });
        progress.finish_and_clear();
        worked.map_err(misuse)
    }

    /// Runs a study that has one figure.
    pub(crate) fn found<T: Serialize, E: std::fmt::Display>(
        &self,
        name: &str,
        work: impl FnOnce(&AtomicBool, &mut dyn FnMut(&str)) -> Result<T, E>,
        shown: fn(&T) -> Sheet,
        figure: fn(&T) -> String,
    ) -> Result<(T, Found), Failure> {
        let outcome = self.run(name, work)?;
        let found = Found::of(shown(&outcome), &outcome)?;
        let found = found.with(format!("{name}.svg"), Some(figure(&outcome)));
        Ok((outcome, found))
    }
}

/// All studies with their flags: so that all of them take less than half an hour, and for the short
/// form.
const ALL: [(&str, &str, &str); 10] = [
    ("boost", "--for 3m", "--quick"),
    ("dispatch", "", "--descriptors 512 --ready 4 --rounds 2 --turns 20"),
    ("herd", "--for 2m", "--quick"),
    ("live", "--compressed 3s", "--hours 2 --compressed 2s"),
    ("predict", "--servers nginx --bodies 1024 --connections 64 --reaches 30,60", "--quick"),
    ("runqueue", "", "--quick"),
    ("select", "--for 2m", "--quick --no-what-if"),
    ("swapin", "--for 45s", "--objects 60 --rounds 2 --no-squid"),
    ("truth", "--runs 4", "--runs 1 --for 6s --interval 200ms"),
    ("webbench", "--for 3m", "--quick"),
];

/// Runs them one after the other. The chapter of a study that fails gives the reason.
fn all(flags: &cli::AllStudies, stop: &AtomicBool) -> Result<(), Failure> {
    let (mut chapters, mut failures) = (Vec::new(), Vec::new());
    let wanted = |name: &str| flags.only.is_empty() || flags.only.iter().any(|only| only == name);
    let chosen: Vec<_> = ALL.iter().filter(|(name, _, _)| wanted(name)).collect();
    for (number, (name, full, quick)) in chosen.iter().enumerate() {
        let home = flags.out.join(name);
        make_directory(&home)?;
        let words = if flags.quick { quick } else { full };
        let by = By { stop, prefix: format!("{} of {}, ", number + 1, chosen.len()) };
        let found = flags_of(name, words, &home).and_then(|which| each::run(&which, &by));
        if stop.load(Ordering::Relaxed) {
            return Err(misuse("interrupted"));
        }
        chapters.push(match found {
            Ok(found) => {
                found.write(name, Some(&home))?;
                found.chapter(name)
            }
            Err(failure) => {
                failures.push(format!("{name}: {failure}"));
                let facts = vec![("Failed".to_owned(), failure.to_string())];
                chapter(name, Sheet { title: (*name).to_owned(), facts, ..Sheet::default() })
            }
        });
    }
    let lead = format!(
        "plimsoll {}{}: what the papers of 1997 to 2002 measured, measured here.",
        env!("CARGO_PKG_VERSION"),
        if flags.quick { ", in the short form: a check, no result" } else { "" }
    );
    let index = flags.out.join("index.html");
    write(&index, &page("The studies", &lead, &chapters))?;
    output::print(format!("{}\n", index.display()))?;
    if failures.is_empty() { Ok(()) } else { Err(Failure::CheckFailed(failures.join("; "))) }
}

/// The chapter of a study, without figures.
fn chapter(name: &str, sheet: Sheet) -> Chapter {
    let asks = study::STUDIES.iter().find(|(study, _)| *study == name);
    let asks = asks.map_or_else(String::new, |(_, asks)| (*asks).to_owned());
    Chapter { name: name.to_owned(), asks, sheet, figures: Vec::new() }
}

/// Parses the flags of a study as if they had been typed.
fn flags_of(name: &str, words: &str, home: &Path) -> Result<Studies, Failure> {
    let typed = ["plimsoll study", name].into_iter().chain(words.split_whitespace());
    let out = ["--out".as_ref(), home.as_os_str()];
    let typed = typed.map(AsRef::as_ref).chain(out).map(std::ffi::OsStr::to_owned);
    let cli = cli::Cli::try_parse_from(typed).map_err(misuse)?;
    match cli.verb {
        Some(cli::Verb::Study(which)) => Ok(which),
        _ => Err(misuse(format!("{name} is not a study"))),
    }
}

/// The process that [`runqueue`] records: it walks until its input ends, and prints over how many
/// tasks.
pub(crate) fn runqueue_walker(flags: &cli::RunqueueWalker) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&stop);
    let listen_to_input = move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        ended.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("input".into()).spawn(listen_to_input).map_err(misuse)?;
    let (runnable, colours, seed) = (flags.runnable, flags.colours, flags.seed);
    let tasks = runqueue::Walker { runnable, colours, seed }.walk(&stop);
    output::print(format!("{tasks}\n"))
}

/// The server of known costs, which [`truth`] starts: a line of input resets its counts, and the
/// end of the input ends it.
pub(crate) fn truth_server(flags: &cli::TruthServer) -> Result<(), Failure> {
    if let Some(cpu) = flags.cpu {
        load::sys::pin_to_cpu(cpu).map_err(misuse)?;
    }
    let server = truth::Truth { seed: flags.seed, walks: !flags.no_table };
    let control = Arc::new(truth::Control::default());
    let commands = Arc::clone(&control);
    let listen_to_input = move || {
        for _ in std::io::stdin().lines().map_while(Result::ok) {
            commands.restart.store(true, Ordering::Relaxed);
        }
        commands.stop.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("input".into()).spawn(listen_to_input).map_err(misuse)?;
    let say = |listen| {
        if let Ok(line) = serde_json::to_string(&truth::Listening { listen }) {
            println!("{line}");
        }
    };
    let spent = server.serve(&flags.log, &control, say).map_err(misuse)?;
    println!("{}", serde_json::to_string(&spent).map_err(misuse)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_studies_are_run_with_valid_flags() {
        let named: Vec<&str> = ALL.iter().map(|(name, _, _)| *name).collect();
        let known: Vec<&str> = study::STUDIES.iter().map(|(name, _)| *name).collect();
        assert_eq!(named, known);
        for (name, full, quick) in ALL {
            for words in [full, quick] {
                let which = flags_of(name, words, Path::new("somewhere")).unwrap();
                let (known_as, given) = which.given();
                assert_eq!((known_as, given.out.as_deref()), (name, Some(Path::new("somewhere"))));
            }
        }
    }
}
