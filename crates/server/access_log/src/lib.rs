//! The access log: one line for each request, in a named format or in a format string of the
//! operator.
//!
//! Each core formats its lines into its own buffer and hands full buffers to one thread that writes
//! the file, so that a slow disk never blocks a core. [`record`] holds the data of an exchange;
//! [`formats`] has the named formats; [`template`] parses format strings, whose codes are listed in
//! [`codes`]; [`writer`] is the thread.
//!
//! What never happens:
//!
//! - A line is lost and not counted.
//! - Bytes of a client break a line in two.

#![forbid(unsafe_code)]

mod codes;
mod formats;
mod limits;
mod names;
mod record;
mod syslog;
mod template;
#[cfg(test)]
mod tests;
mod text;
mod urls;
mod writer;

use std::cell::{Cell, RefCell};
use std::str::FromStr;
use std::sync::Arc;

use crate::limits::BATCH_BYTES;

use self::codes::{Argument, Code};
use self::template::{Dialect, Template};
use self::text::Civil;
use self::urls::Sampling;

pub use outcome::Outcome;
pub use record::{Record, last_field};
pub use syslog::{FACILITIES, SyslogTo};
pub use template::Template as LogTemplate;
pub use urls::{TopUrls, UrlCount, UrlWatch, Watching};
pub use writer::LogWriter;
pub use writer::{Queue, Sink};

/// The format of a line.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Squid's native format: stamps the end of the request, in milliseconds, with its duration.
    #[default]
    Squid,
    /// The common log format; stamps the end of the request, in seconds.
    Common,
    /// Apache's combined format; stamps the end of the request, in seconds.
    Combined,
    /// One JSON object for each line.
    Json,
    /// A format string of the operator.
    Custom(Arc<Template>),
}

impl FromStr for LogFormat {
    type Err = String;

    /// A name, or a format string after the name of its dialect: `squid:…`, `apache:…`.
    fn from_str(text: &str) -> Result<LogFormat, String> {
        let custom = |dialect, format| {
            Template::parse(dialect, format).map(|template| LogFormat::Custom(Arc::new(template)))
        };
        match text.split_once(':') {
            Some(("squid", format)) => return custom(Dialect::Squid, format),
            Some(("apache", format)) => return custom(Dialect::Apache, format),
            _ => {}
        }
        match text {
            "squid" => Ok(LogFormat::Squid),
            "common" => Ok(LogFormat::Common),
            "combined" => Ok(LogFormat::Combined),
            "json" => Ok(LogFormat::Json),
            _ if names::is_format(text) => custom(Dialect::Names, text),
            _ => Err(format!(
                "unknown log format {text:?}: use squid, common, combined or json, names in \
                 braces such as {{client}} {{status}}, or a format string after squid: or apache:, \
                 in the codes of that dialect"
            )),
        }
    }
}

/// One code of format strings, for the reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCode {
    /// `names`, `squid` or `apache`.
    pub dialect: &'static str,
    /// The code as it is written, such as `%>a` or `%{the field's name}i`.
    pub code: String,
    /// One line of help.
    pub help: &'static str,
}

/// Every code of format strings.
pub fn log_codes() -> Vec<LogCode> {
    let of = |(dialect, name, code): (_, &str, &Code)| LogCode {
        dialect,
        code: match code.argument {
            Argument::None => format!("%{name}"),
            Argument::Needed(meaning) => format!("%{{{meaning}}}{name}"),
            Argument::Optional(meaning) => format!("%{name} %{{{meaning}}}{name}"),
        },
        help: code.help,
    };
    let of_names = Dialect::Names.codes().map(|(name, code)| LogCode {
        dialect: "names",
        code: match code.argument {
            Argument::Needed(meaning) => format!("{{{name}{meaning}}}"),
            _ => format!("{{{name}}}"),
        },
        help: code.help,
    });
    let squid = Dialect::Squid.codes().map(|(name, code)| ("squid", name, code));
    let apache = Dialect::Apache.codes().map(|(name, code)| ("apache", name, code));
    of_names.chain(squid.chain(apache).map(of)).collect()
}

