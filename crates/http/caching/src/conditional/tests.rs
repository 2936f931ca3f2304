//! RFC 9110, 13.2.2, and RFC 9111, 4.3.

use super::*;

const NOW_MS: u64 = 784_111_777_000;
const BEFORE: &str = "Sun, 06 Nov 1994 08:00:00 GMT";
const MODIFIED: &str = "Sun, 06 Nov 1994 08:10:00 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 08:20:00 GMT";
type Lines<'a> = &'a [(&'a str, &'a str)];

fn validators(lines: Lines<'_>) -> Validators {
    Validators::of(lines, NOW_MS)
}

fn answer(
    evaluator: Evaluator,
    method: &str,
    stored: Lines<'_>,
    request: Lines<'_>,
) -> Precondition {
    let request = Request { method: method.as_bytes(), fields: request };
    conditional(&request, 200, &validators(stored), evaluator)
}

#[test]
fn rfc9111_4_3_2_a_cache_answers_none_match_and_modified_since() {
    use Condition::{IfModifiedSince, IfNoneMatch};
    use Precondition::{None, NotModified};
    let both: Lines<'_> = &[("ETag", "\"a\""), ("Last-Modified", MODIFIED)];
    let weak: Lines<'_> = &[("ETag", "W/\"a\"")];
    let bare: Lines<'_> = &[("Date", "Sun, 06 Nov 1994 08:15:00 GMT")];
    let table: &[(Lines<'_>, Lines<'_>, Precondition)] = &[
        (both, &[], None),
        (both, &[("If-None-Match", "\"a\"")], NotModified(IfNoneMatch)),
        (both, &[("If-None-Match", "W/\"a\"")], NotModified(IfNoneMatch)),
        (weak, &[("If-None-Match", "\"a\"")], NotModified(IfNoneMatch)),
        (both, &[("If-None-Match", "\"x\", \"a\" , \"y\"")], NotModified(IfNoneMatch)),
        (both, &[("If-None-Match", "\"x\""), ("If-None-Match", "\"a\"")], NotModified(IfNoneMatch)),
        (both, &[("If-None-Match", "*")], NotModified(IfNoneMatch)),
        (bare, &[("If-None-Match", "*")], NotModified(IfNoneMatch)),
        (bare, &[("If-None-Match", "\"a\"")], None),
        (both, &[("If-None-Match", "\"x\""), ("If-Modified-Since", AFTER)], None),
        (
            both,
            &[("If-None-Match", "\"a\""), ("If-Modified-Since", BEFORE)],
            NotModified(IfNoneMatch),
        ),
        (both, &[("If-Modified-Since", MODIFIED)], NotModified(IfModifiedSince)),
        (both, &[("If-Modified-Since", AFTER)], NotModified(IfModifiedSince)),
        (both, &[("If-Modified-Since", BEFORE)], None),
        (
            both,
            &[("If-Modified-Since", "Sunday, 06-Nov-94 08:10:00 GMT")],
            NotModified(IfModifiedSince),
        ),
        (both, &[("If-Modified-Since", "nonsense")], None),
        (both, &[("If-Modified-Since", AFTER), ("If-Modified-Since", AFTER)], None),
        (bare, &[("If-Modified-Since", AFTER)], NotModified(IfModifiedSince)),
        (bare, &[("If-Modified-Since", MODIFIED)], None),
        (both, &[("If-Match", "\"x\"")], None),
        (both, &[("If-Unmodified-Since", BEFORE)], None),
    ];
    for (stored, request, want) in table {
        for method in ["GET", "HEAD"] {
            assert_eq!(answer(Evaluator::Cache, method, stored, request), *want, "{request:?}");
        }
    }
}

#[test]
fn rfc9110_13_2_2_the_order_of_an_origin() {
    use Condition::{IfMatch, IfModifiedSince, IfNoneMatch, IfUnmodifiedSince};
    use Precondition::{Failed, None, NotModified};
    let both: Lines<'_> = &[("ETag", "\"a\""), ("Last-Modified", MODIFIED)];
    let weak: Lines<'_> = &[("ETag", "W/\"a\"")];
    let table: &[(&str, Lines<'_>, Lines<'_>, Precondition)] = &[
        ("PUT", both, &[("If-Match", "\"a\"")], None),
        ("PUT", both, &[("If-Match", "*")], None),
        ("PUT", both, &[("If-Match", "\"x\"")], Failed(IfMatch)),
        ("PUT", weak, &[("If-Match", "W/\"a\"")], Failed(IfMatch)),
        ("GET", both, &[("If-Match", "\"x\""), ("If-None-Match", "\"a\"")], Failed(IfMatch)),
        (
            "GET",
            both,
            &[("If-Match", "\"a\""), ("If-None-Match", "\"a\"")],
            NotModified(IfNoneMatch),
        ),
        ("GET", both, &[("If-Match", "\"a\""), ("If-Unmodified-Since", BEFORE)], None),
        ("PUT", both, &[("If-Unmodified-Since", BEFORE)], Failed(IfUnmodifiedSince)),
        ("PUT", both, &[("If-Unmodified-Since", MODIFIED)], None),
        ("PUT", both, &[("If-None-Match", "*")], Failed(IfNoneMatch)),
        ("PUT", both, &[("If-Modified-Since", AFTER)], None),
        ("GET", both, &[("If-Modified-Since", AFTER)], NotModified(IfModifiedSince)),
    ];
    for (method, stored, request, want) in table {
        assert_eq!(
            answer(Evaluator::Origin, method, stored, request),
            *want,
            "{method} {request:?}"
        );
    }
}

#[test]
fn rfc9110_13_2_1_other_statuses_have_no_conditions() {
    let request = Request { method: b"GET", fields: &[("If-None-Match", "*")] };
    for status in [301, 404, 412, 500] {
        let answer = conditional(&request, status, &Validators::default(), Evaluator::Cache);
        assert_eq!(answer, Precondition::None);
    }
}

#[test]
fn rfc9111_4_3_1_validation_fields_are_sent_back_as_received() {
    let sent = |lines: Lines<'_>| {
        let validators = validators(lines);
        validation_fields(&validators)
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        sent(&[("ETag", " W/\"a\" "), ("Last-Modified", "yesterday")]),
        ["If-None-Match: W/\"a\"", "If-Modified-Since: yesterday"]
    );
    assert_eq!(sent(&[("ETag", ""), ("Date", BEFORE)]), Vec::<String>::new());
    assert!(validators(&[("ETag", "")]).is_empty());
}

#[test]
fn rfc9110_8_8_2_2_a_date_is_strong_a_second_later() {
    let strong = |date: &str| {
        validators(&[("Last-Modified", MODIFIED), ("Date", date)]).last_modified_is_strong()
    };
    assert!(!strong(MODIFIED) && !strong(BEFORE) && strong("Sun, 06 Nov 1994 08:10:01 GMT"));
}

#[test]
fn names_of_conditions_and_of_304() {
    for name in ["If-Match", "range", "if-range", "IF-MODIFIED-SINCE"] {
        assert!(is_condition_or_range(name.as_bytes()), "{name}");
    }
    assert!(!is_condition_or_range(b"authorization") && !is_condition_or_range(b"pragma"));
    assert!(belongs_in_304(b"ETag") && belongs_in_304(b"vary"));
    assert!(!belongs_in_304(b"Content-Type") && !belongs_in_304(b"content-length"));
}
