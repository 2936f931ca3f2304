//! Lock waits: the sums of the BPF program, taken out every interval.
//!
//! The places with the longest waits get their names and one row each. The rest of an interval is
//! one row by kind and owner, so an hour of a busy machine stays small and no wait is left out.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use trial::profile::{Frame, Owner, Stack};
use trial::waits::{LockKind, WaitRow, Word};
use trial::{Loss, Writer};

use super::program::{Aligned, Fields, Program};
use super::symbols::Symbols;
use crate::error::{Error, Unsupported};

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/locks.bpf.o")));

/// As in `locks.bpf.c`.
const FRAMES: usize = 10;
const USER_FRAMES: usize = 8;
const UNSEEN_KINDS: [&str; 4] = ["kernel wait", "place of a kernel wait", "futex wait", "futex"];

/// Places per interval with their own row, for kernel locks and for futexes separately.
const PLACES_MAX: usize = 40;

/// Frames of a place that are kept, starting with the procedure that requested the lock.
const KEPT_FRAMES: usize = 6;

/// Sums taken out of a map per call.
const BATCH: u32 = 256;

/// Flags of `lock:contention_begin`.
const SPIN: u32 = 1;
const READ: u32 = 2;
const WRITE: u32 = 4;
const RT: u32 = 8;
const PERCPU: u32 = 16;
const MUTEX: u32 = 32;

/// The sampler of lock waits.
pub(crate) struct Locks {
    program: Program,
    waits: MapHandle,
    futexes: MapHandle,
    symbols: Symbols,
}

/// The sums of one place.
struct Place {
    kind: LockKind,
    owner: Owner,
    word: Option<Word>,
    ips: Vec<u64>,
    waits: u64,
    total_ns: i64,
    max_ns: i64,
    spun_ns: i64,
    timed_out: u64,
}

/// Identifies a row: places with the same key share one.
type Key = (LockKind, Owner, u32, Option<Word>);

impl Locks {
    pub(crate) fn start(pids: &[u32]) -> Result<Locks, Unsupported> {
        let program = Program::start(OBJECT, pids)?;
        let (waits, futexes) = (program.map("waits")?, program.map("futexes")?);
        Ok(Locks { program, waits, futexes, symbols: Symbols::new() })
    }

    pub(crate) fn baseline(&mut self, pids: &[u32]) {
        self.program.observe(pids);
        take(&self.waits, kernel_place);
        take(&self.futexes, futex_place);
        self.program.take_unseen();
    }

    pub(crate) fn interval(
        &mut self,
        index: u64,
        pids: &[u32],
        writer: &mut Writer,
    ) -> Result<Vec<Loss>, Error> {
        let mut rows = BTreeMap::new();
        for places in [take(&self.waits, kernel_place), take(&self.futexes, futex_place)] {
            self.add(index, places, writer, &mut rows)?;
        }
        writer.waits(&rows.into_values().collect::<Vec<_>>())?;
        // Last, because the symbols of processes that ended were still needed above.
        for pid in self.program.observe(pids) {
            self.symbols.forget(pid);
        }
        let unseen = self.program.take_unseen();
        let lost = UNSEEN_KINDS.iter().zip(unseen).filter(|(_, count)| *count > 0);
        Ok(lost
            .map(|(kind, count)| Loss {
                kind: format!("locks: no room for a {kind}"),
                count,
                note: "more at the same time than the maps can hold".to_owned(),
            })
            .collect())
    }

    fn add(
        &mut self,
        index: u64,
        mut places: Vec<Place>,
        writer: &mut Writer,
        rows: &mut BTreeMap<Key, WaitRow>,
    ) -> Result<(), Error> {
        places.sort_by_key(|place| Reverse(place.total_ns));
        for (at, place) in places.into_iter().enumerate() {
            let named = at < PLACES_MAX;
            let frames = if named { self.frames(&place) } else { Vec::new() };
            let frames =
                frames.iter().map(|frame| writer.frame(frame)).collect::<Result<Vec<_>, _>>()?;
            let stack = writer.stack(&Stack { frames, whole: false })?;
            let word = place.word.filter(|_| named);
            let row = rows.entry((place.kind, place.owner, stack, word)).or_insert(WaitRow {
                interval: index,
                kind: place.kind,
                owner: place.owner,
                stack,
                word,
                waits: 0,
                total_ns: 0,
                max_ns: 0,
                spun_ns: 0,
                timed_out: 0,
            });
            row.waits += place.waits;
            row.total_ns += place.total_ns;
            row.max_ns = row.max_ns.max(place.max_ns);
            row.spun_ns += place.spun_ns;
            row.timed_out += place.timed_out;
        }
        Ok(())
    }

