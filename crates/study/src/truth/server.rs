//! The server whose costs are known, because it sets them.
//!
//! One thread, one epoll set. A request burns CPU time in procedures with names of their own, of
//! which each stands for a procedure group: reading the request, walking a table, copying the
//! answer (which a miss does longer). Besides, it keeps house at a steady pace, whatever the rate.
//! How long each takes, and how the share of misses moves, is drawn from a seed.
//!
//! What the kernel takes to wake it, to receive and to send differs with the rate and with whatever
//! else the machine does. That would bend the line: so each request, and each turn of the house,
//! fills up to what it is to cost by a last burner, and all CPU time since the one before counts as
//! its own. What was truly spent is counted by the thread's own clock and told when the server is
//! stopped; whoever records it cannot know it before.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use load::sys::thread_cpu_ns;
use runtime::sim::Rng;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use serde::{Deserialize, Serialize};

/// The burners: what each is called, and the rule that finds its samples. What stands below it (the
/// reading of the clock) counts as its own.
pub(super) const RULES: &str = r#"
[[group]]
name = "request"
rule = [{ symbol = "truth_reads_the_request", anywhere = true }]
[[group]]
name = "table"
rule = [{ symbol = "truth_walks_its_table", anywhere = true }]
[[group]]
name = "copy"
rule = [{ symbol = "truth_copies_the_answer", anywhere = true }]
[[group]]
name = "house"
rule = [{ symbol = "truth_keeps_house", anywhere = true }]
"#;

/// How often it keeps house.
const HOUSE: Duration = Duration::from_millis(20);
/// How long one share of misses lasts.
const MIX: Duration = Duration::from_millis(250);
/// A head that is longer is no request of ours.
const HEAD_BYTES_MAX: usize = 8 * 1024;
const EVENTS_MAX: usize = 256;
const HEAD_END: &[u8] = b"\r\n\r\n";
/// The epoll token of the listener; no connection has it.
const LISTENER: u64 = u64::MAX;
/// Bodies of hits and of misses: their sizes fall into different decades.
const HIT_BYTES: usize = 500;
const MISS_BYTES: usize = 5_000;

/// Burns CPU time and gives how much. Each has a constant of its own, so that no two are the same
/// code, which a linker would fold into one.
macro_rules! burner {
    ($name:ident, $turn:literal) => {
        #[inline(never)]
        fn $name(ns: u64) -> u64 {
            let begin = thread_cpu_ns();
            let mut sum = 0_u64;
            loop {
                // Some microseconds: the time is spent here and not in looking at the clock.
                for step in 0..4_000_u64 {
                    sum = std::hint::black_box(sum.rotate_left($turn) ^ step);
                }
                let burned = thread_cpu_ns() - begin;
                if burned >= ns {
                    return burned;
                }
            }
        }
    };
}

burner!(truth_reads_the_request, 3);
burner!(truth_walks_its_table, 5);
burner!(truth_copies_the_answer, 7);
burner!(truth_keeps_house, 11);
burner!(truth_fills_up, 13);

/// What one request costs, as drawn.
#[derive(Clone, Copy, Debug)]
struct Costs {
    request_ns: u64,
    table_ns: u64,
    copy_hit_ns: u64,
    copy_miss_ns: u64,
    /// All that is in none of the groups: what the kernel does, filled up.
    other_ns: u64,
    house_ns: u64,
}

impl Costs {
    /// A millisecond or two for a request, of which each part is a good share.
    fn draw(random: &mut Rng) -> Costs {
        let mut us = |least: u64, more: u64| 1_000 * (least + random.below(more));
        Costs {
            request_ns: us(200, 400),
            table_ns: us(400, 600),
            copy_hit_ns: us(100, 300),
            copy_miss_ns: us(600, 1_200),
            other_ns: us(300, 100),
            house_ns: us(400, 900),
        }
    }
}

/// What was spent, and on what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Requests answered, of both classes.
    pub requests: u64,
    /// Of these, misses.
    pub misses: u64,
    /// For hits, with all around them, ns of CPU time.
    pub hits_ns: u64,
    /// The same of misses.
    pub misses_ns: u64,
    /// In the procedures of each group, ns.
    pub request_ns: u64,
    /// The table's.
    pub table_ns: u64,
    /// The copies'.
    pub copy_ns: u64,
    /// For the house, with all around it, ns.
    pub house_ns: u64,
    /// Wall time that all of this took, ns.
    pub length_ns: u64,
}

