//! RFC 9110, 14.4; RFC 9111, 3.4.

use proptest::prelude::*;

use super::*;

const NOW_MS: u64 = 784_111_777_000;

fn of(value: &str) -> Option<(u64, u64, u64)> {
    let found = ContentRange::of(&[("Content-Range", value)])?;
    Some((found.range.first, found.range.last, found.complete_bytes))
}

#[test]
fn rfc9110_14_4_content_range() {
    for (value, want) in [
        ("bytes 42-1233/1234", Some((42, 1233, 1234))),
        ("Bytes 0-0/1", Some((0, 0, 1))),
        (" bytes 0-9/10\t", Some((0, 9, 10))),
        ("bytes 0-9/*", None),
        ("bytes */10", None),
        ("bytes 9-0/10", None),
        ("bytes 0-10/10", None),
        ("bytes 0-9/10/10", None),
        ("bytes 0/10-9", None),
        ("bytes -9/10", None),
        ("bytes 0-/10", None),
        ("bytes 0-9", None),
        ("bytes=0-9/10", None),
        ("bytes", None),
        ("bytes ", None),
        ("lines 0-9/10", None),
        ("bytes 0-99999999999999999999/999999999999999999999", None),
        ("", None),
    ] {
        assert_eq!(of(value), want, "{value}");
    }
    let twice = [("Content-Range", "bytes 0-0/2"), ("content-range", "bytes 1-1/2")];
    assert_eq!(ContentRange::of(&twice), None);
    assert_eq!(ContentRange::of(&[("Content-Type", "multipart/byteranges")]), None);
}

fn validators(fields: &[(&str, &str)]) -> Validators {
    Validators::of(fields, NOW_MS)
}

fn combine(a: &[(&str, &str)], b: &[(&str, &str)]) -> bool {
    let (of_a, of_b) = (validators(a), validators(b));
    may_combine(Named::of(&of_a, a), Named::of(&of_b, b))
}

/// An origin that codes without `Vary`.
#[test]
fn rfc9110_8_8_1_parts_of_different_codings_are_not_combined_by_a_date() {
    let date = ("Date", "Sun, 06 Nov 1994 08:49:37 GMT");
    let modified = ("Last-Modified", "Sun, 06 Nov 1994 08:10:00 GMT");
    let tag = ("ETag", "\"a\"");
    let (gzip, br) = (("Content-Encoding", "gzip"), ("Content-Encoding", "br"));
    for (a, b, want) in [
        (&[date, modified, gzip][..], &[date, modified, gzip][..], true),
        (&[date, modified, gzip], &[date, modified, ("content-encoding", "GZIP ")], true),
        (&[date, modified, gzip], &[date, modified], false),
        (&[date, modified, gzip], &[date, modified, br], false),
        (&[tag, gzip], &[tag], true),
        (&[tag, gzip], &[tag, br], false),
    ] {
        assert_eq!(combine(a, b), want, "{a:?} {b:?}");
        assert_eq!(combine(b, a), want);
    }
}

#[test]
fn rfc9111_3_4_only_the_same_strong_validator_combines() {
    let date = ("Date", "Sun, 06 Nov 1994 08:49:37 GMT");
    let long_ago = ("Last-Modified", "Sun, 06 Nov 1994 08:10:00 GMT");
    let just_now = ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT");
    let (strong, weak) = (("ETag", "\"a\""), ("ETag", "W/\"a\""));
    for (a, b, want) in [
        (&[strong][..], &[strong][..], true),
        (&[strong, long_ago, date], &[strong, just_now, date], true),
        (&[strong], &[("ETag", "\"b\"")], false),
        (&[weak], &[weak], false),
        (&[strong], &[weak], false),
        (&[("ETag", "a")], &[("ETag", "a")], false),
        (&[strong, long_ago, date], &[long_ago, date], false),
        (&[long_ago, date], &[long_ago, date], true),
        (&[just_now, date], &[just_now, date], false),
        (&[], &[], false),
    ] {
        assert_eq!(combine(a, b), want, "{a:?} {b:?}");
        assert_eq!(combine(b, a), want);
    }
    for (fields, want) in [
        (&[strong, long_ago, date][..], Some("\"a\"")),
        (&[weak, long_ago, date], None),
        (&[("ETag", "a"), long_ago, date], None),
        (&[long_ago, date], Some(long_ago.1)),
        (&[just_now, date], None),
        (&[], None),
    ] {
        assert_eq!(if_range(&validators(fields)), want.map(str::as_bytes), "{fields:?}");
    }
}

proptest! {
    /// Compared with a set of bytes: held and missing bytes make the whole, and no held byte at
    /// either end is requested.
    #[test]
    fn what_is_missing_is_what_a_set_of_bytes_misses(
        bits in proptest::collection::vec(any::<bool>(), 1..40), a in 0u64..40, b in 0u64..40,
    ) {
        let end = bits.len() as u64 - 1;
        let (first, last) = (a.min(b).min(end), a.max(b).min(end));
        let wanted = ByteRange { first, last };
        let mut held: Vec<ByteRange> = Vec::new();
        for (at, _) in bits.iter().enumerate().filter(|(_, there)| **there) {
            let at = at as u64;
            match held.last_mut() {
                Some(part) if part.last + 1 == at => part.last = at,
                _ => held.push(ByteRange { first: at, last: at }),
            }
        }
        let absent: Vec<u64> = (first..=last).filter(|at| !bits[*at as usize]).collect();
        let want = absent.first().map(|first| ByteRange {
            first: *first,
            last: *absent.last().expect("not empty"),
        });
        prop_assert_eq!(missing(&held, wanted), want);
        prop_assert_eq!(covers(&held, wanted), want.is_none());
    }
}
