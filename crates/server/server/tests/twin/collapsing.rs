//! Collapsed forwarding: which requests wait for another's fetch, which are released, which never
//! wait; and what `Cache-Status` says for every origin of a response.

use std::rc::Rc;
use std::time::Duration;

use runtime::time::{now, sleep};
use server::{Config, SetCookie};

use crate::common::Response;
use crate::origin::expected;
use crate::world::{Client, World, each_way, reverse, with};

fn spawned(target: &str, fields: &str) -> runtime::JoinHandle<Response> {
    let (target, fields) = (target.to_owned(), fields.to_owned());
    runtime::spawn(async move { Client::new().await.get(&target, &fields).await })
}

/// Each use needs its own response: no request gets another's, and they do not wait one by one.
#[test]
fn a_response_for_one_request_is_never_shared() {
    for cc in ["no-cache", "max-age=0", "no-cache,max-age=60"] {
        each_way(reverse, async |world: Rc<World>| {
            let target = format!("/one?size=700&cc={cc}&etag=a&cookie=1&delay=1000");
            for round in 1..=2 {
                let start = now();
                let asked: Vec<_> = (0..8).map(|_| spawned(&target, "")).collect();
                let mut cookies = Vec::new();
                for one in asked {
                    let got = one.await;
                    assert_eq!(got.body, expected(&target, None));
                    cookies.push(got.field("set-cookie").unwrap().to_owned());
                }
                let (answers, asked) = (cookies.len(), world.origin.count(&target));
                cookies.sort_unstable();
                cookies.dedup();
                assert_eq!(cookies.len(), answers, "a cookie is one client's");
                assert_eq!(asked, 8 * round);
                assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
            }
        });
    }
}

#[test]
fn a_response_that_is_private_releases_all_waiting_requests_at_once() {
    // Otherwise the cookie alone makes a response private.
    let share = |config: &mut Config| config.set_cookie = SetCookie::Share;
    for cc in ["private,max-age=60", "no-store"] {
        each_way(with(reverse, share), async |world: Rc<World>| {
            let target = format!("/private?size=700&cc={cc}&cookie=1&delay=1000");
            let start = now();
            let asked: Vec<_> = (0..10).map(|_| spawned(&target, "")).collect();
            let mut cookies = Vec::new();
            for one in asked {
                cookies.push(one.await.field("set-cookie").unwrap().to_owned());
            }
            cookies.sort_unstable();
            cookies.dedup();
            assert_eq!((cookies.len(), world.origin.count(&target)), (10, 10));
            assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
        });
    }
}

/// A reload needs a response that was fetched after the reload arrived.
#[test]
fn a_reload_does_not_get_the_response_of_an_earlier_fetch() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/reload?size=700&cc=max-age=60&etag=a&delay=2000";
        let first = spawned(target, "");
        sleep(Duration::from_secs(1)).await;
        let reloads: Vec<_> =
            (0..5).map(|_| spawned(target, "Cache-Control: no-cache\r\n")).collect();
        let usual = spawned(target, "");
        assert_eq!(first.await.body, expected(target, None));
        assert_eq!(usual.await.body, expected(target, None));
        for one in reloads {
            assert_eq!(one.await.body, expected(target, None));
        }
        // One for all of them, unless the body was still arriving when they had to send a request.
        let asked = world.origin.count(target);
        assert!((2..=6).contains(&asked), "{asked}");
    });
}

#[test]
fn a_slow_first_client_delays_no_other() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/slow?size=100000&cc=max-age=60";
        let slow = Client::new().await;
        let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
        slow.send(request.as_bytes()).await.unwrap();
        sleep(Duration::from_millis(100)).await;
        // It reads nothing; the others read everything.
        for one in [spawned(target, ""), spawned(target, "")] {
            assert_eq!(one.await.body, expected(target, None));
        }
        assert_eq!(world.origin.count(target), 1);
    });
}

#[test]
fn a_client_with_the_current_version_does_not_wait_for_the_body() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/have?size=3000&cc=max-age=60&etag=a&pause=20000";
        let first = spawned(target, "");
        sleep(Duration::from_secs(2)).await;
        let start = now();
        let got = Client::new().await.get(target, "If-None-Match: \"a.0\"\r\n").await;
        assert_eq!((got.status, got.body.len()), (304, 0));
        assert_eq!(got.field("cache-status"), Some("plimsoll; fwd=uri-miss; collapsed"));
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        assert_eq!(first.await.body, expected(target, None));
        assert_eq!(world.origin.count(target), 1);
    });
}

