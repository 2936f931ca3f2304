//! RFC 9111, 3: each rule that permits and each that forbids.

use super::*;
use crate::freshness::LifetimeSource;

const NOW: Exchange = Exchange { request_ms: 784_111_777_000, response_ms: 784_111_777_000 };
type Lines<'a> = &'a [(&'a str, &'a str)];

fn stored(
    method: &str,
    request: Lines<'_>,
    status: u16,
    response: Lines<'_>,
) -> Result<Storable, NotStored> {
    let request = Request { method: method.as_bytes(), fields: request };
    may_store(&request, &Response { status, fields: response }, NOW, &Policy::SHARED)
}

fn get(status: u16, control: &str) -> Result<StoreRule, NotStored> {
    stored("GET", &[], status, &[("Cache-Control", control)]).map(|storable| storable.rule)
}

#[test]
fn rfc9111_3_what_permits() {
    let lm = ("Last-Modified", "Sat, 05 Nov 1994 08:49:37 GMT");
    assert_eq!(get(200, "max-age=1"), Ok(StoreRule::ExplicitLifetime));
    assert_eq!(get(200, "s-maxage=1"), Ok(StoreRule::ExplicitLifetime));
    assert_eq!(get(599, "max-age=1"), Ok(StoreRule::ExplicitLifetime));
    for status in [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501] {
        let heuristic = stored("GET", &[], status, &[lm]).map(|s| s.rule);
        assert_eq!(heuristic, Ok(StoreRule::HeuristicStatus), "{status}");
    }
    for status in [201, 202, 302, 307, 403, 500, 502, 503, 504, 599] {
        let refused = stored("GET", &[], status, &[lm]).map(|s| s.rule);
        assert_eq!(refused, Err(NotStored::NotCacheableByDefault), "{status}");
    }
    let public = stored("GET", &[], 599, &[lm, ("Cache-Control", "public")]).expect("public");
    assert_eq!(public.rule, StoreRule::Public);
    assert_eq!(public.meta.freshness.lifetime_source, LifetimeSource::Heuristic);
    let expires = stored("GET", &[], 302, &[("Expires", "Sun, 06 Nov 1994 09:49:37 GMT")]);
    assert_eq!(expires.map(|s| s.rule), Ok(StoreRule::ExplicitLifetime));
}

#[test]
fn rfc9111_3_what_forbids() {
    let fresh = ("Cache-Control", "max-age=60");
    let refused = |method: &str, request: Lines<'_>, status: u16, response: Lines<'_>| {
        stored(method, request, status, response).expect_err("must not be stored")
    };
    for method in ["POST", "HEAD", "PUT", "get", "M-SEARCH"] {
        assert_eq!(refused(method, &[], 200, &[fresh]), NotStored::Method);
    }
    assert_eq!(refused("GET", &[], 103, &[fresh]), NotStored::NotFinal);
    assert_eq!(refused("GET", &[], 206, &[fresh]), NotStored::Incomplete);
    assert_eq!(refused("GET", &[], 304, &[fresh]), NotStored::Incomplete);
    let no_store: Lines<'_> = &[("cache-control", "No-StOrE")];
    assert_eq!(refused("GET", no_store, 200, &[fresh]), NotStored::RequestNoStore);
    assert_eq!(refused("GET", &[], 200, no_store), NotStored::ResponseNoStore);
    assert_eq!(get(200, "max-age=9, no-store"), Err(NotStored::ResponseNoStore));
    assert_eq!(get(200, "max-age=9, private"), Err(NotStored::Private));
    let star: Lines<'_> = &[fresh, ("Vary", "a, *")];
    assert_eq!(refused("GET", &[], 200, star), NotStored::VaryStar);
    assert_eq!(get(200, ""), Err(NotStored::NothingGained));
    assert_eq!(get(200, "max-age=0"), Err(NotStored::NothingGained));
    assert_eq!(get(200, "no-cache, max-age=9"), Err(NotStored::NothingGained));
}

