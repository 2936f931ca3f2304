//! A link to far clients: two TUN devices, and a thread that carries packets from one to the other
//! with a delay, losses and a limited rate.
//!
//! What: each end of the link is a device in another network namespace. A thread enters a
//! namespace, and its sockets and the programs that it starts are in it from then on. So nothing
//! outside is changed, and when the last thread or program has left, the kernel removes the
//! namespace with its device, also if the bench was killed.
//!
//! Each connection has the link for itself, as far clients have: it is recognised by the port of
//! the client. So connections at the same time do not disturb each other.
//!
//! ```text
//! packet --> queue of its connection (full: dropped) --> rate --> lost? --> delay --> other end
//! ```
//! What never happens: the packets of a connection overtake each other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use harness::peer;
use load::sys;
use regress::Rng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{ipproto, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde::Serialize;

/// Devices have 1500.
const PACKET_BYTES_MAX: usize = 2048;
/// Packets that are read before those that are due are sent.
const READS_MAX: usize = 64;
/// How often the relay looks whether it should end.
const LOOK_NS: u64 = 50_000_000;
/// Packets on their way, of all connections together.
const PACKETS_MAX: usize = 1 << 17;
const IPV4: u8 = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// What packets meet on their way, in each direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// From one end to the other.
    pub(crate) delay: Duration,
    /// The share of packets that are lost.
    pub(crate) loss: f64,
    /// Of each connection.
    pub(crate) bytes_per_s: u64,
    /// Bytes of a connection that may wait for the rate. A packet that comes then is dropped.
    pub(crate) queue_bytes: u64,
    /// Chooses the packets that are lost.
    pub(crate) seed: u64,
}

/// What the relay has done.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Carried {
    pub(crate) packets: u64,
    pub(crate) lost: u64,
    /// Dropped at a full queue.
    pub(crate) dropped: u64,
    /// The longest that the relay was late: it sent a packet after it was due, or it woke later
    /// than it asked to.
    pub(crate) late_max_ns: u64,
}

/// Puts the calling thread, and what it starts from now on, into a new network namespace.
///
/// # Errors
/// There is no permission; one line.
pub(crate) fn enter_namespace() -> Result<(), String> {
    // SAFETY: the call takes one integer and accesses no memory. Descriptors stay shared.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        let error = io::Error::last_os_error();
        return Err(unsupported(&format!("no network namespace: {error}; try as root")));
    }
    ip("link set lo up")?;
    // The kernel would begin later connections with what it has learnt from earlier ones.
    let no_metrics = "/proc/sys/net/ipv4/tcp_no_metrics_save";
    fs::write(no_metrics, "1").map_err(|error| unsupported(&format!("{no_metrics}: {error}")))
}

/// Sets the congestion control of the connections that these processes accept from now on. The
/// namespace has the one of the machine, and may have no other.
///
/// # Errors
/// The kernel does not have it, or does not allow it; one line.
pub(crate) fn set_congestion_control(processes: &[i32], name: &str) -> Result<(), String> {
    let set = || -> io::Result<usize> {
        let mut count = 0;
        for &process in processes {
            let pid = Pid::from_raw(process).ok_or(io::ErrorKind::InvalidInput)?;
            let there = pidfd_open(pid, PidfdFlags::empty())?;
            for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
                let entry = entry?;
                let is_socket = fs::read_link(entry.path())
                    .is_ok_and(|to| to.as_os_str().as_bytes().starts_with(b"socket:"));
                let number = entry.file_name().to_str().and_then(|number| number.parse().ok());
                let Some(number) = number.filter(|_| is_socket) else { continue };
                let socket = match pidfd_getfd(&there, number, PidfdGetfdFlags::empty()) {
                    // It was closed meanwhile, and it is not a listening one.
                    Err(Errno::BADF) => continue,
                    socket => socket?,
                };
                let protocol = sockopt::socket_protocol(&socket)?;
                let is_tcp = [Some(ipproto::TCP), Some(ipproto::MPTCP)].contains(&protocol);
                if is_tcp && sockopt::socket_acceptconn(&socket)? {
                    sockopt::set_tcp_congestion(&socket, name)?;
                    count += 1;
                }
            }
        }
        Ok(count)
    };
    match set() {
        Ok(0) => Err("it has no listening socket".to_owned()),
        Ok(_) => Ok(()),
        Err(error) => Err(format!("its congestion control cannot be {name}: {error}")),
    }
}

fn unsupported(why: &str) -> String {
    format!("not supported here: {why}")
}

/// Runs `ip` in the namespace of this thread.
fn ip(arguments: &str) -> Result<(), String> {
    let program = peer::find("ip").ok_or_else(|| unsupported("no program ip (iproute2)"))?;
    let output = Command::new(program).args(arguments.split(' ')).output();
    let output = output.map_err(|error| unsupported(&format!("ip: {error}")))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(unsupported(&format!("ip {arguments}: {}", words.trim())));
    }
    Ok(())
}

/// An end of a link.
#[derive(Debug)]
pub(crate) struct End(File);

