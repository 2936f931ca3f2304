//! RFC 9111, 4 and 5.2.1: one table of stored response, request, age and decision.

use proptest::prelude::*;

use super::*;
use crate::fields::Response;
use crate::freshness::Exchange;

const NOW_MS: u64 = 784_111_777_000;
type Lines<'a> = &'a [(&'a str, &'a str)];

fn meta(lines: Lines<'_>) -> StoredMeta {
    let exchange = Exchange { request_ms: NOW_MS, response_ms: NOW_MS };
    StoredMeta::of(&Response { status: 200, fields: lines }, exchange, &Policy::SHARED)
}

fn decided(control: &str, request: Lines<'_>, age_s: u64) -> Reuse {
    let stored = meta(&[("Cache-Control", control)]);
    decide_reuse(&Request { method: b"GET", fields: request }, &stored, NOW_MS + age_s * 1000)
}

#[test]
fn rfc9111_4_and_5_2_1_decisions() {
    use MustValidate as M;
    let fresh = |age_s: u64| Reuse::Fresh { age_ms: age_s * 1000 };
    let stale = |age_s: u64, why| Reuse::StaleAllowed { age_ms: age_s * 1000, why };
    let ask = |why| Reuse::Revalidate { why };
    let (hour, swr) = ("max-age=3600", "max-age=10, stale-while-revalidate=20");
    let never = |rule| ask(M::StaleForbidden(rule));
    for (stored, request, age_s, want) in [
        (hour, "", 0, fresh(0)),
        (hour, "", 3599, fresh(3599)),
        (hour, "", 3600, ask(M::Stale)),
        (hour, "no-store", 5, fresh(5)),
        (hour, "unknown=1", 5, fresh(5)),
        ("max-age=3600, no-cache", "", 0, ask(M::ResponseNoCache)),
        ("max-age=3600, no-cache", "max-stale", 9999, ask(M::ResponseNoCache)),
        ("max-age=3600, no-cache=\"a\"", "", 0, fresh(0)),
        (hour, "no-cache", 0, ask(M::RequestNoCache)),
        (hour, "no-cache, max-stale", 9999, ask(M::RequestNoCache)),
        (hour, "max-age=0", 0, ask(M::RequestMaxAge)),
        (hour, "max-age=5", 5, fresh(5)),
        (hour, "max-age=5", 6, ask(M::RequestMaxAge)),
        (hour, "max-age=x", 0, ask(M::RequestMaxAge)),
        (hour, "min-fresh=3500", 100, fresh(100)),
        (hour, "min-fresh=3500", 101, ask(M::RequestMinFresh)),
        (hour, "min-fresh=1, max-stale", 9999, ask(M::RequestMinFresh)),
        (hour, "max-stale", 99_999, stale(99_999, StaleRule::MaxStale)),
        (hour, "max-stale=10", 3610, stale(3610, StaleRule::MaxStale)),
        (hour, "max-stale=10", 3611, ask(M::Stale)),
        (hour, "max-stale=x", 3601, ask(M::Stale)),
        (hour, "max-age=4000, max-stale", 4001, ask(M::RequestMaxAge)),
        (swr, "", 30, stale(30, StaleRule::WhileRevalidate)),
        (swr, "", 31, ask(M::Stale)),
        (swr, "max-age=15", 20, ask(M::RequestMaxAge)),
        ("max-age=9, must-revalidate", "max-stale", 9, never(NeverStale::MustRevalidate)),
        ("max-age=9, proxy-revalidate", "max-stale", 9, never(NeverStale::ProxyRevalidate)),
        ("s-maxage=9", "max-stale", 9, never(NeverStale::SMaxage)),
        ("s-maxage=9, stale-while-revalidate=9", "", 9, never(NeverStale::SMaxage)),
        (hour, "only-if-cached", 5, fresh(5)),
        (hour, "only-if-cached", 3600, Reuse::OnlyIfCachedMiss { why: M::Stale }),
        (swr, "only-if-cached", 11, stale(11, StaleRule::WhileRevalidate)),
    ] {
        let got = decided(stored, &[("Cache-Control", request)], age_s);
        assert_eq!(got, want, "{stored:?} {request:?} {age_s}");
    }
}

