//! What is served from the store, what is fetched again, and how many requests reach the origin.

use std::rc::Rc;
use std::time::Duration;

use runtime::time::sleep;

use crate::origin::expected;
use crate::world::{Client, World, combined, each_way, each_way_http1, forward, reverse};

/// Sends one request on a new connection, in a task.
fn spawned(target: &str, fields: &str) -> runtime::JoinHandle<crate::common::Response> {
    let (target, fields) = (target.to_owned(), fields.to_owned());
    runtime::spawn(async move { Client::new().await.get(&target, &fields).await })
}

#[test]
fn a_hit_is_the_response_of_the_origin_and_sends_no_request() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/a?size=900&cc=max-age=60";
        let mut client = Client::new().await;
        for round in 0..3 {
            let got = client.get(target, "").await;
            assert_eq!((got.status, got.body.as_slice()), (200, &expected(target, None)[..]));
            assert_eq!(got.field("x-target"), Some(target));
            assert_eq!(got.field("x-hop"), None);
            assert_eq!(got.field("via"), Some("1.1 plimsoll"));
            let status = got.field("cache-status").unwrap();
            assert_eq!(status.contains("hit"), round > 0, "{status}");
            assert_eq!(got.field("age").is_some(), round > 0);
        }
        sleep(Duration::from_secs(30)).await;
        let age: u64 = client.get(target, "").await.field("age").unwrap().parse().unwrap();
        assert!((30..=31).contains(&age), "{age}");
        assert_eq!(world.origin.count(target), 1);
        assert_eq!((world.counter("hits"), world.counter("misses")), (3, 1));
    });
}

#[test]
fn concurrent_misses_of_a_key_are_one_fetch() {
    for framing in ["", "&frame=chunked", "&frame=close", "&pause=300"] {
        each_way(reverse, async |world: Rc<World>| {
            let target = format!("/c?size=3000&cc=max-age=60&delay=200{framing}");
            let asked: Vec<_> = (0..20).map(|_| spawned(&target, "")).collect();
            for one in asked {
                let got = one.await;
                assert_eq!((got.status, got.body), (200, expected(&target, None)));
            }
            assert_eq!(world.origin.count(&target), 1);
            let (hits, collapsed) = (world.counter("hits"), world.counter("collapsed"));
            assert_eq!((world.counter("misses"), hits + collapsed), (1, 19));
        });
    }
}

#[test]
fn a_stale_key_is_revalidated_once_for_many_clients() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/r?size=500&cc=max-age=1&etag=x&delay=100";
        Client::new().await.get(target, "").await;
        sleep(Duration::from_secs(5)).await;
        let asked: Vec<_> = (0..10).map(|_| spawned(target, "")).collect();
        for one in asked {
            assert_eq!(one.await.body, expected(target, None));
        }
        assert_eq!(world.origin.count(target), 2);
        assert_eq!(world.origin.last().field("if-none-match"), Some("\"x.0\""));
        assert_eq!(world.counter("revalidated"), 1);
    });
}

#[test]
fn an_uncacheable_response_is_fetched_each_time() {
    for cc in ["no-store", "private,max-age=60", "max-age=60,no-store", "no-store,s-maxage=60"] {
        each_way(reverse, async |world: Rc<World>| {
            let target = format!("/p?size=700&cc={cc}");
            let mut client = Client::new().await;
            for _ in 0..3 {
                assert_eq!(client.get(&target, "").await.body, expected(&target, None));
            }
            assert_eq!(world.origin.count(&target), 3);
            assert_eq!((world.counter("hits"), world.counter("passed")), (0, 3));
        });
    }
}

#[test]
fn concurrent_requests_for_an_uncacheable_response_wait_for_each_other_at_most_once() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/p?size=700&cc=no-store&delay=1000";
        let start = runtime::time::now();
        let asked: Vec<_> = (0..10).map(|_| spawned(target, "")).collect();
        for one in asked {
            assert_eq!(one.await.body, expected(target, None));
        }
        assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
        assert_eq!(world.origin.count(target), 10);
    });
}

