//! What a purge removes, what it keeps, and that no older response is served after it.

use std::rc::Rc;
use std::time::Duration;

use runtime::time::sleep;
use server::{Config, PurgeRules};

use crate::common::Response;
use crate::origin::expected;
use crate::world::{ADMIN, Client, PROXY_TOO, World, each_way, forward, in_memory, reverse};

async fn purge(target: &str, fields: &str) -> Response {
    let request = format!("PURGE {target} HTTP/1.1\r\nHost: site\r\n{fields}\r\n");
    Client::new().await.ask(request.as_bytes()).await
}

/// A call to the admin address: its status and its JSON.
async fn call(method: &str, target: &str, fields: &str, body: &str) -> (u16, String) {
    let mut client = Client::to(ADMIN).await.unwrap();
    let length = body.len();
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n{fields}\r\n{body}"
    );
    let got = client.ask(request.as_bytes()).await;
    assert_eq!(got.field("content-type"), Some("application/json"));
    (got.status, String::from_utf8(got.body).unwrap())
}

async fn get(target: &str, fields: &str) -> Response {
    Client::new().await.get(target, fields).await
}

#[test]
fn a_purged_url_is_gone_with_its_variants_and_no_other_is() {
    in_memory(reverse, async |world: Rc<World>| {
        let (target, other) = ("/a?size=90&cc=max-age=600&vary=x-v", "/b?size=9&cc=max-age=600");
        for _ in 0..2 {
            for variant in ["x-v: 1\r\n", "x-v: 2\r\n"] {
                get(target, variant).await;
            }
            get(other, "").await;
        }
        assert_eq!((world.origin.count(target), world.origin.count(other)), (2, 1));
        let got = purge(target, "").await;
        assert_eq!((got.status, got.field("content-type")), (200, Some("application/json")));
        let text = String::from_utf8(got.body).unwrap();
        let url = format!("\"site{target}\"");
        assert_eq!(
            text,
            format!(
                "{{\"purged\":{{\"url\":{url}}},\"soft\":false,\"generation\":1,\"responses\":2}}\n"
            )
        );
        for variant in ["1", "2"] {
            let got = get(target, &format!("x-v: {variant}\r\n")).await;
            assert_eq!(got.body, expected(target, Some(variant)));
        }
        get(other, "").await;
        assert_eq!((world.origin.count(target), world.origin.count(other)), (4, 1));
        for _ in 0..3 {
            get(target, "x-v: 1\r\n").await;
        }
        assert_eq!(world.origin.count(target), 4, "what was fetched since is served");
    });
}

#[test]
fn a_softly_purged_response_is_validated() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/s?size=500&cc=max-age=600&etag=x";
        get(target, "").await;
        sleep(Duration::from_secs(10)).await;
        purge(target, "Soft-Purge: 1\r\n").await;
        sleep(Duration::from_secs(5)).await;
        let got = get(target, "").await;
        assert_eq!((got.status, got.body), (200, expected(target, None)));
        assert_eq!(world.origin.last().field("if-none-match"), Some("\"x.0\""));
        assert_eq!(world.counter("revalidated"), 1);
        get(target, "").await;
        assert_eq!(world.origin.count(target), 2, "the origin's word makes it fresh again");
    });
}

#[test]
fn a_softly_purged_response_may_be_served_on_an_error() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/e?size=50&cc=max-age=600,stale-if-error=60&drop=1";
        get(target, "").await;
        purge(target, "Soft-Purge: 1\r\n").await;
        // Stale since the purge and not since the lifetime's end: the client's own wish shows it.
        let stale = get(target, "Cache-Control: only-if-cached, max-stale=60\r\n").await;
        assert_eq!((stale.status, stale.body), (200, expected(target, None)));
        let fresh = get(target, "Cache-Control: only-if-cached\r\n").await;
        assert_eq!(fresh.status, 504);
        assert_eq!(world.origin.count(target), 1);
    });
}

#[test]
fn a_fetch_that_began_before_a_purge_is_not_used_after_it() {
    for (way, asked) in [("delay=1000", 2), ("pause=1000", 2)] {
        each_way(reverse, async |world: Rc<World>| {
            let target = format!("/f?size=3000&cc=max-age=600&{way}");
            let early = {
                let target = target.clone();
                runtime::spawn(async move { get(&target, "").await })
            };
            sleep(Duration::from_millis(500)).await;
            purge(&target, "").await;
            let late = {
                let target = target.clone();
                runtime::spawn(async move {
                    let mut client = Client::to(PROXY_TOO).await.unwrap();
                    client.get(&target, "").await
                })
            };
            assert_eq!(early.await.body, expected(&target, None));
            assert_eq!(late.await.body, expected(&target, None));
            assert_eq!(world.origin.count(&target), asked, "the later one asked for itself");
            get(&target, "").await;
            assert_eq!(world.origin.count(&target), asked, "and what it brought is kept");
        });
    }
}

