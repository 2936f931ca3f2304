//! The access log: one line a request, in Squid's native format or in the combined format.
//!
//! A core formats its lines into a buffer of its own and hands full buffers to one thread that
//! writes the file, so that a slow disk never holds a core. Lines are lost only when that thread
//! is behind by [`LOG_QUEUE_BYTES_MAX`] or the file refuses them, and then they are counted. At
//! exit every buffer is handed over and the thread is joined: nothing is lost there.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use http1::write::decimal;

use crate::limits::{LOG_BATCH_BYTES, LOG_QUEUE_BYTES_MAX};
use crate::refusal::{Class, Refusal};

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Squid's native format: stamps the end of the request, in milliseconds, with its duration.
    #[default]
    Squid,
    /// Apache's combined format; stamps the end of the request, in seconds.
    Combined,
}

impl std::str::FromStr for LogFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<LogFormat, String> {
        match name {
            "squid" => Ok(LogFormat::Squid),
            "combined" => Ok(LogFormat::Combined),
            _ => Err(format!("unknown log format {name:?}: it is squid or combined")),
        }
    }
}

/// What the store had to do with a request, in Squid's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A fresh stored response.
    Hit,
    /// A fresh stored response, and the client's validators matched it.
    NotModified,
    /// Fetched from the origin.
    Miss,
    /// Answered by a fetch that another request had begun.
    Collapsed,
    /// The origin confirmed a stored response.
    Revalidated,
    /// The origin replaced a stored response.
    Replaced,
    /// Passed through.
    Pass,
    /// Answered by ourselves: a purge.
    Own,
    /// Answered with an error of our own.
    Refused,
    /// The same, because a rule of access says so.
    Denied,
}

impl Outcome {
    /// Of a request that was refused.
    pub(crate) fn of_refusal(refusal: Refusal) -> Outcome {
        match refusal.class() {
            Class::Access => Outcome::Denied,
            Class::Request | Class::State => Outcome::Refused,
        }
    }

    fn squid(self) -> &'static [u8] {
        match self {
            Outcome::Hit => b"TCP_MEM_HIT",
            Outcome::NotModified => b"TCP_IMS_HIT",
            Outcome::Miss | Outcome::Pass => b"TCP_MISS",
            Outcome::Collapsed => b"TCP_CF_MISS",
            Outcome::Revalidated => b"TCP_REFRESH_UNMODIFIED",
            Outcome::Replaced => b"TCP_REFRESH_MODIFIED",
            Outcome::Refused | Outcome::Own => b"NONE_NONE",
            Outcome::Denied => b"TCP_DENIED",
        }
    }
}

/// What a line says. Byte strings come from the client: control bytes and quotes are escaped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) end_wall_ms: u64,
    pub(crate) elapsed_ms: u64,
    pub(crate) client: SocketAddr,
    pub(crate) outcome: Outcome,
    pub(crate) status: u16,
    /// Bytes sent to the client, head and body (Squid) ...
    pub(crate) bytes: u64,
    /// ... and of the body alone (combined).
    pub(crate) body_bytes: u64,
    pub(crate) method: &'a [u8],
    /// Authority to put before an origin-form target; empty when the target is absolute.
    pub(crate) authority: &'a [u8],
    pub(crate) target: &'a [u8],
    pub(crate) http10: bool,
    pub(crate) upstream: Option<SocketAddr>,
    pub(crate) content_type: &'a [u8],
    /// Who asked, as the credentials say that were verified; empty if nobody was asked for any.
    pub(crate) user: &'a [u8],
    pub(crate) referer: &'a [u8],
    pub(crate) user_agent: &'a [u8],
}

/// Where finished lines go.
#[derive(Clone, Debug)]
pub(crate) enum Sink {
    /// No access log.
    Off,
    /// To the writing thread.
    Thread(Arc<Queue>),
    /// Kept in memory; the simulated twin's tests read it.
    Memory(Arc<Mutex<Vec<u8>>>),
}

/// The way to the writing thread.
#[derive(Debug)]
pub(crate) struct Queue {
    sender: Mutex<Sender<Message>>,
    bytes_waiting: AtomicUsize,
    lines_lost: AtomicU64,
}

#[derive(Debug)]
enum Message {
    Lines(Vec<u8>),
    Reopen,
    End,
}

