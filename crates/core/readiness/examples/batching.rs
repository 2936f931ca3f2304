//! `cargo run --release -p readiness --example batching [-- ROUNDS]`: the CPU time of a request
//! if one system call receives and sends for all connections of a turn.
//!
//! A server with one thread serves a closed loop of clients in three ways. The server looks only
//! for the end of a head.
//!
//! - `epoll`: a wait for the turn, and a receive and a send for each message, as in our runtime.
//! - `io_uring`: each connection has a multishot receive into provided buffers. One call submits
//!   the sends of a turn and waits for the messages of the next turn.
//! - `epoll, io_uring`: a wait on epoll, then one call for all receives and one for all sends.
//!
//! A hit is a request and a response of 1 KB. A relay passes both on, each client on its own
//! connection to an upstream server. The clients and the upstream server are a child process on
//! another CPU. All figures are of the server's process alone. Bundles of receives or sends are
//! left out: a bundle joins several buffers of one connection, and here each connection has at
//! most one message in a turn.
//!
//! Every response is compared with the bytes sent, and every request is counted on both sides. Exit
//! codes: 0 success, 2 nothing could be measured, 101 an assertion failed.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use ::io_uring::opcode::{Recv, RecvMulti, Send};
use ::io_uring::squeue::Entry;
use ::io_uring::types::{BufRingEntry, CancelBuilder, Fixed};
use ::io_uring::{IoUring, cqueue};
use readiness::{Choice, Events, Interest, Kind, Poller, Token};

const REQUEST: &[u8] = b"GET /object HTTP/1.1\r\nHost: server.example\r\nAccept: */*\r\n\r\n";
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nServer: batching\r\nContent-Length: 1024\r\n\r\n";
static RESPONSE: [u8; HEAD.len() + 1024] = {
    let mut bytes = [b'x'; HEAD.len() + 1024];
    let (head, _) = bytes.split_at_mut(HEAD.len());
    head.copy_from_slice(HEAD);
    bytes
};

/// The CPU of the server, and that of the clients and the upstream server.
const SERVER_CPU: usize = 0;
const OTHER_CPU: usize = 1;
/// Most events of a wait on epoll.
const EVENTS_MAX: usize = 1024;
/// Entries of the submission queue: more than one turn submits.
const SUBMISSIONS: u32 = 1024;
const COMPLETIONS: u32 = 4 * SUBMISSIONS;
/// Each message fits into one buffer.
const BUFFER_BYTES: usize = 2048;
const _: () = assert!(RESPONSE.len() < BUFFER_BYTES && REQUEST.len() < BUFFER_BYTES);
/// How long the clients wait for any response before they give up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The first requests of a visit, which are not measured.
const WARM_UP: u64 = 1000;
/// In each row of a round the ways take turns, with so many visits each.
const VISITS: usize = 5;
const VISIT: Duration = Duration::from_millis(200);

/// What is measured: connections with one outstanding request each, and silent ones. A relay has an
/// upstream connection for each active one.
#[derive(Clone, Copy)]
struct Row {
    relays: bool,
    active: usize,
    silent: usize,
}

/// Active and silent connections of the rows, for hits and for relays.
const SIZES: [(usize, usize); 5] = [(1, 0), (8, 0), (64, 0), (512, 0), (64, 4000)];

impl Row {
    /// The connections on which something is sent: clients, and then, in the same order, the
    /// upstream connection of each. Silent connections come last.
    fn talking(&self) -> usize {
        if self.relays { 2 * self.active } else { self.active }
    }

    /// All connections. The next one is that on which the clients report how they have stopped.
    fn sockets(&self) -> usize {
        self.talking() + self.silent
    }
}

/// A way to receive and send; see the head of this file. It serves until the clients stop.
type Serve = fn(&[TcpStream], &mut Exchange) -> io::Result<()>;
const WAYS: [(&str, Serve); 3] =
    [("epoll", one_by_one), ("io_uring", by_completions), ("epoll, io_uring", by_batches)];

/// What the server does with a message, whatever the way, and what it counts.
struct Exchange {
    row: Row,
    /// How many requests the clients have sent in all, once they have stopped.
    sent: Option<u64>,
    answered: u64,
    calls: u64,
    turns: u64,
    /// After the first requests, and when the clients have stopped.
    figures: Vec<Figures>,
}