/// What the server is to be.
#[derive(Clone, Debug)]
pub struct Truth {
    /// Costs and shares of misses come from it.
    pub seed: u64,
    /// Whether it walks its table: the burn that a change removes.
    pub walks: bool,
}

/// What is asked of a running server.
#[derive(Debug, Default)]
pub struct Control {
    /// To end.
    pub stop: AtomicBool,
    /// To count what is spent from here on.
    pub anew: AtomicBool,
}

/// A client's connection, with the part of a head that has come.
struct Peer {
    stream: TcpStream,
    head: Vec<u8>,
    /// Bytes of answers that the socket has not taken.
    owed: Vec<u8>,
}

struct Server {
    listener: TcpListener,
    epoll: rustix::fd::OwnedFd,
    peers: HashMap<u64, Peer>,
    log: BufWriter<File>,
    costs: Costs,
    walks: bool,
    random: Rng,
    /// Of a thousand requests, so many are misses.
    misses_permille: u64,
    /// CPU time of the thread until which all is accounted for, ns.
    accounted_ns: u64,
    spent: Spent,
}

impl Truth {
    /// Serves until it is told to stop, writing Squid's log format to `log`; `ready` is told the
    /// address. What was spent is counted from when that was last asked for.
    ///
    /// # Errors
    /// The system refuses a socket, a descriptor, or the log.
    pub fn serve(
        &self,
        log: &Path,
        control: &Control,
        ready: impl FnOnce(SocketAddr),
    ) -> io::Result<Spent> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let mut random = Rng::new(self.seed);
        let costs = Costs::draw(&mut random);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let token = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, token, epoll::EventFlags::IN)?;
        let log = OpenOptions::new().append(true).create(true).open(log)?;
        ready(listener.local_addr()?);
        let mut server = Server {
            listener,
            epoll,
            peers: HashMap::new(),
            log: BufWriter::new(log),
            costs,
            walks: self.walks,
            random,
            misses_permille: 0,
            accounted_ns: thread_cpu_ns(),
            spent: Spent::default(),
        };
        server.run(control)?;
        Ok(server.spent)
    }
}

impl Server {
    fn run(&mut self, control: &Control) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut began = Instant::now();
        let (mut house, mut mix) = (Instant::now(), Instant::now());
        while !control.stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            if control.anew.swap(false, Ordering::Relaxed) {
                self.account();
                self.spent = Spent::default();
                began = now;
            }
            if now >= mix {
                self.misses_permille = 100 + self.random.below(600);
                mix += MIX;
            }
            if now >= house {
                self.log.flush()?;
                let already = thread_cpu_ns() - self.accounted_ns;
                truth_keeps_house(self.costs.house_ns.saturating_sub(already));
                self.spent.house_ns += self.account();
                house += HOUSE;
            }
            let sleep = house.saturating_duration_since(Instant::now());
            let sleep = rustix::event::Timespec::try_from(sleep).unwrap_or_default();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&sleep)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    token => self.serve(token)?,
                }
            }
        }
        self.log.flush()?;
        self.spent.length_ns = began.elapsed().as_nanos() as u64;
        Ok(())
    }

    /// CPU time since what was accounted for last; it is accounted for now.
    fn account(&mut self) -> u64 {
        let now = thread_cpu_ns();
        now - std::mem::replace(&mut self.accounted_ns, now)
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let token = stream.as_raw_fd() as u64;
            let events = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(token), events)?;
            self.peers.insert(token, Peer { stream, head: Vec::new(), owed: Vec::new() });
        }
    }

    /// Answers what has come on a connection; one that ended is dropped.
    fn serve(&mut self, token: u64) -> io::Result<()> {
        let Some(mut peer) = self.peers.remove(&token) else { return Ok(()) };
        let mut buffer = [0; 4096];
        loop {
            match peer.stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(n) => peer.head.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Ok(()),
            }
            while let Some(end) = memchr::memmem::find(&peer.head, HEAD_END) {
                let head: Vec<u8> = peer.head.drain(..end + HEAD_END.len()).collect();
                self.answer(&head, &mut peer)?;
            }
            if peer.head.len() > HEAD_BYTES_MAX {
                return Ok(());
            }
        }
        if send(&mut peer) {
            self.peers.insert(token, peer);
        }
        Ok(())
    }

    fn answer(&mut self, head: &[u8], peer: &mut Peer) -> io::Result<()> {
        let miss = self.random.below(1_000) < self.misses_permille;
        let costs = self.costs;
        self.spent.request_ns += truth_reads_the_request(costs.request_ns);
        if self.walks {
            self.spent.table_ns += truth_walks_its_table(costs.table_ns);
        }
        let (copy_ns, bytes, word) = if miss {
            (costs.copy_miss_ns, MISS_BYTES, "MISS")
        } else {
            (costs.copy_hit_ns, HIT_BYTES, "HIT")
        };
        self.spent.copy_ns += truth_copies_the_answer(copy_ns);
        write!(peer.owed, "HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n")?;
        peer.owed.resize(peer.owed.len() + bytes, b'x');
        send(peer);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (s, ms) = (now.as_secs(), now.subsec_millis());
        let path = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        let path = String::from_utf8_lossy(path);
        writeln!(
            self.log,
            "{s}.{ms:03}      1 127.0.0.1 TCP_{word}/200 {bytes} GET http://truth.invalid{path} - \
             HIER_NONE/- text/plain"
        )?;
        let walked_ns = if self.walks { costs.table_ns } else { 0 };
        let whole_ns = costs.request_ns + walked_ns + copy_ns + costs.other_ns;
        let already = thread_cpu_ns() - self.accounted_ns;
        truth_fills_up(whole_ns.saturating_sub(already));
        let spent = self.account();
        self.spent.requests += 1;
        if miss {
            self.spent.misses += 1;
            self.spent.misses_ns += spent;
        } else {
            self.spent.hits_ns += spent;
        }
        Ok(())
    }
}