#[test]
fn rfc9111_3_3_a_206_with_a_content_range_is_a_part() {
    let fresh = ("Cache-Control", "max-age=60");
    let asked: Lines<'_> = &[("Range", "bytes=0-4")];
    let known = ("Content-Range", "bytes 0-4/10");
    let part = stored("GET", asked, 206, &[fresh, known]).expect("a part").part.expect("a part");
    assert_eq!((part.range.first, part.range.last, part.complete_bytes), (0, 4, 10));
    assert_eq!(stored("GET", asked, 200, &[fresh]).expect("the whole").part, None);
    for (request, status, response) in [
        (&[][..], 206, &[fresh, known][..]),
        (asked, 206, &[fresh]),
        (asked, 206, &[fresh, ("Content-Range", "bytes 0-4/*")]),
        (asked, 416, &[fresh, ("Content-Range", "bytes */10")]),
    ] {
        let refused = stored("GET", request, status, response).expect_err("not a known part");
        assert_eq!(refused, NotStored::Incomplete, "{status} {response:?}");
    }
}

#[test]
fn rfc9110_9_3_3_a_response_to_post_is_stored_when_it_says_so() {
    let fresh = ("Cache-Control", "max-age=60");
    let here = ("Content-Location", "/a?b");
    let target = TargetUri { scheme: "http", authority: b"site:80", path_and_query: b"/a?b" };
    let post = |method: &str, status, response: Lines<'_>| {
        let request = Request { method: method.as_bytes(), fields: &[("Host", "site")] };
        let response = Response { status, fields: response };
        may_store_post(&request, &response, NOW, &Policy::SHARED, &target).map(|s| s.rule)
    };
    assert_eq!(post("POST", 200, &[fresh, here]), Ok(StoreRule::PostForGet));
    let absolute = ("Content-Location", "http://SITE/a?b");
    assert_eq!(post("POST", 200, &[fresh, absolute]), Ok(StoreRule::PostForGet));
    let lm = ("Last-Modified", "Sat, 05 Nov 1994 08:49:37 GMT");
    for (method, status, response, why) in [
        ("PUT", 200, &[fresh, here][..], NotStored::Method),
        ("GET", 200, &[fresh, here], NotStored::Method),
        ("POST", 201, &[fresh, here], NotStored::PostNotForGet),
        ("POST", 200, &[fresh], NotStored::PostNotForGet),
        ("POST", 200, &[fresh, ("Content-Location", "/a")], NotStored::PostNotForGet),
        ("POST", 200, &[fresh, ("Content-Location", "http://b/a?b")], NotStored::PostNotForGet),
        ("POST", 200, &[fresh, here, here], NotStored::PostNotForGet),
        ("POST", 200, &[lm, here], NotStored::PostNotForGet),
        ("POST", 200, &[("Cache-Control", "private, max-age=9"), here], NotStored::Private),
    ] {
        assert_eq!(post(method, status, response), Err(why), "{method} {status} {response:?}");
    }
}

#[test]
fn stale_at_once_is_stored_when_it_can_be_validated_or_served_stale() {
    for (status, lines) in [
        (200, &[("ETag", "\"a\""), ("Cache-Control", "no-cache")][..]),
        (200, &[("ETag", "\"a\"")]),
        (200, &[("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")]),
        (200, &[("Cache-Control", "max-age=0, stale-while-revalidate=5")]),
        (200, &[("Cache-Control", "max-age=5"), ("Age", "9")]),
    ] {
        let storable = stored("GET", &[], status, lines).expect("worth storing");
        assert!(!storable.meta.is_fresh(NOW.response_ms), "{lines:?}");
    }
}

