//! Requests on the server's sockets: the sums of the BPF program, read every interval.
//!
//! An interval of the recorder is an epoch of the program, which the recorder begins with
//! [`mark`](Sockets::mark). Requests within one epoch are read as sums. Requests that cross the end
//! of an epoch are read one by one from a ring, and spread over their lives, like the requests of a
//! log.
//!
//! A response is known to have ended when the next response begins on its connection or the
//! connection closes. A sweep ends responses that have been silent for [`PAUSE_NS`]. So some
//! requests are added to their interval late, as with a log.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::{fmt, fs};

use libbpf_rs::{MapCore, MapFlags, MapHandle, RingBufferBuilder};

use super::program::{Aligned, Fields, Program};
use crate::clock;
use crate::error::{Error, Unsupported};
use crate::profile::{files, maps};
use crate::requests::NO_ROOM;
use crate::spread::{OfClass, Spread, Tally, new_histogram};
use logs::{Class, Facts, Request};

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/sockets.bpf.o")));

/// As in `sockets.bpf.c`.
const EPOCHS: u64 = 4;
const METHODS: usize = 11;
const SIZES: usize = 10;
const CLASSES: usize = METHODS * SIZES * 4;
const BUCKETS: usize = 2048;
const OCTAVE_BITS: u32 = 6;
const SPREAD_BYTES: usize = 32;

/// Programs and the functions of OpenSSL to which they are attached.
const TLS_PROBES: [(&str, &str); 9] = [
    ("tls_called", "SSL_read"),
    ("tls_called", "SSL_write"),
    ("tls_called_ex", "SSL_read_ex"),
    ("tls_called_ex", "SSL_write_ex"),
    ("tls_received", "SSL_read"),
    ("tls_received", "SSL_read_ex"),
    ("tls_sent", "SSL_write"),
    ("tls_sent", "SSL_write_ex"),
    ("tls_closed", "SSL_free"),
];

/// A response that has sent nothing for so long has ended.
const PAUSE_NS: i64 = 5_000_000_000;

const TLS: &str = "sockets: receive of TLS";

/// The note if OpenSSL was found, but the server uses another library for these connections.
const TLS_ELSEWHERE: &str =
    "the requests in it are not counted: no call of OpenSSL received them; give its access log";

/// The index of the map `unseen` for receives in OpenSSL, after the losses.
const TLS_READ: usize = LOSSES.len();

/// Kinds of the map `unseen`, as losses.
const LOSSES: [(&str, &str); 5] = [
    (NO_ROOM, "its requests are not counted"),
    ("sockets: request not spread over its life", "it counts whole, where it was found to end"),
    ("sockets: HTTP/2 connection", "its requests are not counted: give its access log"),
    (TLS, "the requests in it are not counted: with OpenSSL, give --tls; or give its access log"),
    ("sockets: call by io_uring", "its requests are not counted: give its access log"),
];

/// The sums of one epoch: requests and bytes by class, and delays.
type Sums = (Vec<u64>, Vec<u32>);

