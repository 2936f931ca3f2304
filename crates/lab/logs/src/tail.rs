//! Following a log file: lines as they arrive, through rotation and truncation.
//!
//! ```text
//!             more bytes            name points elsewhere        old file quiet for a while
//!   Reading ----------> Reading    ----------------------> both ---------------------> Reading
//!      |  shorter than our offset
//!      +------------------------> Reading from 0 (what was cut off is lost, and reported)
//! ```
//!
//! A line is passed on when its newline has arrived, never before. After a rotation, the server
//! writes to the old file until it reopens the log, so both files are read for some polls. A file
//! that is truncated and grows beyond our offset between two polls looks like one that only grew;
//! copy-and-truncate loses lines in any case, renaming does not.
//!
//! What never happens: an unbounded line in memory; an error for anything a log may do.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Longest line that is kept. A longer one counts as one bad line.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// Bytes per read.
const READ_BYTES: usize = 256 * 1024;

/// A rotated file is still read until it has brought nothing new for this many polls.
const QUIET_POLLS_MAX: u32 = 5;

const _: () = assert!(LINE_BYTES_MAX <= READ_BYTES);

/// What happened to the log in a poll, apart from lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// Files of the log's name that took the place of another one.
    pub rotations: u64,
    /// Times that the file became shorter than what had been read of it.
    pub truncations: u64,
    /// Lines that were cut by a rotation or truncation, or exceeded the bound.
    pub broken_lines: u64,
    /// There is currently no file of that name.
    pub missing: bool,
    /// It could not be read.
    pub unreadable: bool,
}

/// Follows one log.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    current: Source,
    /// A rotated file that its writer may still have open, and the number of quiet polls.
    old: Option<(Source, u32)>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Source {
    file: File,
    identity: (u64, u64),
    offset: u64,
    partial: Vec<u8>,
    /// Inside a line that exceeds the bound.
    skipping: bool,
}

impl Tail {
    /// Opens a log at its end: its existing lines belong to no interval.
    pub fn at_end(path: &Path) -> io::Result<Tail> {
        let mut current = Source::open(path)?;
        let bytes = current.file.metadata()?.len();
        current.offset = bytes;
        // If the end is in the middle of a line, the rest of it is not a line.
        if bytes > 0 {
            let mut last = [0];
            current.file.read_exact_at(&mut last, bytes - 1)?;
            current.skipping = last != *b"\n";
        }
        Ok(Tail { path: path.to_owned(), current, old: None, buffer: vec![0; READ_BYTES] })
    }

    /// Passes on the last complete lines before the end, to detect the format.
    pub fn glance(&mut self, line: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let from = self.current.offset.saturating_sub(LINE_BYTES_MAX as u64);
        let room = (self.current.offset - from) as usize;
        let found = self.current.file.read_at(&mut self.buffer[..room], from)?;
        let mut bytes = &self.buffer[..found];
        if from > 0 {
            // The first one is probably incomplete.
            bytes = memchr::memchr(b'\n', bytes).map_or(&[], |at| &bytes[at + 1..]);
        }
        while let Some(at) = memchr::memchr(b'\n', bytes) {
            line(trimmed(&bytes[..at]));
            bytes = &bytes[at + 1..];
        }
        Ok(())
    }

    /// Passes on the first complete lines.
    pub fn glance_head(&mut self, line: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let room = self.current.offset.min(LINE_BYTES_MAX as u64) as usize;
        let found = self.current.file.read_at(&mut self.buffer[..room], 0)?;
        let mut bytes = &self.buffer[..found];
        while let Some(at) = memchr::memchr(b'\n', bytes) {
            line(trimmed(&bytes[..at]));
            bytes = &bytes[at + 1..];
        }
        Ok(())
    }

