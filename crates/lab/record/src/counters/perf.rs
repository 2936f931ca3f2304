//! Counts from the kernel's perf events.

use std::fs::File;
use std::io::{self, Read};

use perf_event_open_sys::bindings as sys;

use super::{At, Event, Kind, Reading, Source};
use crate::procfs;
use crate::profile::event::{self, EventId};

/// Perf events for the four kinds.
pub(crate) struct Perf {
    what: [EventId; 4],
    buffer: Vec<u8>,
}

impl Perf {
    /// The processor's counters.
    pub(crate) fn hardware() -> Perf {
        let hardware = |config: sys::perf_hw_id| (sys::PERF_TYPE_HARDWARE, u64::from(config));
        Perf::of([
            hardware(sys::PERF_COUNT_HW_CPU_CYCLES),
            hardware(sys::PERF_COUNT_HW_INSTRUCTIONS),
            hardware(sys::PERF_COUNT_HW_CACHE_REFERENCES),
            hardware(sys::PERF_COUNT_HW_CACHE_MISSES),
        ])
    }

    pub(super) fn what(&self, kind: Kind) -> EventId {
        self.what[kind as usize]
    }

    /// Other events, in the order of `Kind::ALL`.
    pub(super) fn of(what: [EventId; 4]) -> Perf {
        Perf { what, buffer: Vec::new() }
    }
}

impl Source for Perf {
    type Event = File;

    fn open(&mut self, kind: Kind, at: At) -> io::Result<File> {
        let mut attributes = event::attributes(self.what(kind));
        attributes.set_disabled(0);
        attributes.read_format =
            (sys::PERF_FORMAT_TOTAL_TIME_ENABLED | sys::PERF_FORMAT_TOTAL_TIME_RUNNING) as u64;
        let (pid, cpu) = match at {
            At::Cpu(cpu) => (-1, cpu),
            At::Thread(tid) => {
                attributes.set_inherit(1);
                (tid.cast_signed(), -1)
            }
            At::Here => {
                attributes.set_exclude_kernel(1);
                attributes.set_exclude_hv(1);
                (0, -1)
            }
        };
        event::open(&mut attributes, pid, cpu).map(File::from)
    }

    fn cpus(&self) -> Vec<i32> {
        event::cpus_online()
    }

    fn threads(&self, pid: u32) -> Vec<u32> {
        procfs::threads(pid)
    }

    fn parent(&mut self, pid: u32) -> Option<u32> {
        procfs::stat_of(pid, &mut self.buffer).map(|stat| stat.parent)
    }
}

impl Event for File {
    fn read(&mut self) -> io::Result<Reading> {
        let mut bytes = [0; 24];
        self.read_exact(&mut bytes)?;
        let (words, _) = bytes.as_chunks::<8>();
        let [count, enabled_ns, running_ns] =
            [words[0], words[1], words[2]].map(u64::from_ne_bytes);
        Ok(Reading { count, enabled_ns, running_ns })
    }
}

/// Why it cannot be opened, and what would help.
pub(super) fn why(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::EINVAL) => {
            "the processor, or the hypervisor above it, has no such counter".to_owned()
        }
        _ => event::why(error),
    }
}
