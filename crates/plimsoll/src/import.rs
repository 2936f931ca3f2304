//! `plimsoll import`: another server's configuration file, written as ours.
//!
//! Here files are read and written; [`import`] does the rest. Our file goes to stdout or to a
//! file, and the notes go to stderr, so that a pipe gets only the file.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use ::import::{Fate, Imported, Included, Options, Source, limits};
use command::failure::{Failure, misuse};
use command::output::{self, Pending};
use rustix::fs::{Mode, OFlags};
use serde_json::json;

use crate::cli;

mod glob;

/// Imports a file. Fails with [`Failure::CheckFailed`] if a directive was not carried, or with a
/// difference.
pub(crate) fn import(flags: &cli::Import) -> Result<(), Failure> {
    if let Some(output) = &flags.output
        && output.exists()
        && !flags.force
    {
        let text = format!("{} exists: choose another name, or add --force", output.display());
        return Err(misuse(text));
    }
    let (name, base) = match flags.file.to_str() {
        Some("-") => ("stdin".to_owned(), PathBuf::from(".")),
        _ => {
            let parent = flags.file.parent().unwrap_or(Path::new(""));
            (flags.file.display().to_string(), parent.to_path_buf())
        }
    };
    let text = text_of(&flags.file).map_err(|why| misuse(format!("{name}: {why}; {USUAL}")))?;
    let source = source(flags, &name, &text)?;
    let options = Options { open: flags.open };
    let mut files = HashMap::new();
    let mut read = |pattern: &str| {
        let found = included(&base, pattern)?;
        files.insert(pattern.to_owned(), found.clone());
        Ok(found)
    };
    let imported = ::import::import(source, &name, &text, options, &mut read);
    let imported = imported.map_err(misuse)?;
    #[cfg(feature = "server")]
    if flags.is_try {
        let original = import_try::Original { name, path: absolute(&flags.file), text, files };
        return compare(&original, &imported, options, flags);
    }
    match &flags.output {
        Some(output) => Pending::new(output)?.write(&imported.configuration)?,
        None if !flags.json => output::print(&imported.configuration)?,
        None => {}
    }
    if flags.json {
        output::print_json(&with_counts(&imported))?;
    } else {
        let shown = imported.notes.iter().filter(|note| note.fate >= Fate::Different);
        shown.for_each(|note| eprintln!("{note}"));
        eprintln!("plimsoll: {}", summary(&imported));
    }
    if imported.differs() {
        let count = imported.count(Fate::NotCarried) + imported.count(Fate::Unprotected);
        let text = format!(
            "{count} of the directives were not carried, and {} with a difference",
            imported.count(Fate::Different)
        );
        return Err(Failure::CheckFailed(text));
    }
    Ok(())
}

/// Runs both servers. Fails with [`Failure::CheckFailed`] unless all answers are alike.
#[cfg(feature = "server")]
fn compare(
    original: &import_try::Original,
    imported: &Imported,
    options: Options,
    flags: &cli::Import,
) -> Result<(), Failure> {
    let report = import_try::run(original, imported, options, usize::from(flags.requests));
    let report = report.map_err(misuse)?;
    match flags.json {
        true => output::print_json(&serde_json::to_value(&report).map_err(misuse)?)?,
        false => output::print(report.text())?,
    }
    match report.is_alike() {
        true => Ok(()),
        false => Err(Failure::CheckFailed(report.summary())),
    }
}

/// The path of the file in a sandbox. Text from stdin gets the name of a file in its own directory.
#[cfg(feature = "server")]
fn absolute(file: &Path) -> PathBuf {
    match file.as_os_str() == "-" {
        true => PathBuf::from("/try/stdin.conf"),
        false => import_try::absolute(file),
    }
}

/// Where to find the file that is asked for.
const USUAL: &str = "the usual files are /etc/squid/squid.conf, /etc/nginx/nginx.conf, \
                     /etc/varnish/default.vcl, /etc/haproxy/haproxy.cfg and /etc/caddy/Caddyfile";

