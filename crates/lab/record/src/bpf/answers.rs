//! What keeps threads from answering: the sums of the BPF program, read every interval.
//!
//! The programs run at every receive and send of the server. At high rates that would cost the
//! server too much, so an interval with many events is followed by several in which the programs
//! are not attached.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use trial::answers::{AnswerRow, UpstreamRow};
use trial::{Loss, Writer};

use super::ports::Ports;
use super::program::{Aligned, Fields, Program, forget, of_each_cpu};
use crate::clock;
use crate::error::Unsupported;
use crate::redact;

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/answers.bpf.o")));

/// More events than this in a second, and the next intervals are not seen. At 0.2 µs an event,
/// this is 0.2 % of a CPU.
const EVENTS_PER_S_MAX: f64 = 10_000.0;
/// Intervals that are not seen after one with more events.
const REST: u64 = 9;

/// The length of the kernel's ticks in the first interval. Later they are measured.
const TICK_NS: f64 = 4e6;

/// How often ports are looked up that a process of before may have opened.
const PORTS_EVERY: u64 = 10;

/// Kinds of events that are not seen.
const NO_ROOM_THREADS: usize = 0;
const NO_ROOM_PEERS: usize = 1;

const AF_UNIX: u16 = 1;
const AF_INET6: u16 = 10;

/// The sums of the program, in its order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    served: u64,
    overlapped: u64,
    occupied_ns: u64,
    begun: u64,
    late: u64,
    late_ticks: u64,
    /// The most so far.
    at_once: u64,
    ticks: u64,
    ticks_ns: u64,
    /// Receives and sends.
    events: u64,
}

impl Sums {
    fn of(bytes: &[u8]) -> Sums {
        let mut fields = Fields(bytes);
        let mut next = || fields.u64();
        Sums {
            served: next(),
            overlapped: next(),
            occupied_ns: next(),
            begun: next(),
            late: next(),
            late_ticks: next(),
            at_once: next(),
            ticks: next(),
            ticks_ns: next(),
            events: next(),
        }
    }

    /// Of all CPUs.
    fn total(per_cpu: &[Vec<u8>]) -> Sums {
        per_cpu.iter().map(|bytes| Sums::of(bytes)).fold(Sums::default(), |all, one| Sums {
            served: all.served + one.served,
            overlapped: all.overlapped + one.overlapped,
            occupied_ns: all.occupied_ns + one.occupied_ns,
            begun: all.begun + one.begun,
            late: all.late + one.late,
            late_ticks: all.late_ticks + one.late_ticks,
            at_once: all.at_once.max(one.at_once),
            ticks: all.ticks.max(one.ticks),
            ticks_ns: all.ticks_ns.max(one.ticks_ns),
            events: all.events + one.events,
        })
    }
}

/// Waits for another server: their number, their sum, and the sum of those inside a request.
type Waits = [u64; 3];

/// The sampler.
pub(crate) struct Answers {
    program: Program,
    sums: MapHandle,
    peers: MapHandle,
    ports: Ports,
    occupied: MapHandle,
    /// What is forgotten when the programs are attached again.
    followed: [MapHandle; 2],
    /// Since when the sums grow, on the monotonic clock; `None` if the programs are not attached.
    since_ns: Option<i64>,
    /// The next interval in which the programs are attached.
    next: u64,
    /// The first ticks that were seen, and their time.
    first_tick: Option<(u64, u64)>,
    before: Sums,
    peers_before: BTreeMap<Vec<u8>, Waits>,
    /// Addresses are not written.
    redact: bool,
}

impl Answers {
    pub(crate) fn start(pids: &[u32], redact: bool) -> Result<Answers, Unsupported> {
        let mut program = Program::start(OBJECT, pids)?;
        program.detach();
        let map = |name| program.map(name);
        let followed = [map("threads")?, map("asked")?];
        let (sums, peers) = (map("sums")?, map("peers")?);
        let (ports, occupied) = (Ports::of(&program)?, map("occupied")?);
        Ok(Answers {
            program,
            sums,
            peers,
            ports,
            occupied,
            followed,
            since_ns: None,
            next: 0,
            first_tick: None,
            before: Sums::default(),
            peers_before: BTreeMap::new(),
            redact,
        })
    }

    pub(crate) fn baseline(&mut self, pids: &[u32]) {
        self.program.observe(pids);
        self.take();
        self.program.take_unseen();
        self.begin(0, pids);
    }

    pub(crate) fn interval(
        &mut self,
        index: u64,
        pids: &[u32],
        writer: &mut Writer,
    ) -> Option<Loss> {
        let unseen = self.program.take_unseen();
        if let Some(since_ns) = self.since_ns {
            let now_ns = clock::monotonic_ns();
            let sampled_ns = now_ns - since_ns;
            self.since_ns = Some(now_ns);
            let (grown, peers) = self.take();
            if grown.events as f64 > EVENTS_PER_S_MAX * sampled_ns as f64 / 1e9 {
                self.next = index + 1 + REST;
            }
            // Without some of the threads, the row would show too little.
            if unseen[NO_ROOM_THREADS] == 0 {
                let (row, upstreams) = self.rows(index, sampled_ns, &grown, peers);
                writer.answers(row, &upstreams);
            }
        }
        self.program.observe(pids);
        let count = unseen[NO_ROOM_THREADS] + unseen[NO_ROOM_PEERS];
        (count > 0).then(|| Loss {
            kind: "waits of requests: no room".to_owned(),
            count,
            note: "more threads or other servers than the maps can hold".to_owned(),
        })
    }

