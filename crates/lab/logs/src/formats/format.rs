//! The formats by name, and the choice of a format.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::Serialize;

use super::dialects::Dialect;
use super::json::{Keys, LOGFMT};
use super::pattern::Pattern;
use super::stamp::Stamp;
use super::w3c::Columns;
use super::{Declared, FormatError, Instant, NS_PER_MS, NS_PER_S, Request, Stamps};
use super::{balancers, clf, frameworks, haproxy, prefix, squid};

/// An access log format that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Squid's native format.
    Squid,
    /// Amazon's Application Load Balancer.
    Alb,
    /// Amazon's Classic Load Balancer.
    Elb,
    /// Amazon's S3.
    S3,
    /// The default text of Envoy and Istio.
    Envoy,
    /// Gin's logger.
    Gin,
    /// chi's logger.
    Chi,
    /// HAProxy's `option httplog` and `option httpslog`, with or without a syslog prefix.
    Haproxy,
    /// Traefik's common log format.
    Traefik,
    /// Kubernetes' ingress-nginx.
    Ingress,
    /// The combined format of Apache, nginx and varnishncsa.
    Combined,
    /// The common log format.
    Common,
    /// PHP-FPM's default.
    Phpfpm,
}

/// The properties of a format: its name, the grain of its stamps in ns, whether it has an elapsed
/// time, and a sentence about its stamps.
type Properties = (&'static str, i64, bool, &'static str);

impl LogFormat {
    /// All formats in the order in which they are tried, the stricter ones first.
    pub const ALL: [LogFormat; 13] = [
        LogFormat::Squid,
        LogFormat::Alb,
        LogFormat::Elb,
        LogFormat::S3,
        LogFormat::Envoy,
        LogFormat::Gin,
        LogFormat::Chi,
        LogFormat::Haproxy,
        LogFormat::Traefik,
        LogFormat::Ingress,
        LogFormat::Combined,
        LogFormat::Common,
        LogFormat::Phpfpm,
    ];

    fn properties(self) -> Properties {
        const SECOND: &str = "grain 1 s, no elapsed time (nginx stamps the end, Apache the \
            start): each request is spread over its second";
        match self {
            LogFormat::Squid => {
                ("squid", NS_PER_MS, true, "stamps the end, grain 1 ms, with elapsed time")
            }
            LogFormat::Alb => ("alb", 1000, true, "stamps the end, grain 1 us, with elapsed time"),
            LogFormat::Elb => {
                ("elb", 1000, true, "stamps the start, grain 1 us, with elapsed time")
            }
            LogFormat::S3 => {
                ("s3", NS_PER_S, true, "stamps the start, grain 1 s, with elapsed time")
            }
            LogFormat::Envoy => {
                ("envoy", NS_PER_MS, true, "stamps the start, grain 1 ms, with elapsed time")
            }
            LogFormat::Gin => (
                "gin",
                NS_PER_S,
                true,
                "stamps the end in local time, grain 1 s, with elapsed time",
            ),
            LogFormat::Chi => (
                "chi",
                NS_PER_S,
                true,
                "stamps the end in local time, grain 1 s, with elapsed time",
            ),
            LogFormat::Haproxy => {
                let declares =
                    "stamps the start in local time, grain 1 ms, with the active time Ta";
                ("haproxy", NS_PER_MS, true, declares)
            }
            LogFormat::Traefik => {
                ("traefik", NS_PER_S, true, "stamps the start, grain 1 s, with elapsed time")
            }
            LogFormat::Ingress => {
                ("ingress", NS_PER_S, true, "stamps the end, grain 1 s, with elapsed time")
            }
            LogFormat::Combined => ("combined", NS_PER_S, false, SECOND),
            LogFormat::Common => ("clf", NS_PER_S, false, SECOND),
            LogFormat::Phpfpm => {
                ("phpfpm", NS_PER_S, false, "stamps the start, grain 1 s, no elapsed time")
            }
        }
    }

    /// The names of all formats, in one line.
    pub(crate) fn names() -> String {
        LogFormat::ALL.map(LogFormat::as_str).join(", ")
    }