impl Queue {
    /// Lines that the file refused or that found the queue full.
    pub(crate) fn lines_lost(&self) -> u64 {
        self.lines_lost.load(Ordering::Relaxed)
    }

    fn push(&self, lines: Vec<u8>) {
        let waiting = self.bytes_waiting.fetch_add(lines.len(), Ordering::AcqRel);
        if waiting + lines.len() > LOG_QUEUE_BYTES_MAX {
            self.bytes_waiting.fetch_sub(lines.len(), Ordering::AcqRel);
            self.lose(&lines);
            return;
        }
        self.send(Message::Lines(lines));
    }

    fn send(&self, message: Message) {
        let sent = match self.sender.lock() {
            Ok(sender) => sender.send(message),
            Err(poisoned) => poisoned.into_inner().send(message),
        };
        if let Err(refused) = sent
            && let Message::Lines(lines) = refused.0
        {
            self.lose(&lines);
        }
    }

    fn lose(&self, lines: &[u8]) {
        self.lines_lost.fetch_add(count_lines(lines), Ordering::Relaxed);
    }
}

fn count_lines(lines: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', lines).count() as u64
}

/// The writing thread and its file. [`LogWriter::finish`] writes all that was handed over.
#[derive(Debug)]
pub struct LogWriter {
    queue: Arc<Queue>,
    thread: JoinHandle<()>,
    path: PathBuf,
}

impl LogWriter {
    /// Opens `path` for appending and starts the thread.
    ///
    /// # Errors
    /// The file cannot be opened, or no thread can be started.
    pub fn open(path: &Path) -> std::io::Result<LogWriter> {
        let file = open_for_append(path)?;
        let (sender, receiver) = channel();
        let queue = Arc::new(Queue {
            sender: Mutex::new(sender),
            bytes_waiting: AtomicUsize::new(0),
            lines_lost: AtomicU64::new(0),
        });
        let (of_thread, of_path) = (Arc::clone(&queue), path.to_path_buf());
        let thread = std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || write_lines(file, &of_path, &receiver, &of_thread))?;
        Ok(LogWriter { queue, thread, path: path.to_path_buf() })
    }

    pub(crate) fn sink(&self) -> Sink {
        Sink::Thread(Arc::clone(&self.queue))
    }

    /// Opens the file again under its name (after a rotation).
    pub fn reopen(&self) {
        self.queue.send(Message::Reopen);
    }

    /// Writes what is waiting and ends the thread. Says how many lines were lost in all.
    pub fn finish(self) -> u64 {
        self.queue.send(Message::End);
        if self.thread.join().is_err() {
            tracing::error!(path = %self.path.display(), "the access log's thread had failed");
        }
        self.queue.lines_lost()
    }
}

fn open_for_append(path: &Path) -> std::io::Result<File> {
    File::options().create(true).append(true).open(path)
}

fn write_lines(mut file: File, path: &Path, receiver: &Receiver<Message>, queue: &Queue) {
    let mut failing = false;
    for message in receiver {
        match message {
            Message::Lines(lines) => {
                queue.bytes_waiting.fetch_sub(lines.len(), Ordering::AcqRel);
                match file.write_all(&lines) {
                    Ok(()) => failing = false,
                    Err(error) => {
                        queue.lose(&lines);
                        if !std::mem::replace(&mut failing, true) {
                            let path = path.display();
                            tracing::error!(%path, %error, "access log lines lost");
                        }
                    }
                }
            }
            Message::Reopen => match open_for_append(path) {
                Ok(opened) => file = opened,
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "access log not reopened");
                }
            },
            Message::End => return,
        }
    }
}

/// A core's end of the log.
#[derive(Debug)]
pub(crate) struct CoreLog {
    sink: Sink,
    format: LogFormat,
    lines: RefCell<Vec<u8>>,
    second: Cell<(u64, [u8; 26])>,
}

impl CoreLog {
    pub(crate) fn new(sink: Sink, format: LogFormat) -> CoreLog {
        CoreLog { sink, format, lines: RefCell::default(), second: Cell::new((u64::MAX, [0; 26])) }
    }

