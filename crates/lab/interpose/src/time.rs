//! The callers' time-outs in nanoseconds. Pure.

use libc::{c_int, timespec, timeval};

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// Longer times (about 136 years) are left to the original call.
const SECONDS_MAX: i64 = u32::MAX as i64;

/// How long a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Endless,
    Nanoseconds(u64),
}

impl Limit {
    /// The remaining time after `spent_ns`.
    pub(crate) fn after(self, spent_ns: u64) -> Limit {
        match self {
            Limit::Endless => Limit::Endless,
            Limit::Nanoseconds(all) => Limit::Nanoseconds(all.saturating_sub(spent_ns)),
        }
    }

    pub(crate) fn is_zero(self) -> bool {
        self == Limit::Nanoseconds(0)
    }
}

/// poll's milliseconds: a negative number means no limit.
pub(crate) fn of_milliseconds(timeout: c_int) -> Limit {
    match u64::try_from(timeout) {
        Ok(milliseconds) => Limit::Nanoseconds(milliseconds * 1_000_000),
        Err(_) if planted::is(planted::Bug::BoostTimeoutSign) => Limit::Nanoseconds(0),
        Err(_) => Limit::Endless,
    }
}

/// The time-out of ppoll and pselect; `None`: the original must handle it.
pub(crate) fn of_timespec(timeout: Option<&timespec>) -> Option<Limit> {
    let Some(timeout) = timeout else { return Some(Limit::Endless) };
    let nanoseconds = u64::try_from(timeout.tv_nsec).ok().filter(|&ns| ns < SECOND_NS)?;
    let seconds = u64::try_from(timeout.tv_sec).ok().filter(|_| timeout.tv_sec <= SECONDS_MAX)?;
    Some(Limit::Nanoseconds(seconds * SECOND_NS + nanoseconds))
}

/// The time-out of select, whose microseconds may exceed a second; `None` as above.
pub(crate) fn of_timeval(timeout: Option<&timeval>) -> Option<Limit> {
    let Some(timeout) = timeout else { return Some(Limit::Endless) };
    let in_range = |part: i64| u64::try_from(part).ok().filter(|_| part <= SECONDS_MAX);
    let (seconds, microseconds) = (in_range(timeout.tv_sec)?, in_range(timeout.tv_usec)?);
    Some(Limit::Nanoseconds(seconds * SECOND_NS + microseconds * 1000))
}

pub(crate) fn timespec_of(nanoseconds: u64) -> timespec {
    timespec {
        tv_sec: (nanoseconds / SECOND_NS) as libc::time_t,
        tv_nsec: (nanoseconds % SECOND_NS) as libc::c_long,
    }
}

pub(crate) fn timeval_of(nanoseconds: u64) -> timeval {
    timeval {
        tv_sec: (nanoseconds / SECOND_NS) as libc::time_t,
        tv_usec: (nanoseconds % SECOND_NS / 1000) as libc::suseconds_t,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_milliseconds_mean_no_limit() {
        assert_eq!(of_milliseconds(-1), Limit::Endless);
        assert_eq!(of_milliseconds(c_int::MIN), Limit::Endless);
        assert_eq!(of_milliseconds(0), Limit::Nanoseconds(0));
        assert_eq!(of_milliseconds(c_int::MAX), Limit::Nanoseconds(2_147_483_647_000_000));
    }

    #[test]
    fn invalid_times_are_left_to_the_kernel() {
        let spec = |tv_sec, tv_nsec| of_timespec(Some(&timespec { tv_sec, tv_nsec }));
        assert_eq!(spec(1, 5), Some(Limit::Nanoseconds(1_000_000_005)));
        assert_eq!((spec(-1, 0), spec(0, -1), spec(0, 1_000_000_000)), (None, None, None));
        assert_eq!((spec(i64::MAX, 0), of_timespec(None)), (None, Some(Limit::Endless)));
        let val = |tv_sec, tv_usec| of_timeval(Some(&timeval { tv_sec, tv_usec }));
        assert_eq!(val(1, 2_500_000), Some(Limit::Nanoseconds(3_500_000_000)));
        assert_eq!((val(-1, 0), val(0, -1), val(i64::MAX, 0)), (None, None, None));
    }

    #[test]
    fn the_remaining_time_is_never_negative() {
        assert_eq!(Limit::Nanoseconds(5).after(7), Limit::Nanoseconds(0));
        assert_eq!(Limit::Endless.after(u64::MAX), Limit::Endless);
        let left = timeval_of(1_234_567_899);
        assert_eq!((left.tv_sec, left.tv_usec), (1, 234_567));
        assert_eq!(timespec_of(2_000_000_001).tv_nsec, 1);
    }
}
