//! The budget of retries: a share of the requests, so that retries never multiply an outage.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use config::Retries;

/// The cost of one retry. Each request earns the configured percentage of it.
const RETRY: i64 = 100;

/// The budget of a group. Cores earn and spend without a lock; it may be overdrawn by as many
/// retries as there are cores, which then wait for it to be earned.
#[derive(Debug)]
pub(super) struct Budget {
    left: AtomicI64,
}

impl Budget {
    pub(super) fn new(retries: Retries) -> Budget {
        Budget { left: AtomicI64::new(most(retries)) }
    }

    /// A request came.
    #[inline]
    pub(super) fn earn(&self, retries: Retries) {
        // The budget is nearly always full; then this costs one load.
        if self.left.load(Relaxed) < most(retries) {
            self.left.fetch_add(retries.budget_percent.into(), Relaxed);
        }
    }

    /// Whether a retry may be made. If so, it is paid for.
    pub(super) fn spend(&self) -> bool {
        let before = self.left.fetch_sub(RETRY, Relaxed);
        if before < RETRY {
            self.left.fetch_add(RETRY, Relaxed);
        }
        before >= RETRY
    }
}

fn most(retries: Retries) -> i64 {
    i64::from(retries.burst.max(1)) * RETRY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_the_requests_beyond_a_burst() {
        let retries = Retries { budget_percent: 20, burst: 10, ..Retries::default() };
        let budget = Budget::new(retries);
        let mut made = 0;
        for _ in 0..1000 {
            budget.earn(retries);
            made += u32::from(budget.spend());
        }
        assert!((208..=212).contains(&made), "{made}");
        (0..1_000_000).for_each(|_| budget.earn(retries));
        let made = (0..1000).filter(|_| budget.spend()).count();
        assert_eq!(made, 10, "what is not used is not saved up");
    }
}
