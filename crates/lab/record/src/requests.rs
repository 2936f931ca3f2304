//! The requests of one recording, from the tail of an access log, from a counter that the server
//! keeps, or from its sockets: counts, and spreading over intervals.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use trial::{Capability, LatencySource};

use crate::bpf::Sockets;
use crate::clock;
use crate::counter::{Counter, Growth, MetricUrl, Scraper};
use crate::error::Error;
use crate::host;
use crate::spread::Spread;
use logs::Tail;
use logs::{Format, FormatChoice, Joiner, LINE_BYTES_MAX, Line, Stamps, advice};

/// If more than this fraction of a poll's lines is bad, its interval's rate is not used.
const BAD_SHARE_MAX: f64 = 0.01;

/// A counter may be unwatched for this fraction of an interval.
const UNWATCHED_SHARE_MAX: f64 = 0.02;

/// Stamps may differ from our clock by this much, ns, before that is named.
const OFF_NS_MAX: i64 = 10 * 60 * 1_000_000_000;

/// Bad lines that are kept as samples.
const SAMPLES_MAX: usize = 3;

/// The loss of requests that were not counted at all.
pub(crate) const NO_ROOM: &str = "sockets: no room for a connection";

/// How many periods of a counter's growth are remembered until their intervals are written.
const GROWTHS_MAX: usize = 64;

/// Lines of a log: `lines == understood + others + bad`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) lines: u64,
    pub(crate) understood: u64,
    /// Blank lines, comments and events: no requests.
    pub(crate) others: u64,
    pub(crate) bad: u64,
}

/// The result of a poll.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Polled {
    pub(crate) counts: Counts,
    pub(crate) rotations: u64,
    pub(crate) truncations: u64,
    pub(crate) missing: bool,
    pub(crate) unreadable: bool,
    /// Failed scrapes of a counter, and the reason of the last failure.
    pub(crate) failed: u64,
    pub(crate) why: Option<String>,
    /// How often a counter fell.
    pub(crate) resets: u64,
    /// What was lost on the sockets: kind, count, and a note.
    pub(crate) unseen: Vec<(&'static str, u64, &'static str)>,
}

impl Polled {
    /// Whether an interval's rate can be trusted after this poll.
    pub(crate) fn sound(&self) -> bool {
        let bad = self.counts.bad as f64 / self.counts.lines.max(1) as f64;
        // A missing name means a rotation in progress: the renamed file is still read.
        !self.unreadable
            && self.truncations == 0
            && bad <= BAD_SHARE_MAX
            && self.unseen.iter().all(|(kind, ..)| *kind != NO_ROOM)
    }

    /// The losses: kind, count, and a note.
    pub(crate) fn losses(
        &self,
        format: Option<&Format>,
        advice: Option<&str>,
    ) -> Vec<(&'static str, u64, String)> {
        let advice = advice.unwrap_or_default();
        let why = match format {
            Some(format) => format!("not in the {format} format, or cut; {advice}"),
            None => format!("no line was; {advice}"),
        };
        let failed = self.why.clone().unwrap_or_default();
        let unseen = self.unseen.iter().map(|&(kind, count, note)| (kind, count, note.to_owned()));
        let others = [
            ("log: line not understood", self.counts.bad, why),
            ("log: truncated", self.truncations, "the part cut off was not read".to_owned()),
            ("log: not readable", u64::from(self.unreadable), "failed attempts".to_owned()),
            ("counter: scrape failed", self.failed, failed),
            (
                "counter: reset",
                self.resets,
                "the server was restarted? what it counted in between is lost".to_owned(),
            ),
        ];
        others.into_iter().chain(unseen).collect()
    }
}

/// Follows the requests of a server.
#[derive(Debug)]
pub(crate) struct Requests {
    source: Source,
    pub(crate) spread: Spread,
    pub(crate) total: Counts,
}

#[derive(Debug)]
enum Source {
    Log { tail: Tail, reader: Box<LineReader>, path: String },
    Counter(Watch),
    Sockets(Box<Sockets>),
}

/// A watched counter.
#[derive(Debug)]
struct Watch {
    metric: String,
    scraper: Scraper,
    counter: Counter,
    growths: VecDeque<Growth>,
    reported: (u64, u64),
}