#[test]
fn rfc9111_3_5_authorization() {
    let authorized: Lines<'_> = &[("Authorization", "Basic eA==")];
    for (control, permitted) in [
        ("max-age=9", false),
        ("max-age=9, proxy-revalidate", false),
        ("max-age=9, public", true),
        ("max-age=9, must-revalidate", true),
        ("s-maxage=9", true),
    ] {
        let answer = stored("GET", authorized, 200, &[("Cache-Control", control)]);
        assert_eq!(answer.is_ok(), permitted, "{control}");
        if !permitted {
            assert_eq!(answer.map(|_| ()), Err(NotStored::Authorization));
        }
    }
}

#[test]
fn rfc9111_5_2_2_3_must_understand() {
    assert!(get(200, "max-age=9, no-store, must-understand").is_ok());
    assert_eq!(get(599, "max-age=9, no-store, must-understand"), Err(NotStored::MustUnderstand));
    assert_eq!(get(599, "max-age=9, must-understand"), Err(NotStored::MustUnderstand));
}

#[test]
fn rfc9111_5_2_2_fields_that_are_not_kept() {
    let control = "max-age=9, no-cache=\"A, b\", private=\"c\"";
    let storable = stored("GET", &[], 200, &[("Cache-Control", control)]).expect("storable");
    assert!(storable.meta.is_fresh(NOW.response_ms), "only fields are restricted");
    for name in ["a", "B", "C"] {
        assert!(storable.withheld.has(name.as_bytes()), "{name}");
    }
    assert!(!storable.withheld.has(b"d") && !storable.withheld.has(b"Set-Cookie"));
    assert_eq!(storable.withheld.0.len(), 3);
}

#[test]
fn a_private_cache_keeps_what_is_private() {
    let policy = Policy { shared: false, ..Policy::SHARED };
    let request = Request { method: b"GET", fields: &[("Authorization", "x")] };
    let lines = [("Cache-Control", "private, s-maxage=9"), ("ETag", "\"a\"")];
    let response = Response { status: 599, fields: &lines };
    let storable = may_store(&request, &response, NOW, &policy).expect("storable");
    assert_eq!(storable.rule, StoreRule::Private);
    assert_eq!(storable.meta.never_stale, None);
}

#[test]
fn rfc9111_4_2_4_what_forbids_stale_use() {
    let rule = |control: &str| {
        let lines = [("Cache-Control", control)];
        stored("GET", &[], 200, &lines).expect("storable").meta.never_stale
    };
    assert_eq!(rule("max-age=9"), None);
    assert_eq!(rule("max-age=9, must-revalidate"), Some(NeverStale::MustRevalidate));
    assert_eq!(rule("max-age=9, proxy-revalidate"), Some(NeverStale::ProxyRevalidate));
    assert_eq!(rule("s-maxage=9"), Some(NeverStale::SMaxage));
}

#[test]
fn rfc9213_2_1_a_targeted_field_counts_instead() {
    let expires = ("Expires", "Sun, 06 Nov 1994 09:49:37 GMT");
    let lifetime = |cdn: &str, control: &str| {
        let lines = [("CDN-Cache-Control", cdn), ("Cache-Control", control), expires];
        stored("GET", &[], 200, &lines).map(|s| s.meta.freshness.lifetime_ms)
    };
    assert_eq!(lifetime("max-age=10", "no-store"), Ok(10_000));
    assert_eq!(lifetime("max-age=10", "max-age=1, private"), Ok(10_000));
    assert_eq!(lifetime("private", "max-age=10"), Err(NotStored::Private));
    assert_eq!(lifetime("no-store", "max-age=10"), Err(NotStored::ResponseNoStore));
    assert_eq!(lifetime("max-age=0", "max-age=10"), Err(NotStored::NothingGained));
    assert_eq!(lifetime("foo", "max-age=10"), Err(NotStored::NothingGained), "Expires is out");
    assert_eq!(lifetime("max-age=10, &&&", "max-age=1"), Ok(1000), "not a dictionary");
    assert_eq!(lifetime("", "max-age=1"), Ok(1000), "an empty one says nothing");
}

