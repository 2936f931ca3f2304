//! The sampling events: opened on every CPU, for every process, kernel and user.
//!
//! What is counted: the processor's cycles, if a probe shows that they count (a busy loop must show
//! about twice as many when it runs twice as long), because their interrupt also arrives where
//! ordinary interrupts are disabled. Otherwise the kernel's `cpu-clock`, a timer, which attributes
//! time with interrupts disabled to the place where they are enabled again.
//!
//! One set of events serves all purposes: stacks are copied for the samples of every process,
//! although only the server's are used. Idle CPUs and kernel threads have no user stack, and
//! copying one takes a few microseconds. A second set for the server would need an event for each
//! of its threads and CPUs.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use perf_event_open_sys::bindings as sys;
use perf_event_open_sys::bindings::perf_event_attr;

use super::records::STACKS;
use super::ring::Ring;
use crate::clock;
use crate::error::Unsupported;

/// Registers sampled with a stack: bp, sp, ip (asm/perf_regs.h of x86).
pub(crate) const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;

/// Bytes of user stack copied with a sample.
pub(crate) const STACK_BYTES: u32 = 16 << 10;

/// Longest call chain, frames.
const CHAIN_MAX: u16 = 120;

/// Size of a sample with an average chain, without its stack.
const CHAIN_BYTES: u64 = 512;

/// The rings can store samples for this long; they are read ten times per second.
const HELD_MS: u64 = 400;

/// Bounds of a ring.
const RING_BYTES_MIN: u64 = 128 << 10;
const RING_BYTES_MAX: u64 = 16 << 20;

/// Plausible range of cycles per nanosecond.
const CYCLES_PER_NS: std::ops::Range<f64> = 0.05..20.0;

/// The counted event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Event {
    /// The kernel's timer, ns.
    CpuClock,
    /// The processor's cycles, and how many per nanosecond the probe found.
    Cycles { per_ns: f64 },
}

impl Event {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Event::CpuClock => "cpu-clock",
            Event::Cycles { .. } => "cycles",
        }
    }

    /// The time that a sample with this period represents, ns.
    pub(crate) fn ns(self, period: u64) -> i64 {
        match self {
            Event::CpuClock => i64::try_from(period).unwrap_or(i64::MAX),
            Event::Cycles { per_ns } => (period as f64 / per_ns) as i64,
        }
    }

    fn attributes(self) -> perf_event_attr {
        attributes(match self {
            Event::CpuClock => (sys::PERF_TYPE_SOFTWARE, sys::PERF_COUNT_SW_CPU_CLOCK.into()),
            Event::Cycles { .. } => (sys::PERF_TYPE_HARDWARE, sys::PERF_COUNT_HW_CPU_CYCLES.into()),
        })
    }
}

/// A perf event's type and config.
pub(crate) type EventId = (u32, u64);

/// The attributes of an event that is disabled when it is opened.
pub(crate) fn attributes((type_, config): EventId) -> perf_event_attr {
    let mut attributes = perf_event_attr {
        size: size_of::<perf_event_attr>() as u32,
        type_,
        config,
        ..perf_event_attr::default()
    };
    attributes.set_disabled(1);
    attributes
}

/// The events of all CPUs and their rings.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) rings: Vec<Ring>,
    descriptors: Vec<OwnedFd>,
}

impl Events {
    /// Opens the profile's events, disabled. Also returns what they count.
    pub(crate) fn open(hz: u32) -> Result<(Event, Events), Unsupported> {
        let of = |event: Event| {
            let mut attributes = event.attributes();
            sample_stacks(&mut attributes, hz);
            Ok((event, Events::of(&mut attributes, hz)?))
        };
        let cycles = probe_cycles().and_then(|event| of(event).ok());
        match cycles {
            Some(opened) => Ok(opened),
            None => of(Event::CpuClock).map_err(|error: io::Error| Unsupported(why(&error))),
        }
    }

