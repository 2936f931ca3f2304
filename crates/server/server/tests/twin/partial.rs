//! Parts: stored, put together, completed (RFC 9111, 3.3 and 3.4).

use std::rc::Rc;
use std::time::Duration;

use runtime::time::sleep;

use crate::origin::expected;
use crate::world::{Client, World, each_way, reverse};

fn range(range: &str) -> String {
    format!("Range: bytes={range}\r\n")
}

#[test]
fn a_stored_part_serves_the_ranges_within_it() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/p?size=1000&cc=max-age=60&ranges=1";
        let content = expected(target, None);
        let mut client = Client::new().await;
        let got = client.get(target, &range("100-299")).await;
        assert_eq!((got.status, got.field("content-range")), (206, Some("bytes 100-299/1000")));
        let status = "plimsoll; fwd=uri-miss; fwd-status=206; stored";
        assert_eq!(got.field("cache-status"), Some(status));
        assert_eq!(world.origin.last().field("range"), Some("bytes=100-299"));
        for (asked, first, last) in [("100-299", 100, 299), ("150-160", 150, 160)] {
            let got = client.get(target, &range(asked)).await;
            assert_eq!((got.status, &got.body[..]), (206, &content[first..=last]));
            assert_eq!(got.field("cache-status"), Some("plimsoll; hit"));
        }
        assert_eq!(world.origin.count(target), 1);
        // Without a validator it is never put together with another.
        let got = client.get(target, &range("300-399")).await;
        assert_eq!(got.body, content[300..400]);
        let status = "plimsoll; fwd=partial; fwd-status=206; stored";
        assert_eq!(got.field("cache-status"), Some(status));
        assert_eq!(client.get(target, "").await.body, content);
        assert_eq!(world.origin.last().field("range"), None);
        assert_eq!(world.origin.count(target), 3);
    });
}

#[test]
fn parts_with_the_same_strong_validator_become_the_whole() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/w?size=1000&cc=max-age=60&etag=a&ranges=1";
        let content = expected(target, None);
        let mut client = Client::new().await;
        for part in ["400-699", "0-449", "650-"] {
            assert_eq!(client.get(target, &range(part)).await.status, 206);
        }
        let got = client.get(target, "").await;
        assert_eq!((got.status, &got.body), (200, &content));
        assert_eq!(got.field("cache-status"), Some("plimsoll; hit"));
        assert_eq!(got.field("content-range"), None);
        assert_eq!(world.origin.count(target), 3);
    });
}

#[test]
fn only_the_missing_bytes_are_fetched() {
    each_way(reverse, async |world: Rc<World>| {
        for (part, rest) in [("0-599", "bytes=600-"), ("600-", "bytes=0-599")] {
            let target = format!("/m?size=1000&cc=max-age=60&etag=a&ranges=1&{rest}");
            let content = expected(&target, None);
            let mut client = Client::new().await;
            client.get(&target, &range(part)).await;
            let got = client.get(&target, "").await;
            assert_eq!((got.status, &got.body), (200, &content));
            let status = "plimsoll; fwd=partial; fwd-status=206; stored";
            assert_eq!(got.field("cache-status"), Some(status));
            let asked = world.origin.last();
            assert_eq!(
                (asked.field("range"), asked.field("if-range")),
                (Some(rest), Some("\"a.0\""))
            );
            let got = client.get(&target, "").await;
            assert_eq!((got.field("cache-status"), &got.body), (Some("plimsoll; hit"), &content));
            assert_eq!(world.origin.count(&target), 2);
        }
    });
}

/// The representation has changed since the part was stored: nothing of it is mixed in.
#[test]
fn parts_of_different_versions_are_never_combined() {
    each_way(reverse, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for again in ["0", "1"] {
            let target = format!("/v?size=1000&cc=max-age=60&etag=a&ranges=1&again={again}");
            client.get(&target, &range("0-599")).await;
            world.origin.version.set(world.origin.version.get() + 1);
            let got = client.get(&target, &range("600-")).await;
            assert_eq!((got.status, got.body.len()), (206, 400));
            let got = client.get(&target, &range("0-1")).await;
            let status = "plimsoll; fwd=partial; fwd-status=206; stored";
            assert_eq!(got.field("cache-status"), Some(status), "the old part is gone");
            world.origin.version.set(world.origin.version.get() + 1);
            let got = client.get(&target, "").await;
            assert_eq!((got.status, &got.body), (200, &expected(&target, None)));
            let version = format!("\"a.{}\"", world.origin.version.get());
            assert_eq!(got.field("etag"), Some(&version[..]));
        }
    });
}

