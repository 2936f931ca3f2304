//! Clocks, and the few system calls that the recorder needs: all of the crate's unsafe code.
//!
//! Three clocks that are never mixed: the monotonic clock times intervals, the wall clock relates
//! them to the stamps of access logs, and CPU clocks measure work.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

const NS_PER_S: i64 = 1_000_000_000;

/// The kernel's `CPUCLOCK_SCHED`: time on a CPU as accounted by the scheduler, exact to the ns.
const CPUCLOCK_SCHED: libc::clockid_t = 2;

/// The monotonic clock, ns.
pub(crate) fn monotonic_ns() -> i64 {
    read(libc::CLOCK_MONOTONIC).expect("CLOCK_MONOTONIC is always there")
}

/// The wall clock, ns since the Unix epoch.
pub(crate) fn wall_ns() -> i64 {
    read(libc::CLOCK_REALTIME).expect("CLOCK_REALTIME is always there")
}

/// Time since boot, including sleep, ns. A process's `starttime` counts from there.
pub(crate) fn since_boot_ns() -> i64 {
    read(libc::CLOCK_BOOTTIME).expect("CLOCK_BOOTTIME is there since Linux 2.6.39")
}

/// CPU time of the calling thread, ns.
pub(crate) fn thread_cpu_ns() -> i64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID).expect("CLOCK_THREAD_CPUTIME_ID is always there")
}

/// CPU time of all threads that a process has ever had, ns.
///
/// Errors: `EINVAL` if there is no such process.
pub(crate) fn process_cpu_ns(pid: u32) -> io::Result<i64> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    // The kernel's ABI defines the id of a process's CPU clock (posix-timers.h: the complement of
    // the pid, shifted by three bits). clock_getcpuclockid(3) computes the same.
    read((!pid << 3) | CPUCLOCK_SCHED)
}

/// The id of the calling thread.
pub(crate) fn own_tid() -> u32 {
    // SAFETY: gettid has no preconditions.
    let tid = unsafe { libc::gettid() };
    u32::try_from(tid).expect("a thread has a positive number")
}

/// Sleeps until the monotonic clock reaches `deadline_ns`. May return early, on a signal.
pub(crate) fn sleep_until(deadline_ns: i64) {
    let until = libc::timespec { tv_sec: deadline_ns / NS_PER_S, tv_nsec: deadline_ns % NS_PER_S };
    // SAFETY: `until` is a valid timespec that outlives the call. The remainder is null, which is
    // allowed; it is not set for absolute times anyway.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &until,
            std::ptr::null_mut(),
        );
    }
}

/// Clock ticks per second: the unit of times in /proc.
pub(crate) fn ticks_per_second() -> u32 {
    // SAFETY: sysconf has no preconditions.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u32::try_from(ticks).ok().filter(|&ticks| ticks > 0).expect("the tick is a positive number")
}

/// CPUs online.
pub(crate) fn cpus_online() -> u32 {
    // SAFETY: sysconf has no preconditions.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(cpus).unwrap_or(1)
}

/// Size of a page, bytes.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: sysconf has no preconditions.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).expect("a page has a positive size")
}

/// Seconds since the epoch of a local time, in this process's time zone; `None` if there is no such
/// time. `month` counts from 1.
pub fn local_to_unix(
    (year, month, day): (i32, u32, u32),
    (hour, minute, second): (u32, u32, u32),
) -> Option<i64> {
    // SAFETY: all fields of a `tm` are integers, for which zeros are valid, and a pointer that
    // mktime does not read.
    let mut broken: libc::tm = unsafe { MaybeUninit::zeroed().assume_init() };
    broken.tm_year = year - 1900;
    broken.tm_mon = month as i32 - 1;
    broken.tm_mday = day as i32;
    broken.tm_hour = hour as i32;
    broken.tm_min = minute as i32;
    broken.tm_sec = second as i32;
    broken.tm_isdst = -1;
    // SAFETY: `broken` is a valid `tm` that mktime may normalise in place.
    let seconds = unsafe { libc::mktime(&mut broken) };
    // -1 means failure. It is also a second of 1969, which no log contains.
    (seconds != -1).then_some(seconds)
}

fn read(clock: libc::clockid_t) -> io::Result<i64> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec that the call fills.
    if unsafe { libc::clock_gettime(clock, &mut now) } == 0 {
        Ok(now.tv_sec * NS_PER_S + now.tv_nsec)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A duration in ns, capped at the largest value (292 years).
pub(crate) fn ns(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Time zones differ by multiples of this, ns.
const ZONE_NS: i64 = 15 * 60 * NS_PER_S;

/// A difference this close to a multiple is one of zones, ns.
const NEAR_NS: i64 = 2 * 60 * NS_PER_S;

/// Whether this difference of two clocks is one of time zones.
pub(crate) fn is_of_zones(difference_ns: i64) -> bool {
    let beside = difference_ns.abs().rem_euclid(ZONE_NS);
    let nearest = beside.min(ZONE_NS - beside);
    nearest <= NEAR_NS && (ZONE_NS - NEAR_NS..=15 * 3600 * NS_PER_S).contains(&difference_ns.abs())
}

/// `1 h 30 min`, `12 min`, `3 days`.
pub(crate) fn length(ns: i64) -> String {
    let minutes = (ns.abs() + 30 * NS_PER_S) / (60 * NS_PER_S);
    match (minutes / 60, minutes % 60) {
        (48.., _) => format!("{} days", minutes / 1440),
        (0, minutes) => format!("{minutes} min"),
        (hours, 0) => format!("{hours} h"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_run_and_agree_on_this_process() {
        assert!(monotonic_ns() > 0 && since_boot_ns() > 0);
        assert!(wall_ns() > 1_600_000_000 * NS_PER_S);
        let own = thread_cpu_ns();
        assert!(process_cpu_ns(std::process::id()).unwrap() >= own);
        assert!(process_cpu_ns(u32::MAX).is_err());
        assert!(ticks_per_second() >= 100 && page_bytes() >= 4096 && cpus_online() >= 1);
    }

    #[test]
    fn a_sleep_in_the_past_returns() {
        sleep_until(monotonic_ns() - 1);
    }

    #[test]
    fn local_times_advance_by_the_hour() {
        let noon = local_to_unix((2026, 1, 15), (12, 0, 0)).unwrap();
        assert_eq!(local_to_unix((2026, 1, 15), (13, 0, 0)).unwrap() - noon, 3600);
    }

    #[test]
    fn differences_of_zones_are_distinguished_from_wrong_clocks() {
        let minute = 60 * NS_PER_S;
        for (ns, of_zones, text) in [
            (60 * minute, true, "1 h"),
            (-60 * minute - NS_PER_S, true, "1 h"),
            (330 * minute, true, "5 h 30 min"),
            (37 * minute, false, "37 min"),
            (NS_PER_S, false, "0 min"),
            (20 * 60 * minute, false, "20 h"),
            (9 * 1440 * minute, false, "9 days"),
        ] {
            assert_eq!((is_of_zones(ns), length(ns).as_str()), (of_zones, text), "{ns}");
        }
    }
}