    /// Opens one event with these attributes per CPU, disabled.
    pub(crate) fn of(attributes: &mut perf_event_attr, hz: u32) -> io::Result<Events> {
        let mut events = Events { rings: Vec::new(), descriptors: Vec::new() };
        let mut bytes = ring_bytes(hz, attributes.sample_stack_user);
        for cpu in cpus_online() {
            let descriptor = match open(attributes, -1, cpu) {
                // The CPU has just gone offline.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
                opened => opened?,
            };
            let ring = loop {
                match Ring::map(descriptor.as_fd(), bytes) {
                    // If the limit of locked memory is small, the rings are smaller.
                    Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                        bytes /= 2;
                        if (bytes as u64) < RING_BYTES_MIN {
                            return Err(error);
                        }
                    }
                    mapped => break mapped?,
                }
            };
            events.rings.push(ring);
            events.descriptors.push(descriptor);
        }
        if events.rings.is_empty() {
            return Err(io::Error::other("no CPU is online"));
        }
        Ok(events)
    }

    /// Number of sampled CPUs.
    pub(crate) fn cpus(&self) -> usize {
        self.rings.len()
    }

    /// Sets the period from the next sample on.
    pub(crate) fn set_period(&self, period: u64) -> io::Result<()> {
        for descriptor in &self.descriptors {
            let fd = descriptor.as_raw_fd();
            // The ioctl takes a pointer to the number.
            let at = (&raw const period) as u64;
            // SAFETY: an open event, and a number that outlives the call.
            if unsafe { perf_event_open_sys::ioctls::PERIOD(fd, at) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// Begins to count.
    pub(crate) fn enable(&self) -> io::Result<()> {
        self.descriptors.iter().try_for_each(enable)
    }
}

/// Samples with stacks, plus the records that change address spaces.
fn sample_stacks(attributes: &mut perf_event_attr, hz: u32) {
    sample_innermost(attributes);
    attributes.set_freq(1);
    attributes.__bindgen_anon_1.sample_freq = hz.into();
    attributes.sample_max_stack = CHAIN_MAX;
    if STACKS {
        attributes.sample_stack_user = STACK_BYTES;
    }
    attributes.set_mmap(1);
    attributes.set_mmap2(1);
    attributes.set_comm(1);
    attributes.set_comm_exec(1);
    attributes.set_task(1);
}

/// Samples of the innermost procedure, in the same layout as those with stacks.
pub(crate) fn sample_innermost(attributes: &mut perf_event_attr) {
    attributes.sample_type = (sys::PERF_SAMPLE_IP
        | sys::PERF_SAMPLE_TID
        | sys::PERF_SAMPLE_TIME
        | sys::PERF_SAMPLE_PERIOD
        | sys::PERF_SAMPLE_CALLCHAIN) as u64;
    attributes.sample_max_stack = 1;
    if STACKS {
        attributes.sample_type |= (sys::PERF_SAMPLE_REGS_USER | sys::PERF_SAMPLE_STACK_USER) as u64;
        attributes.sample_regs_user = REGISTERS;
        // For size 0, the kernel writes the length field without reserving room for it.
        attributes.sample_stack_user = 8;
        attributes.set_exclude_callchain_user(1);
    }
    attributes.set_sample_id_all(1);
    attributes.set_use_clockid(1);
    attributes.clockid = libc::CLOCK_MONOTONIC;
}

/// A ring's size in bytes, a power of two.
fn ring_bytes(hz: u32, stack_bytes: u32) -> usize {
    let held = u64::from(hz) * (CHAIN_BYTES + u64::from(stack_bytes)) * HELD_MS / 1000;
    let bytes = held.next_power_of_two().clamp(RING_BYTES_MIN, RING_BYTES_MAX);
    usize::try_from(bytes).expect("the bound of a ring fits")
}

/// Opens an event. Errors are the system's.
pub(crate) fn open(
    attributes: &mut perf_event_attr,
    pid: libc::pid_t,
    cpu: i32,
) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are initialised and contain their size.
    let descriptor = unsafe {
        perf_event_open_sys::perf_event_open(
            attributes,
            pid,
            cpu,
            -1,
            sys::PERF_FLAG_FD_CLOEXEC.into(),
        )
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn enable(event: &OwnedFd) -> io::Result<()> {
    // SAFETY: an open event, and an ioctl without an argument.
    match unsafe { perf_event_open_sys::ioctls::ENABLE(event.as_raw_fd(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether cycles count, judged by a busy loop and one of twice its length.
fn probe_cycles() -> Option<Event> {
    let counting = Event::Cycles { per_ns: 1.0 };
    let descriptor = open(&mut counting.attributes(), 0, -1).ok()?;
    enable(&descriptor).ok()?;
    let mut file = std::fs::File::from(descriptor);
    let mut measure = |length_ns: i64| {
        let before = count(&mut file)?;
        let begun_ns = clock::thread_cpu_ns();
        let mut number = 1u64;
        while clock::thread_cpu_ns() - begun_ns < length_ns {
            for _ in 0..1000 {
                number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005) | 1);
            }
        }
        let ns = clock::thread_cpu_ns() - begun_ns;
        Some((count(&mut file)?.checked_sub(before)? as f64, ns as f64))
    };
    let short = measure(1_000_000)?;
    let long = measure(2_000_000)?;
    credible(short, long).map(|per_ns| Event::Cycles { per_ns })
}

/// Cycles per nanosecond from two measurements (cycles, ns), if they are plausible.
fn credible(short: (f64, f64), long: (f64, f64)) -> Option<f64> {
    let (first, second) = (short.0 / short.1, long.0 / long.1);
    let alike = first > second * 0.5 && first < second * 2.0;
    (CYCLES_PER_NS.contains(&first) && CYCLES_PER_NS.contains(&second) && alike).then_some(second)
}

fn count(file: &mut std::fs::File) -> Option<u64> {
    let mut bytes = [0; 8];
    io::Read::read_exact(file, &mut bytes).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

/// The CPUs that are online.
pub(crate) fn cpus_online() -> Vec<i32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    cpu_list(&text).unwrap_or_else(|| (0..clock::cpus_online() as i32).collect())
}

/// A list like "0-3,8".
fn cpu_list(text: &str) -> Option<Vec<i32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?;
        cpus.extend(range.map(i32::from));
    }
    Some(cpus)
}

/// Why events cannot be opened, and what would help.
pub(crate) fn why(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
                .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned());
            format!(
                "perf events of all processes are not permitted (kernel.perf_event_paranoid is \
                 {paranoid}): record as root or with CAP_PERFMON"
            )
        }
        Some(libc::ENOSYS) => "this kernel has no perf events".to_owned(),
        Some(libc::EMFILE) => "too many open files: raise the limit of descriptors".to_owned(),
        _ => format!("perf events: {error}"),
    }
}

