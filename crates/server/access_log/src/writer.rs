//! The thread that writes the access log, and its queue.
//!
//! Lines are lost only if the queue has reached [`QUEUE_BYTES_MAX`] or the file cannot be written,
//! and then they are counted. A line that was written in part, because the disk was full, is lost,
//! and the next write ends it. At exit every buffer is handed over and the thread is
//! joined, so that nothing is lost.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use runtime::sync::{Lock, LockKind};

use crate::limits::{QUEUE_BYTES_MAX, WRITTEN_WAIT_MS_MAX};
use crate::syslog::{Syslog, SyslogTo};

/// The destination of finished lines.
#[derive(Clone, Debug)]
pub enum Sink {
    /// No access log.
    Off,
    /// To the writing thread.
    Thread(Arc<Queue>),
    /// Memory, for the tests on the simulated twin.
    Memory(Arc<Mutex<Vec<u8>>>),
}

static SENDER: LockKind = LockKind::new("access log: queue of the writer");

/// The queue of the writing thread.
#[derive(Debug)]
pub struct Queue {
    sender: Lock<Sender<Message>>,
    /// Bytes that were handed over and are not written yet.
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
    /// Lines lost because the file could not be written or the queue was full.
    pub fn lines_lost(&self) -> u64 {
        self.lines_lost.load(Ordering::Relaxed)
    }

