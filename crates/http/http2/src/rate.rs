//! How often a peer may make us work: one token bucket for each kind of work.
//!
//! Traffic entitles the peer to some work of most kinds, so that a limit is in proportion to what a
//! connection does. What it is entitled to is not saved: a bucket is never more than full.

use crate::error::Reason;
use crate::limits::{
    EMPTY_FRAMES_PER_TRAFFIC, Limits, PINGS_PER_TRAFFIC, PRIORITIES_PER_TRAFFIC,
    RESETS_PER_RESPONSE, Rate, SETTINGS_PER_TRAFFIC, UNKNOWN_FRAMES_PER_TRAFFIC,
    WINDOW_UPDATES_PER_TRAFFIC,
};

macro_rules! works {
    ($($variant:ident = $limit:ident, $per:expr, of $source:ident;)*) => {
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

            /// What entitles to it, and to how much.
            fn earned(self) -> (Source, u32) {
                match self { $(Work::$variant => (Source::$source, $per),)* }
            }
        }
    };
}

works! {
    Resets = resets, RESETS_PER_RESPONSE, of Responses;
    ProvokedResets = provoked_resets, 0, of Responses;
    SettingsFlood = settings, SETTINGS_PER_TRAFFIC, of Traffic;
    PingFlood = pings, PINGS_PER_TRAFFIC, of Traffic;
    EmptyFlood = empty_frames, EMPTY_FRAMES_PER_TRAFFIC, of Traffic;
    PriorityFlood = priorities, PRIORITIES_PER_TRAFFIC, of Traffic;
    WindowFlood = window_updates, WINDOW_UPDATES_PER_TRAFFIC, of Traffic;
    UnknownFlood = unknown_frames, UNKNOWN_FRAMES_PER_TRAFFIC, of Traffic;
}

/// What entitles a peer to work. Each is counted, modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// DATA frames with content in either direction, and requests.
    Traffic,
    /// DATA frames with content that were sent, and responses that were completed.
    Responses,
}

/// What was spent of each bucket, in thousandths, and when that was computed.
///
/// Invariant: `spent` of each is at most 1000 times its burst.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates {
    buckets: [Bucket; WORKS],
    /// The count of its source when each bucket was used last.
    seen: [u32; WORKS],
    traffic: u32,
    responses: u32,
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

    /// Gives back this many tokens, as far as they were spent.
    pub fn earn(&mut self, tokens: u32) {
        self.spent = self.spent.saturating_sub(tokens.saturating_mul(1000));
    }
}

impl Rates {
    /// The peer has caused this work once.
    pub(crate) fn count(&mut self, work: Work, limits: &Limits, now_ms: u64) -> Result<(), Reason> {
        let (source, per) = work.earned();
        let count = match source {
            Source::Traffic => self.traffic,
            Source::Responses => self.responses,
        };
        let before = std::mem::replace(&mut self.seen[work as usize], count);
        let bucket = &mut self.buckets[work as usize];
        bucket.earn(count.wrapping_sub(before).saturating_mul(per));
        match bucket.take(work.rate(limits), now_ms) {
            true => Ok(()),
            false => Err(work.reason()),
        }
    }

    /// A request, or a DATA frame with content that was received.
    #[inline]
    pub(crate) fn saw_traffic(&mut self) {
        self.traffic = self.traffic.wrapping_add(1);
    }

    /// A DATA frame with content was sent.
    #[inline]
    pub(crate) fn sent_content(&mut self) {
        self.saw_traffic();
        self.completed_response();
    }

    /// A response was completed.
    #[inline]
    pub(crate) fn completed_response(&mut self) {
        self.responses = self.responses.wrapping_add(1);
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
    fn traffic_entitles_to_control_frames_and_is_not_saved() {
        let limits = Limits { window_updates: Rate { per_s: 1, burst: 2 }, ..Limits::DEFAULT };
        let mut rates = Rates::default();
        (0..100).for_each(|_| rates.saw_traffic());
        for _ in 0..2 {
            rates.count(Work::WindowFlood, &limits, 0).unwrap();
        }
        assert_eq!(rates.count(Work::WindowFlood, &limits, 0), Err(Reason::WindowFlood));
        for _ in 0..100 {
            rates.saw_traffic();
            rates.count(Work::WindowFlood, &limits, 0).unwrap();
            rates.count(Work::WindowFlood, &limits, 0).unwrap();
        }
    }

    #[test]
    fn requests_entitle_to_no_resets_and_responses_do() {
        let mut rates = Rates::default();
        let resets = |rates: &mut Rates| {
            (0..1000)
                .take_while(|_| {
                    rates.saw_traffic();
                    rates.count(Work::Resets, &Limits::DEFAULT, 0).is_ok()
                })
                .count()
        };
        assert_eq!(resets(&mut rates), usize::from(Limits::DEFAULT.resets.burst));
        (0..5).for_each(|_| rates.completed_response());
        assert_eq!(resets(&mut rates), 5);
    }
}