#[test]
fn a_purge_without_permission_is_refused_and_changes_nothing() {
    let elsewhere = || {
        let from = vec!["192.0.2.0/24".parse().unwrap()];
        Config { purge: PurgeRules { from, ..PurgeRules::default() }, ..reverse() }
    };
    each_way(elsewhere, async |world: Rc<World>| {
        let target = "/p?size=50&cc=max-age=600";
        get(target, "").await;
        let refused = purge(target, "").await;
        assert_eq!(refused.status, 403);
        let text = String::from_utf8(refused.body).unwrap();
        assert!(text.starts_with("refused by the rule `purge-from`: "), "{text}");
        get(target, "").await;
        assert_eq!(world.origin.count(target), 1);
    });
}

#[test]
fn a_forward_proxy_purges_its_stored_responses() {
    each_way(forward, async |world: Rc<World>| {
        let (target, path) = ("http://10.0.0.2/a?cc=max-age=600", "/a?cc=max-age=600");
        get(target, "").await;
        get(target, "").await;
        assert_eq!(world.origin.count(path), 1);
        assert_eq!(purge("http://10.0.0.2:80/a?cc=max-age=600", "").await.status, 200);
        get(target, "").await;
        assert_eq!(world.origin.count(path), 2);
        let no_url = b"PURGE /a HTTP/1.1\r\nHost: site\r\n\r\n";
        assert_eq!(Client::http1().await.ask(no_url).await.status, 400);
    });
}

#[test]
fn a_reverse_proxy_does_not_pass_tags_to_clients() {
    each_way(reverse, async |_world: Rc<World>| {
        for cc in ["max-age=60", "no-store"] {
            let target = format!("/t?cc={cc}&key=a+b&tag=c");
            for _ in 0..2 {
                let got = get(&target, "").await;
                assert_eq!((got.field("surrogate-key"), got.field("cache-tag")), (None, None));
            }
        }
    });
    let config = || {
        let purge = PurgeRules { tags_to_clients: Some(true), ..PurgeRules::default() };
        Config { purge, ..reverse() }
    };
    each_way(config, async |_world: Rc<World>| {
        let target = "/t?cc=max-age=60&key=a+b&etag=e";
        for _ in 0..2 {
            assert_eq!(get(target, "").await.field("surrogate-key"), Some("a b"));
        }
    });
}

#[test]
fn the_admin_address_purges_by_tag_by_prefix_by_url_and_everything() {
    let targets =
        ["/a/1?cc=max-age=600&key=red+blue", "/a/2?cc=max-age=600&tag=green,red", "/b?expires=600"];
    // What is asked for, and which of the targets are asked for again.
    let purges = [
        ("/purge?tag=red", "", [true, true, false]),
        ("/purge", "{\"tag\": \"green blue\"}", [true, true, false]),
        ("/purge?tag=re", "", [false, false, false]),
        ("/purge?prefix=site/a/", "", [true, true, false]),
        ("/purge", "{\"prefix\": \"http://SITE:80\"}", [true, true, true]),
        ("/purge?prefix=sit", "", [false, false, false]),
        (
            "/purge?url=http://site/a/1%3fcc=max-age%3D600%26key=red%2Bblue",
            "",
            [true, false, false],
        ),
        ("/purge?all", "", [true, true, true]),
        ("/purge?all=true&soft=1", "", [true, true, true]),
        ("/purge?all=0&url=https://site/c", "", [false, false, false]),
    ];
    in_memory(reverse, async |world: Rc<World>| {
        let mut counts = [1; 3];
        for target in targets {
            get(target, "").await;
        }
        for (call_target, body, again) in purges {
            let (status, text) = call("POST", call_target, "", body).await;
            assert_eq!(status, 200, "{text}");
            for (at, target) in targets.iter().enumerate() {
                for _ in 0..2 {
                    get(target, "").await;
                }
                counts[at] += usize::from(again[at]);
                assert_eq!(world.origin.count(target), counts[at], "{call_target} {body} {target}");
            }
        }
        // The sweep lets go of what has been judged.
        let records = "plimsoll_purge_records";
        sleep(cache::limits::PURGE_RECORDS_KEPT * 2 + Duration::from_secs(2)).await;
        let metrics = world.metrics().await;
        assert_eq!(metrics.iter().find(|(name, _)| name == records).unwrap().1, 0);
        for target in targets {
            get(target, "").await;
        }
        assert_eq!(targets.map(|target| world.origin.count(target)), counts);
    });
}

#[test]
fn a_sweep_frees_responses_that_are_not_requested_again() {
    in_memory(reverse, async |world: Rc<World>| {
        for n in 0..30 {
            get(&format!("/{n}?size=100&cc=max-age=600&key=k{}", n % 3), "").await;
        }
        call("POST", "/purge?tag=k1", "", "").await;
        sleep(Duration::from_secs(1)).await;
        let metrics = world.metrics().await;
        assert_eq!(metrics.iter().find(|(n, _)| n == "plimsoll_store_objects").unwrap().1, 20);
    });
}

