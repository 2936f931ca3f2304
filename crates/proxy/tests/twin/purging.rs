//! What a purge takes, what it leaves, and that nothing from before it is served to who asks after.

use std::rc::Rc;
use std::time::Duration;

use proxy::{Config, PurgeRules};
use runtime::time::sleep;

use crate::common::Response;
use crate::origin::expected;
use crate::world::{Client, PROXY_TOO, World, each_way, forward, reverse};

async fn purge(target: &str, fields: &str) -> Response {
    let request = format!("PURGE {target} HTTP/1.1\r\nHost: site\r\n{fields}\r\n");
    Client::new().await.ask(request.as_bytes()).await
}

async fn get(target: &str, fields: &str) -> Response {
    Client::new().await.get(target, fields).await
}

#[test]
fn a_purged_url_is_gone_with_its_variants_and_no_other_is() {
    each_way(reverse, async |world: Rc<World>| {
        let (target, other) = ("/a?size=90&cc=max-age=600&vary=x-v", "/b?size=9&cc=max-age=600");
        for _ in 0..2 {
            for variant in ["x-v: 1\r\n", "x-v: 2\r\n"] {
                get(target, variant).await;
            }
            get(other, "").await;
        }
        assert_eq!((world.origin.count(target), world.origin.count(other)), (2, 1));
        let told = purge(target, "").await;
        assert_eq!((told.status, told.field("content-type")), (200, Some("application/json")));
        let text = String::from_utf8(told.body).unwrap();
        let url = format!("\"site{target}\"");
        assert_eq!(
            text,
            format!("{{\"purged\":{{\"url\":{url}}},\"soft\":false,\"generation\":1}}\n")
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
fn a_softly_purged_response_may_stand_in_for_an_error() {
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
fn a_fetch_that_began_before_a_purge_is_not_taken_for_what_came_after_it() {
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
fn who_may_not_purge_is_told_so_and_changes_nothing() {
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
fn a_forward_proxy_purges_what_it_has_of_others() {
    each_way(forward, async |world: Rc<World>| {
        let (target, path) = ("http://10.0.0.2/a?cc=max-age=600", "/a?cc=max-age=600");
        get(target, "").await;
        get(target, "").await;
        assert_eq!(world.origin.count(path), 1);
        assert_eq!(purge("http://10.0.0.2:80/a?cc=max-age=600", "").await.status, 200);
        get(target, "").await;
        assert_eq!(world.origin.count(path), 2);
        assert_eq!(purge("/a", "").await.status, 400);
    });
}

#[test]
fn tags_are_for_us_and_not_for_the_clients_of_a_reverse_proxy() {
    each_way(reverse, async |_world: Rc<World>| {
        for cc in ["max-age=60", "no-store"] {
            let target = format!("/t?cc={cc}&key=a+b&tag=c");
            for _ in 0..2 {
                let got = get(&target, "").await;
                assert_eq!((got.field("surrogate-key"), got.field("cache-tag")), (None, None));
            }
        }
    });
    let told = || {
        let purge = PurgeRules { tags_to_clients: Some(true), ..PurgeRules::default() };
        Config { purge, ..reverse() }
    };
    each_way(told, async |_world: Rc<World>| {
        let target = "/t?cc=max-age=60&key=a+b&etag=e";
        for _ in 0..2 {
            assert_eq!(get(target, "").await.field("surrogate-key"), Some("a b"));
        }
    });
}