/// Stored under a configured lifetime of a minute, which may overrule.
fn configured(
    overrules: bool,
    request: Lines<'_>,
    status: u16,
    response: Lines<'_>,
) -> Result<Storable, NotStored> {
    let configured = Configured {
        lifetime_ms: Some(60_000),
        overrules,
        stale_while_revalidate_ms: Some(5_000),
        stale_if_error_ms: None,
        route: 2,
        number: Some(3),
    };
    let policy = Policy { configured: Some(configured), ..Policy::SHARED };
    let request = Request { method: b"GET", fields: request };
    may_store(&request, &Response { status, fields: response }, NOW, &policy)
}

#[test]
fn rfc9111_4_2_2_a_configured_lifetime_applies_where_none_is_stated() {
    let by = LifetimeSource::Configured { route: 2, number: Some(3) };
    let lifetime = |overrules, status, control: &str| {
        let meta = configured(overrules, &[], status, &[("Cache-Control", control)]).unwrap().meta;
        (meta.freshness.lifetime_ms, meta.freshness.lifetime_source == by)
    };
    for status in [200, 302, 404, 503] {
        assert_eq!(lifetime(false, status, "public"), (60_000, true), "{status}");
    }
    for (control, stated_ms) in [("max-age=5", 5_000), ("s-maxage=6", 6_000), ("max-age=x", 0)] {
        let control = format!("{control}, stale-while-revalidate=9");
        assert_eq!(lifetime(false, 200, &control), (stated_ms, false), "{control}");
        assert_eq!(lifetime(true, 200, &control), (60_000, true), "{control}");
    }
    let expires: Lines<'_> = &[("Expires", "Sun, 06 Nov 1994 08:49:42 GMT")];
    let of = |overrules| configured(overrules, &[], 200, expires).unwrap().meta;
    assert_eq!(of(false).freshness.lifetime_source, LifetimeSource::Expires);
    assert_eq!(of(true).freshness.lifetime_source, by);
    let modified: Lines<'_> = &[("Last-Modified", "Sat, 05 Nov 1994 08:49:37 GMT")];
    let heuristic = configured(false, &[], 200, modified).unwrap();
    assert_eq!(heuristic.rule, StoreRule::ConfiguredLifetime);
    assert_eq!(heuristic.meta.freshness.lifetime_source, by, "it comes before the heuristic one");
}

#[test]
fn a_configured_lifetime_counts_from_the_making_of_a_response() {
    let meta = configured(false, &[], 200, &[("Age", "50")]).unwrap().meta;
    assert!(meta.is_fresh(NOW.response_ms + 9_999) && !meta.is_fresh(NOW.response_ms + 10_000));
}

#[test]
fn a_configured_lifetime_never_permits_what_is_forbidden() {
    let authorized: Lines<'_> = &[("Authorization", "Basic x")];
    for overrules in [false, true] {
        let refused = |request: Lines<'_>, control: &str| {
            configured(overrules, request, 200, &[("Cache-Control", control)]).err()
        };
        assert_eq!(refused(&[], "no-store"), Some(NotStored::ResponseNoStore));
        assert_eq!(refused(&[], "private"), Some(NotStored::Private));
        assert_eq!(refused(authorized, "max-age=9"), Some(NotStored::Authorization));
        let cookie: Lines<'_> = &[("Set-Cookie", "a=b")];
        let refused = configured(overrules, &[], 200, cookie).err();
        assert_eq!(refused, Some(NotStored::NothingGained));
        let never: Lines<'_> = &[("Cache-Control", "must-revalidate")];
        let meta = configured(overrules, &[], 200, never).unwrap().meta;
        assert_eq!(meta.never_stale, Some(NeverStale::MustRevalidate));
    }
    let no_cache: Lines<'_> = &[("Cache-Control", "no-cache"), ("ETag", "\"a\"")];
    let meta = |overrules| configured(overrules, &[], 200, no_cache).unwrap().meta;
    assert!(meta(false).no_cache && !meta(false).is_fresh(NOW.response_ms));
    assert!(!meta(true).no_cache && meta(true).is_fresh(NOW.response_ms));
}

