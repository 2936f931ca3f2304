//! Requests counted by the server itself: a Prometheus counter, scraped at each boundary.
//!
//! ```text
//! recorder: at each boundary "now" ---> a thread: connect, GET, read, parse
//!           in the next poll <--------- when it was read, each series' value, or what failed
//! ```
//!
//! The recorder never waits for the server. The growth of a counter between two scrapes is spread
//! evenly over the time between them. If a series fell, it was reset: it is taken to have started
//! from zero, and what it counted and lost in between is unknown. That interval's rate is not used,
//! nor is the rate of an interval without a scrape at both ends.
//!
//! What never happens: a page that is too long or too slow delays the recording; a missing value is
//! taken for zero.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::clock;

/// Longest page that is read.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// Longest time for a scrape, however long the interval is.
const SCRAPE_MAX: Duration = Duration::from_secs(5);

/// Bytes per read.
const READ_BYTES: usize = 64 * 1024;

/// How many similar metrics are listed if the requested one does not exist.
const SIMILAR_METRICS_MAX: usize = 6;

/// A counter on a page of metrics: `http://HOST:PORT/PATH#METRIC`, or only some of its series:
/// `...#METRIC{LABEL="VALUE",...}`. The value is the sum of all series that match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricUrl {
    /// Host and port, as in the Host field.
    authority: String,
    path: String,
    name: String,
    labels: Vec<(String, String)>,
}

impl fmt::Display for MetricUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}#{}", self.authority, self.path, self.metric())
    }
}

impl FromStr for MetricUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<MetricUrl, String> {
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some((scheme, _)) => {
                return Err(format!(
                    "{scheme}: is not supported; give an http:// address, preferably on loopback"
                ));
            }
            None => {
                return Err("must begin with http://; write http://HOST:PORT/PATH#METRIC".into());
            }
        };
        let Some((url, selector)) = rest.split_once('#') else {
            return Err("names no metric; append it after a #: \
                http://HOST:PORT/metrics#http_requests_total"
                .into());
        };
        let (authority, path) = match url.find('/') {
            Some(at) => url.split_at(at),
            None => (url, "/metrics"),
        };
        let plain = |text: &str| text.bytes().all(|b| b.is_ascii_graphic());
        if authority.is_empty() || !plain(authority) || !plain(path) || authority.contains('@') {
            return Err(format!("{url:?} is not a host with a path; write HOST:PORT/PATH"));
        }
        let bare = authority.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err());
        let authority = if bare { format!("{authority}:80") } else { authority.to_owned() };
        let (name, labels) = selector_of(selector)?;
        Ok(MetricUrl { authority, path: path.to_owned(), name, labels })
    }
}

/// `METRIC` or `METRIC{LABEL="VALUE",...}`.
fn selector_of(text: &str) -> Result<(String, Vec<(String, String)>), String> {
    let name_ends = text.find('{').unwrap_or(text.len());
    let (name, labels) = text.split_at(name_ends);
    let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    if name.is_empty() || !name.chars().all(named) {
        return Err(format!("{name:?} is not a metric name; use letters, digits and underscores"));
    }
    if labels.is_empty() {
        return Ok((name.to_owned(), Vec::new()));
    }
    match labels_and_rest(labels.as_bytes()) {
        Some((found, b"")) => Ok((name.to_owned(), found)),
        _ => Err(format!("{labels:?} are not labels; write {{label=\"value\",other=\"value\"}}")),
    }
}

impl MetricUrl {
    /// The metric without its address.
    pub(crate) fn metric(&self) -> String {
        let labels: Vec<_> = self.labels.iter().map(|(l, v)| format!("{l}={v:?}")).collect();
        if labels.is_empty() {
            self.name.clone()
        } else {
            format!("{}{{{}}}", self.name, labels.join(","))
        }
    }