impl End {
    /// Makes a device in the namespace of this thread. It exists as long as the `End`.
    ///
    /// # Errors
    /// There is no TUN, or no permission; one line.
    pub(crate) fn open(name: &str, address: &str) -> Result<End, String> {
        let path = "/dev/net/tun";
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open(path).map_err(|error| unsupported(&format!("{path}: {error}")))?;
        attach(&file, name).map_err(|error| unsupported(&format!("a TUN device: {error}")))?;
        ip(&format!("addr add {address} dev {name}"))?;
        ip(&format!("link set {name} up"))?;
        Ok(End(file))
    }
}

/// Makes a file of /dev/net/tun that of a new device.
fn attach(file: &File, name: &str) -> io::Result<()> {
    // SAFETY: all zeros is a valid value of an array of characters and of a union of integers,
    // addresses and a pointer, which may be null.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    assert!(name.len() < request.ifr_name.len(), "{name} is too long for a device");
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request is valid for reads and writes of its size until the call returns.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if done != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Packets for a device in the namespace of this thread that the kernel dropped because they were
/// not read in time. `None`: it is unknown.
pub(crate) fn dropped_at(name: &str) -> Option<u64> {
    dropped_in(&fs::read_to_string("/proc/thread-self/net/dev").ok()?, name)
}

/// The same, from the table of the kernel.
fn dropped_in(devices: &str, name: &str) -> Option<u64> {
    let mut lines = devices.lines().filter_map(|line| line.split_once(':'));
    let (_, figures) = lines.find(|(device, _)| device.trim() == name)?;
    // Eight of receiving, then bytes, packets and errors of sending.
    figures.split_whitespace().nth(8 + 3)?.parse().ok()
}

/// Carries packets between two ends until it `is_done`, and adds what it does to `carried`.
///
/// # Errors
/// A device fails, or more packets are on their way than [`PACKETS_MAX`].
pub(crate) fn relay(
    ends: [&End; 2],
    path: Path,
    is_done: &dyn Fn() -> bool,
    carried: &Mutex<Carried>,
) -> io::Result<()> {
    let mut routing = Routing::new(path);
    let mut number = 0;
    let mut waiting: BinaryHeap<Reverse<Packet>> = BinaryHeap::new();
    let mut buffer = [0; PACKET_BYTES_MAX];
    while !is_done() {
        let now_ns = sys::mono_ns();
        let mut now = Carried::default();
        while waiting.peek().is_some_and(|Reverse(packet)| packet.due_ns <= now_ns) {
            let Some(Reverse(packet)) = waiting.pop() else { break };
            now.late_max_ns = now.late_max_ns.max(now_ns - packet.due_ns);
            (&ends[packet.to].0).write_all(&packet.bytes)?;
        }
        let due_ns = waiting.peek().map_or(u64::MAX, |Reverse(packet)| packet.due_ns);
        let asked_ns = sys::mono_ns();
        let wait_ns = due_ns.saturating_sub(asked_ns).min(LOOK_NS);
        let wait = Timespec { tv_sec: 0, tv_nsec: wait_ns as i64 };
        let mut files =
            [0, 1].map(|at| PollFd::from_borrowed_fd(ends[at].0.as_fd(), PollFlags::IN));
        match poll(&mut files, Some(&wait)) {
            // A signal, after which the bench may be asked to stop.
            Err(Errno::INTR) => 0,
            polled => polled?,
        };
        // Packets may have waited to be read for as long.
        let over_ns = sys::mono_ns().saturating_sub(asked_ns + wait_ns);
        now.late_max_ns = now.late_max_ns.max(over_ns);
        let ready = files.map(|file| !file.revents().is_empty());
        for from in [0, 1].into_iter().filter(|from| ready[*from]) {
            for _ in 0..READS_MAX {
                let count = match (&ends[from].0).read(&mut buffer) {
                    Ok(count) => count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                };
                let bytes = &buffer[..count];
                now.packets += 1;
                number += 1;
                match routing.admit(bytes, from, sys::mono_ns()) {
                    Fate::Arrives { due_ns } => {
                        if waiting.len() == PACKETS_MAX {
                            return Err(io::Error::other("too many packets are on their way"));
                        }
                        let to = 1 - from;
                        waiting.push(Reverse(Packet { due_ns, number, to, bytes: bytes.into() }));
                    }
                    Fate::Lost => now.lost += 1,
                    Fate::Dropped => now.dropped += 1,
                }
            }
        }
        carried.lock().unwrap_or_else(PoisonError::into_inner).add(now);
    }
    Ok(())
}

impl Carried {
    fn add(&mut self, other: Carried) {
        self.packets += other.packets;
        self.lost += other.lost;
        self.dropped += other.dropped;
        self.late_max_ns = self.late_max_ns.max(other.late_max_ns);
    }
}

/// A packet on its way. They are ordered by when they arrive.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Packet {
    due_ns: u64,
    /// In the order in which they were read.
    number: u64,
    to: usize,
    bytes: Box<[u8]>,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Arrives { due_ns: u64 },
    Lost,
    Dropped,
}

