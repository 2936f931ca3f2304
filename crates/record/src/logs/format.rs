//! The formats by name, and the choice of a format.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::Serialize;

use super::dialects::Dialect;
use super::json::Keys;
use super::pattern::Pattern;
use super::{Declared, FormatError, Instant, Request, Stamps, clf, haproxy, squid};

/// An access log format that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Squid's native format.
    Squid,
    /// HAProxy's `option httplog`, with or without a syslog prefix.
    Haproxy,
    /// The combined format of Apache, nginx and varnishncsa.
    Combined,
    /// The common log format.
    Common,
}

impl LogFormat {
    /// All formats in the order in which they are tried, the stricter ones first.
    pub const ALL: [LogFormat; 4] =
        [LogFormat::Squid, LogFormat::Haproxy, LogFormat::Combined, LogFormat::Common];

    /// Its name on the command line and in the trial.
    pub fn as_str(self) -> &'static str {
        match self {
            LogFormat::Squid => "squid",
            LogFormat::Haproxy => "haproxy",
            LogFormat::Combined => "combined",
            LogFormat::Common => "clf",
        }
    }

    /// Whether it contains how long a request took.
    pub fn has_elapsed(self) -> bool {
        matches!(self, LogFormat::Squid | LogFormat::Haproxy)
    }

    /// The grain of its stamps, ns.
    pub fn grain_ns(self) -> i64 {
        if self.has_elapsed() { 1_000_000 } else { 1_000_000_000 }
    }

    /// One sentence for the trial about its stamps.
    fn declares(self) -> &'static str {
        match self {
            LogFormat::Squid => "stamps the end, grain 1 ms, with elapsed time",
            LogFormat::Haproxy => {
                "stamps the start in local time, grain 1 ms, with the active time Ta"
            }
            LogFormat::Combined | LogFormat::Common => {
                "grain 1 s, no elapsed time (nginx stamps the end, Apache the start): \
                 each request is spread over its second"
            }
        }
    }

    /// Understands a line, without its newline.
    pub(crate) fn parse(self, line: &[u8], stamps: &mut Stamps) -> Option<Request> {
        match self {
            LogFormat::Squid => squid::parse(line),
            LogFormat::Haproxy => haproxy::parse(line, stamps),
            LogFormat::Combined => clf::parse(line, clf::Tail::RefererAndAgent, stamps),
            LogFormat::Common => clf::parse(line, clf::Tail::Nothing, stamps),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A format that is ready to parse lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Format(Kind);

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Named(LogFormat),
    String(Arc<Pattern>),
    Json(Arc<Keys>),
}

impl From<LogFormat> for Format {
    fn from(format: LogFormat) -> Format {
        Format(Kind::Named(format))
    }
}

impl Format {
    fn declared(&self) -> Result<&Declared, LogFormat> {
        match &self.0 {
            Kind::Named(format) => Err(*format),
            Kind::String(pattern) => Ok(&pattern.declared),
            Kind::Json(keys) => Ok(&keys.declared),
        }
    }

    /// Whether it contains how long a request took.
    pub fn has_elapsed(&self) -> bool {
        self.declared().map_or_else(LogFormat::has_elapsed, |declared| declared.elapsed)
    }

    /// The grain of its stamps, ns.
    pub fn grain_ns(&self) -> i64 {
        self.declared().map_or_else(LogFormat::grain_ns, |declared| declared.grain_ns)
    }

    /// One sentence for the trial about its stamps.
    pub fn declares(&self) -> String {
        let Declared { instant, grain_ns, elapsed, .. } = match self.declared() {
            Ok(declared) => declared,
            Err(format) => return format.declares().to_owned(),
        };
        let end = match instant {
            Instant::Start => "start",
            Instant::End => "end",
        };
        let elapsed = if *elapsed { "with" } else { "no" };
        let grain = match grain_ns {
            1_000_000_000.. => "1 s",
            1_000_000.. => "1 ms",
            _ => "1 us or finer",
        };
        format!("stamps the {end}, grain {grain}, {elapsed} elapsed time")
    }

    /// Understands a line, without its newline.
    pub(crate) fn parse(&self, line: &[u8], stamps: &mut Stamps) -> Option<Request> {
        match &self.0 {
            Kind::Named(format) => format.parse(line, stamps),
            Kind::String(pattern) => pattern.read(line, stamps),
            Kind::Json(keys) => keys.read(line, stamps),
        }
    }

    /// The first format that understands a line.
    pub(crate) fn detect(line: &[u8], stamps: &mut Stamps) -> Option<Format> {
        if line.first() == Some(&b'{') {
            return Format::json(&Keys::default(), line, stamps);
        }
        let mut all = LogFormat::ALL.into_iter();
        all.find(|format| format.parse(line, stamps).is_some()).map(Format::from)
    }

    fn json(keys: &Keys, line: &[u8], stamps: &mut Stamps) -> Option<Format> {
        Some(Format(Kind::Json(Arc::new(keys.detected_from(line, stamps)?))))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.declared() {
            Ok(declared) => f.write_str(&declared.text),
            Err(named) => named.fmt(f),
        }
    }
}

/// The choice of a log's format.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum FormatChoice {
    /// The first format that understands one of its lines.
    #[default]
    Auto,
    /// A named format.
    Named(LogFormat),
    /// JSON lines. Given keys take precedence over known ones.
    Json(JsonKeys),
    /// The format of this string.
    String(Format),
}

