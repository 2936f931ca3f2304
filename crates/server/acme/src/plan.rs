//! When a name is due. Functions of their arguments only.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use transport::tls::Validity;

use crate::limits::{BACK_OFF_MAX, BACK_OFF_MIN, RETRY_AFTER_MAX};

/// Parts of a lifetime: a certificate is renewed within the sixteenth of 24 parts, so at two thirds
/// of its lifetime or a little earlier.
const PARTS: u64 = 24;
const LATEST_PART: u64 = 16;

/// When a certificate is renewed, in seconds since the Unix epoch. The names of a server and the
/// certificates of a name are spread over a twenty-fourth of the lifetime.
pub(crate) fn renewal_s(name: &str, validity: Validity) -> u64 {
    let lifetime = validity.not_after_s.saturating_sub(validity.not_before_s);
    let latest = validity.not_before_s + lifetime / PARTS * LATEST_PART;
    latest - chance(&(name, validity.not_after_s), lifetime / PARTS)
}

/// How long to wait after this many failures in a row, if the authority asked for this time.
pub(crate) fn back_off(name: &str, failures: u32, asked: Option<Duration>) -> Duration {
    debug_assert!(failures > 0, "there was a failure");
    let doubled = BACK_OFF_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16));
    let time = doubled.min(BACK_OFF_MAX).max(asked.unwrap_or_default().min(RETRY_AFTER_MAX));
    time + Duration::from_secs(chance(&(name, failures), time.as_secs() / 4))
}

/// The instant of the next attempt, if an earlier process wrote this one. A clock that was wrong
/// then must not keep us from asking now.
pub(crate) fn believed_s(written_s: u64, now_s: u64) -> u64 {
    let longest = RETRY_AFTER_MAX.max(BACK_OFF_MAX);
    if written_s > now_s + longest.as_secs() * 5 / 4 { now_s } else { written_s }
}

/// A number below `range`, or 0: the same for the same thing, so that a restart changes nothing.
fn chance(of: &impl Hash, range: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish() % range.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;

    #[test]
    fn a_certificate_is_renewed_at_about_two_thirds_of_its_lifetime() {
        let mut days = Vec::new();
        for name in ["a.test", "b.test", "c.test", "d.test"] {
            let (not_before_s, not_after_s) = (1000 * DAY, 1090 * DAY);
            let at = renewal_s(name, Validity { not_before_s, not_after_s });
            assert!((1056 * DAY..=1060 * DAY).contains(&at), "{name}: day {}", at / DAY);
            days.push(at);
        }
        days.dedup();
        assert_eq!(days.len(), 4, "not all at once");
        // Of seconds, of nothing, and the wrong way round.
        for (not_before_s, not_after_s) in [(100, 124), (100, 100), (100, 50), (0, u64::MAX)] {
            let at = renewal_s("a.test", Validity { not_before_s, not_after_s });
            assert!(at >= not_before_s && at <= not_after_s.max(not_before_s));
        }
    }

    #[test]
    fn failures_are_tried_again_less_and_less_often() {
        let mut at = 0;
        let mut in_first_hour = 1; // the first attempt
        for failures in 1..40 {
            let wait = back_off("a.test", failures, None).as_secs();
            assert!(wait >= BACK_OFF_MIN.as_secs() && wait <= BACK_OFF_MAX.as_secs() * 5 / 4);
            at += wait;
            in_first_hour += u32::from(at <= 3600);
        }
        assert!(in_first_hour <= 4, "{in_first_hour}");
        let asked = Duration::from_secs(3 * 3600);
        assert!(back_off("a.test", 1, Some(asked)) >= asked);
        let endless = back_off("a.test", 1, Some(Duration::MAX));
        assert!(endless <= RETRY_AFTER_MAX * 5 / 4);
    }

    #[test]
    fn an_instant_from_a_wrong_clock_is_not_waited_for() {
        assert_eq!(believed_s(DAY, 0), DAY);
        assert_eq!(believed_s(5, 100), 5);
        assert_eq!(believed_s(4000 * DAY, 1000 * DAY), 1000 * DAY);
    }
}