/// The counter of requests.
pub(crate) struct Sockets {
    program: Program,
    controls: MapHandle,
    sums: MapHandle,
    delays: MapHandle,
    spreads: MapHandle,
    /// The current epoch. The first one, 0, is before the recording.
    epoch: u64,
    /// The sums of each slot when it was last read.
    before: [Sums; EPOCHS as usize],
    /// The libraries whose TLS is understood. None, unless they were asked for.
    pub(crate) tls: Vec<String>,
    libraries: Libraries,
    /// Whether one of them has received anything, and what was received on the sockets till then.
    tls_read: bool,
    tls_unread: u64,
    /// Whether the recording has ended, and with it every response.
    pub(crate) ended: bool,
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Sockets {
    /// With `tls`, also probes the TLS libraries of the server.
    pub(crate) fn start(pids: &[u32], tls: bool) -> Result<Sockets, Error> {
        let mut sockets =
            Sockets::plain(pids).map_err(|Unsupported(why)| Error::Sockets { why })?;
        if tls {
            sockets.probe(pids);
            if sockets.tls.is_empty() {
                let mut why =
                    "no process of the server maps a libssl with the functions of OpenSSL \
                               or has them in its program, with their names"
                        .to_owned();
                for failed in &sockets.libraries.failed {
                    why.push_str(&format!("; {failed}"));
                }
                return Err(Error::Tls { why });
            }
        }
        Ok(sockets)
    }

    fn plain(pids: &[u32]) -> Result<Sockets, Unsupported> {
        let program = Program::start(OBJECT, pids)?;
        Ok(Sockets {
            controls: program.map("controls")?,
            sums: program.map("sums")?,
            delays: program.map("delays")?,
            spreads: program.map("spreads")?,
            program,
            tls: Vec::new(),
            libraries: Libraries::default(),
            tls_read: false,
            tls_unread: 0,
            epoch: 0,
            before: std::array::from_fn(|_| (vec![0; 2 * CLASSES], vec![0; BUCKETS])),
            ended: false,
        })
    }

    /// Probes the TLS libraries of processes that were not looked at before.
    fn probe(&mut self, pids: &[u32]) {
        for (name, file) in self.libraries.new_in(pids) {
            // The kernel keeps the file, and a probe needs a path: that of the descriptor.
            let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
            let probed =
                TLS_PROBES.map(|(program, function)| self.program.probe(program, &path, function));
            // Old libraries lack some of the functions.
            if probed.iter().any(Result::is_ok) {
                self.tls.push(name);
            }
        }
    }

    /// Begins the next epoch, at a boundary.
    pub(crate) fn mark(&mut self) {
        self.epoch += 1;
        self.control(0);
    }

    /// Follows the server's processes.
    pub(crate) fn observe(&mut self, pids: &[u32]) {
        self.program.observe(pids);
        if !self.tls.is_empty() {
            self.probe(pids);
        }
    }

    /// Places what was counted in the epochs before the current one, and returns what was lost.
    pub(crate) fn poll(&mut self, spread: &mut Spread) -> Vec<(&'static str, u64, &'static str)> {
        let now_ns = clock::monotonic_ns();
        let paused_ns = if self.ended { i64::MAX } else { now_ns - PAUSE_NS };
        self.control(paused_ns.max(0).unsigned_abs());
        self.program.run("sweep");
        for back in 0..self.epoch.min(EPOCHS - 1) {
            spread.add(back, self.take(self.epoch - 1 - back));
        }
        self.take_spreads(clock::wall_ns() - now_ns, spread);
        let unseen = self.program.take_unseen();
        let lost = LOSSES.iter().zip(unseen).filter(|(_, count)| *count > 0);
        let lost = lost.map(|(&(kind, note), count)| (kind, count, note));
        if self.tls.is_empty() {
            return lost.collect();
        }
        let (tls, mut lost): (Vec<_>, Vec<_>) = lost.partition(|(kind, ..)| *kind == TLS);
        self.tls_unread += tls.iter().map(|(_, count, _)| count).sum::<u64>();
        self.tls_read |= unseen[TLS_READ] > 0;
        // The calls of the library come after the receives, perhaps in a later interval.
        if self.ended && !self.tls_read && self.tls_unread > 0 {
            lost.push((TLS, self.tls_unread, TLS_ELSEWHERE));
        }
        lost
    }

    fn control(&self, sweep_before_ns: u64) {
        let control = [self.epoch.to_ne_bytes(), sweep_before_ns.to_ne_bytes()].concat();
        // The map has one entry, which can always be written.
        let _ = self.controls.update(&0u32.to_ne_bytes(), &control, MapFlags::ANY);
    }

    /// What was counted in an epoch since the last call.
    fn take(&mut self, epoch: u64) -> Tally {
        let slot = (epoch % EPOCHS) as u32;
        let read = |map: &MapHandle| {
            let found = map.lookup_percpu(&slot.to_ne_bytes(), MapFlags::ANY);
            found.ok().flatten().unwrap_or_default()
        };
        let mut now = (vec![0u64; 2 * CLASSES], vec![0u32; BUCKETS]);
        for of_cpu in read(&self.sums) {
            let mut fields = Fields(&of_cpu);
            now.0.iter_mut().for_each(|sum| *sum = sum.wrapping_add(fields.u64()));
        }
        for of_cpu in read(&self.delays) {
            let mut fields = Fields(&of_cpu);
            now.1.iter_mut().for_each(|sum| *sum = sum.wrapping_add(fields.u32()));
        }
        let before = &mut self.before[slot as usize];
        let tally = tally(&now, before);
        *before = now;
        tally
    }

    /// Places the requests that were handed over one by one.
    fn take_spreads(&self, wall_ns: i64, spread: &mut Spread) {
        let mut builder = RingBufferBuilder::new();
        let added = builder.add(&self.spreads, |bytes| {
            spread.place(request(bytes, wall_ns));
            0
        });
        // If it cannot be mapped now, it is read at the next boundary.
        let _ = added.map(|_| ()).and_then(|()| builder.build()?.consume());
    }
}

/// Files that may contain OpenSSL, each of which is probed once.
#[derive(Default)]
struct Libraries {
    /// By device and inode.
    seen: BTreeSet<(u64, u64)>,
    /// Processes whose files have been looked at.
    looked: BTreeSet<u32>,
    /// Why a file could not be probed.
    failed: Vec<String>,
}

impl Libraries {
    /// The files of these processes that were not seen before, with their names: the libraries that
    /// a process maps, or else its program. They are the mapped files themselves, of which the
    /// names may be those of other files since an upgrade.
    fn new_in(&mut self, pids: &[u32]) -> Vec<(String, File)> {
        self.looked.retain(|pid| pids.contains(pid));
        let mut found = Vec::new();
        for &pid in pids {
            if self.looked.insert(pid) {
                found.extend(self.files_of(pid));
            }
        }
        found.retain(|(_, file)| {
            file.metadata().is_ok_and(|file| self.seen.insert((file.dev(), file.ino())))
        });
        found
    }