/// The part of the log that belongs to a core.
#[derive(Debug)]
pub struct CoreLog {
    sink: Sink,
    format: LogFormat,
    lines: RefCell<Vec<u8>>,
    second: Cell<Civil>,
    needs: Cell<Needs>,
    watch: Arc<UrlWatch>,
    sampling: Sampling,
}

/// Why requests are recorded. One value, so that a hit reads one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Needs {
    /// All, for the access log.
    lines: bool,
    /// A sample, for the pages that watch.
    samples: bool,
}

impl CoreLog {
    /// A log without lines.
    pub fn new(sink: Sink, format: LogFormat, watch: Arc<UrlWatch>) -> CoreLog {
        let log = CoreLog {
            sink,
            format,
            lines: RefCell::default(),
            second: Cell::new(Civil::of(0)),
            needs: Cell::default(),
            watch,
            sampling: Sampling::default(),
        };
        log.look_at_watchers();
        log
    }

    /// Whether exchanges must be recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.needs.get() != Needs::default()
    }

    /// Whether this hit must be recorded, by [`CoreLog::record_hit`]. Asked once for each hit.
    #[inline]
    pub fn takes_hit(&self) -> bool {
        let needs = self.needs.get();
        needs.lines || needs.samples && self.sampling.chooses()
    }

    /// Whether lines have the numbers of requests.
    pub fn names_ids(&self) -> bool {
        self.has_lines() && matches!(&self.format, LogFormat::Custom(of) if of.names_ids())
    }

    /// Whether a recorded request becomes a line.
    pub fn has_lines(&self) -> bool {
        self.needs.get().lines
    }

    /// Records a hit that [`CoreLog::takes_hit`] took.
    pub fn record_hit(&self, record: &Record<'_>) {
        match self.has_lines() {
            true => self.record(record),
            // It was chosen.
            false => self.watch.add(record, self.sampling.weight()),
        }
    }

    /// Records an exchange.
    pub fn record(&self, record: &Record<'_>) {
        let needs = self.needs.get();
        if needs.samples && self.sampling.chooses() {
            self.watch.add(record, self.sampling.weight());
        }
        if needs.lines {
            self.add_line(record);
        }
    }

    /// Adds a line. Full batches are handed over at once, the rest at the next tick.
    fn add_line(&self, record: &Record<'_>) {
        let mut lines = self.lines.borrow_mut();
        match &self.format {
            LogFormat::Squid => formats::squid(&mut lines, record),
            LogFormat::Common => formats::common(&mut lines, record, &self.civil(record)),
            LogFormat::Combined => formats::combined(&mut lines, record, &self.civil(record)),
            LogFormat::Json => formats::json(&mut lines, record, &self.civil(record)),
            LogFormat::Custom(template) => template.line(&mut lines, record),
        }
        if lines.len() >= BATCH_BYTES {
            let full = std::mem::replace(&mut *lines, Vec::with_capacity(BATCH_BYTES + 4096));
            drop(lines);
            self.hand_over(full);
        }
    }

    /// Notices whether a page watches. Called at each tick.
    pub fn look_at_watchers(&self) {
        let lines = !matches!(self.sink, Sink::Off);
        self.needs.set(Needs { lines, samples: self.watch.is_watched() });
        self.sampling.tick();
    }

    /// Hands over the remaining lines.
    pub fn flush(&self) {
        let lines = std::mem::take(&mut *self.lines.borrow_mut());
        if !lines.is_empty() {
            self.hand_over(lines);
        }
    }

    fn hand_over(&self, lines: Vec<u8>) {
        match &self.sink {
            Sink::Off => {}
            Sink::Thread(queue) => queue.push(lines),
            Sink::Memory(memory) => {
                memory.lock().expect("no writer panics while it appends").extend(lines);
            }
        }
    }

    /// The civil time of the end, computed once a second.
    fn civil(&self, record: &Record<'_>) -> Civil {
        let made = self.second.get();
        if made.second() == record.end_wall_ms / 1000 {
            return made;
        }
        let civil = Civil::of(record.end_wall_ms);
        self.second.set(civil);
        civil
    }
}
