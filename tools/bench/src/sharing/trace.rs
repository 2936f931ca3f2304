//! The accesses of all threads of our server, from valgrind.
//!
//! `valgrind --tool=lackey --trace-mem=yes` prints each instruction and each access of memory to a
//! pipe, and `--trace-sched=yes` prints each change of the running thread to the same pipe, because
//! valgrind runs one thread at a time. We print our marks between them: whatever the server did
//! before a mark comes before it in the pipe. Our thread reads the pipe and simulates the
//! caches, so that nothing of the gigabytes is stored.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::ops::Range;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::mesi::{Access, Caches, Does, Key, LINE_BYTES, THREADS_MAX};

/// A mark in the pipe.
const MARK: &str = "plimsoll-bench-mark";
/// How long the server may take to reach a mark.
const MARK_MAX: Duration = Duration::from_secs(300);
const BUFFER_BYTES: usize = 1 << 20;

/// What transfers are counted by: the number of a type of request, and the last instruction of the
/// program itself. What a C library does is counted where the program calls the library.
pub(super) type Label = (usize, u64);

pub(super) type Counts = HashMap<Key<Label>, u64>;

/// What the reader does at a mark.
#[derive(Debug)]
pub(super) enum Order {
    /// Nothing.
    Pass,
    /// Note the instructions of the program from here to the next mark. Where the program is.
    Note(Range<u64>),
    /// Leave out what runs in these procedures, by their first instructions.
    LeaveOut(HashSet<u64>),
    /// Count under this number from here on, or not at all.
    Count(Option<usize>),
}

/// What there was between two marks.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Accesses by thread, of which valgrind numbers the first 1.
    pub(super) accesses: Vec<u64>,
    /// The noted instructions.
    pub(super) instructions: HashSet<u64>,
}

/// A trace in progress.
pub(super) struct Trace {
    /// Closed, the trace ends when the server has ended.
    pipe: PipeWriter,
    orders: Sender<Order>,
    seen: Receiver<Seen>,
    reader: JoinHandle<Result<Counts, String>>,
}

impl Trace {
    /// A trace whose server is not started yet.
    pub(super) fn new() -> io::Result<Trace> {
        let (out, pipe) = io::pipe()?;
        let (orders, to_reader) = mpsc::channel();
        let (from_reader, seen) = mpsc::channel();
        let reader = thread::spawn(move || read(out, &to_reader, &from_reader));
        Ok(Trace { pipe, orders, seen, reader })
    }

    /// The flags of valgrind.
    pub(super) fn tool(&self) -> Vec<String> {
        use std::os::fd::AsRawFd;
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.pipe.as_raw_fd());
        let flags = ["--tool=lackey", "--trace-mem=yes", "--trace-sched=yes", "--fair-sched=yes"];
        let log = format!("--log-file={path}");
        flags.map(str::to_owned).into_iter().chain([log]).collect()
    }

    /// Makes a mark, and waits until the reader has reached it and carried out the order.
    ///
    /// # Errors
    /// The reader has ended, or takes too long.
    pub(super) fn mark(&mut self, order: Order) -> Result<Seen, String> {
        let ended = || "the trace has ended".to_owned();
        self.orders.send(order).map_err(|_| ended())?;
        // A single write, which the pipe does not divide.
        let text = format!("\n{MARK}\n");
        self.pipe.write_all(text.as_bytes()).map_err(|e| e.to_string())?;
        self.seen.recv_timeout(MARK_MAX).map_err(|_| "the trace does not go on".to_owned())
    }

    /// The transfers, after the server has ended.
    pub(super) fn end(self) -> Result<Counts, String> {
        drop(self.pipe);
        self.reader.join().unwrap_or_else(|_| Err("the reader of the trace panicked".to_owned()))
    }
}

/// What valgrind says when a signal ends the program.
const DIES: &[u8] = b"Process terminating";

fn read(out: PipeReader, orders: &Receiver<Order>, seen: &Sender<Seen>) -> Result<Counts, String> {
    let mut out = BufReader::with_capacity(BUFFER_BYTES, out);
    let mut state = State::new();
    let (mut line, mut killed) = (Vec::new(), None);
    loop {
        line.clear();
        if out.read_until(b'\n', &mut line).map_err(|e| e.to_string())? == 0 {
            state.finish_instruction();
            return killed.map_or_else(|| Ok(state.caches.into_counts()), Err);
        }
        if line.starts_with(b"==") && line.windows(DIES.len()).any(|at| at == DIES) {
            killed = Some(String::from_utf8_lossy(line.trim_ascii()).into_owned());
        }
        match parse(line.trim_ascii_end()) {
            Line::Mark => {
                let order = orders.recv().map_err(|_| "a mark without an order")?;
                // After a time-out, the receiver is gone.
                let _ = seen.send(state.mark(order));
            }
            line => state.follow(line),
        }
    }
}

/// A line of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Instruction {
        address: u64,
        bytes: u64,
    },
    Access {
        address: u64,
        bytes: u64,
        does: Does,
    },
    /// From here on, this thread runs.
    Thread(usize),
    Mark,
    Other,
}