    /// Reads the page once. The error says briefly what failed.
    fn scrape(&self, patience: Duration) -> Result<Series, String> {
        let deadline = Instant::now() + patience;
        let page = self.page(deadline).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("no complete response within {} ms", patience.as_millis())
            }
            _ => error.to_string(),
        })?;
        let body = body(&page)?;
        let series = self.read(body);
        if series.is_empty() {
            return Err(format!("no {} on the page; {}", self.metric(), similar_metrics(body)));
        }
        Ok(series)
    }

    fn page(&self, deadline: Instant) -> io::Result<Vec<u8>> {
        let left = || {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() { Err(io::Error::from(io::ErrorKind::TimedOut)) } else { Ok(left) }
        };
        let mut connected = Err(io::Error::other("the host has no address"));
        for address in self.authority.to_socket_addrs()? {
            connected = TcpStream::connect_timeout(&address, left()?);
            if connected.is_ok() {
                break;
            }
        }
        let mut stream = connected?;
        stream.set_write_timeout(Some(left()?))?;
        // An HTTP/1.0 response is not chunked, and the connection's end is the page's end.
        let request = format!(
            "GET {} HTTP/1.0\r\nHost: {}\r\nAccept: text/plain;version=0.0.4\r\n\
             User-Agent: plimsoll\r\nConnection: close\r\n\r\n",
            self.path, self.authority
        );
        stream.write_all(request.as_bytes())?;
        let mut page = Vec::new();
        loop {
            stream.set_read_timeout(Some(left()?))?;
            let had = page.len();
            page.resize(had + READ_BYTES, 0);
            let found = match stream.read(&mut page[had..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 1,
                found => found?,
            };
            page.truncate(had + found);
            if found == 0 || complete(&page) {
                return Ok(page);
            }
            if page.len() > PAGE_BYTES_MAX {
                return Err(io::Error::other("the page is longer than 16 MiB"));
            }
        }
    }

    /// The series that match, by their labels.
    pub(crate) fn read(&self, text: &[u8]) -> Series {
        let mut series = Series::new();
        for line in text.split(|&byte| byte == b'\n') {
            if let Some((labels, value)) = self.line(line) {
                *series.entry(labels.to_vec()).or_insert(0.0) += value;
            }
        }
        series
    }

    fn line<'l>(&self, line: &'l [u8]) -> Option<(&'l [u8], f64)> {
        let rest = line.strip_prefix(self.name.as_bytes())?;
        let mut matched = 0;
        let after = match rest.first()? {
            b'{' => labels_of(rest, &mut |label, value| {
                let wanted = self.labels.iter().any(|(known, wanted)| {
                    known.as_bytes() == label && wanted.as_bytes() == &*unescaped(value)
                });
                matched += usize::from(wanted);
            })?,
            b' ' | b'\t' => rest,
            _ => return None,
        };
        if matched != self.labels.len() {
            return None;
        }
        let labels = &rest[..rest.len() - after.len()];
        let value = after.trim_ascii_start().split(|byte| byte.is_ascii_whitespace()).next()?;
        let value: f64 = std::str::from_utf8(value).ok()?.parse().ok()?;
        (value.is_finite() && value >= 0.0).then_some((labels, value))
    }
}

/// Values by labels, as written on the page.
pub(crate) type Series = HashMap<Vec<u8>, f64>;

/// Labels and their values.
pub type Labels = Vec<(String, String)>;

/// The labels of a series on a page of metrics, `{label="value",...}`, and what follows them.
pub fn labels_and_rest(text: &[u8]) -> Option<(Labels, &[u8])> {
    let mut found = Labels::new();
    let text_of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let rest = labels_of(text, &mut |label, value| {
        found.push((text_of(label), text_of(&unescaped(value))));
    })?;
    Some((found, rest))
}

/// Parses `{label="value",...}` and returns what follows it.
fn labels_of<'t>(text: &'t [u8], report: &mut dyn FnMut(&'t [u8], &'t [u8])) -> Option<&'t [u8]> {
    let mut rest = text.strip_prefix(b"{")?;
    loop {
        rest = rest.trim_ascii_start();
        if let Some(rest) = rest.strip_prefix(b"}") {
            return Some(rest);
        }
        let equals = memchr::memchr(b'=', rest)?;
        let label = rest[..equals].trim_ascii();
        let value = rest[equals + 1..].trim_ascii_start().strip_prefix(b"\"")?;
        let mut end = 0;
        loop {
            end += memchr::memchr2(b'"', b'\\', value.get(end..)?)?;
            if value[end] == b'"' {
                break;
            }
            end += 2;
        }
        report(label, &value[..end]);
        rest = value[end + 1..].trim_ascii_start();
        rest = rest.strip_prefix(b",").unwrap_or(rest);
    }
}

/// A label's value with the escapes of the text format resolved.
fn unescaped(value: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(value.len());
    let mut bytes = value.iter();
    while let Some(&byte) = bytes.next() {
        plain.push(match (byte, byte == b'\\') {
            (_, true) => match bytes.next() {
                Some(b'n') => b'\n',
                Some(&other) => other,
                None => b'\\',
            },
            (byte, false) => byte,
        });
    }
    plain
}

/// Whether a response with a Content-Length is complete, so that there is no need to wait for its
/// end.
fn complete(page: &[u8]) -> bool {
    parts(page).is_some_and(|(body, length)| length.is_some_and(|l| body.len() >= l))
}

/// The body of a response, and the length that its head declares.
fn parts(page: &[u8]) -> Option<(&[u8], Option<usize>)> {
    let end = memchr::memmem::find(page, b"\r\n\r\n")?;
    let (head, body) = (&page[..end], &page[end + 4..]);
    let length = head.split(|&byte| byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at(memchr::memchr(b':', line)?);
        let text = std::str::from_utf8(&value[1..]).ok()?;
        name.eq_ignore_ascii_case(b"content-length").then(|| text.trim().parse().ok())?
    });
    Some((body, length))
}