/// The language, as given or guessed. A guess is reported.
fn source(flags: &cli::Import, name: &str, text: &str) -> Result<Source, Failure> {
    match flags.from {
        Some(cli::From::Squid) => Ok(Source::Squid),
        Some(cli::From::Nginx) => Ok(Source::Nginx),
        Some(cli::From::Vcl) => Ok(Source::Vcl),
        Some(cli::From::Haproxy) => Ok(Source::Haproxy),
        Some(cli::From::Caddy) => Ok(Source::Caddy),
        None => {
            let file = Path::new(name).file_name().and_then(|name| name.to_str());
            let is_caddyfile = file.is_some_and(|file| file.starts_with("Caddyfile"));
            let by_name = is_caddyfile.then_some(Source::Caddy);
            let guess = by_name.or_else(|| Source::guess(text)).ok_or_else(|| {
                misuse(format!(
                    "cannot guess whose configuration {name} is: add --from squid, nginx, vcl, \
                     haproxy or caddy"
                ))
            })?;
            eprintln!("plimsoll: {name} looks like a configuration of {}", guess.name());
            Ok(guess)
        }
    }
}

fn text_of(file: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let bound = limits::INPUT_BYTES_MAX as u64 + 1;
    let read = if file.as_os_str() == "-" {
        std::io::stdin().lock().take(bound).read_to_end(&mut bytes)
    } else {
        regular(file).and_then(|file| file.take(bound).read_to_end(&mut bytes))
    };
    read.map_err(|error| format!("cannot be read: {error}"))?;
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned())
}

/// Opens a file, if it is one: a pipe or a device may never end. A pipe without a writer is opened
/// without waiting for one.
fn regular(path: &Path) -> std::io::Result<fs::File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(std::io::Error::other("it is not a regular file (a pipe can be stdin: -)")),
    }
}

/// The files that a name in an include stands for, in the order of their names. As in the shell,
/// `*`, `?` and `[a-z]` stand for parts of any name in the path that does not begin with a dot.
fn included(base: &Path, pattern: &str) -> Result<Vec<Included>, String> {
    let mut paths = vec![PathBuf::from(base)];
    let mut parts = Path::new(pattern).components().peekable();
    while let Some(part) = parts.next() {
        let part = part.as_os_str().to_str().unwrap_or_default();
        if !glob::is_pattern(part) {
            paths.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let mut found = Vec::new();
        for directory in &paths {
            let there = matching(directory, part).map_err(|why| format!("{pattern}: {why}"))?;
            // What is no directory has no files.
            let is_last = parts.peek().is_none();
            found.extend(there.into_iter().filter(|path| is_last || path.is_dir()));
        }
        paths = found;
    }
    if glob::is_pattern(pattern) {
        paths.retain(|path| path.exists());
        paths.sort();
    }
    let read = |path: PathBuf| {
        let name = path.display().to_string();
        match text_of(&path) {
            Ok(text) => Ok(Included { name, text }),
            Err(why) => Err(format!("{name} {why}")),
        }
    };
    paths.into_iter().map(read).collect()
}

/// The files of a directory whose names fit. One that cannot be read may have rules that deny, so
/// it is an error; one that does not exist has no files.
fn matching(directory: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let unreadable = |error: std::io::Error| format!("it cannot be read: {error}");
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(unreadable)?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        let name = name.to_str().ok_or("the name of a file is not UTF-8 text")?;
        if (!name.starts_with('.') || pattern.starts_with('.')) && glob::fits(pattern, name) {
            paths.push(entry.path());
        }
    }
    Ok(paths)
}

fn summary(imported: &Imported) -> String {
    let count = |fate| imported.count(fate);
    format!(
        "{} directives: {} carried, {} with a difference, {} without a need, {} not carried",
        imported.notes.len(),
        count(Fate::Carried),
        count(Fate::Different),
        count(Fate::Nothing),
        count(Fate::NotCarried) + count(Fate::Unprotected)
    )
}

fn with_counts(imported: &Imported) -> serde_json::Value {
    let count = |fate| imported.count(fate);
    json!({
        "source": imported.source,
        "configuration": imported.configuration,
        "carried": count(Fate::Carried),
        "different": count(Fate::Different),
        "nothing": count(Fate::Nothing),
        "not_carried": count(Fate::NotCarried) + count(Fate::Unprotected),
        "notes": imported.notes,
    })
}