    /// Its name on the command line and in the trial.
    pub fn as_str(self) -> &'static str {
        self.properties().0
    }

    /// Whether it contains how long a request took.
    pub fn has_elapsed(self) -> bool {
        self.properties().2
    }

    /// The grain of its stamps, ns.
    pub fn grain_ns(self) -> i64 {
        self.properties().1
    }

    /// One sentence for the trial about its stamps.
    fn declares(self) -> &'static str {
        self.properties().3
    }

    /// Understands a line, without its newline.
    pub(crate) fn parse(self, line: &[u8], stamps: &mut Stamps) -> Option<Request> {
        match self {
            LogFormat::Squid => squid::parse(line),
            LogFormat::Alb => balancers::alb(line, stamps),
            LogFormat::Elb => balancers::elb(line, stamps),
            LogFormat::S3 => balancers::s3(line, stamps),
            LogFormat::Envoy => balancers::envoy(line, stamps),
            LogFormat::Gin => frameworks::gin(line, stamps),
            LogFormat::Chi => frameworks::chi(line, stamps),
            LogFormat::Haproxy => haproxy::parse(line, stamps),
            LogFormat::Traefik => frameworks::traefik(line, stamps),
            LogFormat::Ingress => frameworks::ingress(line, stamps),
            LogFormat::Combined => clf::parse(line, clf::Tail::RefererAndAgent, stamps),
            LogFormat::Common => clf::parse(line, clf::Tail::Nothing, stamps),
            LogFormat::Phpfpm => frameworks::phpfpm(line, stamps),
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
    W3c(Arc<Columns>),
}

/// What a line of a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// A request.
    Request(Request),
    /// Nothing: blank, or a comment.
    Blank,
    /// Understood, but not a request: an event, a connection, a line of the standard error.
    Event,
    /// Not understood.
    Bad,
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
            Kind::W3c(columns) => Ok(&columns.declared),
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

    /// Reads a line, without its newline.
    #[inline]
    pub fn read(&self, line: &[u8], stamps: &mut Stamps) -> Line {
        match self.parse(line, stamps) {
            Some(request) => Line::Request(request),
            None => self.read_otherwise(line, stamps),
        }
    }

    /// Understands a line that nothing is put before.
    #[inline]
    pub(crate) fn parse(&self, line: &[u8], stamps: &mut Stamps) -> Option<Request> {
        self.parse_within(line, None, stamps)
    }

    #[inline]
    fn parse_within(
        &self,
        line: &[u8],
        outer: Option<Stamp>,
        stamps: &mut Stamps,
    ) -> Option<Request> {
        match &self.0 {
            Kind::Named(format) => format.parse(line, stamps),
            Kind::String(pattern) => pattern.read(line, stamps),
            Kind::Json(keys) => keys.read(line, outer, stamps),
            Kind::W3c(columns) => columns.parse(line, stamps),
        }
    }

    /// A line that is not a request as it is: without what was put before it, or something else.
    #[cold]
    #[inline(never)]
    fn read_otherwise(&self, line: &[u8], stamps: &mut Stamps) -> Line {
        if is_blank(line) {
            return match &self.0 {
                Kind::W3c(columns) if columns.are_changed_by(line) => Line::Bad,
                _ => Line::Blank,
            };
        }
        let (mut event, mut outer) = (self.is_event(line, stamps), None);
        let (mut request, mut blank) = (None, false);
        each_layer(line, stamps, |inner, stamps| {
            outer = inner.stamp.or(outer);
            blank |= is_blank(&inner.line);
            event |= inner.to_stderr || self.is_event(&inner.line, stamps);
            request = self.parse_within(&inner.line, outer, stamps);
            request.is_some()
        });
        match request {
            Some(request) => Line::Request(request),
            None if blank => Line::Blank,
            None if event => Line::Event,
            None => Line::Bad,
        }
    }

    /// Reads a line of a log whose format is not known: no request.
    #[cold]
    pub fn read_unknown(line: &[u8], stamps: &mut Stamps) -> Line {
        match line.first() {
            _ if is_blank(line) => Line::Blank,
            Some(b'{') if Keys::default().is_event(line, stamps) => Line::Event,
            _ => Line::Bad,
        }
    }

    /// What to type so that the elapsed time is read, if this line seems to have one that is not
    /// read.
    #[cfg(feature = "survey")]
    pub(crate) fn elapsed_hint(&self, line: &[u8], stamps: &mut Stamps) -> Option<String> {
        if self.has_elapsed() {
            return None;
        }
        let hint = |line: &[u8], stamps: &mut Stamps| match &self.0 {
            Kind::Json(keys) => keys.elapsed_hint(line),
            Kind::Named(LogFormat::Combined) => clf::elapsed_hint(line, stamps),
            _ => None,
        };
        hint(line, stamps).or_else(|| {
            let mut found = None;
            each_layer(line, stamps, |inner, stamps| {
                found = hint(&inner.line, stamps);
                found.is_some()
            });
            found
        })
    }

    fn is_event(&self, line: &[u8], stamps: &mut Stamps) -> bool {
        match &self.0 {
            Kind::Json(keys) => keys.is_event(line, stamps),
            Kind::Named(LogFormat::S3) => balancers::is_s3_event(line, stamps),
            Kind::Named(LogFormat::Haproxy) => haproxy::is_event(line, stamps),
            _ => false,
        }
    }

    /// The first format that understands a line.
    pub fn detect(line: &[u8], stamps: &mut Stamps) -> Option<Format> {
        Format::detect_by(line, stamps, Format::detect_plain)
    }

    /// Tries a line as it is, and then without each layer around it.
    fn detect_by(
        line: &[u8],
        stamps: &mut Stamps,
        detect: impl Fn(&[u8], Option<Stamp>, &mut Stamps) -> Option<Format>,
    ) -> Option<Format> {
        let mut found = detect(line, None, stamps);
        let mut outer = None;
        if found.is_none() && !is_blank(line) {
            each_layer(line, stamps, |inner, stamps| {
                outer = inner.stamp.or(outer);
                found = detect(&inner.line, outer, stamps);
                found.is_some()
            });
        }
        found
    }

    fn detect_plain(line: &[u8], outer: Option<Stamp>, stamps: &mut Stamps) -> Option<Format> {
        if line.first() == Some(&b'{') {
            return Format::json(&Keys::default(), line, outer, stamps);
        }
        if line.first() == Some(&b'#') {
            return Columns::of_line(line).map(|columns| Format(Kind::W3c(Arc::new(columns))));
        }
        let mut all = LogFormat::ALL.into_iter();
        let named = all.find(|format| format.parse(line, stamps).is_some()).map(Format::from);
        named.or_else(|| Format::json(&Keys::of_pairs(), line, outer, stamps))
    }

    fn json(keys: &Keys, line: &[u8], outer: Option<Stamp>, stamps: &mut Stamps) -> Option<Format> {
        Some(Format(Kind::Json(Arc::new(keys.detected_from(line, outer, stamps)?))))
    }
}