/// What happens to packets in the order in which they come.
#[derive(Debug)]
struct Routing {
    path: Path,
    random: Rng,
    /// When the last packet of a connection has left its queue, ns, by the end that it comes from
    /// and the port of the client.
    free_ns: BTreeMap<(usize, u16), u64>,
}

impl Routing {
    fn new(path: Path) -> Routing {
        assert!((0.0..1.0).contains(&path.loss) && path.bytes_per_s > 0, "{path:?}");
        Routing { path, random: Rng::new(path.seed), free_ns: BTreeMap::new() }
    }

    /// What becomes of a packet from this end (1 is that of the clients).
    fn admit(&mut self, packet: &[u8], from: usize, now_ns: u64) -> Fate {
        let Path { delay, loss, bytes_per_s, queue_bytes, .. } = self.path;
        let ns = |bytes: u64| bytes * 1_000_000_000 / bytes_per_s;
        let free_ns = self.free_ns.entry((from, client_port(packet, from))).or_default();
        let begins_ns = now_ns.max(*free_ns);
        if begins_ns - now_ns > ns(queue_bytes) {
            return Fate::Dropped;
        }
        *free_ns = begins_ns + ns(packet.len() as u64);
        let due_ns = *free_ns + delay.as_nanos() as u64;
        if self.random.uniform() < loss { Fate::Lost } else { Fate::Arrives { due_ns } }
    }
}

/// The port of the client of a packet; 0 if it has none.
fn client_port(packet: &[u8], from: usize) -> u16 {
    let Some(&first) = packet.first() else { return 0 };
    if first >> 4 != IPV4 || !packet.get(9).is_some_and(|of| [TCP, UDP].contains(of)) {
        return 0;
    }
    // The source comes first.
    let at = usize::from(first & 15) * 4 + if from == 1 { 0 } else { 2 };
    let port = packet.get(at..at + 2);
    port.map_or(0, |port| u16::from_be_bytes([port[0], port[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// A packet of 1000 bytes takes a millisecond, and two may wait.
    const PATH: Path = Path {
        delay: Duration::from_millis(25),
        loss: 0.0,
        bytes_per_s: 1_000_000,
        queue_bytes: 2000,
        seed: 7,
    };

    /// A datagram from this end, of 1000 bytes.
    fn packet(client: u16, from: usize) -> Vec<u8> {
        let mut bytes = vec![0; 1000];
        (bytes[0], bytes[9]) = (0x45, UDP);
        let at = if from == 1 { 20 } else { 22 };
        bytes[at..at + 2].copy_from_slice(&client.to_be_bytes());
        bytes
    }

    #[test]
    fn packets_are_delayed_and_their_rate_is_limited_by_connection() {
        let mut routing = Routing::new(PATH);
        let mut fate =
            |client, from, now_ms| routing.admit(&packet(client, from), from, now_ms * MS);
        let arrives = |at_ms: u64| Fate::Arrives { due_ns: at_ms * MS };
        assert_eq!(fate(5000, 0, 100), arrives(126));
        assert_eq!(fate(5000, 0, 100), arrives(127));
        assert_eq!(fate(5000, 0, 100), arrives(128), "two wait");
        assert_eq!(fate(5000, 0, 100), Fate::Dropped);
        assert_eq!(fate(5000, 1, 100), arrives(126), "the other direction");
        assert_eq!(fate(5001, 0, 100), arrives(126), "another connection");
        assert_eq!(fate(5000, 0, 102), arrives(129));
        assert_eq!(fate(5000, 0, 500), arrives(526), "a queue that is empty again");
    }

    #[test]
    fn as_many_packets_are_lost_as_the_path_says_and_the_same_with_the_same_seed() {
        let lost = |seed| -> Vec<u64> {
            let mut routing = Routing::new(Path { loss: 0.01, seed, ..PATH });
            let fate = |at: &u64| routing.admit(&packet(1, 0), 0, at * MS * 2) == Fate::Lost;
            (0..100_000).filter(fate).collect()
        };
        let one = lost(1);
        assert_ne!(one, lost(0));
        assert!((900..1100).contains(&one.len()), "{}", one.len());
        assert_eq!(one, lost(1));
    }

    #[test]
    fn dropped_packets_are_read_from_the_table_of_the_kernel() {
        let table = "Inter-|   Receive        |  Transmit\n face |bytes    packets errs drop\n    \
                     lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  far0:21 22 23 24 25 26 27 28 29 \
                     30 31 32 33 34 35 36\n";
        assert_eq!((dropped_in(table, "lo"), dropped_in(table, "far0")), (Some(12), Some(32)));
        assert_eq!(dropped_in(table, "far1"), None);
    }

    #[test]
    fn the_port_of_the_client_is_read_from_both_directions() {
        assert_eq!((client_port(&packet(5, 0), 0), client_port(&packet(6, 1), 1)), (5, 6));
        let icmp = [&[0x45; 9][..], &[1], &[9; 40]].concat();
        assert_eq!((client_port(&icmp, 0), client_port(&[], 0)), (0, 0));
        assert_eq!(client_port(&packet(5, 0)[..22], 0), 0, "cut off");
    }
}
