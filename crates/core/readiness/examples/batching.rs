//! `cargo run --release -p readiness --example batching [-- ROUNDS MILLISECONDS]`: the CPU time of
//! a request if one system call receives and sends for all connections of a turn.
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
//! Every response is compared with what was sent, and every request is counted on both sides. Exit
//! codes: 0 success, 2 nothing could be measured, 101 an assertion failed.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use ::io_uring::opcode::{Recv, RecvMulti, Send};
use ::io_uring::squeue::Entry;
use ::io_uring::types::{BufRingEntry, Fixed};
use ::io_uring::{IoUring, cqueue};
use readiness::{Choice, Events, Interest, Kind, Poller, Token};

const HEAD_END: &[u8] = b"\r\n\r\n";
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
const SUBMISSIONS: u32 = 2048;
const COMPLETIONS: u32 = 4 * SUBMISSIONS;
/// Each message fits into one buffer.
const BUFFER_BYTES: usize = 2048;
const _: () = assert!(RESPONSE.len() < BUFFER_BYTES && REQUEST.len() < BUFFER_BYTES);
/// The group of the provided buffers.
const GROUP: u16 = 0;
/// How long the clients wait for any response before they give up.
const PATIENCE: Duration = Duration::from_secs(10);
const ROUNDS_MAX: u64 = 1000;
const VISIT_MS_MAX: u64 = 60_000;

/// What is measured: connections with one outstanding request each, and silent ones.
#[derive(Clone, Copy)]
struct Row {
    relays: bool,
    active: usize,
    silent: usize,
}

const ROWS: [Row; 9] = {
    let hit = Row { relays: false, active: 1, silent: 0 };
    let relay = Row { relays: true, ..hit };
    [
        hit,
        Row { active: 8, ..hit },
        Row { active: 64, ..hit },
        Row { active: 512, ..hit },
        Row { active: 64, silent: 4000, ..hit },
        relay,
        Row { active: 8, ..relay },
        Row { active: 64, ..relay },
        Row { active: 512, ..relay },
    ]
};

impl Row {
    /// The connections of the server: clients and silent ones, or clients and then, in the same
    /// order, the upstream connection of each.
    fn connections(&self) -> usize {
        if self.relays { 2 * self.active } else { self.active + self.silent }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} active", if self.relays { "relay" } else { "hit" }, self.active)?;
        if self.silent > 0 { write!(f, ", {} silent", self.silent) } else { Ok(()) }
    }
}

/// A way to receive and send; see the head of this file.
trait Way {
    /// Waits, then serves what has arrived.
    fn turn(&mut self, exchange: &mut Exchange) -> io::Result<()>;
}

type Open = fn(&[TcpStream], Row) -> io::Result<Box<dyn Way + '_>>;
const WAYS: [(&str, Open); 3] = [
    ("epoll", |near, _| Ok(Box::new(Single::open(near)?))),
    ("io_uring", |near, row| Ok(Box::new(Completing::open(near, row)?))),
    ("epoll, io_uring", |near, _| Ok(Box::new(Batching::open(near)?))),
];

/// What the server does with a message, whatever the way, and what it has counted.
struct Exchange {
    row: Row,
    /// Clients that have not closed.
    open: usize,
    counts: Counts,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    answered: u64,
    calls: u64,
    turns: u64,
}

impl Exchange {
    /// Takes what one receive returned. Returns the connection to which the answer goes, and the
    /// answer. `None`: the connection has ended.
    fn take<'b>(&mut self, from: usize, bytes: &'b [u8]) -> Option<(usize, &'b [u8])> {
        let active = self.row.active;
        if bytes.is_empty() {
            assert!(from < active, "only clients close");
            self.open -= 1;
            return None;
        }
        let end = bytes.windows(HEAD_END.len()).position(|window| window == HEAD_END);
        let head = end.expect("a message is received whole") + HEAD_END.len();
        let is_request = from < active;
        let whole = if is_request { head } else { head + RESPONSE.len() - HEAD.len() };
        assert_eq!(bytes.len(), whole, "one message is outstanding, and it is received whole");
        self.counts.answered += u64::from(!self.row.relays || !is_request);
        Some(match (self.row.relays, is_request) {
            (false, _) => (from, &RESPONSE),
            (true, true) => (from + active, bytes),
            (true, false) => (from - active, bytes),
        })
    }
}

