//! The access log of one recording: its tail, its format, its counts, and the spreading of its
//! requests over intervals.

use std::path::Path;

use crate::error::Error;
use crate::logs::{Format, FormatChoice, Stamps};
use crate::spread::Spread;
use crate::tail::Tail;

/// Part of a poll's lines that may be bad before its interval's rate is not to be used.
const BAD_SHARE_MAX: f64 = 0.01;

/// Lines of a log: `lines == understood + bad`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) lines: u64,
    pub(crate) understood: u64,
    pub(crate) bad: u64,
}

/// What a poll brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Polled {
    pub(crate) counts: Counts,
    pub(crate) rotations: u64,
    pub(crate) truncations: u64,
    pub(crate) missing: bool,
    pub(crate) unreadable: bool,
}

impl Polled {
    /// Whether an interval's rate can be believed after this poll.
    pub(crate) fn sound(&self) -> bool {
        let bad = self.counts.bad as f64 / self.counts.lines.max(1) as f64;
        // A name that is missing is a rotation on its way: the renamed file is still read.
        !self.unreadable && self.truncations == 0 && bad <= BAD_SHARE_MAX
    }
}

/// Follows the requests of a server.
#[derive(Debug)]
pub(crate) struct Requests {
    tail: Tail,
    reader: LineReader,
    pub(crate) spread: Spread,
    pub(crate) total: Counts,
}

impl Requests {
    /// Opens the log at its end. The format is looked for in what stands there already.
    pub(crate) fn open(path: &Path, choice: FormatChoice) -> Result<Requests, Error> {
        let failed = |source| Error::Log { path: path.to_owned(), source };
        let mut tail = Tail::at_end(path).map_err(failed)?;
        let mut reader = LineReader::new(choice);
        if reader.format.is_none() {
            tail.glance(&mut |line| reader.look_at(line)).map_err(failed)?;
        }
        Ok(Requests { tail, reader, spread: Spread::starting(0), total: Counts::default() })
    }

    /// Begins the first interval.
    pub(crate) fn begin(&mut self, wall_ns: i64) {
        self.spread = Spread::starting(wall_ns);
    }

    /// The format, once it is known.
    pub(crate) fn format(&self) -> Option<&Format> {
        self.reader.format.as_ref()
    }

    /// Reads what came.
    pub(crate) fn poll(&mut self) -> Polled {
        let mut counts = Counts::default();
        let (reader, spread) = (&mut self.reader, &mut self.spread);
        let happened = self.tail.poll(&mut |line| reader.take(line, spread, &mut counts));
        counts.lines += happened.broken_lines;
        counts.bad += happened.broken_lines;
        self.total.lines += counts.lines;
        self.total.understood += counts.understood;
        self.total.bad += counts.bad;
        Polled {
            counts,
            rotations: happened.rotations,
            truncations: happened.truncations,
            missing: happened.missing,
            unreadable: happened.unreadable,
        }
    }
}

#[derive(Debug)]
struct LineReader {
    choice: FormatChoice,
    format: Option<Format>,
    stamps: Stamps,
}

impl LineReader {
    fn new(choice: FormatChoice) -> LineReader {
        LineReader { format: choice.format(), choice, stamps: Stamps::default() }
    }

    fn look_at(&mut self, line: &[u8]) {
        if self.format.is_none() {
            self.format = self.choice.look_at(line, &mut self.stamps);
        }
    }

    fn take(&mut self, line: &[u8], spread: &mut Spread, counts: &mut Counts) {
        self.look_at(line);
        counts.lines += 1;
        let format = self.format.as_ref();
        match format.and_then(|format| format.parse(line, &mut self.stamps)) {
            Some(request) => {
                counts.understood += 1;
                spread.place(request);
            }
            None => counts.bad += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::LogFormat;
    use proptest::prelude::*;
    use std::fs;

    const SQUID: &str = "1000.500 1000 c TCP_HIT/200 5 GET http://a/ - HIER_NONE/- text/html\n";

    #[test]
    fn the_format_is_found_in_what_stands_there_or_in_what_comes() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("log");
        fs::write(&path, format!("notice\n{SQUID}")).unwrap();
        let open = |choice| Requests::open(&path, choice).unwrap();
        assert_eq!(open(FormatChoice::Auto).format(), Some(&LogFormat::Squid.into()));
        let named = open(FormatChoice::Named(LogFormat::Common));
        assert_eq!(named.format(), Some(&LogFormat::Common.into()));

        fs::write(&path, "notice\n").unwrap();
        let mut requests = open(FormatChoice::Auto);
        assert_eq!(requests.format(), None);
        fs::write(&path, format!("notice\nanother\n{SQUID}{SQUID}")).unwrap();
        let polled = requests.poll();
        assert_eq!(polled.counts, Counts { lines: 3, understood: 2, bad: 1 });
        assert_eq!(requests.format(), Some(&LogFormat::Squid.into()));
        assert!(!polled.sound(), "a third of the lines was not understood");
    }

    #[test]
    fn an_unreadable_log_is_told_in_one_line() {
        let home = tempfile::tempdir().unwrap();
        let error = Requests::open(&home.path().join("none"), FormatChoice::Auto).unwrap_err();
        assert!(error.to_string().contains("none: "), "{error}");
        let error = Requests::open(home.path(), FormatChoice::Auto).unwrap_err();
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
            let mut requests = Requests::open(&path, FormatChoice::Auto).unwrap();
            let bytes = pieces.concat();
            let newlines = bytes.iter().filter(|&&byte| byte == b'\n').count() as u64;
            fs::write(&path, &bytes).unwrap();
            let counts = requests.poll().counts;
            prop_assert_eq!(counts.lines, newlines);
            prop_assert_eq!(counts.lines, counts.understood + counts.bad);
            prop_assert_eq!(requests.total, counts);
        }
    }
}