#[test]
fn a_configured_lifetime_never_applies_to_a_request_with_authorization() {
    let authorized: Lines<'_> = &[("Authorization", "Basic x")];
    for overrules in [false, true] {
        for control in [
            "no-cache, must-revalidate",
            "max-age=0, must-revalidate",
            "must-revalidate",
            "s-maxage=0",
            "public, no-cache",
            "public",
        ] {
            let response: Lines<'_> = &[("Cache-Control", control), ("ETag", "\"a\"")];
            let meta = configured(overrules, authorized, 200, response).unwrap().meta;
            assert_eq!(meta, stored("GET", authorized, 200, response).unwrap().meta, "{control}");
            assert!(!meta.is_fresh(NOW.response_ms), "{control}");
        }
    }
}

#[test]
fn a_configured_grace_applies_where_none_is_stated() {
    let meta = |overrules, control: &str| {
        configured(overrules, &[], 200, &[("Cache-Control", control)]).unwrap().meta
    };
    assert_eq!(meta(false, "max-age=1").stale_while_revalidate_ms, Some(5_000));
    let stated = "max-age=1, stale-while-revalidate=7, stale-if-error=8";
    assert_eq!(meta(false, stated).stale_while_revalidate_ms, Some(7_000));
    assert_eq!(meta(true, stated).stale_while_revalidate_ms, Some(5_000));
    assert_eq!(meta(true, stated).stale_if_error_ms, Some(8_000), "none is configured");
    let shared = meta(true, "s-maxage=1");
    assert_eq!(shared.never_stale, None, "what forbade stale use is overruled");
    assert!(meta(false, "s-maxage=1").never_stale.is_some());
}

/// A page of one user that only nginx or Varnish was asked not to keep went to the next one.
#[test]
fn fields_for_caches_in_front_restrict_and_permit_nothing() {
    let fresh = ("Cache-Control", "max-age=60");
    let of = |more| stored("GET", &[], 200, &[fresh, more]);
    for no in [
        ("X-Accel-Expires", "0"),
        ("X-Accel-Buffering", "no"),
        ("X-Accel-Redirect", "/x"),
        ("Surrogate-Control", "no-store"),
    ] {
        assert_eq!(of(no).unwrap_err(), NotStored::Accelerator, "{no:?}");
        let own = Policy { shared: false, ..Policy::SHARED };
        let request = Request { method: b"GET", fields: &[][..] as Lines<'_> };
        let fields: Lines<'_> = &[fresh, no];
        assert!(may_store(&request, &Response { status: 200, fields }, NOW, &own).is_ok());
    }
    let lifetime = |seconds| of(("X-Accel-Expires", seconds)).unwrap().meta.freshness.lifetime_ms;
    assert_eq!((lifetime("7"), lifetime("90")), (7_000, 60_000));
    let alone = stored("GET", &[], 200, &[("X-Accel-Expires", "7")]);
    assert_eq!(alone.unwrap_err(), NotStored::NothingGained);
    // Nor for longer by what is configured.
    let configured = Configured {
        lifetime_ms: Some(600_000),
        overrules: true,
        stale_while_revalidate_ms: None,
        stale_if_error_ms: None,
        route: 0,
        number: None,
    };
    let policy = Policy { configured: Some(configured), ..Policy::SHARED };
    let fields: Lines<'_> = &[("X-Accel-Expires", "7")];
    let meta = StoredMeta::of(&Response { status: 200, fields }, NOW, &policy);
    assert_eq!(meta.freshness.lifetime_ms, 7_000);
    assert_eq!(meta.fresh_until_ms(), NOW.response_ms + 7_000);
}