/// `epoll`.
struct Single<'n> {
    near: &'n [TcpStream],
    poller: Poller,
    events: Events,
    buffer: Vec<u8>,
}

impl Single<'_> {
    fn open(near: &[TcpStream]) -> io::Result<Single<'_>> {
        let (poller, events) = watch(near)?;
        Ok(Single { near, poller, events, buffer: vec![0; BUFFER_BYTES] })
    }
}

impl Way for Single<'_> {
    fn turn(&mut self, exchange: &mut Exchange) -> io::Result<()> {
        self.poller.wait(&mut self.events, None)?;
        exchange.counts.calls += 1;
        for event in self.events.iter() {
            let from = event.token.slot() as usize;
            let count = (&self.near[from]).read(&mut self.buffer)?;
            exchange.counts.calls += 1;
            let Some((to, answer)) = exchange.take(from, &self.buffer[..count]) else {
                self.poller.remove(self.near[from].as_raw_fd())?;
                continue;
            };
            let sent = (&self.near[to]).write(answer)?;
            exchange.counts.calls += 1;
            assert_eq!(sent, answer.len(), "a socket has room for one message");
        }
        Ok(())
    }
}

/// `epoll, io_uring`.
struct Batching {
    ring: IoUring,
    fds: Vec<RawFd>,
    poller: Poller,
    events: Events,
    /// A buffer for each event.
    buffers: Vec<u8>,
}

impl Batching {
    fn open(near: &[TcpStream]) -> io::Result<Batching> {
        let (poller, events) = watch(near)?;
        let fds: Vec<RawFd> = near.iter().map(AsRawFd::as_raw_fd).collect();
        let ring = open_ring()?;
        ring.submitter().register_files(&fds)?;
        Ok(Batching { ring, fds, poller, events, buffers: vec![0; EVENTS_MAX * BUFFER_BYTES] })
    }
}

impl Way for Batching {
    fn turn(&mut self, exchange: &mut Exchange) -> io::Result<()> {
        self.poller.wait(&mut self.events, None)?;
        let buffers = self.buffers.chunks_exact_mut(BUFFER_BYTES);
        for ((at, event), buffer) in (0..).zip(self.events.iter()).zip(buffers) {
            let from = event.token.slot();
            let receive = Recv::new(Fixed(from), buffer.as_mut_ptr(), BUFFER_BYTES as u32);
            let receive = receive.flags(libc::MSG_DONTWAIT).build();
            push(&mut self.ring, &receive.user_data(u64::from(from) << 32 | at));
        }
        self.ring.submit()?;
        exchange.counts.calls += 2;
        let mut sending = 0;
        for _ in 0..self.events.len() {
            let receive = self.ring.completion().next().expect("a receive that does not wait");
            let count = completed(receive.result())?;
            let (from, at) = (receive.user_data() >> 32, receive.user_data() as u32 as usize);
            let bytes = &self.buffers[at * BUFFER_BYTES..][..count];
            match exchange.take(from as usize, bytes) {
                Some((to, answer)) => push(&mut self.ring, &send(to, answer, 0)),
                None => {
                    self.poller.remove(self.fds[from as usize])?;
                    continue;
                }
            }
            sending += 1;
        }
        if sending > 0 {
            self.ring.submit()?;
            exchange.counts.calls += 1;
        }
        for _ in 0..sending {
            let sent = self.ring.completion().next().expect("a send that does not wait");
            check_sent(&sent)?;
        }
        Ok(())
    }
}

/// `io_uring`.
struct Completing {
    /// Dropped before the buffers.
    ring: IoUring,
    provided: Provided,
    /// Sends whose completions have not been taken. Each completes in the call that submits it.
    sending: usize,
}

/// In the user data of a send; a receive has the number of its connection.
const IS_SEND: u64 = 1 << 63;