    /// Attaches or detaches the programs for the interval that begins.
    pub(crate) fn begin(&mut self, index: u64, pids: &[u32]) {
        if index < self.next {
            self.program.detach();
            self.since_ns = None;
            return;
        }
        self.ports.follow(pids, index.is_multiple_of(PORTS_EVERY));
        if self.since_ns.is_none() {
            self.followed.iter().for_each(forget);
            // The map has one entry, which can always be written.
            let none = 0u64.to_ne_bytes();
            let _ = self.occupied.update(&0u32.to_ne_bytes(), &none, MapFlags::ANY);
            self.take();
            // They could be attached at the start; if that fails now, the interval is not seen.
            self.since_ns = self.program.attach().is_ok().then(clock::monotonic_ns);
        }
    }

    fn rows(
        &mut self,
        interval: u64,
        sampled_ns: i64,
        grown: &Sums,
        peers: BTreeMap<Vec<u8>, Waits>,
    ) -> (AnswerRow, Vec<UpstreamRow>) {
        let now = (self.before.ticks, self.before.ticks_ns);
        let first = self.first_tick.or(Some(now)).filter(|first| first.0 > 0);
        self.first_tick = first;
        let passed = first.map(|first| (now.0 - first.0, now.1 - first.1));
        let tick_ns = match passed {
            Some((ticks, ns)) if ticks > 0 => ns as f64 / ticks as f64,
            _ => TICK_NS,
        };
        let row = AnswerRow {
            interval,
            sampled_ns,
            served: grown.served,
            overlapped: grown.overlapped,
            occupied_ns: ns(grown.occupied_ns),
            at_once: grown.at_once,
            begun: grown.begun,
            late: grown.late,
            late_ns: (grown.late_ticks as f64 * tick_ns) as i64,
        };
        let mut named: BTreeMap<String, Waits> = BTreeMap::new();
        for (peer, waits) in peers {
            let name = name_of(&peer);
            let name = if self.redact { redact::words(&name) } else { name };
            let sum = named.entry(name).or_default();
            *sum = std::array::from_fn(|at| sum[at] + waits[at]);
        }
        let upstreams = named.into_iter().map(|(peer, [waits, waited, inside])| UpstreamRow {
            interval,
            peer,
            waits,
            waited_ns: ns(waited),
            inside_ns: ns(inside),
        });
        (row, upstreams.collect())
    }

    /// By how much the sums grew since the last call, and those of other servers with a wait.
    fn take(&mut self) -> (Sums, BTreeMap<Vec<u8>, Waits>) {
        let now = Sums::total(&of_each_cpu(&self.sums));
        let before = std::mem::replace(&mut self.before, now);
        let grown = Sums {
            served: now.served - before.served,
            overlapped: now.overlapped - before.overlapped,
            occupied_ns: now.occupied_ns - before.occupied_ns,
            begun: now.begun - before.begun,
            late: now.late - before.late,
            late_ticks: now.late_ticks - before.late_ticks,
            events: now.events - before.events,
            ..now
        };
        let mut peers = BTreeMap::new();
        for key in self.peers.keys() {
            let Ok(Some(bytes)) = self.peers.lookup(&key, MapFlags::ANY) else { continue };
            let mut fields = Fields(&bytes);
            let now: Waits = std::array::from_fn(|_| fields.u64());
            let before = self.peers_before.insert(key.clone(), now).unwrap_or_default();
            if now[0] > before[0] {
                peers.insert(key, std::array::from_fn(|at| now[at].saturating_sub(before[at])));
            }
        }
        (grown, peers)
    }
}

fn ns(sum: u64) -> i64 {
    i64::try_from(sum).unwrap_or(i64::MAX)
}

/// The address of another server, from the program's key.
fn name_of(key: &[u8]) -> String {
    let (Some(address), Some(rest)) = (key.first_chunk::<16>(), key.get(16..20)) else {
        return String::new();
    };
    let port = u16::from_be_bytes([rest[0], rest[1]]);
    let ip = match u16::from_ne_bytes([rest[2], rest[3]]) {
        AF_UNIX => return "a Unix socket".to_owned(),
        AF_INET6 => IpAddr::from(Ipv6Addr::from(*address)).to_canonical(),
        _ => IpAddr::from(Ipv4Addr::new(address[0], address[1], address[2], address[3])),
    };
    SocketAddr::new(ip, port).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_all_cpus_are_added_and_the_most_is_taken() {
        let bytes = |of: [u64; 10]| of.iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<u8>>();
        let all = Sums::total(&[bytes([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]), bytes([1; 10])]);
        let Sums { served, late_ticks, at_once, ticks, ticks_ns, .. } = all;
        assert_eq!((served, late_ticks, at_once, ticks, ticks_ns), (2, 7, 7, 8, 9));
    }

    #[test]
    fn servers_have_the_names_that_users_write() {
        let key = |address: [u8; 16], port: u16, family: u16| {
            let mut key = address.to_vec();
            key.extend(port.to_be_bytes());
            key.extend(family.to_ne_bytes());
            key.extend([0; 4]);
            key
        };
        let mut four = [0; 16];
        four[..4].copy_from_slice(&[127, 0, 0, 1]);
        assert_eq!(name_of(&key(four, 5432, 2)), "127.0.0.1:5432");
        let mapped = Ipv4Addr::new(10, 1, 2, 3).to_ipv6_mapped().octets();
        assert_eq!(name_of(&key(mapped, 80, AF_INET6)), "10.1.2.3:80");
        assert_eq!(name_of(&key(Ipv6Addr::LOCALHOST.octets(), 80, AF_INET6)), "[::1]:80");
        assert_eq!(name_of(&key([0; 16], 0, AF_UNIX)), "a Unix socket");
    }
}