fn parse(line: &[u8]) -> Line {
    let Ok(text) = std::str::from_utf8(line) else { return Line::Other };
    // `I  0040128f,3` or ` L 1ffefff5d8,8`: an address and at least one byte.
    let numbers = |text: &str| {
        let (address, bytes) = text.split_once(',')?;
        let bytes = bytes.parse().ok().filter(|bytes| *bytes > 0)?;
        Some((u64::from_str_radix(address, 16).ok()?, bytes))
    };
    if let Some((first, rest)) = text.split_at_checked(3)
        && let Some((address, bytes)) = numbers(rest)
    {
        return match first {
            "I  " => Line::Instruction { address, bytes },
            " L " => Line::Access { address, bytes, does: Does::Read },
            " S " | " M " => Line::Access { address, bytes, does: Does::Write },
            _ => Line::Other,
        };
    }
    // `--4711--   SCHED[3]:  acquired lock (thread_wrapper)`
    let running = || {
        let (thread, what) = text.split_once("SCHED[")?.1.split_once("]:")?;
        what.trim_start().starts_with("acquired lock").then(|| thread.parse().ok())?
    };
    match text {
        MARK => Line::Mark,
        _ => running().map_or(Line::Other, Line::Thread),
    }
}

/// The state of a thread of the server.
#[derive(Clone, Debug, Default)]
struct Thread {
    /// The last instruction of the program itself.
    place: u64,
    /// Where the last instruction ended.
    next: u64,
    /// What the last instruction has accessed.
    pending: Vec<Access>,
    /// Where a procedure that is left out returns to.
    left_out_until: Option<u64>,
    accesses: u64,
}

#[derive(Debug)]
struct State {
    caches: Caches<Label>,
    /// By valgrind's numbers.
    threads: Vec<Thread>,
    running: usize,
    program: Range<u64>,
    noted: Option<HashSet<u64>>,
    left_out: HashSet<u64>,
    counted: Option<usize>,
}

impl State {
    fn new() -> State {
        State {
            caches: Caches::new(),
            threads: vec![Thread::default(); THREADS_MAX],
            running: 1,
            program: 0..0,
            noted: None,
            left_out: HashSet::new(),
            counted: None,
        }
    }

    fn follow(&mut self, line: Line) {
        match line {
            Line::Thread(number) => {
                self.finish_instruction();
                assert!(number < THREADS_MAX, "the server has too many threads: {number}");
                self.running = number;
            }
            Line::Instruction { address, bytes } => self.instruction(address, bytes),
            Line::Access { address, bytes, does } => {
                let thread = &mut self.threads[self.running];
                if thread.left_out_until.is_none() {
                    thread.accesses += 1;
                    thread.pending.push(Access { thread: self.running, address, bytes, does });
                }
            }
            Line::Mark | Line::Other => {}
        }
    }

    /// Simulates the accesses of the last instruction of the running thread. What it reads and
    /// writes, such as an atomic addition, it only writes: it asks for the line once.
    fn finish_instruction(&mut self) {
        let thread = &mut self.threads[self.running];
        let label = self.counted.map(|number| (number, thread.place));
        for at in 0..thread.pending.len() {
            let access = thread.pending[at];
            let line_of = |access: &Access| access.address / LINE_BYTES;
            let writes =
                |later: &Access| later.does == Does::Write && line_of(later) == line_of(&access);
            if access.does == Does::Write || !thread.pending[at + 1..].iter().any(writes) {
                self.caches.access(access, label);
            }
        }
        thread.pending.clear();
    }

    fn instruction(&mut self, address: u64, bytes: u64) {
        self.finish_instruction();
        let thread = &mut self.threads[self.running];
        match thread.left_out_until {
            Some(end) if end == address => thread.left_out_until = None,
            // A call, which returns behind itself.
            None if self.left_out.contains(&address) => thread.left_out_until = Some(thread.next),
            Some(_) | None => {}
        }
        thread.next = address.saturating_add(bytes);
        if self.program.contains(&address) {
            thread.place = address;
            self.noted.as_mut().map(|noted| noted.insert(address));
        }
    }

