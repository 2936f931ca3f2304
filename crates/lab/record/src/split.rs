//! User and kernel time from an exact total and two coarse counters.
//!
//! The kernel measures a task's CPU time to the nanosecond, but splits it by what its clock tick
//! happens to interrupt. /proc shows the split as two counters, `u` and `s`, each rounded down to
//! whole clock ticks (10 ms); before rounding, `u + s` equals the exact total. So the user time is
//! in `[u, u+1)` ticks and also in `(total - s - 1, total - s]`. We keep one running estimate in
//! the middle of the range that both allow. It never runs backwards, so an interval's split may be
//! off by one tick, and so may a long recording's: errors do not add up.

/// The running split of one process or thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    total_ns: i64,
    user_ns: i64,
}

/// CPU time since the last call. `user_ns + kernel_ns` is exactly the growth of the total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) user_ns: i64,
    pub(crate) kernel_ns: i64,
}

impl Used {
    pub(crate) fn total_ns(self) -> i64 {
        self.user_ns + self.kernel_ns
    }
}

impl Split {
    /// For a task that has used no CPU time yet.
    pub(crate) const NEW: Split = Split { total_ns: 0, user_ns: 0 };

    /// For a task that is already running: its CPU time so far is not counted.
    pub(crate) fn from_now(
        total_ns: i64,
        user_ticks: i64,
        kernel_ticks: i64,
        tick_ns: i64,
    ) -> Split {
        Split { total_ns, user_ns: estimate(total_ns, user_ticks, kernel_ticks, tick_ns) }
    }

    /// The latest total.
    pub(crate) fn total_ns(&self) -> i64 {
        self.total_ns
    }

    /// Advances to the current counters.
    pub(crate) fn advance(
        &mut self,
        total_ns: i64,
        user_ticks: i64,
        kernel_ticks: i64,
        tick_ns: i64,
    ) -> Used {
        // A total that was read before a larger one must not reduce the time.
        let grown = (total_ns - self.total_ns).max(0);
        let wanted = estimate(total_ns, user_ticks, kernel_ticks, tick_ns);
        let user = wanted.clamp(self.user_ns, self.user_ns + grown) - self.user_ns;
        self.total_ns += grown;
        self.user_ns += user;
        Used { user_ns: user, kernel_ns: grown - user }
    }
}

fn estimate(total_ns: i64, user_ticks: i64, kernel_ticks: i64, tick_ns: i64) -> i64 {
    let (user, kernel) = (user_ticks * tick_ns, kernel_ticks * tick_ns);
    let low = user.max(total_ns - kernel - tick_ns);
    let high = (user + tick_ns).min(total_ns - kernel);
    let middle = if low <= high {
        low + (high - low) / 2
    } else {
        // The counters were read at different moments: keep their ratio.
        let ratio = user as f64 / (user + kernel).max(1) as f64;
        (total_ns as f64 * ratio) as i64
    };
    middle.clamp(0, total_ns.max(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: i64 = 10_000_000;

    proptest! {
        /// Against a task whose true split is known: exact totals, split within a tick, always.
        #[test]
        fn totals_are_exact_and_the_split_does_not_drift(
            steps in proptest::collection::vec((0..30_000_000i64, 0..30_000_000i64), 1..200),
        ) {
            let mut split = Split::NEW;
            let (mut user, mut kernel) = (0, 0);
            let mut sum = Used::default();
            for (more_user, more_kernel) in steps {
                user += more_user;
                kernel += more_kernel;
                let used = split.advance(user + kernel, user / TICK, kernel / TICK, TICK);
                prop_assert!(used.user_ns >= 0 && used.kernel_ns >= 0);
                prop_assert_eq!(used.total_ns(), more_user + more_kernel);
                sum.user_ns += used.user_ns;
                sum.kernel_ns += used.kernel_ns;
                prop_assert_eq!(sum.total_ns(), user + kernel);
                prop_assert!((sum.user_ns - user).abs() <= TICK, "{} {}", sum.user_ns, user);
            }
        }

        #[test]
        fn counters_that_contradict_each_other_keep_the_total(
            reads in proptest::collection::vec((0..1i64 << 40, 0..1000i64, 0..1000i64), 1..50),
        ) {
            let mut split = Split::from_now(5 * TICK, 3, 2, TICK);
            let mut highest = 5 * TICK;
            for (total, user, kernel) in reads {
                let used = split.advance(total, user, kernel, TICK);
                prop_assert_eq!(used.total_ns(), (total - highest).max(0));
                highest = highest.max(total);
            }
        }
    }
}