/// The given keys of JSON lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JsonKeys(Keys);

impl FormatChoice {
    /// The format, if it is known without a line.
    pub(crate) fn format(&self) -> Option<Format> {
        match self {
            FormatChoice::Auto | FormatChoice::Json(_) => None,
            FormatChoice::Named(format) => Some(Format::from(*format)),
            FormatChoice::String(format) => Some(format.clone()),
        }
    }

    /// The format, as detected from a line.
    pub(crate) fn detect(&self, line: &[u8], stamps: &mut Stamps) -> Option<Format> {
        match self {
            FormatChoice::Auto => Format::detect(line, stamps),
            FormatChoice::Json(JsonKeys(keys)) => Format::json(keys, line, stamps),
            known => known.format(),
        }
    }
}

/// `squid`, `haproxy`, `combined`, `clf`, `json`, `json:WHAT=KEY,...`, or `nginx:STRING`,
/// `squid:STRING`, `apache:STRING` with the string of the server's configuration.
impl FromStr for FormatChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<FormatChoice, String> {
        let message = |error: FormatError| error.to_string();
        match text {
            "auto" => return Ok(FormatChoice::Auto),
            "common" => return Ok(FormatChoice::Named(LogFormat::Common)),
            "json" => return Ok(FormatChoice::Json(JsonKeys::default())),
            // The default format of varnishncsa.
            "varnishncsa" => return Ok(FormatChoice::Named(LogFormat::Combined)),
            _ => {}
        }
        if let Some(format) = LogFormat::ALL.into_iter().find(|format| format.as_str() == text) {
            return Ok(FormatChoice::Named(format));
        }
        let (name, string) = text.split_once(':').unwrap_or((text, ""));
        if name == "json" {
            return Keys::compile(string).map(|k| FormatChoice::Json(JsonKeys(k))).map_err(message);
        }
        let dialect = Dialect::ALL.into_iter().find(|dialect| dialect.name() == name);
        match dialect {
            Some(dialect) => {
                let pattern = dialect.compile(string).map_err(message)?;
                Ok(FormatChoice::String(Format(Kind::String(Arc::new(pattern)))))
            }
            None => Err(format!(
                "no log format {name:?}; there are squid, haproxy, combined, clf, json, and \
                 nginx:, squid: or apache: with the string of the server's configuration"
            )),
        }
    }
}