    pub(super) fn push(&self, lines: Vec<u8>) {
        debug_assert_eq!(lines.last(), Some(&b'\n'), "whole lines are handed over");
        let waiting = self.bytes_waiting.fetch_add(lines.len(), Ordering::AcqRel);
        if waiting + lines.len() > QUEUE_BYTES_MAX {
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

    /// Notes that lines no longer wait.
    fn is_done(&self, lines: &[u8]) {
        let waiting = self.bytes_waiting.fetch_sub(lines.len(), Ordering::AcqRel);
        assert!(waiting >= lines.len(), "the bytes were counted when they were handed over");
    }

    /// Waits until the lines that were handed over are written, [`WRITTEN_WAIT_MS_MAX`] at most.
    /// Takes no lock: the process is about to end, and the caller may hold any.
    pub fn wait_until_written(&self) {
        for _ in 0..WRITTEN_WAIT_MS_MAX {
            if self.bytes_waiting.load(Ordering::Acquire) == 0 {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

fn count_lines(lines: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', lines).count() as u64
}

/// The writing thread and its file. [`LogWriter::finish`] writes everything that was handed over.
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
    pub fn open(path: &Path) -> io::Result<LogWriter> {
        let file = open_for_append(path)?;
        let of_path = path.to_path_buf();
        let write = move |messages: &Receiver<Message>, queue: &Queue| {
            write_lines(file, &of_path, messages, queue);
        };
        LogWriter::start(path.to_path_buf(), write)
    }

    /// Starts the thread, which sends lines to syslog in the facility with this code.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn syslog(to: &SyslogTo, facility: usize) -> io::Result<LogWriter> {
        let (syslog, name) = (Syslog::new(to.clone(), facility), to.to_string());
        let of_thread = name.clone();
        let send = move |messages: &Receiver<Message>, queue: &Queue| {
            send_lines(syslog, &of_thread, messages, queue);
        };
        LogWriter::start(name.into(), send)
    }

    fn start(
        path: PathBuf,
        run: impl FnOnce(&Receiver<Message>, &Queue) + Send + 'static,
    ) -> io::Result<LogWriter> {
        let (sender, receiver) = channel();
        let queue = Arc::new(Queue {
            sender: Lock::new(&SENDER, sender),
            bytes_waiting: AtomicUsize::new(0),
            lines_lost: AtomicU64::new(0),
        });
        let of_thread = Arc::clone(&queue);
        let thread = std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || run(&receiver, &of_thread))?;
        Ok(LogWriter { queue, thread, path })
    }

    /// The sink for the cores.
    pub fn sink(&self) -> Sink {
        Sink::Thread(Arc::clone(&self.queue))
    }

    /// Reopens the file under its name (after a rotation).
    pub fn reopen(&self) {
        self.queue.send(Message::Reopen);
    }

    /// Writes the waiting lines and ends the thread. Gives the number of lines lost in all.
    pub fn finish(self) -> u64 {
        self.queue.send(Message::End);
        if self.thread.join().is_err() {
            tracing::error!(path = %self.path.display(), "the access log's thread had failed");
        }
        self.queue.lines_lost()
    }
}

fn open_for_append(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

fn write_lines(file: File, path: &Path, receiver: &Receiver<Message>, queue: &Queue) {
    let mut to = Output { file, is_torn: false };
    let mut failing = false;
    for message in receiver {
        match message {
            Message::Lines(lines) => {
                match to.write(&lines) {
                    Ok(()) => failing = false,
                    Err(Unwritten { from, error }) => {
                        queue.lose(&lines[from..]);
                        if !std::mem::replace(&mut failing, true) {
                            let path = path.display();
                            tracing::error!(%path, %error, "access log lines lost");
                        }
                    }
                }
                queue.is_done(&lines);
            }
            Message::Reopen => match open_for_append(path) {
                Ok(file) => {
                    let is_torn = to.is_torn && is_same(&to.file, &file);
                    to = Output { file, is_torn };
                }
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "access log not reopened");
                }
            },
            Message::End => return,
        }
    }
}

fn send_lines(mut syslog: Syslog, name: &str, receiver: &Receiver<Message>, queue: &Queue) {
    let mut failing = false;
    for message in receiver {
        match message {
            Message::Lines(lines) => {
                let (lost, why) = syslog.send(&lines);
                queue.lines_lost.fetch_add(lost, Ordering::Relaxed);
                let was_failing = std::mem::replace(&mut failing, why.is_some());
                if let Some(error) = why.filter(|_| !was_failing) {
                    tracing::error!(syslog = name, %error, "access log lines lost");
                }
                queue.is_done(&lines);
            }
            Message::Reopen => syslog.reopen(),
            Message::End => return,
        }
    }
}

/// Whether both are the same file. If that is unknown, they count as the same: an empty line does
/// less harm than two joined lines.
fn is_same(before: &File, after: &File) -> bool {
    let identity = |file: &File| file.metadata().map(|of| (of.dev(), of.ino())).ok();
    identity(before) == identity(after)
}

/// Where lines are written.
struct Output<W> {
    file: W,
    /// The file ends with a part of a line.
    is_torn: bool,
}

/// The lines from this offset on were not written, or the first of them in part.
#[derive(Debug)]
struct Unwritten {
    from: usize,
    error: io::Error,
}

impl<W: Write> Output<W> {
    fn write(&mut self, lines: &[u8]) -> Result<(), Unwritten> {
        if self.is_torn {
            // The part stays: another process may have appended to the file since.
            self.file.write_all(b"\n").map_err(|error| Unwritten { from: 0, error })?;
            self.is_torn = false;
        }
        let mut written = 0;
        while written < lines.len() {
            let error = match self.file.write(&lines[written..]) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(more) => {
                    written += more;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            let begin = memchr::memrchr(b'\n', &lines[..written]).map_or(0, |end| end + 1);
            self.is_torn = begin < written;
            // A line that lacks only its end gets that with the next lines.
            let from = if self.is_torn && lines[written] == b'\n' { written + 1 } else { begin };
            return Err(Unwritten { from, error });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with so much room, which is full then.
    #[derive(Default)]
    struct Disk {
        held: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let fits = bytes.len().min(self.room);
            if fits == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= fits;
            self.held.extend_from_slice(&bytes[..fits]);
            Ok(fits)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// After a full disk, the next line continued a line that was torn, and lines that had been
    /// written were counted as lost.
    #[test]
    fn a_full_disk_joins_no_lines_and_loses_only_those_that_are_not_written() {
        let lines = b"first\nsecond\nthird\n";
        for room in 0..lines.len() {
            let mut to = Output { file: Disk { held: Vec::new(), room }, is_torn: false };
            let Unwritten { from, .. } = to.write(lines).unwrap_err();
            assert!(to.write(b"while it is full\n").is_err_and(|it| it.from == 0));
            to.file.room = usize::MAX;
            to.write(b"later\n").unwrap();
            let held = String::from_utf8(to.file.held).unwrap();
            let whole = |line: &&str| ["first", "second", "third", "later"].contains(line);
            let lost = count_lines(&lines[from..]) as usize;
            assert_eq!(held.lines().filter(whole).count(), 3 - lost + 1, "{room}: {held:?}");
            assert!(held.lines().count() <= 3 - lost + 2, "{room}: {held:?}");
        }
    }

    #[test]
    fn what_was_handed_over_is_written_when_the_wait_ends() {
        let dir = std::env::temp_dir().join(format!("plimsoll-written-{}", std::process::id()));
        let log = LogWriter::open(&dir).unwrap();
        let Sink::Thread(queue) = log.sink() else { panic!("it has a thread") };
        queue.push(b"line\n".repeat(1000));
        queue.wait_until_written();
        assert_eq!(std::fs::read(&dir).unwrap().len(), 5000);
        assert_eq!(log.finish(), 0);
        std::fs::remove_file(&dir).unwrap();
    }
}
