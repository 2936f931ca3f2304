//! File accesses: the sums of the BPF program, read every interval.
//!
//! The program sums by direction and size and never resets its sums. A row of the trial is the
//! current sum minus the sum when the recording began.

use std::collections::BTreeSet;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use trial::files::{Delays, Direction, FileRow};
use trial::{Histogram, Loss, Writer};

use super::program::{Aligned, Fields, Program, UNSEEN};
use crate::error::Unsupported;

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/files.bpf.o")));

/// As in `files.bpf.c`.
const BINS: u32 = 88;
const FINE_BINS: u32 = 16;
const FINE_END: u64 = 16 << 10;
const MIDDLE_BINS: u32 = 56;
const MIDDLE_END: u64 = 128 << 10;
const BUCKETS: usize = 256;
const OCTAVE_FIRST: u32 = 6;

/// Kinds of events that are not followed, as in `files.bpf.c`, with a note on each.
const LOSSES: [(usize, &str, &str); 7] = [
    (0, "files: no room for a call", "more calls in flight than the map can hold"),
    (1, "files: no room for a descriptor", "more open files than the map can hold"),
    (
        2,
        "files: call on a descriptor that was open before",
        "not followed: one of the server's own logs, or a descriptor from another process",
    ),
    (3, "files: mapped", "reads and writes through a mapping are not seen"),
    (4, "files: call of io_uring or AIO", "requests through the rings are not seen"),
    (5, "files: spliced or copied in the kernel", "not followed"),
    (CLOSED_UNSEEN, "files: close was not seen", "dup2, or the process ended"),
];
const CLOSED_UNSEEN: usize = 6;
const UNTOUCHED: usize = 7;
const READ_AND_WRITTEN: usize = 8;

/// The sampler of file accesses.
pub(crate) struct Files {
    program: Program,
    bins: MapHandle,
    files: MapHandle,
    /// The sums when the recording began, and each bin's number of objects at the last read.
    base: Vec<Sums>,
    objects: Vec<u64>,
    seen: Seen,
}

/// Counts that are not losses, but are worth a note.
#[derive(Default)]
struct Seen {
    untouched: u64,
    read_and_written: u64,
}

/// One bin of the program.
#[derive(Clone, Default)]
struct Sums {
    objects: u64,
    numbers: [u64; 11],
    first: Vec<u32>,
    total: Vec<u32>,
}

impl Files {
    pub(crate) fn start(pids: &[u32]) -> Result<Files, Unsupported> {
        let program = Program::start(OBJECT, pids)?;
        let (bins, files) = (program.map("bins")?, program.map("files")?);
        let (base, objects, seen) = (Vec::new(), Vec::new(), Seen::default());
        let mut files = Files { program, bins, files, base, objects, seen };
        files.baseline(pids);
        Ok(files)
    }

    pub(crate) fn baseline(&mut self, pids: &[u32]) {
        self.follow(pids);
        self.base = (0..2 * BINS).map(|bin| sums(&self.value(bin))).collect();
        self.objects = self.base.iter().map(|sums| sums.objects).collect();
        self.program.take_unseen();
    }

    pub(crate) fn interval(&mut self, pids: &[u32], writer: &mut Writer) -> Vec<Loss> {
        let mut rows = Vec::new();
        for (bin, at) in (0..2 * BINS).zip(0..) {
            let value = self.value(bin);
            let objects = Fields(&value).u64();
            // Most bins have nothing new, so their distributions are not read.
            if objects != self.objects[at] {
                self.objects[at] = objects;
                rows.push(row(bin, &sums(&value), &self.base[at]));
            }
        }
        writer.files(rows);
        let ended = self.follow(pids);
        let mut unseen = self.program.take_unseen();
        unseen[CLOSED_UNSEEN] += ended;
        self.seen.untouched += unseen[UNTOUCHED];
        self.seen.read_and_written += unseen[READ_AND_WRITTEN];
        losses(&unseen)
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        let open = self.files.keys().count() as u64;
        let counts = [
            (self.seen.untouched, "files were opened and closed without a read or a write"),
            (self.seen.read_and_written, "files were read and written, and count by the first"),
            (open, "files were open at the end, and are in no row"),
        ];
        let nonzero = counts.iter().filter(|(count, _)| *count > 0);
        nonzero.map(|(count, what)| format!("{count} {what}")).collect()
    }

    /// Follows the server's processes and returns how many files were open in those that ended.
    fn follow(&mut self, pids: &[u32]) -> u64 {
        let gone = self.program.observe(pids);
        if gone.is_empty() {
            return 0;
        }
        let of_them = |key: &Vec<u8>| gone.contains(&Fields(key).u32());
        let ended: BTreeSet<Vec<u8>> = self.files.keys().filter(of_them).collect();
        ended.iter().filter(|key| self.files.delete(key).is_ok()).count() as u64
    }

