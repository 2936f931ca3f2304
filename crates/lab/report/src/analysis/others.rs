//! The CPU time that other processes and the hypervisor took, interval by interval.

use trial::{Interval, Modes, Trial};

/// An interval in which the hypervisor took this share of the CPU time is not the server's.
const STEAL_PART: f64 = 0.05;
/// The machine is exhausted if less than this share of its CPU time was idle.
pub(super) const IDLE_PART: f64 = 0.03;
/// Others took the CPU if they used more than usual: by a factor, and a share of the machine.
const OTHERS_MORE: (f64, f64) = (1.5, 0.1);
/// If more than this share of the intervals is disturbed, nothing is undisturbed to compare with.
pub(super) const DISTURBED_PART: f64 = 0.5;

/// The CPUs that had no idle time.
pub(super) fn full_cpus(interval: &Interval) -> usize {
    let idle = |modes: &Modes| (modes.idle_ns + modes.iowait_ns) as f64;
    let is_full = |modes: &Modes| idle(modes) < IDLE_PART * modes.total_ns() as f64;
    interval.cpus.iter().filter(|cpu| is_full(&cpu.modes)).count()
}

/// The share of the machine's CPU time that was idle; `None` without data.
pub(super) fn idle_part(interval: &Interval) -> Option<f64> {
    let modes = &interval.machine;
    let total = modes.total_ns();
    (total > 0).then(|| (modes.idle_ns + modes.iowait_ns) as f64 / total as f64)
}

/// The share that neither the server nor the recorder used, beside idle time.
pub(super) fn others_part(interval: &Interval) -> Option<f64> {
    let total = interval.machine.total_ns() as f64;
    let own = interval.server.map(|server| server.total_ns)? + interval.recorder_ns;
    (total > 0.0).then(|| (1.0 - idle_part(interval).unwrap_or(0.0) - own as f64 / total).max(0.0))
}

/// In which intervals something else took the CPU from the server: the hypervisor, or other
/// processes that used more than usual until nothing was idle. All are `false` if that is most of
/// the trial: then nothing is usual.
pub(super) fn disturbed(trial: &Trial) -> Vec<bool> {
    let intervals = trial.intervals();
    let mut others: Vec<f64> = intervals.iter().filter_map(others_part).collect();
    let usual = if others.is_empty() { 0.0 } else { regress::median(&mut others) };
    let is_disturbed = |interval: &Interval| {
        let modes = &interval.machine;
        let stolen = modes.steal_ns as f64 > STEAL_PART * modes.total_ns() as f64;
        let exhausted = idle_part(interval) < Some(IDLE_PART) && idle_part(interval).is_some();
        let more =
            others_part(interval).is_some_and(|now| now > OTHERS_MORE.0 * usual + OTHERS_MORE.1);
        (stolen && modes.steal_ns > 0) || (exhausted && more)
    };
    let found: Vec<bool> = intervals.iter().map(is_disturbed).collect();
    let count = found.iter().filter(|one| **one).count();
    match count as f64 > DISTURBED_PART * found.len() as f64 {
        true => vec![false; found.len()],
        false => found,
    }
}
