//! Translates configuration files of Squid, nginx, Varnish, HAProxy and Caddy into ours, and writes
//! the file that `plimsoll init` starts with.
//!
//! [`import()`] takes a text and returns our file and a note for each directive: carried, carried
//! with a difference, or not carried, with the reason. Each language is a module of the same
//! shape: a parser that keeps line numbers, and a table from a directive to what becomes of it.
//! All languages share the crate [`imported`]: the form of the tables, included files, limits,
//! notes, and the keys of our file.
//!
//! [`starter`] writes a file from a few settings, through the same list of keys.
//!
//! The caller reads all files, included files too. What never happens:
//!
//! - A directive is dropped without a note.
//! - The imported file lets in a request that the original keeps out, unless [`Options::open`] is
//!   set.
//! - The crate does I/O or reads a clock.
//!
//! # What it promises
//!
//! - Every directive of the original has a note with its line. A directive that no function used
//!   is noted as not carried.
//! - The imported file opens nothing that a rule of the original keeps closed, unless the user asks
//!   for it. An unknown directive counts as such a rule.
//! - Keys are written through one list. A test compares the list with the keys of `config`.
//! - The cost of an import grows linearly with the length of the file, because the settings of a
//!   level refer to directives and copy none. A test counts the allocated bytes.
//! - The real server and ours answer the same 200 requests alike, except for listed differences.
//!   Where rules are not carried, our server opens and shares no more than the real server does.
#![forbid(unsafe_code)]

mod nginx;
pub mod starter;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use serde::Serialize;

use imported::input::Input;
use imported::note::Place;

pub(crate) use imported::Parsed;
pub use imported::limits;
pub use imported::note::{Fate, Note};
pub use imported::{Included, SyntaxError};

/// The language of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// `squid.conf`.
    Squid,
    /// `nginx.conf`.
    Nginx,
    /// VCL, for Varnish.
    Vcl,
    /// `haproxy.cfg`.
    Haproxy,
    /// A Caddyfile.
    Caddy,
}

impl Source {
    /// Guesses the language from the text.
    #[must_use]
    pub fn guess(text: &str) -> Option<Source> {
        let words = |line: &str| {
            let line = line.split('#').next().unwrap_or_default().trim();
            line.split_whitespace().next().map(|word| (word.to_owned(), line.to_owned()))
        };
        for (word, line) in text.lines().filter_map(words) {
            match word.as_str() {
                "global" | "defaults" | "frontend" | "listen" | "backend" | "userlist"
                    if !line.ends_with(['{', ';']) && !text.contains("sub vcl_") =>
                {
                    return Some(Source::Haproxy);
                }
                "vcl" | "backend" | "sub" => return Some(Source::Vcl),
                "acl" if line.ends_with('{') => return Some(Source::Vcl),
                "reverse_proxy" | "file_server" | "php_fastcgi" | "handle" | "handle_path"
                | "encode" | "respond" | "redir" | "forward_auth"
                    if !line.ends_with(';') =>
                {
                    return Some(Source::Caddy);
                }
                "acl" | "http_access" | "http_port" | "cache_peer" | "refresh_pattern" => {
                    return Some(Source::Squid);
                }
                "http" | "server" | "events" | "upstream" | "worker_processes" | "user" | "pid"
                    if line.ends_with(['{', ';']) =>
                {
                    return Some(Source::Nginx);
                }
                _ => {}
            }
        }
        None
    }

    /// The name of the program that reads it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Source::Squid => "squid",
            Source::Nginx => "nginx",
            Source::Vcl => "vcl",
            Source::Haproxy => "haproxy",
            Source::Caddy => "caddy",
        }
    }
}

/// How to import.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Keep open what was protected by a rule that was not carried.
    pub open: bool,
}

/// Our file, and what became of each directive of the original.
#[derive(Clone, Debug, Serialize)]
pub struct Imported {
    /// The language of the original.
    pub source: Source,
    /// Our file.
    pub configuration: String,
    /// A note for each directive, by file and line.
    pub notes: Vec<Note>,
}

impl Imported {
    /// How many directives had this fate.
    #[must_use]
    pub fn count(&self, fate: Fate) -> usize {
        self.notes.iter().filter(|note| note.fate == fate).count()
    }

    /// Whether some directive was not carried.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.notes.iter().any(|note| note.fate >= Fate::NotCarried)
    }

    /// Whether some requests may have another answer than from the original.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.notes.iter().any(|note| note.fate >= Fate::Different)
    }
}

/// Imports a text. `read` returns the files that a name or a pattern in an include stands for, or
/// one line: why it cannot.
///
/// # Errors
/// The text is not in the language, or exceeds a limit.
pub fn import(
    source: Source,
    name: &str,
    text: &str,
    options: Options,
    read: &mut dyn FnMut(&str) -> Result<Vec<Included>, String>,
) -> Result<Imported, SyntaxError> {
    let at = Place::new(&Rc::from(name), 1);
    let mut input = Input::new(read, options.open);
    input.count_file(&at, text)?;
    let (tree, notes) = match source {
        Source::Squid => squid_import::import(&at.file, text, &mut input)?,
        Source::Nginx => nginx::import(&at.file, text, &mut input)?,
        Source::Vcl => vcl_import::import(&at.file, text, &mut input)?,
        Source::Haproxy => haproxy_import::import(&at.file, text, &mut input)?,
        Source::Caddy => caddy_import::import(&at.file, text, &mut input)?,
    };
    let head = format!(
        "# Imported from {} of {} by `plimsoll import`.\n# A comment behind a key is the line \
         that it comes from.\n",
        at.to_string().trim_end_matches(":1"),
        source.name()
    );
    Ok(Imported { source, configuration: tree.text(&head), notes: notes.sorted() })
}