    fn value(&self, bin: u32) -> Vec<u8> {
        let value = self.bins.lookup(&bin.to_ne_bytes(), MapFlags::ANY);
        value.ok().flatten().unwrap_or_default()
    }
}

fn sums(value: &[u8]) -> Sums {
    let mut fields = Fields(value);
    Sums {
        objects: fields.u64(),
        numbers: std::array::from_fn(|_| fields.u64()),
        first: (0..BUCKETS).map(|_| fields.u32()).collect(),
        total: (0..BUCKETS).map(|_| fields.u32()).collect(),
    }
}

fn losses(unseen: &[u64; UNSEEN]) -> Vec<Loss> {
    let lost = LOSSES.iter().filter(|(at, ..)| unseen[*at] > 0);
    lost.map(|(at, kind, note)| Loss {
        kind: (*kind).to_owned(),
        count: unseen[*at],
        note: (*note).to_owned(),
    })
    .collect()
}

/// The row of a bin.
fn row(bin: u32, now: &Sums, base: &Sums) -> FileRow {
    let (size_from, size_below) = sizes_of(bin % BINS);
    let grown: Vec<u64> =
        now.numbers.iter().zip(base.numbers).map(|(now, base)| now.wrapping_sub(base)).collect();
    let [calls, bytes, open, first, rest, close, elapsed, needless, short, with, needless_ns] =
        grown.try_into().expect("the array has the numbers of a bin");
    let ns = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    FileRow {
        direction: if bin < BINS { Direction::Read } else { Direction::Written },
        size_from,
        size_below,
        objects: now.objects.wrapping_sub(base.objects),
        calls,
        bytes,
        open_ns: ns(open),
        first_ns: ns(first),
        rest_ns: ns(rest),
        close_ns: ns(close),
        elapsed_ns: ns(elapsed),
        needless,
        after_short: short,
        needless_objects: with,
        needless_ns: ns(needless_ns),
        first: delays(&now.first, &base.first),
        total: delays(&now.total, &base.total),
    }
}

/// The sizes in a bin: from, and below.
fn sizes_of(bin: u32) -> (u64, Option<u64>) {
    if bin < FINE_BINS {
        let from = u64::from(bin) << 10;
        return (from, Some(from + (1 << 10)));
    }
    if bin < FINE_BINS + MIDDLE_BINS {
        let from = FINE_END + (u64::from(bin - FINE_BINS) << 11);
        return (from, Some(from + (2 << 10)));
    }
    let from = MIDDLE_END << (bin - FINE_BINS - MIDDLE_BINS);
    (from, (bin + 1 < BINS).then_some(2 * from))
}

fn delays(now: &[u32], base: &[u32]) -> Delays {
    let mut histogram = Histogram::<u64>::new(2).expect("two significant digits are allowed");
    for (bucket, (now, base)) in now.iter().zip(base).enumerate() {
        let count = u64::from(now.wrapping_sub(*base));
        if count > 0 {
            histogram.record_n(middle_ns(bucket), count).expect("it grows to hold every value");
        }
    }
    Delays::new(&histogram)
}

/// The middle of a bucket, ns.
fn middle_ns(bucket: usize) -> u64 {
    let octave = OCTAVE_FIRST + u32::try_from(bucket / 8).unwrap_or(0);
    let low = (8 + bucket as u64 % 8) << (octave - 3);
    low + (1 << (octave - 3)) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_of_sizes_have_no_gaps() {
        let mut below = Some(0);
        for bin in 0..BINS {
            let (from, next) = sizes_of(bin);
            assert_eq!(Some(from), below, "bin {bin}");
            below = next;
        }
        assert_eq!(below, None, "the last has no bound");
        let found = [0, 15, 16, 71, 72].map(sizes_of);
        let kib = |from: u64, below: u64| (from << 10, Some(below << 10));
        assert_eq!(found, [kib(0, 1), kib(15, 16), kib(16, 18), kib(126, 128), kib(128, 256)]);
    }

    #[test]
    fn a_delay_is_the_middle_of_its_bucket() {
        assert_eq!([0, 1, 8].map(middle_ns), [68, 76, 136]);
        let mut now = vec![0; BUCKETS];
        now[8] = 3;
        let histogram = delays(&now, &vec![0; BUCKETS]).histogram_ns().unwrap();
        assert_eq!((histogram.len(), histogram.max()), (3, 136));
    }
}