    fn frames(&mut self, place: &Place) -> Vec<Frame> {
        if let Some(word) = place.word {
            let mut frames = self.symbols.user(word.pid, &place.ips);
            frames.truncate(KEPT_FRAMES);
            return frames;
        }
        let frames: Vec<Frame> = place.ips.iter().map(|&ip| self.symbols.kernel(ip)).collect();
        let is_caller = |frame: &Frame| !frame.symbol.as_deref().is_some_and(is_locking);
        // If all of them belong to the locks themselves, the outermost says the most.
        let from = frames.iter().position(is_caller).unwrap_or(frames.len().saturating_sub(1));
        frames.into_iter().skip(from).take(KEPT_FRAMES).collect()
    }
}

/// Takes all sums out of a map.
fn take(map: &MapHandle, read: impl Fn(&[u8], &[u8]) -> Place) -> Vec<Place> {
    match map.lookup_and_delete_batch(BATCH, MapFlags::ANY, MapFlags::ANY) {
        Ok(sums) => sums.map(|(key, sums)| read(&key, &sums)).collect(),
        // A kernel that lacks this call also lacks the tracepoints of locks.
        Err(_) => Vec::new(),
    }
}

fn kernel_place(key: &[u8], sums: &[u8]) -> Place {
    let (mut key, mut sums) = (Fields(key), Fields(sums));
    Place {
        kind: kind_of(key.u32()),
        owner: match key.u32() {
            1 => Owner::Server,
            2 => Owner::Recorder,
            _ => Owner::Other,
        },
        word: None,
        ips: key.addresses(FRAMES),
        waits: sums.u64(),
        total_ns: sums.ns(),
        max_ns: sums.ns(),
        spun_ns: sums.ns(),
        timed_out: 0,
    }
}

fn futex_place(key: &[u8], sums: &[u8]) -> Place {
    let (mut key, mut sums) = (Fields(key), Fields(sums));
    let pid = key.u32();
    let _padding = key.u32();
    Place {
        kind: LockKind::Futex,
        owner: Owner::Server,
        word: Some(Word { pid, address: key.u64() }),
        waits: sums.u64(),
        total_ns: sums.ns(),
        max_ns: sums.ns(),
        spun_ns: 0,
        timed_out: sums.u64(),
        ips: sums.addresses(USER_FRAMES),
    }
}

fn kind_of(flags: u32) -> LockKind {
    let one = |read, write| if flags & READ != 0 { read } else { write };
    match flags {
        flags if flags & MUTEX != 0 => LockKind::Mutex,
        flags if flags & RT != 0 => LockKind::RealTime,
        flags if flags & PERCPU != 0 => one(LockKind::PercpuRead, LockKind::PercpuWrite),
        flags if flags & SPIN != 0 && flags & (READ | WRITE) == 0 => LockKind::Spin,
        flags if flags & SPIN != 0 => one(LockKind::SpinRead, LockKind::SpinWrite),
        flags if flags & (READ | WRITE) != 0 => {
            one(LockKind::SemaphoreRead, LockKind::SemaphoreWrite)
        }
        _ => LockKind::Unnamed,
    }
}

/// Whether a kernel procedure is part of a lock, or of the path to our program.
fn is_locking(symbol: &str) -> bool {
    let bare = symbol.trim_start_matches('_');
    const BEGINNINGS: [&str; 24] = [
        "bpf_prog_",
        "bpf_trace_run",
        "bpf_trace_contention",
        "traceiter_contention",
        "native_queued_",
        "pv_queued_",
        "queued_spin_",
        "queued_read_",
        "queued_write_",
        "resilient_",
        "raw_spin_",
        "raw_read_",
        "raw_write_",
        "raw_callee_save_",
        "mutex_",
        "ww_mutex_",
        "rt_mutex_",
        "rt_spin_",
        "rwsem_",
        "down_",
        "up_",
        "task_rq_lock",
        "percpu_down_",
        "percpu_rwsem_",
    ];
    BEGINNINGS.iter().any(|beginning| bare.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_flags_name_the_kind() {
        let kinds = [
            (SPIN, LockKind::Spin),
            (SPIN | READ, LockKind::SpinRead),
            (SPIN | WRITE, LockKind::SpinWrite),
            (MUTEX | SPIN, LockKind::Mutex),
            (READ, LockKind::SemaphoreRead),
            (WRITE, LockKind::SemaphoreWrite),
            (PERCPU | READ, LockKind::PercpuRead),
            (PERCPU | WRITE, LockKind::PercpuWrite),
            (RT | SPIN, LockKind::RealTime),
            (0, LockKind::Unnamed),
        ];
        for (flags, kind) in kinds {
            assert_eq!(kind_of(flags), kind, "{flags:#x}");
        }
    }

    #[test]
    fn the_place_is_the_procedure_that_requested_the_lock() {
        for part in
            ["_raw_spin_lock_irqsave", "__mutex_lock.constprop.0", "rwsem_down_write_slowpath"]
        {
            assert!(is_locking(part), "{part}");
        }
        assert!(!is_locking("ep_poll") && !is_locking("futex_wait"));
    }
}
