//! RFC 9111, 3.2, 4.3.4 and 4.3.5.

use super::*;

type Lines<'a> = &'a [(&'a str, &'a str)];

fn merged(stored: Lines<'_>, update: Lines<'_>) -> Vec<String> {
    updated(stored, update)
        .into_iter()
        .map(|(name, value)| {
            format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
        })
        .collect()
}

#[test]
fn rfc9111_3_2_the_update_replaces_all_lines_of_a_name() {
    let stored = [("A", "1"), ("a", "2"), ("B", "3"), ("Age", "9"), ("Date", "x")];
    assert_eq!(
        merged(&stored, &[("a", "4"), ("C", "5"), ("c", "6")]),
        ["B: 3", "a: 4", "C: 5", "c: 6"]
    );
    assert_eq!(merged(&[("Date", "x")], &[("Date", "y"), ("Age", "1")]), ["Date: y", "Age: 1"]);
}

#[test]
fn rfc9111_3_2_what_is_never_updated() {
    let stored =
        [("Content-Length", "5"), ("Content-Type", "a/b"), ("X", "1"), ("Y", "1"), ("Z", "1")];
    let update = [
        ("Content-Length", "0"),
        ("Content-Type", "c/d"),
        ("Content-Encoding", "gzip"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "close, X"),
        ("X", "2"),
        ("Cache-Control", "no-cache=\"y\", private=\"z\""),
        ("Y", "2"),
        ("Z", "2"),
    ];
    assert_eq!(
        merged(&stored, &update),
        [
            "Content-Length: 5",
            "Content-Type: a/b",
            "X: 1",
            "Y: 1",
            "Z: 1",
            "Cache-Control: no-cache=\"y\", private=\"z\"",
        ]
    );
}

#[test]
fn rfc9111_3_2_restrictions_of_the_stored_response_go_on() {
    let stored = [("Cache-Control", "no-cache=\"set-cookie\""), ("A", "1")];
    let update = [("Set-Cookie", "a=b"), ("A", "2")];
    assert_eq!(merged(&stored, &update), ["Cache-Control: no-cache=\"set-cookie\"", "A: 2"]);
}

#[test]
fn rfc9111_4_3_4_which_stored_response_a_304_fits() {
    let fits = |stored: Lines<'_>, update: Lines<'_>, asked_for| {
        fits_304(&Validators::of(stored, 0), &Validators::of(update, 0), asked_for)
    };
    let lm = ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT");
    let other_lm = ("Last-Modified", "Sun, 06 Nov 1994 08:49:38 GMT");
    assert!(fits(&[("ETag", "\"a\"")], &[("ETag", "\"a\"")], false));
    assert!(!fits(&[("ETag", "\"a\"")], &[("ETag", "\"b\"")], true));
    assert!(fits(&[("ETag", "W/\"a\"")], &[("ETag", "W/\"a\"")], false));
    assert!(!fits(&[], &[("ETag", "\"a\"")], true));
    assert!(fits(&[lm], &[lm], false) && !fits(&[lm], &[other_lm], true));
    assert!(fits(&[lm], &[("Last-Modified", "Sunday, 06-Nov-94 08:49:37 GMT")], false));
    assert!(fits(&[lm], &[], true) && !fits(&[lm], &[], false));
}

#[test]
fn rfc9111_4_3_5_head() {
    let stored: Lines<'_> = &[("ETag", "\"a\""), ("A", "1")];
    let effect = |status, head: Lines<'_>| freshen_by_head(200, stored, 5, status, head);
    assert_eq!(effect(200, &[("ETag", "\"a\""), ("Content-Length", "5")]), HeadEffect::Update);
    assert_eq!(effect(200, &[("A", "2")]), HeadEffect::Update);
    assert_eq!(effect(200, &[("ETag", "\"b\"")]), HeadEffect::Invalidate);
    assert_eq!(effect(200, &[("Content-Length", "6")]), HeadEffect::Invalidate);
    assert_eq!(effect(200, &[("Last-Modified", "now")]), HeadEffect::Invalidate);
    assert_eq!(effect(404, &[("ETag", "\"b\"")]), HeadEffect::None);
}
