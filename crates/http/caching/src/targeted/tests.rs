//! RFC 9213 and the dictionary syntax of RFC 8941.

use proptest::prelude::*;

use super::*;
use crate::directives::{Delta, Scope};

#[test]
fn rfc8941_3_2_dictionaries() {
    for (value, valid) in [
        ("max-age=1", true),
        (
            "a, b;x;y=1, c=?1, d=?0, e=1.5, f=\"s\\\"\", g=:AA==:, h=tok/en:x, i=(1 \"a\";p 2);q",
            true,
        ),
        ("a=()", true),
        ("max-age=1,", false),
        ("max-age=1 max-age=2", false),
        (",max-age=1", false),
        ("Max-Age=1", false),
        ("max-age =1", false),
        ("max-age= 1", false),
        ("max-age=1, &&&&&", false),
        ("a=1234567890123456", false),
        ("a=1.", false),
        ("a=1.2345", false),
        ("a=-", false),
        ("a=\"x", false),
        ("a=\"\\x\"", false),
        ("a=\"\u{e9}\"", false),
        ("a=:A", false),
        ("a=?2", false),
        ("a=(1", false),
        ("a=(1\"x\")", false),
        ("a;", false),
    ] {
        assert_eq!(parse(value.as_bytes()).is_some(), valid, "{value}");
    }
}

#[test]
fn rfc9213_2_1_values_of_the_wrong_type_say_nothing() {
    let control = |value: &str| parse(value.as_bytes()).expect("a dictionary");
    assert_eq!(control("max-age=5, max-age=6").max_age, Delta::Seconds(6), "the last counts");
    assert_eq!(control("max-age=99999999999").max_age, Delta::Seconds(1 << 31));
    assert_eq!(control("max-age=\"5\"").max_age, Delta::Absent);
    assert_eq!(control("max-age=5.0").max_age, Delta::Absent);
    assert_eq!(control("max-age").max_age, Delta::Absent);
    assert_eq!(control("max-age=-5").max_age, Delta::Invalid);
    assert!(!control("no-store=?0").no_store && control("no-store=?1").no_store);
    assert_eq!(control("no-cache").no_cache, Scope::Whole);
    assert_eq!(control("private=\"a, b\"").private.fields().len(), 2);
}

#[test]
fn rfc9213_2_a_field_for_one_class_of_caches_is_known_by_its_name() {
    for name in OURS.iter().chain(&["Edge-Cache-Control", "X-ACCEL-EXPIRES", "surrogate-Control"]) {
        assert!(is_targeted(name.as_bytes()), "{name}");
    }
    for name in ["cache-control", "x-cache-controls", "surrogate-key", "expires", ""] {
        assert!(!is_targeted(name.as_bytes()), "{name}");
    }
}

#[test]
fn several_lines_are_one_dictionary() {
    let lines = [("x-cc", "max-age=1"), ("X-CC", "no-store"), ("y-cc", "max-age=2")];
    let control = directives(&lines, &["none", "x-cc", "y-cc"]).expect("x-cc");
    assert_eq!((control.max_age, control.no_store), (Delta::Seconds(1), true));
    assert_eq!(directives(&lines, &["none"]), None);
}

proptest! {
    #[test]
    fn any_bytes_may_come(value in proptest::collection::vec(
        prop_oneof![proptest::sample::select(b"a-=;,:?\"\\() .1".to_vec()), any::<u8>()], 0..40)) {
        let _ = parse(&value);
    }
}

/// RFC 8941, 4.2: lines are joined by commas, and a dictionary has no empty member. A line of
/// nothing before another was skipped, and `Cache-Control: no-store` overridden.
#[test]
fn rfc8941_4_2_an_empty_line_among_others_makes_no_dictionary() {
    for lines in [["", "max-age=60"], ["max-age=60", ""]] {
        let fields = lines.map(|value| ("cdn-cache-control", value));
        assert_eq!(directives(&fields[..], &["cdn-cache-control"]), None, "{lines:?}");
    }
    let fields = [("cdn-cache-control", "max-age=60"), ("cdn-cache-control", "public")];
    assert!(directives(&fields[..], &["cdn-cache-control"]).is_some_and(|all| all.public));
}