#[test]
fn a_stale_part_is_validated_with_its_range() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/s?size=1000&cc=max-age=2&etag=a&ranges=1";
        let mut client = Client::new().await;
        client.get(target, &range("0-99")).await;
        sleep(Duration::from_secs(5)).await;
        let got = client.get(target, &range("10-19")).await;
        assert_eq!((got.status, got.field("content-range")), (206, Some("bytes 10-19/1000")));
        assert_eq!(got.field("cache-status"), Some("plimsoll; fwd=stale; fwd-status=304"));
        assert_eq!(world.origin.last().field("if-none-match"), Some("\"a.0\""));
        sleep(Duration::from_secs(5)).await;
        world.origin.version.set(1);
        let got = client.get(target, &range("10-19")).await;
        assert_eq!((got.status, got.field("etag")), (206, Some("\"a.1\"")));
        assert_eq!(got.body, expected(target, None)[10..20]);
        assert_eq!(world.origin.count(target), 3);
    });
}

#[test]
fn a_body_that_broke_off_is_continued() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/b?size=3000&cc=max-age=60&etag=a&ranges=1&breaks=1000&pause=10";
        let content = expected(target, None);
        let mut client = Client::new().await;
        let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
        client.send(request.as_bytes()).await.unwrap();
        assert!(client.response().await.is_err(), "it must not look whole");
        let got = Client::new().await.get(target, "").await;
        assert_eq!((got.status, got.body), (200, content));
        assert_eq!(world.origin.last().field("range"), Some("bytes=1000-"));
        assert_eq!(world.origin.count(target), 2);
    });
}

#[test]
fn a_herd_for_one_range_is_one_fetch() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/h?size=1000&cc=max-age=60&etag=a&ranges=1&delay=300";
        let asked: Vec<_> = (0..10)
            .map(|_| {
                runtime::spawn(async move {
                    let mut client = Client::new().await;
                    client.get(target, &range("100-299")).await
                })
            })
            .collect();
        for one in asked {
            let got = one.await;
            assert_eq!((got.status, &got.body[..]), (206, &expected(target, None)[100..300]));
        }
        assert_eq!(world.origin.count(target), 1);
    });
}

#[test]
fn a_part_that_cannot_be_stored_is_passed_through() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/t?size=1000&cc=max-age=60&etag=a&ranges=1";
        let mut client = Client::new().await;
        for (fields, seen) in [
            ("Range: bytes=0-1,500-501\r\n", "bytes=0-1,500-501"),
            ("Range: bytes=0-9\r\nIf-Range: \"other\"\r\n", "bytes=0-9"),
            ("Range: lines=0-9\r\n", "lines=0-9"),
        ] {
            let got = client.get(target, fields).await;
            assert_eq!(world.origin.last().field("range"), Some(seen));
            let status = got.field("cache-status").unwrap();
            assert!(status.starts_with("plimsoll; fwd=uri-miss; fwd-status="), "{status}");
            assert!(!status.contains("stored"), "{status}");
        }
        let only = "Range: bytes=0-1\r\nCache-Control: only-if-cached\r\n";
        assert_eq!(client.get(target, only).await.status, 504);
    });
}

/// RFC 9111, 3.3: an incomplete response answers a range within it, and nothing else.
#[test]
fn a_head_is_never_answered_from_a_part() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/h?size=300&cc=max-age=600&etag=e&ranges=1";
        let mut client = Client::new().await;
        client.get(target, "Range: bytes=0-99\r\n").await;
        for asked in [2, 3] {
            let got = client.head(target, "").await;
            assert_eq!((got.status, got.field("content-length")), (200, Some("300")));
            assert_eq!(world.origin.count(target), asked);
        }
        let whole = client.get(target, "").await;
        assert_eq!((whole.status, whole.body), (200, expected(target, None)));
        assert_eq!(world.origin.last().field("range"), Some("bytes=100-"));
    });
}