/// Requests, microseconds of CPU time, system calls, turns, sleeps.
type Figures = [f64; 5];

impl Exchange {
    /// Whether there is another turn.
    fn goes_on(&mut self) -> bool {
        let is_warm = self.figures.is_empty() && self.answered >= WARM_UP;
        if is_warm || self.sent.is_some() {
            let [cpu_us, sleeps] = usage();
            let (answered, calls, turns) = (self.answered, self.calls, self.turns);
            self.figures.push([answered as f64, cpu_us, calls as f64, turns as f64, sleeps]);
        }
        self.turns += 1;
        self.sent.is_none()
    }

    /// Takes what one receive returned. Returns the connection to which the answer goes, and the
    /// answer. `None`: the clients have stopped.
    fn take<'b>(&mut self, from: usize, bytes: &'b [u8]) -> Option<(usize, &'b [u8])> {
        let active = self.row.active;
        let is_request = from < active;
        if from == self.row.sockets() {
            let sent = bytes.try_into().expect("the clients have stopped without an error");
            self.sent = Some(u64::from_le_bytes(sent));
            return None;
        }
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let head = end.expect("a message is received whole") + 4;
        let whole = if is_request { head } else { head + RESPONSE.len() - HEAD.len() };
        assert_eq!(bytes.len(), whole, "one message is outstanding, and it is received whole");
        self.answered += u64::from(!self.row.relays || !is_request);
        Some(match (self.row.relays, is_request) {
            (false, _) => (from, &RESPONSE),
            (true, true) => (from + active, bytes),
            (true, false) => (from - active, bytes),
        })
    }
}

fn one_by_one(near: &[TcpStream], exchange: &mut Exchange) -> io::Result<()> {
    let (mut poller, mut events) = watch(near)?;
    let mut buffer = [0; BUFFER_BYTES];
    while exchange.goes_on() {
        poller.wait(&mut events, None)?;
        exchange.calls += 1;
        for event in events.iter() {
            let from = event.token.slot() as usize;
            let count = (&near[from]).read(&mut buffer)?;
            exchange.calls += 1;
            let Some((to, answer)) = exchange.take(from, &buffer[..count]) else { continue };
            let sent = (&near[to]).write(answer)?;
            exchange.calls += 1;
            assert_eq!(sent, answer.len(), "a socket has room for one message");
        }
    }
    Ok(())
}

fn by_batches(near: &[TcpStream], exchange: &mut Exchange) -> io::Result<()> {
    let mut buffers = vec![[0; BUFFER_BYTES]; EVENTS_MAX];
    let (mut poller, mut events) = watch(near)?;
    let mut ring = open_ring(near)?;
    while exchange.goes_on() {
        poller.wait(&mut events, None)?;
        for (event, buffer) in events.iter().zip(&mut buffers) {
            let from = Fixed(event.token.slot());
            let receive = Recv::new(from, buffer.as_mut_ptr(), BUFFER_BYTES as u32);
            push(&mut ring, &receive.flags(libc::MSG_DONTWAIT).build());
        }
        ring.submit()?;
        exchange.calls += 2;
        let mut sending = 0;
        // A receive that does not wait completes in the call above, in the order of submission.
        for (event, buffer) in events.iter().zip(&buffers) {
            let receive = ring.completion().next().expect("a receive that does not wait");
            let from = event.token.slot() as usize;
            let bytes = &buffer[..completed(receive.result())?];
            if let Some((to, answer)) = exchange.take(from, bytes) {
                push(&mut ring, &send(to, answer, 0));
                sending += 1;
            }
        }
        if sending > 0 {
            ring.submit()?;
            exchange.calls += 1;
        }
        for _ in 0..sending {
            check_sent(&ring.completion().next().expect("a send that does not wait"));
        }
    }
    Ok(())
}