/// Sends what is owed as far as the socket takes it; whether the connection stays.
fn send(peer: &mut Peer) -> bool {
    while !peer.owed.is_empty() {
        match peer.stream.write(&peer.owed) {
            Ok(n) => drop(peer.owed.drain(..n)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::sync::mpsc;

    use super::*;

    /// Asks so many times and gives what was spent and the log.
    fn asked(truth: &Truth, times: u64) -> (Spent, String) {
        let home = tempfile::tempdir().unwrap();
        let log = home.path().join("log");
        let control = Control::default();
        let spent = std::thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let server =
                scope.spawn(|| truth.serve(&log, &control, move |at| tell.send(at).unwrap()));
            let stream = TcpStream::connect(told.recv().unwrap()).unwrap();
            let mut answers = BufReader::new(stream.try_clone().unwrap());
            for number in 0..times {
                write!(&stream, "GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
                read_answer(&mut answers);
            }
            control.stop.store(true, Ordering::Relaxed);
            server.join().unwrap().unwrap()
        });
        (spent, std::fs::read_to_string(&log).unwrap())
    }

    fn read_answer(from: &mut impl BufRead) {
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            assert!(from.read_line(&mut line).unwrap() > 0, "the answer ended");
            if let Some(told) = line.strip_prefix("Content-Length: ") {
                length = told.trim().parse().unwrap();
            }
        }
        from.read_exact(&mut vec![0; length]).unwrap();
    }

    #[test]
    fn it_tells_what_it_spent_and_logs_every_request() {
        let (spent, log) = asked(&Truth { seed: 7, walks: true }, 40);
        assert_eq!(spent.requests, 40);
        assert_eq!(log.lines().count(), 40);
        assert_eq!(log.matches("TCP_MISS").count() as u64, spent.misses);
        let burned = spent.request_ns + spent.table_ns + spent.copy_ns;
        assert!(burned <= spent.hits_ns + spent.misses_ns, "{spent:?}");
        let costs = Costs::draw(&mut Rng::new(7));
        assert!(spent.table_ns >= 40 * costs.table_ns, "{spent:?}");
        let hit_ns = costs.request_ns + costs.table_ns + costs.copy_hit_ns + costs.other_ns;
        assert!(spent.hits_ns >= (40 - spent.misses) * hit_ns, "filled up: {spent:?}");
    }

    #[test]
    fn without_its_table_it_walks_none() {
        let (spent, _) = asked(&Truth { seed: 7, walks: false }, 5);
        assert_eq!(spent.table_ns, 0);
        assert!(spent.request_ns > 0);
    }
}