#[test]
fn purges_of_other_urls_cost_a_slow_fetch_neither_its_readers_nor_its_place_in_the_store() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/t?size=900&cc=max-age=600&key=news&delay=3000";
        let readers: Vec<_> =
            (0..5).map(|_| runtime::spawn(async move { get(target, "").await })).collect();
        for n in 0..6 {
            sleep(Duration::from_millis(400)).await;
            call("POST", &format!("/purge?tag=t{n}"), "", "").await;
        }
        for reader in readers {
            assert_eq!(reader.await.body, expected(target, None));
        }
        // The records have been dropped by then.
        sleep(cache::limits::PURGE_RECORDS_KEPT * 2 + Duration::from_secs(2)).await;
        get(target, "").await;
        assert_eq!(world.origin.count(target), 1);
    });
}

#[test]
fn requests_that_wait_while_their_tag_is_purged_share_one_fetch() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/t?size=900&cc=max-age=600&key=news&delay=1000";
        let wait = || -> Vec<_> {
            (0..5).map(|_| runtime::spawn(async move { get(target, "").await })).collect()
        };
        let early = wait();
        sleep(Duration::from_millis(300)).await;
        call("POST", "/purge?tag=news", "", "").await;
        let late = wait();
        sleep(Duration::from_millis(900)).await;
        call("POST", "/purge?tag=news", "", "").await;
        let last = wait();
        for reader in early.into_iter().chain(late).chain(last) {
            assert_eq!(reader.await.body, expected(target, None));
        }
        assert_eq!(world.origin.count(target), 3);
    });
}

#[test]
fn a_fetch_whose_tags_were_purged_meanwhile_is_repeated() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/t?size=900&cc=max-age=600&key=news&delay=1000";
        let early = runtime::spawn(async move { get(target, "").await });
        sleep(Duration::from_millis(300)).await;
        call("POST", "/purge?tag=news", "", "").await;
        // Its tags are unknown yet: this request waits for the fetch, and then for another.
        let late = runtime::spawn(async move { get(target, "").await });
        assert_eq!(early.await.status, 200);
        assert_eq!(late.await.body, expected(target, None));
        assert_eq!(world.origin.count(target), 2);
        get(target, "").await;
        assert_eq!(world.origin.count(target), 2);
    });
}

#[test]
fn invalid_calls_to_the_admin_address_say_what_is_wrong() {
    each_way(reverse, async |_world: Rc<World>| {
        for (method, target, fields, body, status) in [
            ("POST", "/purge", "", "", 400),
            ("POST", "/purge", "", "{\"tags\": 1}", 400),
            ("POST", "/purge?tag=a&all", "", "", 400),
            ("POST", "/purge?tag=a&tag=b", "", "", 400),
            ("POST", "/purge?all=maybe", "", "", 400),
            ("POST", "/purge?url=%zz", "", "", 400),
            ("POST", "/purge?tag=a", "", "{\"tag\": \"a\"}", 400),
            ("POST", "/purge?all", "Origin: http://evil\r\n", "", 403),
            ("GET", "/purge?all", "", "", 405),
            ("POST", "/metrics", "", "", 405),
            ("GET", "/nothing", "", "", 404),
        ] {
            let (got, text) = call(method, target, fields, body).await;
            assert_eq!(got, status, "{method} {target}: {text}");
            assert!(text.starts_with("{\"error\":\""), "{text}");
        }
        let large = "x".repeat(70_000);
        assert_eq!(call("POST", "/purge", "", &large).await.0, 413);
    });
}

/// Each response is counted once, by the purge that removes it or makes it stale.
#[test]
fn a_purge_says_how_many_responses_it_concerned() {
    each_way(reverse, async |_world: Rc<World>| {
        let fill = async || {
            for n in 0..20 {
                get(&format!("/n/{n}?size=90&cc=max-age=600&tag=all&key=k{}", n % 4), "").await;
            }
            for variant in 0..3 {
                let target = "/v?size=90&cc=max-age=600&vary=x-v";
                get(target, &format!("x-v: {variant}\r\n")).await;
            }
            get("/un?size=90&cc=no-store", "").await;
            sleep(Duration::from_secs(1)).await;
        };
        let of = async |query: &str| {
            let (status, text) = call("POST", &format!("/purge?{query}"), "", "").await;
            assert_eq!(status, 200, "{text}");
            let count = text.split("\"responses\":").nth(1).expect("a count");
            count.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse::<u64>().unwrap()
        };
        fill().await;
        assert_eq!(of("prefix=http://site/n/1").await, 11, "1 and 10 to 19");
        assert_eq!(of("prefix=http://site/n/1").await, 0, "they are gone");
        assert_eq!(of("tag=k0").await, 3, "0, 4 and 8, not 12 and 16");
        fill().await;
        assert_eq!(of("url=http://site/v%3Fsize=90%26cc=max-age=600%26vary=x-v").await, 3);
        assert_eq!(of("url=http://site/v%3Fsize=90%26cc=max-age=600%26vary=x-v").await, 0);
        assert_eq!(of("url=http://site/none").await, 0);
        assert_eq!(of("tag=k1+k2&soft").await, 10);
        assert_eq!(of("all&soft").await, 20);
        assert_eq!(of("all").await, 20);
        assert_eq!(of("all").await, 0);
    });
}