fn by_completions(near: &[TcpStream], exchange: &mut Exchange) -> io::Result<()> {
    // A client may send its next request before the completion of the last send is taken. More
    // buffers than necessary would cost misses in the caches.
    let mut provided = Provided::new((2 * exchange.row.active).next_power_of_two() as u16);
    let mut ring = open_ring(near)?;
    let entries = provided.entries as u64;
    // SAFETY: the entries are in whole pages that are never freed. The buffers outlive the ring.
    unsafe { ring.submitter().register_buf_ring_with_flags(entries, provided.tail, 0, 0)? };
    for from in 0..near.len() {
        push(&mut ring, &receive_always(from));
        if from % (SUBMISSIONS as usize / 2) == 0 {
            ring.submit()?;
        }
    }
    // Sends whose completions have not been taken.
    let mut sending = 0;
    while exchange.goes_on() {
        // The sends complete in this call, so it waits for one message.
        ring.submit_and_wait(sending + 1)?;
        exchange.calls += 1;
        while let Some(completion) = { ring.completion().next() } {
            let data = completion.user_data();
            if data & IS_SEND != 0 {
                check_sent(&completion);
                provided.give((data >> 32) as u16);
                sending -= 1;
                continue;
            }
            let (from, count) = (data as usize, completed(completion.result())?);
            let buffer = cqueue::buffer_select(completion.flags());
            let bytes = buffer.map_or(&[][..], |id| &provided.buffers[usize::from(id)][..count]);
            let Some((to, answer)) = exchange.take(from, bytes) else { break };
            let id = u64::from(buffer.expect("received bytes have a buffer"));
            push(&mut ring, &send(to, answer, IS_SEND | id << 32));
            sending += 1;
            if !cqueue::more(completion.flags()) {
                push(&mut ring, &receive_always(from));
            }
        }
    }
    // The connections are used again, and a closed ring cancels its receives later.
    ring.submitter().register_sync_cancel(None, CancelBuilder::any())
}

/// In the user data of a send; a multishot receive has the number of its connection.
const IS_SEND: u64 = 1 << 63;

/// Buffers that the kernel takes in the order in which they are given.
struct Provided {
    entries: *mut BufRingEntry,
    buffers: Vec<[u8; BUFFER_BYTES]>,
    /// How many were given, modulo 2^16.
    tail: u16,
}

#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u8; 4096]);

impl Provided {
    fn new(count: u16) -> Provided {
        assert!(count.is_power_of_two(), "the kernel masks the tail");
        let bytes = usize::from(count) * size_of::<BufRingEntry>();
        // Leaked, because the kernel releases the pages after the ring is closed.
        let pages = vec![Page([0; 4096]); bytes.div_ceil(size_of::<Page>())].leak();
        let buffers = vec![[0; BUFFER_BYTES]; usize::from(count)];
        let mut provided = Provided { entries: pages.as_mut_ptr().cast(), buffers, tail: 0 };
        (0..count).for_each(|id| provided.give(id));
        provided
    }

    /// Gives a buffer to the kernel.
    fn give(&mut self, id: u16) {
        let at = usize::from(self.tail) & (self.buffers.len() - 1);
        // SAFETY: the index is below the number of entries. The kernel reads no entry at or behind
        // the tail.
        let entry = unsafe { &mut *self.entries.add(at) };
        entry.set_addr(self.buffers[usize::from(id)].as_mut_ptr() as u64);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail is in the first entry, aligned, and is accessed only as an atomic.
        let tail = unsafe { &*BufRingEntry::tail(self.entries).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }
}

/// Everything on epoll, with the index as the token.
fn watch(streams: &[TcpStream]) -> io::Result<(Poller, Events)> {
    let mut poller = Poller::open(Choice::Named(Kind::Epoll)).map_err(io::Error::other)?;
    for (at, stream) in (0..).zip(streams) {
        poller.register(stream.as_raw_fd(), Token::new(at, 0), Interest::READ)?;
    }
    Ok((poller, Events::with_capacity(EVENTS_MAX)))
}

/// A ring with the index of a connection as the number of its registered file.
fn open_ring(streams: &[TcpStream]) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_single_issuer().setup_defer_taskrun().setup_coop_taskrun();
    let ring = builder.setup_cqsize(COMPLETIONS).build(SUBMISSIONS).map_err(|error| {
        io::Error::other(format!("no io_uring with DEFER_TASKRUN (Linux 6.1) here: {error}"))
    })?;
    let fds: Vec<RawFd> = streams.iter().map(AsRawFd::as_raw_fd).collect();
    ring.submitter().register_files(&fds)?;
    Ok(ring)
}