#[test]
fn an_etag_is_confirmed_by_the_origin_and_to_the_client() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/e?size=800&cc=max-age=10&etag=t";
        let mut client = Client::new().await;
        let first = client.get(target, "").await;
        let tag = first.field("etag").unwrap().to_owned();
        let mine = format!("If-None-Match: \"other\", W/{tag}\r\n");
        let confirmed = client.get(target, &mine).await;
        assert_eq!((confirmed.status, confirmed.body.len()), (304, 0));
        assert_eq!(confirmed.field("etag"), Some(&tag[..]));
        assert_eq!(world.origin.count(target), 1);
        sleep(Duration::from_secs(20)).await;
        let again = client.get(target, "").await;
        assert_eq!((again.status, again.body), (200, expected(target, None)));
        assert_eq!(world.origin.count(target), 2);
        sleep(Duration::from_secs(20)).await;
        let confirmed = client.get(target, &mine).await;
        assert_eq!(confirmed.status, 304);
        world.origin.version.set(1);
        sleep(Duration::from_secs(20)).await;
        let replaced = client.get(target, &mine).await;
        assert_eq!((replaced.status, replaced.field("etag")), (200, Some("\"t.1\"")));
        assert_eq!(client.get(target, "").await.field("etag"), Some("\"t.1\""));
        assert_eq!((world.counter("revalidated"), world.counter("not_modified")), (2, 2));
    });
}

#[test]
fn no_cache_is_revalidated_each_time() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/n?size=80&cc=no-cache&etag=n";
        let mut client = Client::new().await;
        for _ in 0..3 {
            assert_eq!(client.get(target, "").await.body, expected(target, None));
        }
        assert_eq!((world.origin.count(target), world.counter("revalidated")), (3, 2));
        let fresh = "/f?size=80&cc=max-age=60";
        client.get(fresh, "").await;
        client.get(fresh, "Cache-Control: no-cache\r\n").await;
        assert_eq!(world.origin.count(fresh), 2);
    });
}

#[test]
fn variants_are_kept_apart() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/v?size=600&cc=max-age=60&vary=accept-language&delay=50";
        let languages = ["de", "en", "fr", "none"];
        for round in 0..2 {
            let mut asked = Vec::new();
            for language in languages.iter().cycle().take(12) {
                let fields = match *language {
                    "none" => String::new(),
                    other => format!("Accept-Language: {other}\r\n"),
                };
                asked.push((language, spawned(target, &fields)));
            }
            for (language, one) in asked {
                let got = one.await;
                assert_eq!(got.field("x-variant"), Some(*language), "round {round}");
                assert_eq!(got.body, expected(target, Some(language)));
            }
        }
        // Before the first response it was unknown that it varies; after that each variant is one
        // fetch.
        assert!((4..=7).contains(&world.origin.count(target)), "{}", world.origin.count(target));
    });
}

/// The origin never gets such a field. A response that was stored by it would be served to requests
/// to which the origin gives another one.
#[test]
fn a_field_that_connection_names_decides_nothing() {
    each_way_http1(reverse, async |world: Rc<World>| {
        let variant = "/v?size=300&vary=x-color&cc=max-age=60";
        let named = "X-Color: red\r\nConnection: close, X-Color\r\n";
        let got = Client::new().await.get(variant, named).await;
        assert_eq!(
            (got.body, world.origin.last().field("x-color")),
            (expected(variant, Some("none")), None)
        );
        let mut client = Client::new().await;
        let got = client.get(variant, "X-Color: red\r\n").await;
        assert_eq!(got.body, expected(variant, Some("red")));
        assert_eq!(client.get(variant, "").await.body, expected(variant, Some("none")));
        assert_eq!(world.origin.count(variant), 2);

        let plain = "/p?size=300&etag=x&cc=max-age=60";
        let mut client = Client::new().await;
        for (name, value) in [
            ("Authorization", "Basic eDp5"),
            ("If-None-Match", "\"x.0\""),
            ("If-None-Match", "*"),
            ("If-Match", "\"other\""),
            ("Range", "bytes=0-9"),
            ("Accept-Encoding", "identity;q=0, *;q=0"),
            ("Pragma", "no-cache"),
        ] {
            let fields = format!("{name}: {value}\r\nConnection: keep-alive, {name}\r\n");
            let got = client.get(plain, &fields).await;
            assert_eq!((got.status, got.body), (200, expected(plain, None)), "{name}");
        }
        assert_eq!(world.origin.count(plain), 1);
        assert_eq!(world.origin.last().field("authorization"), None);
    });
}