    /// Whether lines are wanted at all.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !matches!(self.sink, Sink::Off)
    }

    /// Adds a line. Full batches are handed over; a tick hands over the rest.
    pub(crate) fn record(&self, record: &Record<'_>) {
        let mut lines = self.lines.borrow_mut();
        match self.format {
            LogFormat::Squid => squid_line(&mut lines, record),
            LogFormat::Combined => combined_line(&mut lines, record, &self.clf_time(record)),
        }
        if lines.len() >= LOG_BATCH_BYTES {
            let full = std::mem::replace(&mut *lines, Vec::with_capacity(LOG_BATCH_BYTES + 4096));
            drop(lines);
            self.hand_over(full);
        }
    }

    /// Hands over what there is.
    pub(crate) fn flush(&self) {
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

    /// `17/May/2015:10:05:03 +0000`, made once a second.
    fn clf_time(&self, record: &Record<'_>) -> [u8; 26] {
        let second = record.end_wall_ms / 1000;
        let (made_for, text) = self.second.get();
        if made_for == second {
            return text;
        }
        // IMF-fixdate is `Sun, 17 May 2015 10:05:03 GMT`: the same parts in another order.
        let imf = caching::date::format(second * 1000);
        let mut text = *b"dd/mmm/yyyy:hh:mm:ss +0000";
        text[0..2].copy_from_slice(&imf[5..7]);
        text[3..6].copy_from_slice(&imf[8..11]);
        text[7..11].copy_from_slice(&imf[12..16]);
        text[12..20].copy_from_slice(&imf[17..25]);
        self.second.set((second, text));
        text
    }
}

fn squid_line(out: &mut Vec<u8>, r: &Record<'_>) {
    decimal(out, r.end_wall_ms / 1000);
    out.push(b'.');
    let ms = r.end_wall_ms % 1000;
    out.extend([b'0' + (ms / 100) as u8, b'0' + (ms / 10 % 10) as u8, b'0' + (ms % 10) as u8]);
    padded(out, r.elapsed_ms, 7);
    out.push(b' ');
    address(out, r.client.ip());
    out.push(b' ');
    out.extend_from_slice(r.outcome.squid());
    out.push(b'/');
    status(out, r.status);
    out.push(b' ');
    decimal(out, r.bytes);
    out.push(b' ');
    escaped(out, r.method, b"-");
    out.push(b' ');
    url(out, r);
    out.push(b' ');
    word(out, r.user);
    out.push(b' ');
    match r.upstream {
        None => out.extend_from_slice(b"HIER_NONE/-"),
        Some(upstream) => {
            out.extend_from_slice(b"HIER_DIRECT/");
            address(out, upstream.ip());
        }
    }
    out.push(b' ');
    let media = r.content_type.split(|&b| b == b';' || b == b' ').next().unwrap_or_default();
    escaped(out, media, b"-");
    out.push(b'\n');
}

fn combined_line(out: &mut Vec<u8>, r: &Record<'_>, time: &[u8]) {
    address(out, r.client.ip());
    out.extend_from_slice(b" - ");
    word(out, r.user);
    out.extend_from_slice(b" [");
    out.extend_from_slice(time);
    out.extend_from_slice(b"] \"");
    escaped(out, r.method, b"-");
    out.push(b' ');
    escaped(out, r.target, b"-");
    out.extend_from_slice(if r.http10 { b" HTTP/1.0\" " } else { b" HTTP/1.1\" " });
    status(out, r.status);
    out.push(b' ');
    if r.body_bytes == 0 {
        out.push(b'-');
    } else {
        decimal(out, r.body_bytes);
    }
    out.extend_from_slice(b" \"");
    escaped(out, r.referer, b"-");
    out.extend_from_slice(b"\" \"");
    escaped(out, r.user_agent, b"-");
    out.extend_from_slice(b"\"\n");
}

fn url(out: &mut Vec<u8>, r: &Record<'_>) {
    if r.authority.is_empty() {
        escaped(out, r.target, b"error:invalid-request");
    } else {
        out.extend_from_slice(b"http://");
        escaped(out, r.authority, b"-");
        escaped(out, r.target, b"/");
    }
}

/// Appends a field of the line that must be one word.
fn word(out: &mut Vec<u8>, text: &[u8]) {
    let from = out.len();
    escaped(out, text, b"-");
    for byte in &mut out[from..] {
        if *byte == b' ' {
            *byte = b'+';
        }
    }
}