    fn mark(&mut self, order: Order) -> Seen {
        self.finish_instruction();
        let taken = |thread: &mut Thread| std::mem::take(&mut thread.accesses);
        let accesses = self.threads.iter_mut().map(taken).collect();
        let seen = Seen { accesses, instructions: self.noted.take().unwrap_or_default() };
        match order {
            Order::Pass => {}
            Order::Note(program) => {
                self.program = program;
                self.noted = Some(HashSet::new());
            }
            Order::LeaveOut(procedures) => self.left_out = procedures,
            Order::Count(number) => self.counted = number,
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::super::mesi::Transfer;
    use super::*;

    #[test]
    fn lines_of_lackey_and_of_the_scheduler_are_parsed() {
        let of = |text: &str| parse(text.as_bytes());
        assert_eq!(of("I  0040128f,3"), Line::Instruction { address: 0x0040_128f, bytes: 3 });
        let access = |does| Line::Access { address: 0x1ffe, bytes: 8, does };
        assert_eq!(of(" L 1ffe,8"), access(Does::Read));
        assert_eq!(of(" S 1ffe,8"), access(Does::Write));
        assert_eq!(of(" M 1ffe,8"), access(Does::Write));
        let acquired = "--31--   SCHED[12]:  acquired lock (VG_(client_syscall)[async])";
        assert_eq!(of(acquired), Line::Thread(12));
        assert_eq!(of("--31--   SCHED[12]: releasing lock (x) -> VgTs_WaitSys"), Line::Other);
        assert_eq!(of(MARK), Line::Mark);
        for text in
            ["", " L ", " L zz,8", " L 10,0", "I  10,", "I  fffffffffffffffff,1", "==31== x"]
        {
            assert_eq!(of(text), Line::Other, "{text}");
        }
    }

    /// The counts of a trace in which marks have orders.
    fn counts(text: &str, orders: Vec<Order>) -> Vec<(Label, Transfer, u64)> {
        let mut trace = Trace::new().unwrap();
        for (part, order) in text.split("MARK\n").zip(orders) {
            trace.pipe.write_all(part.as_bytes()).unwrap();
            trace.mark(order).unwrap();
        }
        trace.pipe.write_all(text.rsplit("MARK\n").next().unwrap().as_bytes()).unwrap();
        let counts = trace.end().unwrap();
        let mut counts: Vec<_> =
            counts.into_iter().map(|(key, count)| (key.label, key.transfer, count)).collect();
        counts.sort_by_key(|(label, ..)| *label);
        counts
    }

    #[test]
    fn accesses_are_attributed_to_the_thread_that_runs() {
        // The instruction at 900 is of a library.
        let text = "MARK\nMARK\nI  10,2\n S 100,8\n--1--   SCHED[2]:  acquired lock (x)\n\
                    I  20,2\n L 100,8\nI  22,2\nI  900,1\n S 140,8\n\
                    --1--   SCHED[1]:  acquired lock (x)\nI  30,2\n L 140,8\n";
        let orders = vec![Order::Note(0x10..0x80), Order::Count(Some(7))];
        let expected = [((7, 0x20), Transfer::Read, 1), ((7, 0x30), Transfer::Read, 1)];
        assert_eq!(counts(text, orders), expected);
        let text = text.replace("I  30,2\n", "I  910,2\n");
        let orders = vec![Order::Note(0x10..0x80), Order::Count(Some(7))];
        let expected = [((7, 0x10), Transfer::Read, 1), ((7, 0x20), Transfer::Read, 1)];
        assert_eq!(counts(&text, orders), expected);
    }

    #[test]
    fn an_instruction_that_reads_and_writes_asks_for_a_line_once() {
        let text = "MARK\nMARK\nI  10,2\n S 100,8\n--1--   SCHED[2]:  acquired lock (x)\n\
                    I  20,2\n L 100,8\n S 110,8\nI  22,2\n L 140,8\n";
        let orders = vec![Order::Note(0x10..0x80), Order::Count(Some(0))];
        assert_eq!(counts(text, orders), [((0, 0x20), Transfer::Write, 1)]);
    }

    #[test]
    fn a_procedure_is_left_out_until_it_returns() {
        // The call at 10 runs 40, which is left out, and returns to 12.
        let text = "MARK\nMARK\nMARK\nI  10,2\nI  40,2\n S 100,8\nI  50,1\n S 140,8\nI  12,2\n\
                    S 180,8\n--1--   SCHED[2]:  acquired lock (x)\nI  20,2\n L 100,8\n L 140,8\n \
                    L 180,8\n";
        let text = text.replace("\nS ", "\n S ").replace("\nL ", "\n L ");
        let left_out = Order::LeaveOut([0x40].into());
        let orders = vec![Order::Note(0x10..0x80), left_out, Order::Count(Some(0))];
        assert_eq!(counts(&text, orders), [((0, 0x20), Transfer::Read, 1)]);
    }

    #[test]
    fn a_mark_returns_what_there_was_since_the_last_mark() {
        let mut trace = Trace::new().unwrap();
        trace.mark(Order::Note(0x10..0x20)).unwrap();
        trace.pipe.write_all(b"I  10,2\n L 100,8\n S 100,8\nI  30,2\n").unwrap();
        trace.pipe.write_all(b"--1-- SCHED[9]:  acquired lock (x)\n L 100,8\n").unwrap();
        let seen = trace.mark(Order::Pass).unwrap();
        assert_eq!((seen.accesses[1], seen.accesses[9]), (2, 1));
        assert_eq!((seen.accesses.iter().sum(), seen.instructions), (3, [0x10].into()));
        assert_eq!(trace.mark(Order::Pass).unwrap().accesses, [0; THREADS_MAX]);
        assert_eq!(trace.end().unwrap().len(), 0);
    }
}
