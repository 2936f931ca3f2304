//! A response fetched before an unsafe method was answered is not served to later requests (RFC
//! 9111, 4.4), in whatever order the origin's responses arrive.

use std::rc::Rc;
use std::time::Duration;

use runtime::sim;
use runtime::time::sleep;

use crate::common::Response;
use crate::origin::expected;
use crate::some;
use crate::storm::Draw;
use crate::world::{Client, PROXY, PROXY_TOO, World, each_version, each_way, reverse};

async fn get(at: &str, target: &str, fields: &str) -> Response {
    Client::to(at).await.unwrap().get(target, fields).await
}

/// From the other core, which knows the fetch only from the table.
pub(crate) async fn change(method: &str, target: &str) -> Response {
    let request = format!("{method} {target} HTTP/1.1\r\nHost: site\r\nContent-Length: 0\r\n\r\n");
    Client::to(PROXY_TOO).await.unwrap().ask(request.as_bytes()).await
}

/// The version of a response.
pub(crate) fn version(response: &Response) -> u32 {
    let tag = response.field("etag").expect("the origin tags what it says").trim_matches('"');
    tag.rsplit('.').next().unwrap().parse().expect("a version")
}

#[test]
fn a_fetch_in_flight_does_not_restore_what_a_change_removed() {
    // The response is ready, or half of it is sent, when the change arrives.
    for (method, way) in [
        ("POST", "late=1000"),
        ("PUT", "pause=1000"),
        ("DELETE", "late=1000&vary=x-v"),
        ("LOCK", "pause=1000&frame=chunked"),
    ] {
        each_way(reverse, async |world: Rc<World>| {
            let target = format!("/c?size=3000&cc=max-age=600&etag=e&bump=1&{way}");
            let asking = |at| {
                let target = target.clone();
                runtime::spawn(async move { get(at, &target, "").await })
            };
            let early = asking(PROXY);
            sleep(Duration::from_millis(400)).await;
            assert_eq!(change(method, &target).await.status, 200);
            let joining = asking(PROXY);
            let early = early.await;
            assert_eq!((early.status, version(&early)), (200, 0), "it had asked before");
            assert_eq!(version(&joining.await), 1, "it does not join what is overtaken");
            for at in [PROXY, PROXY_TOO] {
                assert_eq!(version(&get(at, &target, "").await), 1);
            }
            assert_eq!(world.origin.count(&target), 3, "a later fetch is kept");
        });
    }
}

#[test]
fn a_validation_in_flight_does_not_confirm_what_a_change_removed() {
    for cc in ["max-age=1", "max-age=1,stale-while-revalidate=600"] {
        each_way(reverse, async |_world: Rc<World>| {
            let target = format!("/v?size=30&cc={cc}&etag=e&bump=1&late=1000");
            get(PROXY, &target, "").await;
            sleep(Duration::from_secs(5)).await;
            let early = {
                let target = target.clone();
                runtime::spawn(async move { get(PROXY, &target, "").await })
            };
            sleep(Duration::from_millis(400)).await;
            change("POST", &target).await;
            assert_eq!(version(&early.await), 0);
            sleep(Duration::from_secs(3)).await;
            for _ in 0..2 {
                assert_eq!(version(&get(PROXY, &target, "").await), 1);
            }
        });
    }
}

#[test]
fn neither_does_a_part_or_a_head_in_flight() {
    each_way(reverse, async |_world: Rc<World>| {
        let target = "/p?size=300&cc=max-age=600&etag=e&bump=1&late=1000&ranges=1";
        let early =
            runtime::spawn(async move { get(PROXY, target, "Range: bytes=0-99\r\n").await });
        sleep(Duration::from_millis(400)).await;
        change("POST", target).await;
        assert_eq!(early.await.status, 206);
        let part = get(PROXY, target, "Range: bytes=10-19\r\n").await;
        assert_eq!((part.status, version(&part)), (206, 1));
    });
    each_way(reverse, async |world: Rc<World>| {
        let target = "/h?size=300&cc=max-age=2&etag=e&bump=1&late=1000";
        get(PROXY, target, "").await;
        sleep(Duration::from_secs(5)).await;
        let head = runtime::spawn(async move {
            let mut client = Client::to(PROXY).await.unwrap();
            client.head(target, "").await
        });
        sleep(Duration::from_millis(400)).await;
        change("POST", target).await;
        assert_eq!(version(&head.await), 0);
        assert_eq!(version(&get(PROXY, target, "").await), 1);
        assert_eq!(world.origin.count(target), 4);
    });
}

#[test]
fn a_post_keeps_its_own_answer_unless_another_has_changed_it_since() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/w?cc=max-age=600&etag=e&bump=1&location=1&late=200";
        change("POST", target).await;
        assert_eq!(version(&get(PROXY, target, "").await), 1);
        assert_eq!(world.origin.count(target), 1, "a response to POST that a GET may have");
        let slow = format!("{target}&late=2000");
        let slow = slow.replacen("&late=200&", "&", 1);
        let both = [slow.clone(), slow.clone()]
            .map(|target| runtime::spawn(async move { change("POST", &target).await }));
        for one in both {
            one.await;
        }
        let last = world.origin.version.get();
        assert_eq!(version(&get(PROXY, &slow, "").await), last, "the last version");
    });
}

#[test]
fn a_change_that_failed_overtakes_nothing() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/f?size=30&cc=max-age=600&etag=e&pause=1000";
        let early = runtime::spawn(async move { get(PROXY, target, "").await });
        sleep(Duration::from_millis(400)).await;
        let other = "/f?size=30&status=500";
        assert_eq!(change("POST", other).await.status, 500);
        early.await;
        let got = get(PROXY_TOO, target, "").await;
        assert_eq!((got.body, world.origin.count(target)), (expected(target, None), 1));
    });
}

/// A client of one of the cores, which reads and changes at random.
async fn busy(seed: u64, at: &'static str) {
    let mut draw = Draw::new(seed);
    for _ in 0..12 {
        sleep(Duration::from_millis(draw.below(120))).await;
        let more = ["", "&vary=x-v", "&frame=chunked", "&ranges=1"][(seed % 4) as usize];
        let way = ["&late=30", "&pause=30", "&delay=30"][draw.below(3) as usize];
        let cc = "max-age=2,stale-while-revalidate=60";
        let target = format!("/s?size=200&cc={cc}&etag=e&bump=1{way}{more}");
        let fields = ["", "x-v: 1\r\n", "Range: bytes=0-9\r\n", "Cache-Control: max-age=0\r\n"];
        let got = get(at, &target, fields[draw.below(4) as usize]).await;
        assert!(matches!(got.status, 200 | 206), "{got:?}");
        if draw.below(2) == 0 {
            let request =
                format!("PUT {target} HTTP/1.1\r\nHost: site\r\nContent-Length: 0\r\n\r\n");
            let put = Client::to(at).await.unwrap().ask(request.as_bytes()).await;
            let (put, after) = (version(&put), version(&get(at, &target, "").await));
            assert!(after >= put, "{after} after {put} for {target}");
        }
    }
}

#[test]
fn after_an_answered_change_no_client_gets_an_older_version() {
    sim::check(some(0..2), |seed| {
        each_version(&sim::Options::rough(seed), &reverse(), async |_world: Rc<World>| {
            let clients: Vec<_> = (0..16)
                .map(|n| {
                    let at = if n % 2 == 0 { PROXY } else { PROXY_TOO };
                    runtime::spawn(busy(seed * 100 + n, at))
                })
                .collect();
            for client in clients {
                client.await;
            }
        });
    });
}
