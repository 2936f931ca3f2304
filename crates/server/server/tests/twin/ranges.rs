//! Ranges of responses that are stored whole or still arriving (RFC 9110, 14).

use std::rc::Rc;

use crate::common::Response;
use crate::origin::expected;
use crate::world::{Client, World, each_way, reverse};

/// What a response is, in one line: status, `Content-Range`, and the body as text of numbers.
fn summary(got: &Response) -> (u16, Option<&str>, usize) {
    (got.status, got.field("content-range"), got.body.len())
}

#[test]
fn ranges_are_cut_from_the_stored_response() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/r?size=1000&cc=max-age=60&etag=a";
        let content = expected(target, None);
        let mut client = Client::after_get(target).await;
        for (range, first, last) in [
            ("0-9", 0, 9),
            ("990-", 990, 999),
            ("-10", 990, 999),
            ("999-5000", 999, 999),
            ("-5000", 0, 999),
            ("0-10,5-20", 0, 20),
        ] {
            let got = client.get(target, &format!("Range: bytes={range}\r\n")).await;
            let place = format!("bytes {first}-{last}/1000");
            assert_eq!(summary(&got), (206, Some(&place[..]), last - first + 1), "{range}");
            assert_eq!(got.body, content[first..=last]);
            assert_eq!(got.field("cache-status"), Some("plimsoll; hit"));
            assert_eq!((got.field("etag"), got.field("x-target")), (Some("\"a.0\""), Some(target)));
        }
        let got = client.get(target, "Range: bytes=1000-\r\n").await;
        assert_eq!(summary(&got), (416, Some("bytes */1000"), 0));
        for ignored in ["lines=0-1", "bytes=5-1", "bytes=x"] {
            let got = client.get(target, &format!("Range: {ignored}\r\n")).await;
            assert_eq!((got.status, &got.body), (200, &content), "{ignored}");
        }
        let got = client.head(target, "Range: bytes=0-1\r\n").await;
        assert_eq!((got.status, got.field("content-length")), (200, Some("1000")));
        assert_eq!(world.origin.count(target), 1);
    });
}

#[test]
fn a_condition_comes_before_a_range() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/c?size=1000&cc=max-age=60&etag=a";
        let mut client = Client::after_get(target).await;
        for (fields, want) in [
            ("If-Range: \"a.0\"\r\n", (206, Some("bytes 0-9/1000"), 10)),
            ("If-Range: \"b\"\r\n", (200, None, 1000)),
            ("If-Range: W/\"a.0\"\r\n", (200, None, 1000)),
            ("If-Range: Sun, 06 Nov 1994 08:49:37 GMT\r\n", (200, None, 1000)),
            ("If-None-Match: \"a.0\"\r\n", (304, None, 0)),
            ("If-None-Match: \"b\"\r\n", (206, Some("bytes 0-9/1000"), 10)),
        ] {
            let got = client.get(target, &format!("Range: bytes=0-9\r\n{fields}")).await;
            assert_eq!(summary(&got), want, "{fields}");
        }
        assert_eq!(world.origin.count(target), 1);
    });
}

/// The parts of a multipart body: where each lies, and its content.
fn parts(got: &Response) -> Vec<(String, Vec<u8>)> {
    let content_type = got.field("content-type").unwrap();
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let mut rest = &got.body[..];
    let mut out = Vec::new();
    loop {
        let line = format!("\r\n--{boundary}");
        rest = rest.strip_prefix(line.as_bytes()).expect("a boundary");
        if rest == b"--\r\n" {
            return out;
        }
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = std::str::from_utf8(&rest[..end]).unwrap();
        let place = head.split("\r\n").find_map(|line| line.strip_prefix("Content-Range: "));
        let (range, _) = place.unwrap().strip_prefix("bytes ").unwrap().split_once('/').unwrap();
        let (first, last) = range.split_once('-').unwrap();
        let length = last.parse::<usize>().unwrap() - first.parse::<usize>().unwrap() + 1;
        out.push((place.unwrap().to_owned(), rest[end + 4..end + 4 + length].to_vec()));
        rest = &rest[end + 4 + length..];
    }
}

#[test]
fn several_ranges_come_in_one_body_each_with_its_position() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/m?size=1000&cc=max-age=60";
        let content = expected(target, None);
        let mut client = Client::after_get(target).await;
        let got = client.get(target, "Range: bytes=500-509, 0-0,-2\r\n").await;
        assert_eq!((got.status, got.field("content-range")), (206, None));
        assert_eq!(
            parts(&got),
            [
                ("bytes 500-509/1000".to_owned(), content[500..510].to_vec()),
                ("bytes 0-0/1000".to_owned(), content[..1].to_vec()),
                ("bytes 998-999/1000".to_owned(), content[998..].to_vec()),
            ]
        );
        let again = client.get(target, "Range: bytes=500-509, 0-0,-2\r\n").await;
        assert_eq!(parts(&again), parts(&got));
        assert_eq!(world.origin.count(target), 1);
    });
}

/// A small request must not bring more than the whole (RFC 9110, 17.15).
#[test]
fn many_ranges_give_no_more_than_the_whole() {
    each_way(reverse, async |_: Rc<World>| {
        let target = "/many?size=4000&cc=max-age=60";
        let mut client = Client::after_get(target).await;
        let overlapping = vec!["0-"; 60].join(",");
        let scattered: Vec<_> = (0..40).map(|at| format!("{0}-{0}", at * 100)).collect();
        let endless = vec!["0-0"; 1000].join(",");
        for ranges in [overlapping, scattered.join(","), endless] {
            let got = client.get(target, &format!("Range: bytes={ranges}\r\n")).await;
            assert!(matches!(got.status, 200 | 206), "{}", got.status);
            assert!(got.body.len() <= 4000, "{}", got.body.len());
        }
    });
}

#[test]
fn an_origin_without_ranges_is_asked_once_and_its_clients_get_theirs() {
    for framing in ["", "&pause=300", "&drip=50"] {
        each_way(reverse, async |world: Rc<World>| {
            let target = format!("/w?size=3000&cc=max-age=60{framing}");
            let content = expected(&target, None);
            let mut client = Client::new().await;
            for (at, range) in ["1000-1999", "0-0", "2999-"].iter().enumerate() {
                let got = client.get(&target, &format!("Range: bytes={range}\r\n")).await;
                let (first, last) = [(1000, 1999), (0, 0), (2999, 2999)][at];
                let place = format!("bytes {first}-{last}/3000");
                assert_eq!(summary(&got), (206, Some(&place[..]), last - first + 1));
                assert_eq!(got.body, content[first..=last]);
                // The rest of the body arrives although no request waits for it.
                runtime::time::sleep(std::time::Duration::from_secs(2)).await;
            }
            assert_eq!(client.get(&target, "").await.body, content);
            assert_eq!(world.origin.count(&target), 1);
        });
    }
}

/// What the origin alone can judge goes to it as it is.
#[test]
fn if_match_and_if_unmodified_since_are_for_the_origin() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/o?size=10&cc=max-age=60&etag=a";
        let mut client = Client::after_get(target).await;
        for field in ["If-Match: \"b\"", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT"] {
            let got = client.get(target, &format!("{field}\r\n")).await;
            let status = got.field("cache-status").unwrap();
            assert_eq!(status, "plimsoll; fwd=request; fwd-status=200");
            let (name, value) = field.split_once(": ").unwrap();
            assert_eq!(world.origin.last().field(&name.to_ascii_lowercase()), Some(value));
        }
        assert_eq!(world.origin.count(target), 3);
    });
}