#[test]
fn rfc8246_2_a_reload_of_what_is_immutable_is_answered_within_the_lifetime() {
    let control = "max-age=10, immutable";
    let asked = |request: &str, age_s| decided(control, &[("Cache-Control", request)], age_s);
    assert_eq!(asked("max-age=0", 9), Reuse::Fresh { age_ms: 9000 });
    for (request, age_s, why) in [
        ("max-age=0", 10, MustValidate::RequestMaxAge),
        ("max-age=5", 9, MustValidate::RequestMaxAge),
        ("no-cache", 0, MustValidate::RequestNoCache),
        ("max-age=0, min-fresh=5", 9, MustValidate::RequestMinFresh),
    ] {
        assert_eq!(asked(request, age_s), Reuse::Revalidate { why }, "{request}");
    }
}

#[test]
fn rfc9111_4_what_one_request_brought_answers_another_only_where_it_may_be_reused() {
    use MustValidate as M;
    let tagged = |control| meta(&[("Cache-Control", control), ("ETag", "\"a\"")]);
    for (control, request, since_s, now_s, want) in [
        ("max-age=9", "", 5, 6, Ok(())),
        ("max-age=9", "no-cache", 0, 6, Ok(())),
        ("max-age=9", "no-cache", 1, 6, Err(M::RequestNoCache)),
        ("max-age=9", "max-age=0", 1, 6, Err(M::RequestMaxAge)),
        ("max-age=1", "", 0, 6, Ok(())),
        ("max-age=1", "", 1, 6, Err(M::Stale)),
        ("max-age=1, stale-while-revalidate=9", "", 1, 6, Ok(())),
        ("no-cache, max-age=9", "", 0, 6, Err(M::ResponseNoCache)),
        ("max-age=0", "", 0, 0, Err(M::Stale)),
        ("", "", 0, 0, Err(M::Stale)),
    ] {
        let request_fields = [("Cache-Control", request)];
        let request_now = Request { method: b"GET", fields: &request_fields };
        let (since_ms, now_ms) = (NOW_MS + since_s * 1000, NOW_MS + now_s * 1000);
        let got = decide_collapsed(&request_now, &tagged(control), since_ms, now_ms);
        assert_eq!(got, want, "{control:?} {request:?} {since_s} {now_s}");
    }
}

/// Issue 40, 6: the time that a slow origin took made every response stale on arrival, so the
/// requests that waited for it were fetched again.
#[test]
fn a_slow_origin_with_a_short_lifetime_answers_all_who_waited() {
    use MustValidate as M;
    let slow = Exchange { request_ms: NOW_MS, response_ms: NOW_MS + 5000 };
    let late = ("Date", "Sun, 06 Nov 1994 08:49:30 GMT");
    for (fields, since_s, request, want) in [
        (&[("Cache-Control", "max-age=1")][..], 0, "", Ok(())),
        (&[("Cache-Control", "max-age=1")], 5, "", Ok(())),
        (&[("Cache-Control", "max-age=1, must-revalidate")], 5, "", Ok(())),
        (&[("Cache-Control", "max-age=1")], 6, "", Err(M::Stale)),
        (&[("Cache-Control", "max-age=1")], 4, "max-age=2", Err(M::RequestMaxAge)),
        (&[("Cache-Control", "max-age=1"), ("Age", "1")], 4, "", Err(M::Stale)),
        (&[("Cache-Control", "max-age=1"), late], 4, "", Err(M::Stale)),
        (&[("Cache-Control", "max-age=0")], 4, "", Err(M::Stale)),
        (&[("Cache-Control", "no-cache, max-age=1")], 4, "", Err(M::ResponseNoCache)),
    ] {
        let response = Response { status: 200, fields };
        let fetched = StoredMeta::of(&response, slow, &Policy::SHARED);
        let request_fields = [("Cache-Control", request)];
        let request_now = Request { method: b"GET", fields: &request_fields };
        let (since_ms, now_ms) = (NOW_MS + since_s * 1000, NOW_MS + 6000);
        let got = decide_collapsed(&request_now, &fetched, since_ms, now_ms);
        assert_eq!(got, want, "{fields:?} {since_s} {request}");
    }
}

