//! RFC 9110, 14.

use proptest::prelude::*;

use super::*;

const NOW_MS: u64 = 784_111_777_000;
const MODIFIED: &str = "Sun, 06 Nov 1994 08:10:00 GMT";

fn selected(range: &str, complete_bytes: u64) -> Selection {
    let request = Request { method: b"GET", fields: &[("Range", range)] };
    select_range(&request, 200, &Validators::default(), complete_bytes)
}

fn parts(list: &[(u64, u64)]) -> Selection {
    Selection::Parts(list.iter().map(|&(first, last)| ByteRange { first, last }).collect())
}

#[test]
fn rfc9110_14_1_2_byte_ranges() {
    use Selection::{Unsatisfiable, Whole};
    for (range, want) in [
        ("bytes=0-499", parts(&[(0, 499)])),
        ("Bytes=500-999", parts(&[(500, 999)])),
        ("bytes=-500", parts(&[(9500, 9999)])),
        ("bytes=9500-", parts(&[(9500, 9999)])),
        ("bytes=0-0,-1", parts(&[(0, 0), (9999, 9999)])),
        ("bytes= 0-0 , ,\t-1", parts(&[(0, 0), (9999, 9999)])),
        ("bytes=-1,0-0", parts(&[(9999, 9999), (0, 0)])),
        ("bytes=0-999, 4500-5499, -1000", parts(&[(0, 999), (4500, 5499), (9000, 9999)])),
        ("bytes=500-600,601-999", parts(&[(500, 999)])),
        ("bytes=500-700,601-999", parts(&[(500, 999)])),
        ("bytes=600-999,500-540", parts(&[(500, 999)])),
        ("bytes=0-99999999999999999999999", parts(&[(0, 9999)])),
        ("bytes=-99999999999999999999999", parts(&[(0, 9999)])),
        ("bytes=9999-,10000-", parts(&[(9999, 9999)])),
        ("bytes=10000-", Unsatisfiable),
        ("bytes=99999999999999999999999-", Unsatisfiable),
        ("bytes=-0", Unsatisfiable),
        ("bytes=5-4", Whole(WhyWhole::Invalid)),
        ("bytes=0-1,5-4", Whole(WhyWhole::Invalid)),
        ("bytes=a-", Whole(WhyWhole::Invalid)),
        ("bytes=--1", Whole(WhyWhole::Invalid)),
        ("bytes=1 - 2", Whole(WhyWhole::Invalid)),
        ("bytes=-", Whole(WhyWhole::Invalid)),
        ("bytes=", Whole(WhyWhole::Invalid)),
        ("bytes", Whole(WhyWhole::Invalid)),
        ("lines=1-2", Whole(WhyWhole::OtherUnit)),
    ] {
        assert_eq!(selected(range, 10_000), want, "{range}");
    }
    for range in ["bytes=0-", "bytes=-1", "bytes=0-0"] {
        assert_eq!(selected(range, 0), Unsatisfiable, "{range} of nothing");
    }
}

#[test]
fn rfc9110_17_15_no_amplification() {
    let many = |n: usize, step: usize| {
        let list: Vec<_> = (0..n).map(|i| format!("{}-{}", i * step, i * step)).collect();
        format!("bytes={}", list.join(","))
    };
    let too_many = Selection::Whole(WhyWhole::TooMany);
    assert_eq!(selected(&many(PARTS_MAX + 1, 1000), 1 << 30), too_many);
    assert_eq!(selected(&many(RANGES_READ_MAX + 1, 1), 1 << 30), too_many);
    assert!(matches!(selected(&many(PARTS_MAX, 1000), 1 << 30), Selection::Parts(_)));
    assert_eq!(selected("bytes=0-,0-,0-,0-", 10), parts(&[(0, 9)]));
}

#[test]
fn rfc9110_13_1_5_if_range() {
    let stored = |tag: &str, date: &str| {
        let lines = [("ETag", tag), ("Last-Modified", MODIFIED), ("Date", date)];
        Validators::of(&lines, NOW_MS)
    };
    let later = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (condition, tag, date, holds) in [
        ("\"a\"", "\"a\"", later, true),
        ("\"b\"", "\"a\"", later, false),
        ("W/\"a\"", "W/\"a\"", later, false),
        ("\"a\"", "W/\"a\"", later, false),
        (MODIFIED, "\"a\"", later, true),
        (MODIFIED, "\"a\"", MODIFIED, false),
        (later, "\"a\"", later, false),
        ("nonsense", "\"a\"", later, false),
    ] {
        let lines = [("Range", "bytes=0-0"), ("If-Range", condition)];
        let request = Request { method: b"GET", fields: &lines };
        let answer = select_range(&request, 200, &stored(tag, date), 10);
        let want = if holds { parts(&[(0, 0)]) } else { Selection::Whole(WhyWhole::IfRange) };
        assert_eq!(answer, want, "{condition} {tag} {date}");
    }
}

