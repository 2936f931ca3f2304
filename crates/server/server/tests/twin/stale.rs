//! Stale responses: when one may be served, and how it becomes fresh again (RFC 9111, 4.2.4, 4.3;
//! RFC 5861; RFC 8246).

use std::rc::Rc;
use std::time::Duration;

use runtime::time::sleep;

use crate::origin::expected;
use crate::world::{Client, World, address, each_way, reverse};

async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

#[test]
fn stale_while_revalidate_serves_at_once_and_validates_once_in_the_background() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/swr?size=500&cc=max-age=10,stale-while-revalidate=100&etag=a&delay=500";
        let content = expected(target, None);
        let mut client = Client::after_get(target).await;
        seconds(20).await;
        for _ in 0..5 {
            let got = client.get(target, "").await;
            assert_eq!((got.status, &got.body), (200, &content));
            let status = got.field("cache-status").unwrap();
            assert!(status.starts_with("plimsoll; hit; ttl=-"), "{status}");
            assert!(status.ends_with("; detail=stale-while-revalidate"), "{status}");
        }
        seconds(5).await;
        assert_eq!(world.origin.count(target), 2, "one validation for all");
        assert_eq!(world.origin.last().field("if-none-match"), Some("\"a.0\""));
        let got = client.get(target, "").await;
        assert_eq!(got.field("cache-status"), Some("plimsoll; hit"));
        // A new version takes the old one's place, and a HEAD sets it going too.
        world.origin.version.set(1);
        seconds(20).await;
        let got = client.head(target, "").await;
        assert_eq!(got.field("etag"), Some("\"a.0\""));
        seconds(5).await;
        assert_eq!(client.get(target, "").await.field("etag"), Some("\"a.1\""));
        assert_eq!((world.origin.last().method.as_str(), world.origin.count(target)), ("GET", 3));
        // Past the window it is asked for first.
        seconds(200).await;
        let got = Client::new().await.get(target, "").await;
        assert_eq!(got.field("cache-status"), Some("plimsoll; fwd=stale; fwd-status=304"));
    });
}

#[test]
fn a_failed_background_validation_is_repeated() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/swr?size=50&cc=max-age=10,stale-while-revalidate=100&gone=2";
        let mut client = Client::after_get(target).await;
        seconds(20).await;
        for _ in 0..3 {
            assert_eq!(client.get(target, "").await.body, expected(target, None));
            seconds(1).await;
        }
        // Each is repeated once on a new connection.
        assert!(world.origin.count(target) >= 4, "{}", world.origin.count(target));
        assert!(world.counter("upstream_errors") >= 3);
    });
}

#[test]
fn a_cache_that_is_cut_off_serves_stale_unless_a_directive_forbids() {
    each_way(reverse, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for (cc, status) in [
            ("max-age=1", 200),
            ("max-age=1,must-revalidate", 502),
            ("max-age=1,proxy-revalidate", 502),
            ("s-maxage=1", 502),
            ("max-age=1,no-cache", 502),
            ("max-age=1,stale-if-error=5", 502),
        ] {
            let target = format!("/cut?size=30&cc={cc}&etag=a&gone=2");
            client.get(&target, "").await;
            seconds(10).await;
            let got = client.get(&target, "").await;
            assert_eq!(got.status, status, "{cc}");
            match got.field("cache-status") {
                Some(status) => assert!(status.ends_with("; detail=stale-by-policy"), "{status}"),
                None => {
                    assert!(got.field("proxy-status").unwrap().ends_with("\"upstream-broken\""))
                }
            }
            assert_eq!(got.field("cache-status").is_some(), status == 200);
            // What the client does not accept, it does not get.
            let wish = "Cache-Control: no-cache\r\n";
            assert_eq!(client.get(&target, wish).await.status, 502, "{cc}");
        }
        assert!(world.counter("upstream_errors") >= 12);
    });
}

#[test]
fn an_error_of_the_origin_is_passed_on_unless_stale_if_error_says_otherwise() {
    each_way(reverse, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for (cc, request, status) in [
            ("max-age=1", "", 503),
            ("max-age=1,stale-if-error=60", "", 200),
            ("max-age=1", "Cache-Control: stale-if-error=60\r\n", 200),
            ("max-age=1,stale-if-error=60", "Cache-Control: no-cache\r\n", 503),
        ] {
            let target = format!("/err?size=30&cc={cc}&etag=a&r={}", request.len());
            let failing = format!("{target}&sick=2");
            client.get(&failing, "").await;
            seconds(5).await;
            let got = client.get(&failing, request).await;
            assert_eq!(got.status, status, "{cc} {request}");
        }
        assert_eq!(world.counter("upstream_errors"), 0);
    });
}

#[test]
fn requests_waiting_for_a_fetch_that_fails_get_the_stale_response_they_allow() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/wait?size=30&cc=max-age=1,stale-if-error=600&etag=q&delay=1000";
        let _client = Client::after_get(target).await;
        seconds(5).await;
        let wishes = ["", "", "Cache-Control: no-cache\r\n", ""];
        let asked: Vec<_> = wishes
            .into_iter()
            .map(|wish| runtime::spawn(async move { Client::new().await.get(target, wish).await }))
            .collect();
        sleep(Duration::from_millis(500)).await;
        runtime::sim::crash_connections(address(crate::world::ORIGIN));
        let mut statuses = Vec::new();
        for one in asked {
            statuses.push(one.await.status);
        }
        assert!(statuses.iter().all(|status| matches!(status, 200 | 502)), "{statuses:?}");
        assert_eq!([statuses[0], statuses[1], statuses[3]], [200; 3]);
        drop(world);
    });
}

#[test]
fn head_makes_a_stored_response_fresh_or_stale() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/head?size=700&cc=max-age=10&etag=a";
        let mut client = Client::after_get(target).await;
        seconds(20).await;
        let got = client.head(target, "").await;
        let status = "plimsoll; fwd=stale; fwd-status=200; stored";
        assert_eq!((got.status, got.field("cache-status")), (200, Some(status)));
        let got = client.get(target, "").await;
        assert_eq!(got.field("cache-status"), Some("plimsoll; hit"));
        assert_eq!(got.body, expected(target, None));
        assert_eq!(world.origin.count(target), 2);
        // Another version: the stored response is outdated, however fresh it was.
        world.origin.version.set(1);
        let got = client.head(target, "Cache-Control: no-cache\r\n").await;
        assert_eq!(got.field("etag"), Some("\"a.1\""));
        let got = client.get(target, "").await;
        assert_eq!((got.status, got.field("etag")), (200, Some("\"a.1\"")));
        assert_eq!(world.origin.count(target), 4);
    });
}

#[test]
fn a_reload_of_an_immutable_response_sends_no_request() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/im?size=30&cc=max-age=100,immutable&etag=a";
        let mut client = Client::after_get(target).await;
        let reload = "Cache-Control: max-age=0\r\nIf-None-Match: \"a.0\"\r\n";
        assert_eq!(client.get(target, reload).await.status, 304);
        assert_eq!(world.origin.count(target), 1);
        client.get(target, "Cache-Control: no-cache\r\n").await;
        assert_eq!(world.origin.count(target), 2);
        seconds(200).await;
        assert_eq!(Client::new().await.get(target, reload).await.status, 304);
        assert_eq!(world.origin.count(target), 3);
    });
}