impl Requests {
    /// Opens the log at its end. The format is detected from the existing lines.
    pub(crate) fn open(path: &Path, choice: FormatChoice, redact: bool) -> Result<Requests, Error> {
        let failed = |source| logs::Unreadable { path: path.to_owned(), source };
        let mut tail = Tail::at_end(path).map_err(failed)?;
        let mut reader = LineReader::new(choice, redact);
        if reader.format.is_none() {
            tail.glance(&mut |line| reader.detect(line)).map_err(failed)?;
        }
        if reader.format.is_none() {
            // The line that names the columns of a W3C log is the first.
            tail.glance_head(&mut |line| reader.detect(line)).map_err(failed)?;
        }
        let path = if redact { "the log".to_owned() } else { path.display().to_string() };
        Ok(Requests::of(Source::Log { tail, reader: Box::new(reader), path }))
    }

    /// Watches a counter, which must already exist.
    pub(crate) fn watch(url: &MetricUrl, interval: Duration) -> Result<Requests, Error> {
        let failed = |what| Error::Counter { url: url.to_string(), what };
        let scraper = Scraper::start(url.clone(), interval).map_err(failed)?;
        Ok(Requests::of(Source::Counter(Watch {
            metric: url.metric(),
            scraper,
            counter: Counter::default(),
            growths: VecDeque::new(),
            reported: (0, 0),
        })))
    }

    /// Counts on the sockets of these processes.
    pub(crate) fn on_sockets(pids: &[u32], tls: bool) -> Result<Requests, Error> {
        Ok(Requests::of(Source::Sockets(Box::new(Sockets::start(pids, tls)?))))
    }

    fn of(source: Source) -> Requests {
        Requests { source, spread: Spread::starting(0), total: Counts::default() }
    }

    /// A boundary is now: whatever ends from here on belongs to the next interval.
    pub(crate) fn mark(&mut self) {
        if let Source::Sockets(sockets) = &mut self.source {
            sockets.mark();
        }
    }

    /// Follows the server's processes.
    pub(crate) fn observe(&mut self, pids: &[u32]) {
        if let Source::Sockets(sockets) = &mut self.source {
            sockets.observe(pids);
        }
    }

    /// The recording has ended: the next poll is the last.
    pub(crate) fn end(&mut self) {
        if let Source::Sockets(sockets) = &mut self.source {
            sockets.ended = true;
        }
    }

    /// Begins the first interval.
    pub(crate) fn begin(&mut self, wall_ns: i64) {
        self.spread = Spread::starting(wall_ns);
        if let Source::Counter(watch) = &self.source {
            watch.scraper.ask();
        }
    }