    /// Passes on every line that is complete by now.
    pub fn poll(&mut self, line: &mut dyn FnMut(&[u8])) -> Happened {
        let mut happened = Happened::default();
        self.poll_old(line, &mut happened);
        // The name is looked up before the file is read to its end: whatever is written in between
        // is read now or in the next polls, never skipped.
        let named = std::fs::metadata(&self.path);
        self.current.drain(&mut self.buffer, line, &mut happened);
        match named {
            Ok(named) if identity(&named) != self.current.identity => {
                match Source::open(&self.path) {
                    Ok(next) => {
                        happened.rotations += 1;
                        let rotated = std::mem::replace(&mut self.current, next);
                        if let Some((before, _)) = self.old.replace((rotated, 0)) {
                            happened.broken_lines += before.broken();
                        }
                        self.current.drain(&mut self.buffer, line, &mut happened);
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        happened.missing = true
                    }
                    Err(_) => happened.unreadable = true,
                }
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => happened.missing = true,
            Err(_) => happened.unreadable = true,
        }
        happened
    }

    fn poll_old(&mut self, line: &mut dyn FnMut(&[u8]), happened: &mut Happened) {
        let Some((old, quiet)) = &mut self.old else { return };
        let before = old.offset;
        old.drain(&mut self.buffer, line, happened);
        *quiet = if old.offset == before { *quiet + 1 } else { 0 };
        if *quiet >= QUIET_POLLS_MAX {
            happened.broken_lines += old.broken();
            self.old = None;
        }
    }
}

impl Source {
    fn open(path: &Path) -> io::Result<Source> {
        // The type is checked before opening, because opening a pipe would block.
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = File::open(path)?;
        let identity = identity(&file.metadata()?);
        Ok(Source { file, identity, offset: 0, partial: Vec::new(), skipping: false })
    }

    fn drain(&mut self, buffer: &mut [u8], line: &mut dyn FnMut(&[u8]), happened: &mut Happened) {
        match self.file.metadata() {
            Ok(now) if now.len() < self.offset => {
                happened.truncations += 1;
                happened.broken_lines += self.broken();
                self.offset = 0;
                self.partial.clear();
                self.skipping = false;
            }
            Ok(_) => {}
            Err(_) => {
                happened.unreadable = true;
                return;
            }
        }
        loop {
            match self.file.read_at(buffer, self.offset) {
                Ok(0) => return,
                Ok(found) => {
                    self.offset += found as u64;
                    self.take(&buffer[..found], line, happened);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    happened.unreadable = true;
                    return;
                }
            }
        }
    }

    fn take(&mut self, mut bytes: &[u8], line: &mut dyn FnMut(&[u8]), happened: &mut Happened) {
        while let Some(at) = memchr::memchr(b'\n', bytes) {
            let (end, rest) = (&bytes[..at], &bytes[at + 1..]);
            bytes = rest;
            if std::mem::take(&mut self.skipping) {
                self.partial.clear();
            } else if self.partial.is_empty() && end.len() <= LINE_BYTES_MAX {
                line(trimmed(end));
            } else if self.partial.len() + end.len() <= LINE_BYTES_MAX {
                self.partial.extend_from_slice(end);
                line(trimmed(&self.partial));
                self.partial.clear();
            } else {
                happened.broken_lines += 1;
                self.partial.clear();
            }
        }
        if self.skipping {
            return;
        }
        if self.partial.len() + bytes.len() > LINE_BYTES_MAX {
            happened.broken_lines += 1;
            self.partial.clear();
            self.skipping = true;
        } else {
            self.partial.extend_from_slice(bytes);
        }
    }