#[test]
fn rfc9110_14_2_where_ranges_do_not_apply() {
    let lines = [("Range", "bytes=0-0")];
    for (method, status) in [("HEAD", 200), ("POST", 200), ("GET", 404), ("GET", 206)] {
        let request = Request { method: method.as_bytes(), fields: &lines };
        let answer = select_range(&request, status, &Validators::default(), 10);
        assert_eq!(answer, Selection::Whole(WhyWhole::NotApplicable));
    }
    let twice = [("Range", "bytes=0-0"), ("Range", "bytes=1-1")];
    let request = Request { method: b"GET", fields: &twice };
    let answer = select_range(&request, 200, &Validators::default(), 10);
    assert_eq!(answer, Selection::Whole(WhyWhole::Invalid));
    assert_eq!(ByteRange { first: 1, last: 2 }.content_range(10), "bytes 1-2/10");
    assert_eq!(unsatisfied_range(10), "bytes */10");
}

proptest! {
    /// Exactly the requested bytes, and small gaps between them; never a byte twice.
    #[test]
    fn parts_cover_what_was_asked(
        specs in proptest::collection::vec((0u64..3000, 0u64..300), 1..20),
        complete_bytes in 1u64..2000,
    ) {
        let list: Vec<_> = specs.iter().map(|(f, n)| format!("{f}-{}", f + n)).collect();
        let answer = selected(&format!("bytes={}", list.join(",")), complete_bytes);
        let asked = |at: u64| specs.iter().any(|&(f, n)| (f..=f + n).contains(&at));
        match answer {
            Selection::Parts(parts) => {
                prop_assert!(parts.iter().all(|p| p.first <= p.last && p.last < complete_bytes));
                prop_assert!(parts.iter().map(|p| p.bytes()).sum::<u64>() <= complete_bytes);
                for at in 0..complete_bytes {
                    let times = parts.iter().filter(|p| (p.first..=p.last).contains(&at)).count();
                    prop_assert!(times <= 1 && (times == 1 || !asked(at)));
                }
            }
            Selection::Unsatisfiable => {
                prop_assert!((0..complete_bytes).all(|at| !asked(at)));
            }
            Selection::Whole(why) => prop_assert_eq!(why, WhyWhole::TooMany),
        }
    }

    #[test]
    fn any_bytes_may_come(
        tail in proptest::collection::vec(
            prop_oneof![proptest::sample::select(b"0123456789-, ".to_vec()), any::<u8>()], 0..40),
        complete_bytes in any::<u64>(),
    ) {
        let value = [&b"bytes="[..], &tail].concat();
        for value in [&value, &tail] {
            let lines = [("Range", value), ("If-Range", value)];
            let request = Request { method: b"GET", fields: &lines };
            let _ = select_range(&request, 200, &Validators::default(), complete_bytes);
            let alone = Request { method: b"GET", fields: &lines[..1] };
            let _ = select_range(&alone, 200, &Validators::default(), complete_bytes);
        }
    }
}

#[test]
fn a_single_range_of_bytes_is_recognised() {
    for (range, want) in [
        ("bytes=0-1", true),
        ("bytes=5-", true),
        (" Bytes=-5 ", true),
        ("bytes=-0", true),
        ("bytes=0-1,5-6", false),
        ("bytes=5-4", false),
        ("lines=0-1", false),
        ("bytes", false),
    ] {
        let fields = [("Range", range)];
        assert_eq!(asks_one_range(&Request { method: b"GET", fields: &fields }), want, "{range}");
        assert!(!asks_one_range(&Request { method: b"HEAD", fields: &fields }));
    }
    let twice = [("Range", "bytes=0-1"), ("Range", "bytes=0-1")];
    assert!(!asks_one_range(&Request { method: b"GET", fields: &twice }));
    assert!(!asks_one_range(&Request { method: b"GET", fields: &[("a", "b")] }));
}