    /// The source, for a sentence about "the requests ...".
    pub(crate) fn source_name(&self) -> &'static str {
        match &self.source {
            Source::Log { .. } => "in the log",
            Source::Counter(_) => "of the counter",
            Source::Sockets(_) => "on the server's sockets",
        }
    }

    /// Whether counting them costs the server much of its CPU time.
    pub(crate) fn is_expensive(&self) -> bool {
        matches!(&self.source, Source::Sockets(sockets) if !sockets.tls.is_empty())
    }

    /// What its latencies are.
    pub(crate) fn latency_source(&self) -> LatencySource {
        match &self.source {
            Source::Sockets(_) => LatencySource::Sockets,
            _ => LatencySource::Log,
        }
    }

    /// The log's format, once it is known.
    pub(crate) fn format(&self) -> Option<&Format> {
        match &self.source {
            Source::Log { reader, .. } => reader.format.as_ref(),
            Source::Counter(_) | Source::Sockets(_) => None,
        }
    }

    /// Whether intervals should begin at a whole second: the log stamps whole seconds, or might,
    /// because its format is not known yet.
    pub(crate) fn coarse(&self) -> bool {
        match &self.source {
            Source::Log { reader, .. } => {
                reader.format.as_ref().is_none_or(|format| format.grain_ns() >= 1_000_000_000)
            }
            Source::Counter(_) | Source::Sockets(_) => false,
        }
    }

    /// What is known about requests here.
    pub(crate) fn capabilities(&self) -> Vec<Capability> {
        match &self.source {
            Source::Log { .. } => host::log_capabilities(self.format(), true),
            Source::Counter(watch) => host::counter_capabilities(&watch.metric),
            Source::Sockets(sockets) => host::sockets_capabilities(&sockets.tls),
        }
    }

    /// The first lines that were not understood.
    pub(crate) fn samples(&self) -> &[String] {
        match &self.source {
            Source::Log { reader, .. } => &reader.samples,
            Source::Counter(_) | Source::Sockets(_) => &[],
        }
    }

    /// What the first line is that was not understood, and what to do.
    pub(crate) fn advice(&self) -> Option<&str> {
        match &self.source {
            Source::Log { reader, .. } => reader.advice.as_deref(),
            Source::Counter(_) | Source::Sockets(_) => None,
        }
    }

    /// Why there are no requests, or why they are in no interval, if the log shows that.
    pub(crate) fn causes(&self) -> Vec<String> {
        let Source::Log { reader, path, .. } = &self.source else { return Vec::new() };
        let mut causes = Vec::new();
        if self.total.lines == 0 {
            causes.push(format!(
                "nothing was written to {path} while this recorded: nothing was requested, or the \
                 server logs elsewhere (see its open files: ls -l /proc/PID/fd), or it keeps lines \
                 back in a buffer"
            ));
        } else if self.total.understood == 0 {
            let why = reader.advice.as_deref();
            let why = why.unwrap_or("all lines are blank, comments or events of another kind");
            causes.push(format!("no line of {path} is a request: {why}"));
        }
        if let Some(off_ns) = reader.off_ns.filter(|off_ns| off_ns.abs() > OFF_NS_MAX) {
            causes.push(format!(
                "the stamps of {path} are {} {} this machine's clock: {}. Their requests are in no \
                 interval",
                logs::length(off_ns),
                if off_ns < 0 { "before" } else { "after" },
                if logs::is_of_zones(off_ns) {
                    "the server is in another time zone than its stamps say or, if they have no \
                     zone, than this recorder. Run plimsoll record with TZ set to the server's zone"
                } else {
                    "the server's clock is wrong, or it writes its log late"
                }
            ));
        }
        causes
    }

    /// Whether an interval that is about to be written was watched: a counter must have been
    /// scraped successfully at both of its ends. A log is judged poll by poll.
    pub(crate) fn watched(&self, start_ns: i64, length_ns: i64) -> bool {
        let Source::Counter(watch) = &self.source else { return true };
        let end_ns = start_ns + length_ns;
        // One scrape for several intervals does not distinguish them.
        let fit = watch
            .growths
            .iter()
            .filter(|g| g.sound && (g.end_ns - g.start_ns) as f64 <= 1.5 * length_ns as f64);
        let seen: i64 = fit.map(|g| (g.end_ns.min(end_ns) - g.start_ns.max(start_ns)).max(0)).sum();
        seen as f64 >= (1.0 - UNWATCHED_SHARE_MAX) * length_ns as f64
    }

    /// Reads what has arrived.
    pub(crate) fn poll(&mut self) -> Polled {
        let spread = &mut self.spread;
        let polled = match &mut self.source {
            Source::Log { tail, reader, .. } => poll_log(tail, reader, spread),
            Source::Counter(watch) => watch.poll(spread),
            Source::Sockets(sockets) => {
                Polled { unseen: sockets.poll(spread), ..Polled::default() }
            }
        };
        self.total.lines += polled.counts.lines;
        self.total.understood += polled.counts.understood;
        self.total.others += polled.counts.others;
        self.total.bad += polled.counts.bad;
        polled
    }
}

fn poll_log(tail: &mut Tail, reader: &mut LineReader, spread: &mut Spread) -> Polled {
    let mut counts = Counts::default();
    let happened = tail.poll(&mut |line| reader.take(line, spread, &mut counts));
    counts.lines += happened.broken_lines;
    counts.bad += happened.broken_lines;
    if let Some(end_ns) = reader.last_end_ns.take() {
        // A log is written soon after the end, so the smallest difference is that of the clocks.
        let off_ns = end_ns - clock::wall_ns();
        let smaller = |known: &i64| known.abs() <= off_ns.abs();
        reader.off_ns = reader.off_ns.filter(smaller).or(Some(off_ns));
    }
    Polled {
        counts,
        rotations: happened.rotations,
        truncations: happened.truncations,
        missing: happened.missing,
        unreadable: happened.unreadable,
        ..Polled::default()
    }
}