#[test]
fn what_was_made_stale_is_stale_and_keeps_its_validators() {
    let fresh = meta(&[("Cache-Control", "max-age=9, stale-while-revalidate=9"), ("ETag", "a")]);
    let stale = fresh.made_stale();
    assert!(fresh.is_fresh(NOW_MS) && !stale.is_fresh(NOW_MS));
    assert_eq!(decide_reuse_plain(&stale, NOW_MS), Reuse::Revalidate { why: MustValidate::Stale });
    assert_eq!(stale.validators, fresh.validators);
    assert!(!stale.is_never_fresh() && !fresh.is_never_fresh(), "requests may share a fetch");
}

#[test]
fn rfc9111_5_4_pragma_counts_only_without_cache_control() {
    let no_cache = Reuse::Revalidate { why: MustValidate::RequestPragma };
    assert_eq!(decided("max-age=9", &[("Pragma", "no-cache")], 0), no_cache);
    let both = [("Pragma", "no-cache"), ("Cache-Control", "max-age=5")];
    assert_eq!(decided("max-age=9", &both, 0), Reuse::Fresh { age_ms: 0 });
}

#[test]
fn only_if_cached_is_found_with_nothing_stored() {
    assert!(only_if_cached(&[("cache-control", "only-if-cached")]));
    assert!(!only_if_cached(&[("pragma", "only-if-cached")]));
}

#[test]
fn rfc5861_4_stale_on_error() {
    let answer = |stored: &str, request: &str, failure, age_s: u64, policy_s: u64| {
        let policy = Policy { stale_when_unreachable_ms: policy_s * 1000, ..Policy::SHARED };
        let request = Request { method: b"GET", fields: &[("Cache-Control", request)] };
        let stored = meta(&[("Cache-Control", stored)]);
        stale_on_error(&request, &stored, failure, NOW_MS + age_s * 1000, &policy)
            .map(|(rule, _)| rule)
    };
    use Failure::{Status, Unreachable};
    use NoStaleOnError as N;
    let sie = "max-age=10, stale-if-error=20";
    for (stored, request, failure, age_s, policy_s, want) in [
        (sie, "", Unreachable, 30, 0, Ok(StaleRule::IfError)),
        (sie, "", Status(503), 30, 0, Ok(StaleRule::IfError)),
        (sie, "", Status(503), 31, 0, Err(N::TooStale)),
        (sie, "", Status(503), 31, 100, Err(N::TooStale)),
        (sie, "", Status(501), 11, 0, Err(N::NotAnError)),
        (sie, "", Status(404), 11, 0, Err(N::NotAnError)),
        ("max-age=10", "stale-if-error=20", Status(500), 30, 0, Ok(StaleRule::IfError)),
        ("max-age=10", "max-stale=20", Status(502), 30, 0, Ok(StaleRule::MaxStale)),
        ("max-age=10", "", Status(504), 30, 0, Err(N::TooStale)),
        ("max-age=10", "", Unreachable, 10, 0, Err(N::TooStale)),
        ("max-age=10", "", Unreachable, 30, 20, Ok(StaleRule::PolicyOnError)),
        ("max-age=10", "", Unreachable, 31, 20, Err(N::TooStale)),
        ("max-age=10", "", Status(503), 30, 20, Err(N::TooStale)),
        (
            "max-age=10, must-revalidate, stale-if-error=20",
            "",
            Unreachable,
            11,
            99,
            Err(N::StaleForbidden(NeverStale::MustRevalidate)),
        ),
        ("no-cache, stale-if-error=20", "", Unreachable, 1, 99, Err(N::ResponseNoCache)),
        (sie, "no-cache", Unreachable, 11, 0, Err(N::RequestForbids(MustValidate::RequestNoCache))),
    ] {
        let got = answer(stored, request, failure, age_s, policy_s);
        assert_eq!(got, want, "{stored:?} {request:?} {failure:?} {age_s}");
    }
}