    /// Number of lines lost if the file is abandoned now.
    fn broken(&self) -> u64 {
        u64::from(!self.partial.is_empty())
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    struct Log {
        home: tempfile::TempDir,
    }

    impl Log {
        fn new(before: &str) -> Log {
            let log = Log { home: tempfile::tempdir().unwrap() };
            fs::write(log.path(), before).unwrap();
            log
        }

        fn path(&self) -> PathBuf {
            self.home.path().join("access.log")
        }

        fn write(&self, bytes: impl AsRef<[u8]>) {
            let mut file = OpenOptions::new().append(true).create(true).open(self.path()).unwrap();
            file.write_all(bytes.as_ref()).unwrap();
        }
    }

    fn poll(tail: &mut Tail) -> (Vec<String>, Happened) {
        let mut lines = Vec::new();
        let happened =
            tail.poll(&mut |line| lines.push(String::from_utf8_lossy(line).into_owned()));
        (lines, happened)
    }

    #[test]
    fn only_new_and_complete_lines_are_passed_on() {
        let log = Log::new("old\nhalf an ol");
        let mut tail = Tail::at_end(&log.path()).unwrap();
        let mut seen = Vec::new();
        tail.glance(&mut |line| seen.push(line.to_vec())).unwrap();
        assert_eq!(seen, [b"old"]);
        log.write("d line\none\r\ntw");
        assert_eq!(poll(&mut tail), (vec!["one".to_owned()], Happened::default()));
        log.write("o\n\n");
        assert_eq!(poll(&mut tail).0, ["two", ""]);
        assert_eq!(poll(&mut tail).0, [""; 0]);
    }

    #[test]
    fn a_rotation_loses_no_line_written_to_the_old_file() {
        let log = Log::new("");
        let mut tail = Tail::at_end(&log.path()).unwrap();
        let mut writer = OpenOptions::new().append(true).open(log.path()).unwrap();
        writer.write_all(b"a\nhalf ").unwrap();
        assert_eq!(poll(&mut tail).0, ["a"]);
        fs::rename(log.path(), log.home.path().join("access.log.1")).unwrap();
        let (lines, happened) = poll(&mut tail);
        assert!(lines.is_empty() && happened.missing);
        writer.write_all(b"a line\n").unwrap();
        log.write("new\n");
        let (lines, happened) = poll(&mut tail);
        assert_eq!(lines, ["half a line", "new"]);
        assert_eq!(happened, Happened { rotations: 1, ..Happened::default() });
        writer.write_all(b"late\ncut").unwrap();
        log.write("newer\n");
        assert_eq!(poll(&mut tail).0, ["late", "newer"]);
        let mut broken = 0;
        for _ in 0..QUIET_POLLS_MAX {
            broken += poll(&mut tail).1.broken_lines;
        }
        assert_eq!(broken, 1, "the half line of the old file");
        assert!(tail.old.is_none());
    }

    #[test]
    fn a_truncation_is_reported_and_read_from_the_start() {
        let log = Log::new("");
        let mut tail = Tail::at_end(&log.path()).unwrap();
        log.write("first\nsecond, half");
        assert_eq!(poll(&mut tail).0, ["first"]);
        OpenOptions::new().write(true).truncate(true).open(log.path()).unwrap();
        log.write("again\n");
        let (lines, happened) = poll(&mut tail);
        assert_eq!(lines, ["again"]);
        let expected = Happened { truncations: 1, broken_lines: 1, ..Happened::default() };
        assert_eq!(happened, expected);
    }

    #[test]
    fn an_endless_line_is_one_broken_line() {
        let log = Log::new("");
        let mut tail = Tail::at_end(&log.path()).unwrap();
        for _ in 0..5 {
            log.write(vec![b'x'; LINE_BYTES_MAX]);
            poll(&mut tail);
        }
        assert!(tail.current.partial.len() <= LINE_BYTES_MAX);
        log.write("\nfine\n");
        assert_eq!(poll(&mut tail).0, ["fine"]);
    }

    #[test]
    fn only_regular_files_are_followed() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(Tail::at_end(home.path()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let missing = home.path().join("none");
        assert_eq!(Tail::at_end(&missing).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
        cases: 40, failure_persistence: None, ..Default::default()
    })]

        /// Whatever the writes and rotations between them: every line, in order.
        #[test]
        fn no_line_is_lost_or_doubled(
            writes in proptest::collection::vec((1..9usize, any::<bool>(), any::<bool>()), 1..40),
        ) {
            let log = Log::new("");
            let mut tail = Tail::at_end(&log.path()).unwrap();
            let text: String = (0..30).map(|n| format!("line {n}\n")).collect();
            let (mut at, mut generation) = (0, 0);
            let mut seen = Vec::new();
            for (bytes, look, rotate) in writes {
                let end = (at + bytes).min(text.len());
                log.write(&text[at..end]);
                at = end;
                if look {
                    seen.extend(poll(&mut tail).0);
                }
                // A server rotates between lines, and a rotation that no poll sees loses a file.
                if rotate && look && text[..at].ends_with('\n') {
                    generation += 1;
                    fs::rename(log.path(), log.home.path().join(generation.to_string())).unwrap();
                    log.write("");
                }
            }
            log.write(&text[at..]);
            seen.extend(poll(&mut tail).0);
            let expected: Vec<_> = text.lines().collect();
            prop_assert_eq!(seen, expected);
        }
    }
}