impl Completing {
    fn open(near: &[TcpStream], row: Row) -> io::Result<Completing> {
        let fds: Vec<RawFd> = near.iter().map(AsRawFd::as_raw_fd).collect();
        let mut ring = open_ring()?;
        ring.submitter().register_files(&fds)?;
        // A client may send its next request before the completion of the last send is taken.
        // More buffers than necessary would cost misses in the caches.
        let provided = Provided::register(&ring, (2 * row.active).next_power_of_two() as u16)?;
        for from in 0..fds.len() as u32 {
            push(&mut ring, &receive_always(from));
            if from % (SUBMISSIONS / 2) == 0 {
                ring.submit()?;
            }
        }
        Ok(Completing { ring, provided, sending: 0 })
    }
}

impl Way for Completing {
    fn turn(&mut self, exchange: &mut Exchange) -> io::Result<()> {
        self.ring.submit_and_wait(self.sending + 1)?;
        exchange.counts.calls += 1;
        while let Some(completion) = { self.ring.completion().next() } {
            let data = completion.user_data();
            if data & IS_SEND != 0 {
                check_sent(&completion)?;
                self.provided.give((data >> 32) as u16);
                self.sending -= 1;
                continue;
            }
            let (from, count) = (data as usize, completed(completion.result())?);
            let buffer = cqueue::buffer_select(completion.flags());
            let bytes = buffer.map_or(&[][..], |id| &self.provided.buffer(id)[..count]);
            if let Some((to, answer)) = exchange.take(from, bytes) {
                let id = u64::from(buffer.expect("received bytes have a buffer"));
                push(&mut self.ring, &send(to, answer, IS_SEND | id << 32));
                self.sending += 1;
                if !cqueue::more(completion.flags()) {
                    push(&mut self.ring, &receive_always(from as u32));
                }
            } else if let Some(id) = buffer {
                self.provided.give(id);
            }
        }
        Ok(())
    }
}

/// Buffers that the kernel takes in the order in which they are given.
struct Provided {
    entries: *mut BufRingEntry,
    buffers: Vec<u8>,
    /// How many were given, modulo 2^16.
    tail: u16,
}

#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u8; 4096]);