#[test]
fn hosts_are_kept_apart() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/a?size=60&cc=max-age=60";
        let mut client = Client::new().await;
        for round in 0..2 {
            for host in ["one", "two", "ONE"] {
                let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
                let got = client.ask(request.as_bytes()).await;
                let hit = got.field("cache-status").unwrap().contains("hit");
                assert_eq!(hit, round > 0 || host == "ONE", "{host}");
            }
        }
        assert_eq!(world.origin.count(target), 2);
    });
}

#[test]
fn expires_is_obeyed_and_max_age_overrides_it() {
    each_way(reverse, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let (short, long) = ("/x?size=10&expires=5", "/x?size=10&expires=5&cc=max-age=100");
        for target in [short, long] {
            client.get(target, "").await;
            client.get(target, "").await;
            assert_eq!(world.origin.count(target), 1);
        }
        sleep(Duration::from_secs(10)).await;
        for (target, fetches) in [(short, 2), (long, 1)] {
            assert_eq!(client.get(target, "").await.body, expected(target, None));
            assert_eq!(world.origin.count(target), fetches);
        }
    });
}

#[test]
fn only_if_cached_never_reaches_the_origin() {
    each_way(reverse, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let fields = "Cache-Control: only-if-cached\r\n";
        let target = "/o?size=10&cc=max-age=60";
        assert_eq!(client.get(target, fields).await.status, 504);
        client.get(target, "").await;
        assert_eq!(client.get(target, fields).await.status, 200);
        let uncacheable = "/o?size=10&cc=no-store";
        client.get(uncacheable, "").await;
        assert_eq!(client.get(uncacheable, fields).await.status, 504);
        let ranged = format!("{fields}Range: bytes=0-1\r\n");
        assert_eq!(client.get("/o?size=11", &ranged).await.status, 504);
        assert_eq!(world.origin.seen.borrow().len(), 2);
    });
}

#[test]
fn head_is_answered_from_what_get_has_stored() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/h?size=900&cc=max-age=60";
        let mut client = Client::new().await;
        for origin_asked in [1, 2, 2] {
            let got = client.head(target, "").await;
            assert_eq!((got.status, got.field("content-length")), (200, Some("900")));
            if origin_asked == 1 {
                assert_eq!(client.get(target, "").await.body, expected(target, None));
            }
            assert_eq!(world.origin.count(target), 2);
        }
    });
}

#[test]
fn a_post_removes_the_responses_that_it_changes() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/i?size=30&cc=max-age=600";
        let mut client = Client::after_get(target).await;
        let post = format!("POST {target} HTTP/1.1\r\nHost: site\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(client.ask(post.as_bytes()).await.body, b"hi");
        client.get(target, "").await;
        assert_eq!(world.origin.count(target), 3);
    });
}

#[test]
fn a_response_to_an_authorized_request_is_not_for_others() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/auth?size=30&cc=max-age=600";
        let mut client = Client::new().await;
        for _ in 0..2 {
            client.get(target, "Authorization: Basic eDp5\r\n").await;
        }
        client.get(target, "").await;
        assert_eq!(world.origin.count(target), 3);
    });
}

#[test]
fn a_stale_response_is_served_if_the_origin_fails() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/sie?size=30&cc=max-age=1,stale-if-error=600&etag=q";
        let mut client = Client::after_get(target).await;
        sleep(Duration::from_secs(5)).await;
        runtime::sim::crash_connections(crate::world::address(crate::world::ORIGIN));
        assert_eq!(client.get(target, "").await.body, expected(target, None));
        assert_eq!(world.counter("requests"), 2);
    });
}

