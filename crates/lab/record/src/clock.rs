//! Clocks, and the few system calls that the recorder needs: all of the crate's unsafe code.
//!
//! Three clocks that are never mixed: the monotonic clock times intervals, the wall clock relates
//! them to the stamps of access logs, and CPU clocks measure work.

use std::io;
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
}
