//! Local times and time zones: which instant a stamp without a zone means, and whether two clocks
//! differ by a zone. All of the crate's unsafe code is the call of `mktime`.

use std::mem::MaybeUninit;

const NS_PER_S: i64 = 1_000_000_000;

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

/// Time zones differ by multiples of this, ns.
const ZONE_NS: i64 = 15 * 60 * NS_PER_S;

/// A difference this close to a multiple is one of zones, ns.
const NEAR_NS: i64 = 2 * 60 * NS_PER_S;

/// Whether this difference of two clocks is one of time zones.
pub fn is_of_zones(difference_ns: i64) -> bool {
    let beside = difference_ns.abs().rem_euclid(ZONE_NS);
    let nearest = beside.min(ZONE_NS - beside);
    nearest <= NEAR_NS && (ZONE_NS - NEAR_NS..=15 * 3600 * NS_PER_S).contains(&difference_ns.abs())
}

/// `1 h 30 min`, `12 min`, `3 days`.
pub fn length(ns: i64) -> String {
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