impl Watch {
    fn poll(&mut self, spread: &mut Spread) -> Polled {
        self.scraper.ask();
        for scrape in self.scraper.answers() {
            if let Some(growth) = self.counter.take(scrape) {
                spread.place_many(growth.start_ns, growth.end_ns, growth.requests);
                self.growths.push_back(growth);
            }
        }
        while self.growths.len() > GROWTHS_MAX {
            self.growths.pop_front();
        }
        let before =
            std::mem::replace(&mut self.reported, (self.counter.failed, self.counter.resets));
        Polled {
            failed: self.counter.failed - before.0,
            resets: self.counter.resets - before.1,
            why: self.counter.why.clone(),
            ..Polled::default()
        }
    }
}

#[derive(Debug)]
struct LineReader {
    choice: FormatChoice,
    format: Option<Format>,
    stamps: Stamps,
    joiner: Joiner,
    redact: bool,
    samples: Vec<String>,
    /// What the first bad line is, and what to do.
    advice: Option<String>,
    /// The end of the last request since the last poll.
    last_end_ns: Option<i64>,
    /// The smallest difference between a stamp and the clock when it was read.
    off_ns: Option<i64>,
}

impl LineReader {
    fn new(choice: FormatChoice, redact: bool) -> LineReader {
        let format = choice.format();
        LineReader {
            choice,
            format,
            stamps: Stamps::default(),
            joiner: Joiner::default(),
            redact,
            samples: Vec::new(),
            advice: None,
            last_end_ns: None,
            off_ns: None,
        }
    }

    fn detect(&mut self, line: &[u8]) {
        if self.format.is_none() {
            self.format = self.choice.detect(line, &mut self.stamps);
        }
    }

    /// Takes a line, which may be a part of one.
    fn take(&mut self, part: &[u8], spread: &mut Spread, counts: &mut Counts) {
        let mut joiner = std::mem::take(&mut self.joiner);
        if let Some(line) = joiner.push(part) {
            self.take_whole(line, spread, counts);
        }
        self.joiner = joiner;
    }

    fn take_whole(&mut self, line: &[u8], spread: &mut Spread, counts: &mut Counts) {
        self.detect(line);
        counts.lines += 1;
        let read = match &self.format {
            _ if line.len() > LINE_BYTES_MAX => Line::Bad,
            Some(format) => format.read(line, &mut self.stamps),
            None => Format::read_unknown(line, &mut self.stamps),
        };
        match read {
            Line::Request(request) => {
                counts.understood += 1;
                self.last_end_ns = Some(request.end_ns);
                spread.place(request);
            }
            Line::Blank => counts.others += 1,
            Line::Event => {
                counts.others += 1;
                self.advise(line);
            }
            Line::Bad => {
                counts.bad += 1;
                self.advice
                    .get_or_insert_with(|| advice(line).replace("--format ", "--log-format "));
                if self.samples.len() < SAMPLES_MAX {
                    self.samples.push(logs::sample(line, self.redact));
                }
            }
        }
    }
}

