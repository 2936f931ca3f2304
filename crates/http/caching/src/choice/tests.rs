//! RFC 9111, 4, 4.1, 4.3.1, 4.3.3 and 4.3.4, where several responses are stored.

use super::*;
use crate::{Exchange, Policy, Response};

type Lines<'a> = &'a [(&'a str, &'a str)];

fn meta(fields: Lines<'_>, came_ms: u64) -> StoredMeta {
    let exchange = Exchange { request_ms: came_ms, response_ms: came_ms };
    StoredMeta::of(&Response { status: 200, fields }, exchange, &Policy::SHARED)
}

const NOON_MS: u64 = 784_111_777_000;
const NOON: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const BEFORE: &str = "Sun, 06 Nov 1994 08:49:30 GMT";

#[test]
fn rfc9111_4_the_most_recent_by_date() {
    let old = meta(&[("Date", BEFORE), ("Cache-Control", "max-age=60")], NOON_MS + 1000);
    let new = meta(&[("Date", NOON), ("Cache-Control", "max-age=60")], NOON_MS);
    assert!(new.goes_before(&old, NOON_MS + 2000), "whichever came first");
    assert!(!old.goes_before(&new, NOON_MS + 2000));
    let later = meta(&[("Date", NOON), ("Cache-Control", "max-age=60")], NOON_MS + 5);
    assert!(later.goes_before(&new, NOON_MS + 2000), "of the same date, the later received");
    assert!(!new.goes_before(&new, NOON_MS), "never before itself");
}

#[test]
fn rfc9111_4_only_what_is_suitable_is_compared() {
    let fresh = meta(&[("Date", BEFORE), ("Cache-Control", "max-age=60")], NOON_MS);
    let stale = meta(&[("Date", NOON), ("Cache-Control", "max-age=1")], NOON_MS);
    let never = meta(&[("Date", NOON), ("Cache-Control", "no-cache")], NOON_MS);
    assert!(fresh.goes_before(&stale, NOON_MS + 5000));
    assert!(fresh.goes_before(&never, NOON_MS + 500));
    assert!(stale.goes_before(&fresh, NOON_MS + 500), "while both are fresh, the recent one");
}

fn offers(request: Lines<'_>, status: u16, stored: Lines<'_>) -> Option<String> {
    let validators = Validators::of(stored, NOON_MS);
    let tag = offered_tag(request, status, stored, &validators)?;
    Some(String::from_utf8(tag.to_vec()).unwrap())
}

#[test]
fn rfc9111_4_3_1_strong_tags_of_what_the_client_can_read_are_offered() {
    let plain = [("ETag", "\"a\"")];
    assert_eq!(offers(&[], 200, &plain).as_deref(), Some("\"a\""));
    assert_eq!(offers(&[], 404, &plain), None);
    for tag in ["W/\"a\"", "a", "\"a", "\"", ""] {
        assert_eq!(offers(&[], 200, &[("ETag", tag)]), None, "{tag}");
    }
    assert_eq!(offers(&[], 200, &[("Last-Modified", NOON)]), None);
    let coded = [("ETag", "\"a\""), ("Content-Encoding", "GZIP")];
    for (accepted, offered) in [
        ("gzip", true),
        ("br, gzip;q=0.1", true),
        ("br", false),
        ("gzip;q=0", false),
        ("gzip; q=0.00", false),
        ("*", false),
    ] {
        let request = [("Accept-Encoding", accepted)];
        assert_eq!(offers(&request, 200, &coded).is_some(), offered, "{accepted}");
    }
    assert_eq!(offers(&[], 200, &coded), None);
}

#[test]
fn rfc9111_4_3_4_a_304_means_the_response_with_its_strong_tag() {
    let of = |fields: Lines<'_>| Validators::of(fields, NOON_MS);
    let offered = [of(&[("ETag", "\"a\"")]), of(&[("ETag", "\"b\"")]), of(&[("ETag", "W/\"c\"")])];
    let meant = |update: Lines<'_>| meant_by_304(&offered, &of(update));
    assert_eq!(meant(&[("ETag", "\"a\"")]), Some(0));
    assert_eq!(meant(&[("ETag", "\"b\"")]), Some(1));
    for none in ["W/\"a\"", "\"c\"", "W/\"c\"", "\"d\""] {
        assert_eq!(meant(&[("ETag", none)]), None, "{none}");
    }
    assert_eq!(meant(&[]), None, "not even of one alone: none of them was selected");
}