    fn files_of(&mut self, pid: u32) -> Vec<(String, File)> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let mut maps = maps::parse(pid, &maps);
        maps.retain(|map| map.file_name().starts_with("libssl"));
        if maps.is_empty() {
            let program = format!("/proc/{pid}/exe");
            let name = fs::read_link(&program).map(|name| name.display().to_string());
            return name.ok().zip(File::open(program).ok()).into_iter().collect();
        }
        let opened = maps.into_iter().filter_map(|map| match files::open_mapped(&map) {
            Some(file) => Some((map.path, file)),
            None => {
                self.failed.push(format!("{} of process {pid} cannot be opened", map.path));
                None
            }
        });
        opened.collect()
    }
}

/// By how much the sums grew.
fn tally(now: &Sums, before: &Sums) -> Tally {
    let mut tally = Tally::default();
    let pairs = now.0.chunks_exact(2).zip(before.0.chunks_exact(2)).enumerate();
    for (class, (now, before)) in pairs {
        let ended = now[0].wrapping_sub(before[0]);
        if ended > 0 {
            let requests = ended as f64;
            let bytes = now[1].wrapping_sub(before[1]) as f64;
            tally.requests += requests;
            tally.ended += ended;
            tally.classes.push(OfClass { class: class_of(class), requests, ended, bytes });
        }
    }
    for (bucket, (now, before)) in now.1.iter().zip(&before.1).enumerate() {
        let count = u64::from(now.wrapping_sub(*before));
        if count > 0 {
            let histogram = tally.latency_us.get_or_insert_with(new_histogram);
            histogram.record_n(us_of(bucket), count).expect("a histogram grows to 2^37 us");
        }
    }
    tally
}

/// The class of an index of the program.
fn class_of(index: usize) -> Class {
    let size = index / 4 % SIZES;
    let facts = Facts {
        status: Some(if index / 2 % 2 == 1 { 500 } else { 200 }),
        method: (index / 4 / SIZES).min(METHODS - 1) as u8,
        bytes: Some(size.checked_sub(1).map_or(0, |decade| 10u64.pow(decade as u32))),
        tls: Some(index % 2 == 1),
        ..Facts::default()
    };
    facts.class()
}