#[test]
fn a_response_to_post_that_says_so_answers_a_get() {
    each_way(reverse, async |world: Rc<World>| {
        for (query, fetches) in [("&location=1", 1), ("", 2)] {
            let target = format!("/post?cc=max-age=60{query}");
            let mut client = Client::new().await;
            let post =
                format!("POST {target} HTTP/1.1\r\nHost: site\r\nContent-Length: 5\r\n\r\nhello");
            let got = client.ask(post.as_bytes()).await;
            assert_eq!(got.body, b"hello");
            let status = got.field("cache-status").unwrap();
            assert!(status.starts_with("plimsoll; fwd=method; fwd-status=200"), "{status}");
            assert_eq!(status.ends_with("; stored"), fetches == 1, "{status}");
            let got = client.get(&target, "").await;
            assert_eq!(got.body.len(), if fetches == 1 { 5 } else { 0 });
            assert_eq!(world.origin.count(&target), fetches);
        }
    });
}

/// A response to GET is stored while the POST waits for its own, which is newer.
#[test]
fn a_response_to_post_takes_the_place_of_an_overlapping_one() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/post?size=9&cc=max-age=60&location=1&delay=4000";
        let first = spawned(target, "");
        sleep(Duration::from_secs(2)).await;
        let post =
            format!("POST {target} HTTP/1.1\r\nHost: site\r\nContent-Length: 5\r\n\r\nhello");
        let got = Client::new().await.ask(post.as_bytes()).await;
        assert!(got.field("cache-status").unwrap().ends_with("; stored"), "{got:?}");
        assert_eq!(first.await.body.len(), 9);
        assert_eq!(Client::new().await.get(target, "").await.body, b"hello");
        assert_eq!(world.origin.count(target), 2);
    });
}

/// A field that `no-cache` or `private` names is only for the client that sent the request. No
/// client gets the fields that concern the connection to a proxy.
#[test]
fn a_field_for_one_client_reaches_only_that_client() {
    each_way(reverse, async |world: Rc<World>| {
        for own in ["no-cache", "private"] {
            let target = format!("/own?size=10&cc=max-age=60&own={own}&cookie=1");
            let mut client = Client::new().await;
            let got = client.get(&target, "").await;
            assert!(got.field("set-cookie").is_some(), "{got:?}");
            let hit = client.get(&target, "").await;
            assert_eq!(hit.field("cache-status"), Some("plimsoll; hit"));
            assert_eq!(hit.field("set-cookie"), None);
            for name in ["proxy-authenticate", "proxy-authentication-info"] {
                assert_eq!((got.field(name), hit.field(name)), (None, None), "{name}");
            }
            assert_eq!(world.origin.count(&target), 1);
        }
    });
}

#[test]
fn cache_status_names_every_origin_of_a_response() {
    each_way(reverse, async |_: Rc<World>| {
        let mut client = Client::new().await;
        let fresh = "/s?size=10&cc=max-age=60&etag=a";
        let varying = "/s?size=10&cc=max-age=60&vary=accept-language";
        let stale = "/s?size=10&cc=max-age=1&etag=a";
        for (target, fields, want) in [
            (fresh, "", "fwd=uri-miss; fwd-status=200; stored"),
            (fresh, "", "hit"),
            (fresh, "If-None-Match: \"a.0\"\r\n", "hit"),
            (fresh, "Cache-Control: no-cache\r\n", "fwd=request; fwd-status=304"),
            (fresh, "Pragma: no-cache\r\n", "fwd=request; fwd-status=304"),
            (varying, "Accept-Language: en\r\n", "fwd=uri-miss; fwd-status=200; stored"),
            (varying, "Accept-Language: de\r\n", "fwd=vary-miss; fwd-status=200; stored"),
            (varying, "Accept-Language: en\r\n", "hit"),
            ("/n?cc=no-store", "", "fwd=uri-miss; fwd-status=200; detail=no-store"),
            ("/n?cc=no-store", "", "fwd=uri-miss; fwd-status=200"),
            ("/q?cc=max-age=9", "Cache-Control: no-store\r\n", "fwd=uri-miss; fwd-status=200"),
            (stale, "", "fwd=uri-miss; fwd-status=200; stored"),
        ] {
            let got = client.get(target, fields).await;
            let status = got.field("cache-status").unwrap_or("none at all");
            assert_eq!(status.strip_prefix("plimsoll; "), Some(want), "{target} {fields}");
        }
        sleep(Duration::from_secs(5)).await;
        let got = client.get(stale, "").await;
        assert_eq!(got.field("cache-status"), Some("plimsoll; fwd=stale; fwd-status=304"));
        let got = client.ask(b"OPTIONS /s HTTP/1.1\r\nHost: site\r\n\r\n").await;
        assert_eq!(got.field("cache-status"), Some("plimsoll; fwd=method; fwd-status=200"));
    });
}