fn push(ring: &mut IoUring, entry: &Entry) {
    // SAFETY: the buffer of a receive lives as long as the ring. The bytes of a send do not move
    // before its completion is taken: they are static, or in the buffer of a receive.
    unsafe { ring.submission().push(entry) }.expect("the queue has room for a turn");
}

/// A send that completes in the call that submits it. User data: `data` and the length.
fn send(to: usize, bytes: &[u8], data: u64) -> Entry {
    let send = Send::new(Fixed(to as u32), bytes.as_ptr(), bytes.len() as u32);
    let send = send.flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL).build();
    send.user_data(data | bytes.len() as u64)
}

fn check_sent(completion: &cqueue::Entry) {
    let wanted = completion.user_data() as i32;
    assert_eq!(completion.result(), wanted, "a socket has room for one message");
}

fn receive_always(from: usize) -> Entry {
    RecvMulti::new(Fixed(from as u32), 0).build().user_data(from as u64)
}

/// A system call's result, or that of an operation of the ring.
fn completed(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

/// As [`completed`], for libc's functions.
fn called(result: libc::c_int) -> io::Result<libc::c_int> {
    if result >= 0 { Ok(result) } else { Err(io::Error::last_os_error()) }
}

/// The clients and the upstream server: a closed loop for the time of a visit. Returns how many
/// requests were sent.
fn load(far: &[TcpStream], row: Row) -> io::Result<u64> {
    let (mut poller, mut events) = watch(&far[..row.talking()])?;
    let clients = &far[..row.active];
    let (mut sent, mut whole, mut relayed) = (row.active as u64, 0, 0);
    let mut buffer = [0; BUFFER_BYTES];
    let end = Instant::now() + VISIT;
    clients.iter().try_for_each(|mut client| client.write_all(REQUEST))?;
    while whole < sent {
        poller.wait(&mut events, Some(PATIENCE))?;
        assert!(!events.is_empty(), "{} requests have no response", sent - whole);
        let goes_on = Instant::now() < end || sent < 2 * WARM_UP;
        for event in events.iter() {
            let at = event.token.slot() as usize;
            let mut stream = &far[at];
            let bytes = stream.read(&mut buffer)?;
            if at < row.active {
                assert_eq!(buffer[..bytes], RESPONSE, "a response is received whole");
                whole += 1;
                if goes_on {
                    sent += 1;
                    stream.write_all(REQUEST)?;
                }
            } else {
                assert_eq!(&buffer[..bytes], REQUEST, "a request is relayed whole");
                relayed += 1;
                stream.write_all(&RESPONSE)?;
            }
        }
    }
    assert_eq!((whole, relayed), (sent, u64::from(row.relays) * sent), "no message comes twice");
    Ok(sent)
}

/// The server's ends of all connections of a row, and the other ends.
fn connect(row: Row) -> io::Result<[Vec<TcpStream>; 2]> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let [mut near, mut far] = [Vec::new(), Vec::new()];
    for _ in 0..row.sockets() {
        far.push(TcpStream::connect(listener.local_addr()?)?);
        near.push(listener.accept()?.0);
    }
    for stream in near.iter().chain(&far) {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
    }
    Ok([near, far])
}

/// Measures one way in one row, with a new child.
fn visit(
    way: Serve,
    row: Row,
    near: &mut Vec<TcpStream>,
    far: &[TcpStream],
) -> io::Result<Figures> {
    let (parent, mut child) = UnixStream::pair()?;
    // SAFETY: this process has one thread.
    let pid = called(unsafe { libc::fork() })?;
    if pid == 0 {
        drop(parent);
        pin(OTHER_CPU)?;
        child.write_all(&load(far, row)?.to_le_bytes())?;
        std::process::exit(0);
    }
    drop(child);
    near.push(OwnedFd::from(parent).into());
    let figures = Vec::new();
    let mut exchange = Exchange { row, sent: None, answered: 0, calls: 0, turns: 0, figures };
    way(near, &mut exchange)?;
    near.pop();
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    assert_eq!(threads, 1, "the ring has no worker threads");
    assert_eq!(exchange.sent, Some(exchange.answered), "each request was answered once");
    // SAFETY: a null pointer: the status is not of interest, because the report is complete.
    called(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) })?;
    let [begin, end] = exchange.figures.try_into().expect("more than the first requests are sent");
    Ok(std::array::from_fn(|at| end[at] - begin[at]))
}