impl Provided {
    fn register(ring: &IoUring, count: u16) -> io::Result<Provided> {
        assert!(count.is_power_of_two(), "the kernel masks the tail");
        let bytes = usize::from(count) * size_of::<BufRingEntry>();
        // Leaked, because the kernel releases the pages after the ring is closed. A few for a visit.
        let pages = vec![Page([0; 4096]); bytes.div_ceil(size_of::<Page>())].leak();
        let entries = pages.as_mut_ptr().cast();
        // SAFETY: the entries are in whole zeroed pages that are never freed.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(entries as u64, count, GROUP, 0)?;
        }
        let buffers = vec![0; usize::from(count) * BUFFER_BYTES];
        let mut provided = Provided { entries, buffers, tail: 0 };
        (0..count).for_each(|id| provided.give(id));
        Ok(provided)
    }

    fn buffer(&self, id: u16) -> &[u8] {
        &self.buffers[usize::from(id) * BUFFER_BYTES..][..BUFFER_BYTES]
    }

    /// Gives a buffer to the kernel.
    fn give(&mut self, id: u16) {
        let mask = self.buffers.len() / BUFFER_BYTES - 1;
        let buffer = self.buffers[usize::from(id) * BUFFER_BYTES..].as_mut_ptr();
        // SAFETY: the index is below the number of entries. The kernel reads no entry at or behind
        // the tail.
        let entry = unsafe { &mut *self.entries.add(usize::from(self.tail) & mask) };
        entry.set_addr(buffer as u64);
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

fn open_ring() -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_single_issuer().setup_defer_taskrun().setup_coop_taskrun();
    builder.setup_cqsize(COMPLETIONS).build(SUBMISSIONS)
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

fn check_sent(completion: &cqueue::Entry) -> io::Result<()> {
    let wanted = completion.user_data() as u32 as usize;
    assert_eq!(completed(completion.result())?, wanted, "a socket has room for one message");
    Ok(())
}

fn receive_always(from: u32) -> Entry {
    RecvMulti::new(Fixed(from), GROUP).build().user_data(u64::from(from))
}

/// A system call's result, or that of an operation of the ring.
fn completed(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

/// As [`completed`], for libc's functions.
fn called(result: libc::c_int) -> io::Result<libc::c_int> {
    if result >= 0 { Ok(result) } else { Err(io::Error::last_os_error()) }
}

/// The clients and the upstream server: a closed loop for `length`. Returns the requests.
fn load(far: &[TcpStream], row: Row, length: Duration) -> io::Result<u64> {
    let talking = if row.relays { 2 * row.active } else { row.active };
    let (mut poller, mut events) = watch(&far[..talking])?;
    let (clients, upstream) = far.split_at(row.active);
    let send_request = |client: &TcpStream, sent: &mut u64| {
        *sent += 1;
        (&*client).write_all(REQUEST)
    };
    let (mut sent, mut whole, mut relayed) = (0, 0, 0);
    let mut received = vec![0; row.active];
    let mut buffer = vec![0; BUFFER_BYTES];
    let end = Instant::now() + length;
    for client in clients {
        send_request(client, &mut sent)?;
    }
    while whole < sent {
        poller.wait(&mut events, Some(PATIENCE))?;
        assert!(!events.is_empty(), "{} requests have no response", sent - whole);
        let goes_on = Instant::now() < end || sent < 2 * warm_up(row);
        for event in events.iter() {
            let at = event.token.slot() as usize;
            let bytes = (&far[at]).read(&mut buffer)?;
            let bytes = &buffer[..bytes];
            let Some(received) = received.get_mut(at) else {
                assert_eq!(bytes, REQUEST, "a request is relayed whole");
                relayed += 1;
                (&upstream[at - row.active]).write_all(&RESPONSE)?;
                continue;
            };
            let is_next = !bytes.is_empty() && RESPONSE[*received..].starts_with(bytes);
            assert!(is_next, "a response is what the server sends, and comes once");
            *received += bytes.len();
            if *received == RESPONSE.len() {
                whole += 1;
                if goes_on {
                    *received = 0;
                    send_request(&clients[at], &mut sent)?;
                }
            }
        }
    }
    assert_eq!(relayed, if row.relays { sent } else { 0 }, "each request is relayed once");
    clients.iter().try_for_each(|client| client.shutdown(Shutdown::Write))?;
    Ok(sent)
}

/// What one way costs in one row, for each request.
struct Cost {
    cpu_us: f64,
    calls: f64,
    turns: f64,
    /// The part of the time in which the server had its CPU.
    busy: f64,
}

/// The first requests, which are not measured.
fn warm_up(row: Row) -> u64 {
    10 * row.active as u64
}

/// Serves until all clients have closed. The first requests are not measured.
fn serve(open: Open, near: &[TcpStream], row: Row) -> io::Result<(u64, Cost)> {
    let mut way = open(near, row)?;
    let mut exchange = Exchange { row, open: row.active, counts: Counts::default() };
    let mut begin = None;
    while exchange.open > 0 {
        way.turn(&mut exchange)?;
        exchange.counts.turns += 1;
        if begin.is_none() && exchange.counts.answered >= warm_up(row) {
            begin = Some((exchange.counts, cpu_time(), Instant::now()));
        }
    }
    let cpu = cpu_time();
    let (before, cpu_before, since) = begin.expect("the clients send twice as many");
    let (wall, cpu) = (since.elapsed(), cpu - cpu_before);
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    assert_eq!(threads, 1, "the kernel has no worker threads for the ring");
    let counts = exchange.counts;
    let requests = (counts.answered - before.answered) as f64;
    let cost = Cost {
        cpu_us: cpu.as_nanos() as f64 / 1000.0 / requests,
        calls: (counts.calls - before.calls) as f64 / requests,
        turns: (counts.turns - before.turns) as f64 / requests,
        busy: cpu.as_secs_f64() / wall.as_secs_f64(),
    };
    Ok((counts.answered, cost))
}

/// Measures one way in one row, on new connections and with a new child.
fn visit(open: Open, row: Row, length: Duration) -> io::Result<Cost> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..row.connections() {
        far.push(TcpStream::connect(listener.local_addr()?)?);
        near.push(listener.accept()?.0);
    }
    for stream in near.iter().chain(&far) {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
    }
    let (mut parent, mut child) = UnixStream::pair()?;
    parent.set_read_timeout(Some(PATIENCE))?;
    child.set_read_timeout(Some(PATIENCE))?;
    // SAFETY: this process has one thread.
    let pid = called(unsafe { libc::fork() })?;
    if pid == 0 {
        drop((near, parent));
        pin(OTHER_CPU)?;
        child.write_all(&load(&far, row, length)?.to_le_bytes())?;
        // The silent connections stay open until the server has stopped.
        assert_eq!(child.read(&mut [0])?, 0, "the server says nothing");
        std::process::exit(0);
    }
    drop((far, child));
    let served = serve(open, &near, row);
    let mut sent = [0; 8];
    let reported = parent.read_exact(&mut sent);
    drop((near, parent));
    let mut status = 0;
    // SAFETY: `status` is valid for writes.
    called(unsafe { libc::waitpid(pid, &raw mut status, 0) })?;
    let (answered, cost) = served?;
    reported?;
    assert_eq!(status, 0, "the clients have ended without an error");
    assert_eq!(answered, u64::from_le_bytes(sent), "each request was answered once");
    Ok(cost)
}

/// The CPU time of this process, with the threads that the kernel may have made for a ring.
fn cpu_time() -> Duration {
    let mut spent = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one timespec on this stack frame; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut spent) };
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
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
fn spread(costs: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut sorted: Vec<f64> = costs.collect();
    sorted.sort_by(f64::total_cmp);
    [sorted[sorted.len() / 2], sorted[0], sorted[sorted.len() - 1]]
}