#[test]
fn forward_mode_takes_absolute_targets_and_keeps_sites_apart() {
    each_way(forward, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let path = "/fwd?size=300&cc=max-age=60";
        for _ in 0..2 {
            let got = client.get(&format!("http://10.0.0.2{path}"), "").await;
            assert_eq!(got.body, expected(path, None));
            let got = client.get(&format!("HTTP://10.0.0.2:80{path}"), "").await;
            assert_eq!(got.body, expected(path, None));
        }
        let hosts: Vec<_> = {
            let seen = world.origin.seen.borrow();
            seen.iter().map(|seen| seen.field("host").unwrap().to_owned()).collect()
        };
        assert!(hosts.iter().all(|host| host.starts_with("10.0.0.2")), "{hosts:?}");
        // A request over HTTP/2 always has the whole URL.
        let mut client = Client::http1().await;
        assert_eq!(client.get("/origin-form", "").await.status, 400);
        assert!(client.ends().await);
    });
}

#[test]
fn both_log_formats_have_a_line_for_each_request() {
    for config in [reverse, combined] {
        each_way(config, async |world: Rc<World>| {
            let mut client = Client::new().await;
            let targets =
                ["/l?size=10&cc=max-age=60", "/l?size=9000&cc=max-age=60", "/l?size=7&cc=no-store"];
            for target in targets.iter().cycle().take(9) {
                client.get(target, "User-Agent: a \"b\"\r\n").await;
            }
            let mut broken = Client::http1().await;
            broken.send(b"BROKEN\r\n\r\n").await.unwrap();
            assert_eq!(broken.response().await.unwrap().status, 400);
            assert!(broken.ends().await);
            world.stopped().await;
            let lines = world.log_lines();
            assert_eq!(lines.len(), 10);
            for (at, (status, url)) in lines.iter().enumerate().take(9) {
                assert_eq!(*status, 200);
                assert!(url.ends_with(targets[at % 3]), "{url}");
            }
            assert_eq!(lines[9].0, 400);
        });
    }
}

/// If the origin fails once, the key keeps its place in the store and its collapsing.
#[test]
fn a_failure_is_passed_on_and_forgotten() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/f?size=30&cc=max-age=60&fails=1&delay=100";
        let mut client = Client::new().await;
        assert_eq!(client.get(target, "").await.status, 503);
        let asked: Vec<_> = (0..5).map(|_| spawned(target, "")).collect();
        for one in asked {
            assert_eq!(one.await.body, expected(target, None));
        }
        assert_eq!(world.origin.count(target), 2);
    });
}

/// RFC 9111, 3.1 and 5.2: known and unknown fields are passed on, from the store too.
#[test]
fn directives_and_unknown_fields_pass_both_ways() {
    each_way(reverse, async |world: Rc<World>| {
        let cc = "max-age=60,community=UCI,no-transform";
        let target = format!("/d?size=30&cc={cc}");
        let mut client = Client::new().await;
        for _ in 0..2 {
            let got = client.get(&target, "Cache-Control: max-age=9, x=1\r\nX-Own: a\r\n").await;
            assert_eq!(got.field("cache-control"), Some(cc));
            assert_eq!(got.field("x-target"), Some(&target[..]));
        }
        assert_eq!(world.origin.count(&target), 1);
        let seen = world.origin.last();
        assert_eq!(seen.field("cache-control"), Some("max-age=9, x=1"));
        assert_eq!(seen.field("x-own"), Some("a"));
    });
}

#[test]
fn trailers_are_never_fields() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/t?size=3000&cc=max-age=60&frame=chunked";
        let mut client = Client::new().await;
        for _ in 0..2 {
            let got = client.get(target, "").await;
            assert_eq!(got.field("x-trailer"), None);
            assert_eq!(got.body, expected(target, None));
        }
        assert_eq!(world.origin.count(target), 1);
    });
}