const _: () = assert!(RING_BYTES_MIN > 4 * (STACK_BYTES as u64 + CHAIN_BYTES));
const _: () = assert!(STACK_BYTES.is_multiple_of(8) && STACK_BYTES < u16::MAX as u32 - 2048);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpu_list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(cpu_list("0"), Some(vec![0]));
        assert_eq!(cpu_list(""), None);
        assert!(!cpus_online().is_empty());
    }

    #[test]
    fn implausible_cycles_are_rejected() {
        let alike = credible((3.0e6, 1.0e6), (6.1e6, 2.0e6));
        assert!(alike.is_some_and(|per_ns| (per_ns - 3.05).abs() < 1e-9));
        assert_eq!(credible((0.0, 1.0e6), (0.0, 2.0e6)), None, "a counter that reads zero");
        assert_eq!(credible((3.0e6, 1.0e6), (3.0e5, 2.0e6)), None, "one that stopped");
        assert_eq!(credible((3.0e12, 1.0e6), (6.0e12, 2.0e6)), None, "one that is noise");
    }

    #[test]
    fn rings_are_whole_pages_and_large_enough() {
        for hz in [49, 99, 999] {
            let bytes = ring_bytes(hz, STACK_BYTES);
            assert!(bytes.is_power_of_two() && bytes >= 64 << 10);
            assert!(bytes as u64 >= u64::from(hz) * u64::from(STACK_BYTES + 512) / 10);
            assert!(ring_bytes(hz, 0).is_power_of_two());
        }
    }

    #[test]
    fn refusals_suggest_a_fix() {
        let refused = why(&io::Error::from_raw_os_error(libc::EACCES));
        assert!(refused.contains("perf_event_paranoid") && refused.contains("root"));
        assert!(why(&io::Error::from_raw_os_error(libc::ENOSYS)).contains("no perf events"));
    }
}
