//! Runs one study, or all of them with a page that has a chapter each.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;
use command::failure::{Failure, misuse};
use command::output::{self, make_directory, width, write};
use command::stop_on_signal;
use indicatif::{ProgressBar, ProgressStyle};
use report::sheet::{Chapter, Sheet, page, sheet};
use study::{About, Found, Given, Steps, Study, truth};

use crate::cli::{self, Verb};

/// Lists the studies.
pub(crate) fn list() -> Result<(), Failure> {
    let mut text = String::from("The studies; run one with plimsoll study NAME:\n\n");
    for About { name, asks, .. } in study::STUDIES {
        text.push_str(&format!("  {name:8}  {asks}\n"));
    }
    output::print(text)
}

/// Runs a study.
pub(crate) fn study(study: &Study) -> Result<(), Failure> {
    let stop = stop_on_signal()?;
    let (name, Given { out, json, .. }) = study.given();
    if let Some(out) = out {
        make_directory(out)?;
    }
    let found = found(study, &stop, "")?;
    if let Some(out) = out {
        keep(name, &found, out)?;
    }
    output::print(if *json { found.json[1].clone() } else { sheet(&found.sheet, width()) })?;
    found.failed.map_or(Ok(()), |why| Err(Failure::CheckFailed(why.into())))
}

/// Runs a study, and shows its steps on a terminal after `prefix`. Otherwise nothing but the result
/// is printed.
fn found(study: &Study, stop: &AtomicBool, prefix: &str) -> Result<Found, Failure> {
    let this = std::env::current_exe().map_err(misuse)?;
    let plimsoll = this.with_file_name("plimsoll");
    if study.runs_the_server() && !plimsoll.is_file() {
        return Err(misuse(format!(
            "{} is missing: build the server with cargo build --release -p plimsoll",
            plimsoll.display()
        )));
    }
    let progress = if std::io::stderr().is_terminal() {
        ProgressBar::no_length()
    } else {
        ProgressBar::hidden()
    };
    let line = format!("{prefix}{}: {{msg}} ({{elapsed}})", study.given().0);
    if let Ok(style) = ProgressStyle::with_template(&line) {
        progress.set_style(style);
    }
    let say = &mut |step: &str| {
        progress.set_message(step.to_owned());
        progress.tick();
    };
    let found = study.run(&mut Steps { stop, say, study: &this, plimsoll: &plimsoll });
    progress.finish_and_clear();
    found.map_err(misuse)
}

/// Writes the figures and the result to the directory `out`. If a figure was not measured this
/// time, the one of an earlier run is removed.
fn keep(name: &str, found: &Found, out: &Path) -> Result<(), Failure> {
    for (file, figure) in &found.figures {
        let path = out.join(file);
        match figure {
            Some(figure) => write(&path, figure)?,
            None => {
                let _ = std::fs::remove_file(&path);
            }
        }
    }
    if found.page {
        let lead = format!("plimsoll study {name}, {}", env!("CARGO_PKG_VERSION"));
        let page = page(&found.sheet.title, &lead, &[chapter(name, found)]);
        write(&out.join("index.html"), &page)?;
    }
    write(&out.join(format!("{name}.json")), &found.json[0])
}

/// The chapter of a study.
fn chapter(name: &str, found: &Found) -> Chapter {
    let figures = found.figures.iter().filter_map(|(_, figure)| figure.clone()).collect();
    Chapter { figures, ..without_figures(name, found.sheet.clone()) }
}

fn without_figures(name: &str, sheet: Sheet) -> Chapter {
    let about = study::STUDIES.iter().find(|about| about.name == name);
    let asks = about.map_or_else(String::new, |about| about.asks.to_owned());
    Chapter { name: name.to_owned(), asks, sheet, figures: Vec::new() }
}

/// Runs all of them one after the other. The chapter of a study that fails gives the reason.
pub(crate) fn all(flags: &cli::AllStudies) -> Result<(), Failure> {
    let stop = stop_on_signal()?;
    let (mut chapters, mut failures) = (Vec::new(), Vec::new());
    let wanted = |name: &str| flags.only.is_empty() || flags.only.iter().any(|only| only == name);
    let chosen: Vec<_> = study::STUDIES.iter().filter(|about| wanted(about.name)).collect();
    for (number, About { name, full, quick, .. }) in chosen.iter().enumerate() {
        let home = flags.out.join(name);
        make_directory(&home)?;
        let words = if flags.quick { quick } else { full };
        let prefix = format!("{} of {}, ", number + 1, chosen.len());
        let found = flags_of(name, words, &home).and_then(|study| found(&study, &stop, &prefix));
        if stop.load(Ordering::Relaxed) {
            return Err(misuse("interrupted"));
        }
        chapters.push(match found {
            Ok(found) => {
                keep(name, &found, &home)?;
                chapter(name, &found)
            }
            Err(failure) => {
                failures.push(format!("{name}: {failure}"));
                let facts = vec![("Failed".to_owned(), failure.to_string())];
                without_figures(name, Sheet { title: (*name).to_owned(), facts, tables: vec![] })
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

/// Parses the flags of a study as if they had been typed.
fn flags_of(name: &str, words: &str, home: &Path) -> Result<Study, Failure> {
    let typed = ["plimsoll study", name].into_iter().chain(words.split_whitespace());
    let out = ["--out".as_ref(), home.as_os_str()];
    let typed = typed.map(AsRef::as_ref).chain(out).map(std::ffi::OsStr::to_owned);
    match cli::Cli::try_parse_from(typed).map_err(misuse)?.verb {
        Some(Verb::Study(study)) => Ok(study),
        _ => Err(misuse(format!("{name} is not a study"))),
    }
}

/// The server of known costs, which [`truth`] starts: a line of input resets its counts, and the
/// end of the input ends it.
pub(crate) fn truth_server(flags: &cli::TruthServer) -> Result<(), Failure> {
    if let Some(cpu) = flags.cpu {
        load::sys::pin_to_cpu(cpu).map_err(misuse)?;
    }
    let server = truth::Truth { seed: flags.seed, walks: !flags.no_table };
    let control = Arc::new(truth::Control::default());
    let of_input = Arc::clone(&control);
    let listen = move || {
        for _ in std::io::stdin().lines().map_while(Result::ok) {
            of_input.restart.store(true, Ordering::Relaxed);
        }
        of_input.stop.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("input".into()).spawn(listen).map_err(misuse)?;
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
        for About { name, full, quick, .. } in study::STUDIES.iter().copied() {
            for words in [full, quick] {
                let which = flags_of(name, words, Path::new("somewhere")).unwrap();
                let (known_as, given) = which.given();
                assert_eq!((known_as, given.out.as_deref()), (name, Some(Path::new("somewhere"))));
            }
        }
    }
}