/// Microseconds of CPU time and sleeps of this process, with threads of the kernel that a ring may
/// have.
fn usage() -> [f64; 2] {
    // SAFETY: all zeros is a valid value of this structure of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is valid for writes; this call cannot fail.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let us = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    [us(usage.ru_utime) + us(usage.ru_stime), usage.ru_nvcsw as f64]
}

/// What the entry and the exit of a system call cost, microseconds.
fn empty_call_us() -> f64 {
    const CALLS: u32 = 1_000_000;
    let begin = usage();
    // SAFETY: getppid accesses no memory.
    (0..CALLS).for_each(|_| assert!(unsafe { libc::getppid() } >= 0));
    (usage()[0] - begin[0]) / f64::from(CALLS)
}

fn pin(cpu: usize) -> io::Result<()> {
    // SAFETY: an empty set of CPUs is all zeros.
    let mut cpus: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the index is far below CPU_SETSIZE.
    unsafe { libc::CPU_SET(cpu, &mut cpus) };
    // SAFETY: the set is valid for reads of its size; 0 names the calling thread.
    called(unsafe { libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus) }).map(drop)
}

/// The median, the lowest and the highest.
fn spread(figures: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut sorted: Vec<f64> = figures.collect();
    sorted.sort_by(f64::total_cmp);
    [sorted[sorted.len() / 2], sorted[0], sorted[sorted.len() - 1]]
}

fn run(rounds: usize) -> io::Result<()> {
    pin(SERVER_CPU)?;
    // A ring that is refused is found here, before there is a child.
    let [near, _far] = connect(Row { relays: false, active: 1, silent: 0 })?;
    drop(open_ring(&near)?);
    let shapes = [false, true].into_iter();
    let rows =
        shapes.flat_map(|relays| SIZES.map(|(active, silent)| Row { relays, active, silent }));
    // With the figures of each way, round by round.
    let mut rows: Vec<_> = rows.map(|row| (row, WAYS.map(|_| Vec::new()))).collect();
    for round in 0..rounds {
        for (row, ways) in &mut rows {
            let [mut near, far] = connect(*row)?;
            let mut sums = WAYS.map(|_| [0.0; 5]);
            for turn in 0..VISITS * WAYS.len() {
                let way = (round + turn) % WAYS.len();
                let figures = visit(WAYS[way].1, *row, &mut near, &far)?;
                sums[way] = std::array::from_fn(|at| sums[way][at] + figures[at]);
            }
            ways.iter_mut().zip(sums).for_each(|(rounds, sum)| rounds.push(sum));
        }
    }
    println!("An empty system call costs {:.3} us of CPU time.", empty_call_us());
    println!("Medians of {rounds} rounds; ratios to epoll in the same round.\n");
    println!(
        "| row | active | silent | way | CPU us | ratio | calls | sleeps | requests in a turn |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (Row { relays, active, silent }, ways) in &rows {
        for ((name, _), own) in WAYS.iter().zip(ways) {
            let each = |at: usize| spread(own.iter().map(|figures| figures[at] / figures[0]))[0];
            let pairs = own.iter().zip(&ways[0]);
            let [ratio, low, high] =
                spread(pairs.map(|(own, epoll)| own[1] / own[0] / (epoll[1] / epoll[0])));
            print!("| {} | {active} | {silent} ", if *relays { "relay" } else { "hit" });
            print!("| {name} | {:.2} | {ratio:.2} ({low:.2} to {high:.2}) ", each(1));
            println!("| {:.2} | {:.3} | {:.1} |", each(2), each(4), 1.0 / each(3));
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let rounds = std::env::args().nth(1).map_or(Ok(5), |rounds| rounds.parse());
    let Ok(rounds @ 1..=1000) = rounds else {
        eprintln!("usage: batching [ROUNDS]");
        return ExitCode::from(2);
    };
    if let Err(error) = run(rounds) {
        eprintln!("batching: {error}");
        return ExitCode::from(2);
    }
    ExitCode::SUCCESS
}
