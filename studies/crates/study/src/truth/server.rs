//! The server whose costs are known, because it sets them.
//!
//! One thread, one epoll set. A request burns CPU time in several named procedures, each of which
//! represents a procedure group: reading the request, walking a table, copying the response (which
//! takes longer for a miss). In addition the server does periodic work ("house") that does not
//! depend on the rate. The duration of each, and the changing share of misses, are drawn from a
//! seed.
//!
//! The CPU time that the kernel needs to wake the thread, to receive and to send depends on the
//! rate and on other work on the machine. That would bend the line. Therefore each request, and
//! each turn of the house, ends with a burner that fills it up to its exact cost, and all CPU time
//! since the previous one counts as part of it. The CPU time really spent is counted by the
//! thread's own clock and printed when the server stops, so that the recorder cannot know it
//! before.

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

/// The groups of the burners, and the rules that find their samples. The functions that a burner
/// calls (to read the clock) count as part of it.
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

/// The period of the house.
const HOUSE: Duration = Duration::from_millis(20);
/// How long the share of misses stays the same.
const MIX: Duration = Duration::from_millis(250);
/// The longest request head.
const HEAD_BYTES_MAX: usize = 8 * 1024;
const EVENTS_MAX: usize = 256;
const HEAD_END: &[u8] = b"\r\n\r\n";
/// The epoll token of the listener; no connection has it.
const LISTENER: u64 = u64::MAX;
/// Bodies of hits and of misses: their sizes fall into different decades.
const HIT_BYTES: usize = 500;
const MISS_BYTES: usize = 5_000;

/// Burns CPU time and returns how much. Each burner has a different constant, so that the linker
/// cannot fold two of them into one.
macro_rules! burner {
    ($name:ident, $turn:literal) => {
        #[inline(never)]
        fn $name(ns: u64) -> u64 {
            let begin = thread_cpu_ns();
            let mut sum = 0_u64;
            loop {
                // Some microseconds: most time is spent here, not in reading the clock.
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

/// The random costs of a request.
#[derive(Clone, Copy, Debug)]
struct Costs {
    request_ns: u64,
    table_ns: u64,
    copy_hit_ns: u64,
    copy_miss_ns: u64,
    /// Everything outside of the groups: the work of the kernel, filled up.
    other_ns: u64,
    house_ns: u64,
}

impl Costs {
    /// Draws costs of one or two milliseconds a request, to which each part contributes much.
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

/// The CPU time spent on each part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Requests answered, of both classes.
    pub requests: u64,
    /// Misses among them.
    pub misses: u64,
    /// CPU time of hits including everything around them, ns.
    pub hits_ns: u64,
    /// The same for misses.
    pub misses_ns: u64,
    /// CPU time in the group that reads requests, ns.
    pub request_ns: u64,
    /// CPU time in the group that walks the table, ns.
    pub table_ns: u64,
    /// CPU time in the group that copies, ns.
    pub copy_ns: u64,
    /// CPU time of the house including everything around it, ns.
    pub house_ns: u64,
    /// Wall time of all of this, ns.
    pub length_ns: u64,
}

/// The parameters of the server.
#[derive(Clone, Debug)]
pub struct Truth {
    /// Seed of the costs and of the shares of misses.
    pub seed: u64,
    /// Whether it walks its table, which is the cost that the change removes.
    pub walks: bool,
}

/// Commands to a running server.
#[derive(Debug, Default)]
pub struct Control {
    /// Stop.
    pub stop: AtomicBool,
    /// Reset the counts.
    pub restart: AtomicBool,
}

/// A client's connection, with the received part of a head.
struct Peer {
    stream: TcpStream,
    head: Vec<u8>,
    /// Bytes of responses that the socket has not accepted yet.
    unsent: Vec<u8>,
}

struct Server {
    listener: TcpListener,
    epoll: rustix::fd::OwnedFd,
    peers: HashMap<u64, Peer>,
    log: BufWriter<File>,
    costs: Costs,
    walks: bool,
    random: Rng,
    /// Misses in a thousand requests.
    misses_permille: u64,
    /// CPU time of the thread up to which everything is accounted for, ns.
    accounted_ns: u64,
    spent: Spent,
}

impl Truth {
    /// Serves until it is stopped, and writes Squid's log format to `log`. `ready` is called with
    /// the address. Gives the CPU time spent since the last reset of the counts.
    ///
    /// # Errors
    /// The system provides no socket or descriptor, or the log cannot be written.
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
            if control.restart.swap(false, Ordering::Relaxed) {
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

    /// CPU time since the last call.
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
            self.peers.insert(token, Peer { stream, head: Vec::new(), unsent: Vec::new() });
        }
    }

    /// Answers the requests received on a connection. A connection that ended is dropped.
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
        write!(peer.unsent, "HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n")?;
        peer.unsent.resize(peer.unsent.len() + bytes, b'x');
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

/// Sends as much as the socket accepts. Gives whether the connection stays open.
fn send(peer: &mut Peer) -> bool {
    while !peer.unsent.is_empty() {
        match peer.stream.write(&peer.unsent) {
            Ok(n) => drop(peer.unsent.drain(..n)),
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

    /// Sends requests and gives the CPU time spent and the log.
    fn served(truth: &Truth, times: u64) -> (Spent, String) {
        let home = tempfile::tempdir().unwrap();
        let log = home.path().join("log");
        let control = Control::default();
        let spent = std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let server =
                scope.spawn(|| truth.serve(&log, &control, move |at| sender.send(at).unwrap()));
            let stream = TcpStream::connect(receiver.recv().unwrap()).unwrap();
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
            assert!(from.read_line(&mut line).unwrap() > 0, "the response ended");
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                length = value.trim().parse().unwrap();
            }
        }
        from.read_exact(&mut vec![0; length]).unwrap();
    }

    #[test]
    fn it_counts_the_cpu_time_spent_and_logs_every_request() {
        let (spent, log) = served(&Truth { seed: 7, walks: true }, 40);
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
    fn without_the_table_nothing_is_walked() {
        let (spent, _) = served(&Truth { seed: 7, walks: false }, 5);
        assert_eq!(spent.table_ns, 0);
        assert!(spent.request_ns > 0);
    }
}