/// The middle of a bucket, us.
fn us_of(bucket: usize) -> u64 {
    let shift = (bucket >> OCTAVE_BITS).saturating_sub(1);
    let from = ((bucket - (shift << OCTAVE_BITS)) as u64) << shift;
    from + ((1 << shift) >> 1)
}

/// A request of the ring, on the wall clock, which is so far ahead of the monotonic clock.
fn request(bytes: &[u8], wall_ns: i64) -> Request {
    debug_assert_eq!(bytes.len(), SPREAD_BYTES);
    let mut fields = Fields(bytes);
    let (begun_ns, last_ns, bytes) = (fields.ns(), fields.ns(), fields.u64());
    let (class, timed) = (fields.u32(), fields.u32() != 0);
    let life_us = (last_ns - begun_ns).max(0).unsigned_abs() / 1000;
    Request {
        stamp_ns: last_ns + wall_ns,
        start_ns: begun_ns.min(last_ns) + wall_ns,
        end_ns: last_ns + wall_ns,
        elapsed_us: timed.then_some(life_us),
        class: class_of(class as usize),
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_become_a_tally_of_what_was_added() {
        let mut before = (vec![5; 2 * CLASSES], vec![0; BUCKETS]);
        let mut now = before.clone();
        // A GET, 1k-10k, no error, TLS; a response of unknown method, no bytes, an error.
        for (class, requests, bytes) in [((SIZES + 4) * 4 + 1, 3, 4500), (2, 1, 0)] {
            now.0[2 * class] += requests;
            now.0[2 * class + 1] += bytes;
        }
        now.1[100] = 2;
        // Sums may wrap around.
        (before.1[2047], now.1[2047]) = (u32::MAX, 0);
        let found = tally(&now, &before);
        assert_eq!((found.requests, found.ended), (4.0, 4));
        let classes = found.classes.iter().map(|c| (c.class.to_string(), c.ended, c.bytes as u64));
        let expected = [("error - 0 plain", 1, 0), ("- GET 1k-10k tls", 3, 4500)];
        let expected = expected.map(|(name, ended, bytes)| (name.to_owned(), ended, bytes));
        assert_eq!(classes.collect::<Vec<_>>(), expected);
        let histogram = found.latency_us.unwrap();
        assert_eq!((histogram.len(), histogram.min()), (3, 100));
        assert!(tally(&now, &now.clone()).latency_us.is_none());
    }

    #[test]
    fn the_middle_of_a_bucket_is_within_a_hundredth() {
        for us in [0u64, 1, 127, 128, 129, 1_000, 123_456, 10_000_000, 90_000_000_000] {
            // As the program does it.
            let mut shift = 0;
            for bits in [16, 8, 4, 2, 1] {
                shift += if us >> (shift + bits + OCTAVE_BITS) > 0 { bits } else { 0 };
            }
            let bucket = ((u64::from(shift) << OCTAVE_BITS) + (us >> shift)) as usize;
            let found = us_of(bucket);
            assert!(bucket < BUCKETS && found.abs_diff(us) * 100 <= us, "{us}: {found}");
        }
    }

    #[test]
    fn a_request_of_the_ring_is_on_the_wall_clock() {
        let numbers: [u64; 4] = [1_000_000, 3_000_000, 77, (1 << 32) + (SIZES as u64 + 2) * 4];
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let found = request(&bytes, 500);
        assert_eq!((found.start_ns, found.end_ns), (1_000_500, 3_000_500));
        assert_eq!((found.elapsed_us, found.bytes), (Some(2_000), 77));
        assert_eq!(found.class.to_string(), "- GET 10-99 plain");
        let unseen = request(&[0; SPREAD_BYTES], 0);
        assert_eq!((unseen.elapsed_us, unseen.end_ns), (None, 0));
    }
}
