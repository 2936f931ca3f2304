//! How often a peer may make us work: one token bucket for each kind of work.

use crate::error::Reason;
use crate::limits::{Limits, Rate};

macro_rules! works {
    ($($variant:ident = $limit:ident;)*) => {
        /// A kind of work that a peer can cause.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Work {
            $(
                #[doc = concat!("[`Limits::", stringify!($limit), "`]")]
                $variant,
            )*
        }

        const WORKS: usize = [$(Work::$variant),*].len();

        impl Work {
            fn rate(self, limits: &Limits) -> Rate {
                match self { $(Work::$variant => limits.$limit,)* }
            }

            fn reason(self) -> Reason {
                match self { $(Work::$variant => Reason::$variant,)* }
            }
        }
    };
}

works! {
    Resets = resets;
    ProvokedResets = provoked_resets;
    SettingsFlood = settings;
    PingFlood = pings;
    EmptyFlood = empty_frames;
    PriorityFlood = priorities;
    WindowFlood = window_updates;
    UnknownFlood = unknown_frames;
}

/// What was spent of each bucket, in thousandths, and when that was computed.
///
/// Invariant: `spent` of each is at most 1000 times its burst.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates {
    buckets: [Bucket; WORKS],
}

/// One token bucket.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    spent: u32,
    /// Milliseconds, modulo 2^32.
    at_ms: u32,
}

impl Bucket {
    /// Takes one token; false if there is none.
    pub fn take(&mut self, rate: Rate, now_ms: u64) -> bool {
        let elapsed_ms = (now_ms as u32).wrapping_sub(self.at_ms);
        let regained = u64::from(elapsed_ms) * u64::from(rate.per_s);
        self.spent = u64::from(self.spent).saturating_sub(regained) as u32;
        self.at_ms = now_ms as u32;
        let has_one = self.spent + 1000 <= u32::from(rate.burst) * 1000;
        if has_one {
            self.spent += 1000;
        }
        has_one
    }
}

impl Rates {
    /// The peer has caused this work once.
    pub(crate) fn count(&mut self, work: Work, limits: &Limits, now_ms: u64) -> Result<(), Reason> {
        let rate = work.rate(limits);
        match self.buckets[work as usize].take(rate, now_ms) {
            true => Ok(()),
            false => Err(work.reason()),
        }
    }

    /// We have done something that entitles the peer to cause this work so many times.
    #[inline]
    pub(crate) fn earn(&mut self, work: Work, times: u16) {
        let spent = &mut self.buckets[work as usize].spent;
        *spent = spent.saturating_sub(u32::from(times) * 1000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_allowed_and_then_the_rate() {
        let limits = Limits { pings: Rate { per_s: 10, burst: 3 }, ..Limits::DEFAULT };
        let mut rates = Rates::default();
        let mut count = |now_ms| rates.count(Work::PingFlood, &limits, now_ms).is_ok();
        assert_eq!([count(0), count(0), count(0), count(0)], [true, true, true, false]);
        assert_eq!([count(99), count(100), count(100)], [false, true, false]);
        assert_eq!([count(10_000), count(10_000)], [true, true]);
    }

    #[test]
    fn what_we_send_entitles_to_answers() {
        let limits = Limits { window_updates: Rate { per_s: 1, burst: 2 }, ..Limits::DEFAULT };
        let mut rates = Rates::default();
        for _ in 0..100 {
            rates.count(Work::WindowFlood, &limits, 0).unwrap();
            rates.count(Work::WindowFlood, &limits, 0).unwrap();
            rates.earn(Work::WindowFlood, 2);
        }
    }
}