#[test]
fn hints_know_every_field_that_concerns_a_cache() {
    let all = [
        ("Cache-Control", RequestHints::DIRECTIVES),
        ("pragma", RequestHints::DIRECTIVES),
        ("IF-NONE-MATCH", RequestHints::IF_NONE_MATCH),
        ("If-Modified-Since", RequestHints::IF_MODIFIED_SINCE),
        ("if-match", RequestHints::IF_MATCH),
        ("If-Unmodified-Since", RequestHints::IF_UNMODIFIED_SINCE),
        ("Range", RequestHints::RANGE),
        ("If-Range", RequestHints::IF_RANGE),
        ("Authorization", RequestHints::AUTHORIZATION),
    ];
    for (name, hint) in all {
        let hints = RequestHints::of(&[("Host", "a"), (name, "x")]);
        assert_eq!(hints, hint, "{name}");
        assert_eq!(hints.is_plain(), name == "Authorization");
        assert_eq!(hints.has_conditions(), name.starts_with(['I', 'i']) && name != "If-Range");
    }
    for name in ["accept", "x-range", "rangf", "pragmb", "if-mxtch", "cache-contrxl", ""] {
        assert!(RequestHints::of(&[(name, "")]).is_plain(), "{name}");
    }
    assert!(request_has_cache_directives(&[("a", ""), ("Pragma", "")]));
}

/// Two clients got one answer in the millisecond in which it came, though its lifetime and its
/// grace were zero.
#[test]
fn a_grace_of_zero_shares_nothing() {
    let stale = Reuse::Revalidate { why: MustValidate::Stale };
    let control = "max-age=0, stale-while-revalidate=0, stale-if-error=0";
    assert_eq!(decided(control, &[], 0), stale);
    assert_eq!(decided("max-age=0", &[("Cache-Control", "max-stale=0")], 0), stale);
    let request = Request { method: b"GET", fields: &[("Accept", "*/*")][..] };
    let stored = meta(&[("Cache-Control", control)]);
    let failure = Failure::Unreachable;
    let found = stale_on_error(&request, &stored, failure, NOW_MS, &Policy::SHARED);
    assert_eq!(found, Err(NoStaleOnError::TooStale));
}

proptest! {
    /// For a request without directives, the one comparison of the hot path decides as the full
    /// rules do.
    #[test]
    fn the_short_way_agrees_with_the_long_one(
        max_age in 0u32..10, age in 0u32..10, no_cache in any::<bool>(), swr in any::<bool>(),
        later_ms in 0u64..12_000,
    ) {
        let control = format!("max-age={max_age}{}{}",
            if no_cache { ", no-cache" } else { "" },
            if swr { ", stale-while-revalidate=1" } else { "" });
        let age = age.to_string();
        let stored = meta(&[("Cache-Control", &control), ("Age", &age)]);
        let now_ms = NOW_MS + later_ms;
        let request = Request { method: b"GET", fields: &[("Accept", "*/*")] };
        let long = decide_reuse(&request, &stored, now_ms);
        prop_assert_eq!(stored.is_fresh(now_ms), matches!(long, Reuse::Fresh { .. }));
        prop_assert_eq!(decide_reuse_plain(&stored, now_ms), long);
    }

    #[test]
    fn any_bytes_may_come(
        names in proptest::collection::vec(proptest::sample::select(vec![
            "cache-control", "pragma", "vary", "date", "age", "expires", "last-modified", "etag",
            "if-none-match", "if-match", "if-modified-since", "cdn-cache-control", "authorization",
        ]), 8),
        values in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..30), 8),
        status in 100u16..600, now_ms in any::<u64>(),
    ) {
        let fields: Vec<_> = names.into_iter().zip(values).collect();
        let request = Request { method: b"GET", fields: &fields };
        let response = Response { status, fields: &fields };
        let exchange = Exchange { request_ms: now_ms, response_ms: now_ms };
        let policy = Policy { stale_when_unreachable_ms: 5000, ..Policy::SHARED };
        let _ = crate::may_store(&request, &response, exchange, &policy);
        let stored = StoredMeta::of(&response, exchange, &policy);
        let _ = decide_reuse(&request, &stored, now_ms);
        let _ = stale_on_error(&request, &stored, Failure::Unreachable, now_ms, &policy);
        for evaluator in [crate::Evaluator::Cache, crate::Evaluator::Origin] {
            let _ = crate::conditional(&request, status, &stored.validators, evaluator);
        }
        let _ = crate::updated(&fields, &fields);
    }
}