impl LineReader {
    /// Remembers what the first line is that is no request.
    fn advise(&mut self, line: &[u8]) {
        let words = || advice(line).replace("--format ", "--log-format ");
        self.advice.get_or_insert_with(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use logs::LogFormat;
    use proptest::prelude::*;
    use std::fs;

    const SQUID: &str = "1000.500 1000 c TCP_HIT/200 5 GET http://a/ - HIER_NONE/- text/html\n";

    #[test]
    fn the_format_is_detected_from_old_or_new_lines() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("log");
        fs::write(&path, format!("notice\n{SQUID}")).unwrap();
        let open = |choice| Requests::open(&path, choice, false).unwrap();
        assert_eq!(open(FormatChoice::Auto).format(), Some(&LogFormat::Squid.into()));
        let named = open(FormatChoice::Named(LogFormat::Common));
        assert_eq!(named.format(), Some(&LogFormat::Common.into()));

        fs::write(&path, "notice\n").unwrap();
        let mut requests = open(FormatChoice::Auto);
        assert_eq!(requests.format(), None);
        fs::write(&path, format!("notice\nanother\n{SQUID}{SQUID}")).unwrap();
        let polled = requests.poll();
        assert_eq!(polled.counts, Counts { lines: 3, understood: 2, others: 0, bad: 1 });
        assert_eq!(requests.format(), Some(&LogFormat::Squid.into()));
        assert!(!polled.sound(), "a third of the lines was not understood");
    }

    /// A note said "record for longer" for a log that could not have requests.
    #[test]
    fn the_cause_of_a_log_without_requests_is_named() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("log");
        let after = |text: &str| {
            fs::write(&path, "").unwrap();
            let mut requests = Requests::open(&path, FormatChoice::Auto, false).unwrap();
            fs::write(&path, text).unwrap();
            requests.poll();
            requests.causes()
        };
        let line = |second: i64| {
            format!("{second}.000 1 c TCP_HIT/200 5 GET http://a/ - HIER_NONE/- text/html\n")
        };
        let now_s = clock::wall_ns() / 1_000_000_000;
        for (text, cause) in [
            (String::new(), "nothing was written to"),
            ("# a\n".to_owned(), "all lines are blank"),
            ("INFO:     ::1:5 - \"GET / HTTP/1.1\" 200 OK\n".to_owned(), "uvicorn"),
            ("{\"time\":5,\"msg\":\"up\"}\n".to_owned(), "--log-format json:time=KEY"),
            (line(now_s - 3600), "1 h before this machine's clock: the server is in another time"),
            (line(now_s + 19_800), "5 h 30 min after"),
            (line(now_s - 40 * 86_400 - 600), "40 days before this machine's clock: the server's"),
        ] {
            let causes = after(&text);
            assert!(causes.len() == 1 && causes[0].contains(cause), "{text}: {causes:?}");
        }
        assert_eq!(after(&line(now_s - 5)), [""; 0]);
        assert_eq!(after(&(line(now_s - 3600) + &line(now_s))), [""; 0], "one late line");
    }

    #[test]
    fn the_columns_of_a_long_log_are_found_at_its_head() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("log");
        let line = "2026-11-28 10:00:00 GET 200 15\n";
        let head = "#Fields: date time cs-method sc-status time-taken\n";
        fs::write(&path, format!("{head}{}", line.repeat(9000))).unwrap();
        let mut requests = Requests::open(&path, FormatChoice::Auto, false).unwrap();
        assert!(requests.format().is_some_and(|format| format.has_elapsed()));
        let mut log = fs::File::options().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut log, format!("{head}{line}").as_bytes()).unwrap();
        let counts = requests.poll().counts;
        assert_eq!(counts, Counts { lines: 2, understood: 1, others: 1, bad: 0 });
    }

    #[test]
    fn an_unreadable_log_is_reported_in_one_line() {
        let home = tempfile::tempdir().unwrap();
        let error =
            Requests::open(&home.path().join("none"), FormatChoice::Auto, false).unwrap_err();
        assert!(error.to_string().contains("none: "), "{error}");
        let error = Requests::open(home.path(), FormatChoice::Auto, false).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig {
        cases: 60, failure_persistence: None, ..Default::default()
    })]

        #[test]
        fn every_line_is_understood_or_bad(
            pieces in proptest::collection::vec(
                prop_oneof![
                    Just(SQUID.as_bytes().to_vec()),
                    proptest::collection::vec(any::<u8>(), 0..40),
                ],
                0..30,
            ),
        ) {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("log");
            fs::write(&path, b"").unwrap();
            let mut requests = Requests::open(&path, FormatChoice::Auto, false).unwrap();
            let bytes = pieces.concat();
            let newlines = bytes.iter().filter(|&&byte| byte == b'\n').count() as u64;
            fs::write(&path, &bytes).unwrap();
            let counts = requests.poll().counts;
            prop_assert_eq!(counts.lines, newlines);
            prop_assert_eq!(counts.lines, counts.understood + counts.others + counts.bad);
            prop_assert_eq!(requests.total, counts);
        }
    }
}