fn run(rounds: usize, length: Duration) -> io::Result<()> {
    open_ring().map_err(|error| {
        let what = "io_uring with DEFER_TASKRUN (Linux 6.1) is not available";
        io::Error::new(error.kind(), format!("{what}: {error}"))
    })?;
    pin(SERVER_CPU)?;
    // For each row, the costs of each way, round by round.
    let mut costs: Vec<[Vec<Cost>; WAYS.len()]> = ROWS.iter().map(|_| Default::default()).collect();
    for round in 0..rounds {
        for (row, costs) in ROWS.iter().zip(&mut costs) {
            for turn in 0..WAYS.len() {
                let way = (round + turn) % WAYS.len();
                costs[way].push(visit(WAYS[way].1, *row, length)?);
            }
        }
    }
    println!("CPU time of the server, medians of {rounds} rounds; ratios to epoll in the round\n");
    println!("| row | way | CPU, us a request | ratio | calls a request | requests a turn | busy |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (row, costs) in ROWS.iter().zip(&costs) {
        for ((way, _), own) in WAYS.iter().zip(costs) {
            let [cpu, ..] = spread(own.iter().map(|cost| cost.cpu_us));
            let ratios = own.iter().zip(&costs[0]).map(|(own, epoll)| own.cpu_us / epoll.cpu_us);
            let [ratio, low, high] = spread(ratios);
            let [calls, ..] = spread(own.iter().map(|cost| cost.calls));
            let [turns, ..] = spread(own.iter().map(|cost| cost.turns));
            let [busy, ..] = spread(own.iter().map(|cost| cost.busy));
            print!("| {row} | {way} | {cpu:.2} | {ratio:.2} ({low:.2} to {high:.2}) ");
            println!("| {calls:.2} | {:.1} | {:.0} % |", 1.0 / turns, 100.0 * busy);
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap_or(0)).collect();
    let (rounds, ms) = match arguments.as_slice() {
        [] => (5, 1000),
        [rounds @ 1..=ROUNDS_MAX, ms @ 1..=VISIT_MS_MAX] => (*rounds, *ms),
        _ => {
            eprintln!("usage: batching [ROUNDS MILLISECONDS]");
            return ExitCode::from(2);
        }
    };
    match run(rounds as usize, Duration::from_millis(ms)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("batching: {error}");
            ExitCode::from(2)
        }
    }
}
