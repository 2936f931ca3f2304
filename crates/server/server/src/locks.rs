//! `POST /locks`: how the locks that the cores share were used for a while.
//!
//! Counting is on only during a call, so that it costs nothing otherwise. Two calls at once would
//! end each other's counting: the second is refused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use runtime::sync::{LockKind, LockUse};
use runtime::time;
use serde::Serialize;

use crate::call::{Call, Reply};
use crate::limits::LOCKS_SECONDS_MAX;
use core_io::CoreIo;

/// How often a call checks whether the server is about to end.
const LOOK: Duration = Duration::from_millis(100);

const SECONDS_DEFAULT: u64 = 10;

static COUNTING: AtomicBool = AtomicBool::new(false);

#[derive(Serialize)]
struct Report {
    /// How long the locks were counted.
    seconds: f64,
    locks: Vec<Used>,
}

/// The locks of one kind.
#[derive(Serialize)]
struct Used {
    lock: &'static str,
    attempts: u64,
    contended: u64,
    contention_percent: f64,
    wait_mean_us: f64,
    hold_mean_us: f64,
    hold_max_us: f64,
}

impl From<LockUse> for Used {
    fn from(used: LockUse) -> Used {
        // The mean of nothing is given as zero, which JSON can express.
        let mean = |sum: u64, count: u64| sum as f64 / count.max(1) as f64;
        Used {
            lock: used.name,
            attempts: used.attempts,
            contended: used.contended,
            contention_percent: 100.0 * mean(used.contended, used.attempts),
            wait_mean_us: mean(used.waited_ns, used.contended) / 1e3,
            hold_mean_us: mean(used.held_ns, used.holds) / 1e3,
            hold_max_us: used.held_ns_max as f64 / 1e3,
        }
    }
}

/// Switches counting off and lets another call in when this one ends.
struct Counting;

impl Counting {
    fn begin() -> Option<Counting> {
        if COUNTING.swap(true, Ordering::AcqRel) {
            return None;
        }
        LockKind::measure_all(true);
        Some(Counting)
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        LockKind::measure_all(false);
        COUNTING.store(false, Ordering::Release);
    }
}

/// Counts for as long as the call says, and answers with the result.
pub(crate) async fn answer(call: &Call, io: &CoreIo) -> Reply {
    let asked = call.query.iter().find(|(name, _)| name == "seconds");
    let seconds = asked.map_or(Some(SECONDS_DEFAULT), |(_, value)| value.parse().ok());
    let Some(seconds) = seconds.filter(|seconds| (1..=LOCKS_SECONDS_MAX).contains(seconds)) else {
        let text = format_args!("seconds is a whole number from 1 to {LOCKS_SECONDS_MAX}");
        return Reply::error(400, text);
    };
    let Some(counting) = Counting::begin() else {
        return Reply::error(409, "the locks are being counted for another call; ask again later");
    };
    let begin = time::now();
    let wanted = Duration::from_secs(seconds);
    while begin.elapsed() < wanted && !io.is_draining() {
        time::sleep(LOOK.min(wanted.saturating_sub(begin.elapsed()))).await;
    }
    let length = begin.elapsed();
    drop(counting);
    let locks = LockKind::uses().into_iter().map(Used::from).collect();
    Reply::json(200, &Report { seconds: length.as_secs_f64(), locks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_nothing_is_zero() {
        let counted = LockUse {
            name: "a",
            attempts: 1_000,
            contended: 20,
            waited_ns: 100_000,
            holds: 500,
            held_ns: 1_000_000,
            held_ns_max: 9_000,
        };
        let used = Used::from(counted);
        assert_eq!(used.contention_percent, 2.0);
        assert_eq!((used.wait_mean_us, used.hold_mean_us, used.hold_max_us), (5.0, 2.0, 9.0));
        let used = Used::from(LockUse::default());
        assert_eq!(
            (used.contention_percent, used.wait_mean_us, used.hold_mean_us),
            (0.0, 0.0, 0.0)
        );
    }
}