/// The body of a response with status 200.
fn body(page: &[u8]) -> Result<&[u8], String> {
    let first = page.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let status = first.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
    if !first.starts_with(b"HTTP/1.") || status != b"200" {
        let line = String::from_utf8_lossy(&first[..first.len().min(60)]).into_owned();
        return Err(format!("it answered {line:?} instead of 200"));
    }
    let (body, length) = parts(page).ok_or("the response's head is incomplete")?;
    match length {
        Some(length) => body.get(..length).ok_or_else(|| "the response was truncated".to_owned()),
        None => Ok(body),
    }
}

/// The metrics that might have been meant.
fn similar_metrics(body: &[u8]) -> String {
    let mut names: Vec<String> = Vec::new();
    for line in body.split(|&byte| byte == b'\n') {
        let end = line.iter().position(|b| !(b.is_ascii_alphanumeric() || b"_:".contains(b)));
        let name = String::from_utf8_lossy(&line[..end.unwrap_or(line.len())]).into_owned();
        if name.contains("request") && !names.contains(&name) {
            names.push(name);
        }
    }
    names.truncate(SIMILAR_METRICS_MAX);
    match names.as_slice() {
        [] => "no metric name on it contains \"request\"".to_owned(),
        names => format!("it has {}", names.join(", ")),
    }
}

/// The result of a scrape.
#[derive(Debug)]
pub(crate) struct Scrape {
    /// The middle between request and response, on the wall clock, ns.
    pub(crate) at_ns: i64,
    pub(crate) read: Result<Series, String>,
}

/// Scrapes on request, in a separate thread.
#[derive(Debug)]
pub(crate) struct Scraper {
    ask: mpsc::Sender<()>,
    answers: mpsc::Receiver<Scrape>,
}

impl Scraper {
    /// Tries the page once and starts the thread. The thread ends when this is dropped, after a
    /// scrape in progress.
    pub(crate) fn start(url: MetricUrl, interval: Duration) -> Result<Scraper, String> {
        let patience = interval.min(SCRAPE_MAX);
        // The first scrape may have to resolve a name, and only the operator waits for it.
        url.scrape(SCRAPE_MAX)?;
        let (ask, asked) = mpsc::channel::<()>();
        let (answer, answers) = mpsc::channel();
        let work = move || {
            while asked.recv().is_ok() {
                // Several requests in the meantime get one answer.
                while asked.try_recv().is_ok() {}
                let begun_ns = clock::wall_ns();
                let read = url.scrape(patience);
                let at_ns = begun_ns + (clock::wall_ns() - begun_ns) / 2;
                if answer.send(Scrape { at_ns, read }).is_err() {
                    return;
                }
            }
        };
        let named = thread::Builder::new().name("scraper".to_owned());
        named.spawn(work).map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Scraper { ask, answers })
    }

    /// Requests a scrape now.
    pub(crate) fn ask(&self) {
        // The thread runs as long as this exists.
        let _ = self.ask.send(());
    }

    /// The scrapes completed since the last call.
    pub(crate) fn answers(&self) -> Vec<Scrape> {
        self.answers.try_iter().collect()
    }
}

/// Requests between two scrapes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Growth {
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    pub(crate) requests: f64,
    /// No scrape in between failed, and no series was reset.
    pub(crate) sound: bool,
}

/// Evaluates successive scrapes.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    last: Option<(i64, Series)>,
    /// A scrape failed since the last good one.
    gap: bool,
    pub(crate) failed: u64,
    pub(crate) resets: u64,
    pub(crate) why: Option<String>,
}

impl Counter {
    /// Takes a scrape and returns the growth since the last good one.
    pub(crate) fn take(&mut self, scrape: Scrape) -> Option<Growth> {
        let series = match scrape.read {
            Ok(series) => series,
            Err(why) => {
                self.gap = true;
                self.failed += 1;
                self.why = Some(why);
                return None;
            }
        };
        let mut reset = false;
        let mut growth = None;
        if let Some((start_ns, before)) = &self.last {
            let mut requests = 0.0;
            for (labels, &value) in &series {
                let had = before.get(labels).copied().unwrap_or(0.0);
                reset |= value < had;
                requests += if value < had { value } else { value - had };
            }
            let sound = !reset && !self.gap;
            growth = Some(Growth { start_ns: *start_ns, end_ns: scrape.at_ns, requests, sound });
        }
        self.resets += u64::from(reset);
        self.gap = false;
        self.last = Some((scrape.at_ns, series));
        // If the clock was set back, there may be no time between two scrapes.
        growth.filter(|growth| growth.end_ns > growth.start_ns)
    }
}

#[cfg(test)]
mod tests;