/// Appends `text`, or `otherwise` when it is empty; what would break the line's fields becomes
/// `%XX`.
fn escaped(out: &mut Vec<u8>, text: &[u8], otherwise: &[u8]) {
    if text.is_empty() {
        out.extend_from_slice(otherwise);
        return;
    }
    let plain = |b: &u8| matches!(b, b'!' | b'#'..=b'[' | b']'..=b'~' | b' ');
    if text.iter().all(plain) {
        out.extend_from_slice(text);
        return;
    }
    for byte in text {
        if plain(byte) {
            out.push(*byte);
        } else {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            out.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

fn address(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(v4) => {
            for (i, part) in v4.octets().into_iter().enumerate() {
                if i > 0 {
                    out.push(b'.');
                }
                decimal(out, u64::from(part));
            }
        }
        IpAddr::V6(v6) => {
            // Writing to a Vec cannot fail.
            let _ = write!(out, "{v6}");
        }
    }
}

/// Three digits.
fn status(out: &mut Vec<u8>, n: u16) {
    out.extend([b'0' + (n / 100 % 10) as u8, b'0' + (n / 10 % 10) as u8, b'0' + (n % 10) as u8]);
}

/// Appends `n` in decimal, padded with spaces to `width` (at least one space).
fn padded(out: &mut Vec<u8>, n: u64, width: usize) {
    let digits = if n == 0 { 1 } else { n.ilog10() as usize + 1 };
    for _ in 0..width.saturating_sub(digits).max(1) {
        out.push(b' ');
    }
    decimal(out, n);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record<'static> {
        Record {
            end_wall_ms: 1_431_857_103_042,
            elapsed_ms: 12,
            client: "83.149.9.216:4711".parse().unwrap(),
            outcome: Outcome::Hit,
            status: 200,
            bytes: 1324,
            body_bytes: 1024,
            method: b"GET",
            authority: b"www.example.com",
            target: b"/a b\"c\n",
            http10: false,
            upstream: None,
            content_type: b"text/html; charset=utf-8",
            user: b"",
            referer: b"",
            user_agent: b"curl/8",
        }
    }

    fn line(format: LogFormat, record: &Record<'_>) -> String {
        let memory = Arc::new(Mutex::new(Vec::new()));
        let log = CoreLog::new(Sink::Memory(Arc::clone(&memory)), format);
        log.record(record);
        log.flush();
        let bytes = memory.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn squid_native_stamps_the_end_in_milliseconds() {
        assert_eq!(
            line(LogFormat::Squid, &record()),
            "1431857103.042     12 83.149.9.216 TCP_MEM_HIT/200 1324 GET \
             http://www.example.com/a b%22c%0A - HIER_NONE/- text/html\n"
        );
        let upstream = Record { upstream: Some("127.0.0.1:80".parse().unwrap()), ..record() };
        assert!(line(LogFormat::Squid, &upstream).contains(" HIER_DIRECT/127.0.0.1 "));
    }

    #[test]
    fn a_user_is_one_word_of_the_line() {
        let named = Record { user: b"jo do", ..record() };
        assert!(line(LogFormat::Squid, &named).contains(" jo+do HIER_NONE/- "));
        assert!(line(LogFormat::Combined, &named).starts_with("83.149.9.216 - jo+do ["));
    }

    #[test]
    fn combined_has_the_fields_of_apache() {
        assert_eq!(
            line(LogFormat::Combined, &record()),
            "83.149.9.216 - - [17/May/2015:10:05:03 +0000] \"GET /a b%22c%0A HTTP/1.1\" 200 1024 \
             \"-\" \"curl/8\"\n"
        );
    }

    #[test]
    fn nothing_is_lost_at_exit() {
        let dir = std::env::temp_dir().join(format!("plimsoll-log-{}", std::process::id()));
        let writer = LogWriter::open(&dir).unwrap();
        let log = CoreLog::new(writer.sink(), LogFormat::Squid);
        for _ in 0..10_000 {
            log.record(&record());
        }
        log.flush();
        assert_eq!(writer.finish(), 0);
        let written = std::fs::read(&dir).unwrap();
        std::fs::remove_file(&dir).unwrap();
        assert_eq!(count_lines(&written), 10_000);
    }

    #[test]
    fn a_file_that_refuses_lines_counts_them() {
        let writer = LogWriter::open(Path::new("/dev/full")).unwrap();
        let log = CoreLog::new(writer.sink(), LogFormat::Squid);
        log.record(&record());
        log.flush();
        assert_eq!(writer.finish(), 1);
    }
}