/// Nothing but spaces, or a comment.
fn is_blank(line: &[u8]) -> bool {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii_start();
    matches!(line.first(), None | Some(b'#'))
}

/// Takes off one layer after the other until `done` returns true.
fn each_layer(
    line: &[u8],
    stamps: &mut Stamps,
    mut done: impl FnMut(&prefix::Unwrapped<'_>, &mut Stamps) -> bool,
) {
    let mut owned: Vec<u8>;
    let mut line = line;
    for _ in 0..prefix::LAYERS_MAX {
        let Some(inner) = prefix::unwrap(line, stamps) else { return };
        if done(&inner, stamps) {
            return;
        }
        owned = inner.line.into_owned();
        line = &owned;
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
    pub fn format(&self) -> Option<Format> {
        match self {
            FormatChoice::Auto | FormatChoice::Json(_) => None,
            FormatChoice::Named(format) => Some(Format::from(*format)),
            FormatChoice::String(format) => Some(format.clone()),
        }
    }

    /// The format, as detected from a line.
    pub fn detect(&self, line: &[u8], stamps: &mut Stamps) -> Option<Format> {
        match self {
            FormatChoice::Auto => Format::detect(line, stamps),
            FormatChoice::Json(JsonKeys(keys)) => {
                Format::detect_by(line, stamps, |line, outer, stamps| {
                    Format::json(keys, line, outer, stamps)
                })
            }
            known => known.format(),
        }
    }
}

/// The name of a format, `json`, `json:WHAT=KEY,...`, `logfmt` with or without keys, `w3c:FIELDS`
/// with the names of the columns, or `nginx:STRING`, `squid:STRING`, `apache:STRING` with the
/// string of the server's configuration.
impl FromStr for FormatChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<FormatChoice, String> {
        let message = |error: FormatError| error.to_string();
        match text {
            "auto" => return Ok(FormatChoice::Auto),
            "common" => return Ok(FormatChoice::Named(LogFormat::Common)),
            "json" => return Ok(FormatChoice::Json(JsonKeys::default())),
            LOGFMT => return Ok(FormatChoice::Json(JsonKeys(Keys::of_pairs()))),
            // The default format of varnishncsa.
            "varnishncsa" => return Ok(FormatChoice::Named(LogFormat::Combined)),
            _ => {}
        }
        if let Some(format) = LogFormat::ALL.into_iter().find(|format| format.as_str() == text) {
            return Ok(FormatChoice::Named(format));
        }
        let (name, string) = text.split_once(':').unwrap_or((text, ""));
        if let Some(name) = ["json", LOGFMT].into_iter().find(|known| *known == name) {
            let keys = Keys::compile(name, string).map_err(message)?;
            return Ok(FormatChoice::Json(JsonKeys(keys)));
        }
        if name == "w3c" {
            let columns = Columns::compile(string).map_err(message)?;
            return Ok(FormatChoice::String(Format(Kind::W3c(Arc::new(columns)))));
        }
        let dialect = Dialect::ALL.into_iter().find(|dialect| dialect.name() == name);
        match dialect {
            Some(dialect) => {
                let pattern = dialect.compile(string).map_err(message)?;
                Ok(FormatChoice::String(Format(Kind::String(Arc::new(pattern)))))
            }
            None => Err(format!(
                "no log format {name:?}; there are {}, json, logfmt, w3c:, and nginx:, squid: or \
                 apache: with the string of the server's configuration",
                LogFormat::names()
            )),
        }
    }
}
