//! The thread that writes the access log, and its queue.
//!
//! Lines are lost only if the queue has reached [`QUEUE_BYTES_MAX`] or the file cannot be written,
//! and then they are counted. At exit every buffer is handed over and the thread is joined, so that
//! nothing is lost.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use runtime::sync::{Lock, LockKind};

use crate::limits::QUEUE_BYTES_MAX;

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
    pub fn open(path: &Path) -> std::io::Result<LogWriter> {
        let file = open_for_append(path)?;
        let (sender, receiver) = channel();
        let queue = Arc::new(Queue {
            sender: Lock::new(&SENDER, sender),
            bytes_waiting: AtomicUsize::new(0),
            lines_lost: AtomicU64::new(0),
        });
        let (of_thread, of_path) = (Arc::clone(&queue), path.to_path_buf());
        let thread = std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || write_lines(file, &of_path, &receiver, &of_thread))?;
        Ok(LogWriter { queue, thread, path: path.to_path_buf() })
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
