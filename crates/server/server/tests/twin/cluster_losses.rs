//! Members of a cluster that are lost while they answer: the client gets every byte, once.
//!
//! The member that is lost is a peer of the scenario. It answers as the query of the target says:
//! `lost=N` is how many bytes of content it sends, `as=chunked` and `as=part` are forms.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use config::{By, Quota};
use runtime::time::{sleep, timeout};

use crate::cluster::{ALL, Node, at, head_of, owner, path_of};
use crate::origin::{asks, asks_number, expected};
use crate::tunnels::Peer;
use crate::world::{Client, World, each_way, reverse};

/// A part that a client asks for.
const PART: &str = "Range: bytes=500-2499\r\n";

/// A member that sends what the target says, up to `lost`, and then is gone, or hangs.
fn lost(host: u8, hangs: bool) -> Rc<Peer> {
    let has_hung = Rc::new(Cell::new(false));
    Peer::start(&at(host, 7000).to_string(), async move |peer, stream| {
        while let Some(head) = head_of(&stream).await {
            if has_hung.get() {
                return sleep(Duration::from_secs(1000)).await;
            }
            let well = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            if head.starts_with("GET /healthz ") {
                if stream.write_all(well).await.is_err() {
                    return;
                }
                continue;
            }
            peer.got.borrow_mut().extend_from_slice(head.as_bytes());
            let target = head.split(' ').nth(1).unwrap();
            let (answer, is_whole) = answer(target);
            if stream.write_all(&answer).await.is_err() {
                return;
            }
            if hangs {
                has_hung.set(true);
                return sleep(Duration::from_secs(1000)).await;
            }
            if !is_whole {
                return;
            }
        }
    })
}

/// What it sends, and whether that is a whole response.
fn answer(target: &str) -> (Vec<u8>, bool) {
    let content = expected(target, None);
    let lost = asks_number(target, "lost").unwrap();
    let tag = asks(target, "etag").map(|tag| format!("ETag: \"{tag}.0\"\r\n")).unwrap_or_default();
    let head = |status: usize, more: String| {
        format!(
            "HTTP/1.1 {status} Fine\r\nCache-Control: max-age=600\r\nCache-Status: a; hit\r\n{tag}\
             {more}\r\n"
        )
    };
    match asks(target, "as") {
        Some("chunked") => {
            let mut out = head(200, "Transfer-Encoding: chunked\r\n".to_owned()).into_bytes();
            for chunk in content[..lost].chunks(700) {
                out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                out.extend_from_slice(chunk);
                out.extend_from_slice(b"\r\n");
            }
            (out, false)
        }
        Some("part") => {
            let range = "Content-Range: bytes 500-2499/3000\r\nContent-Length: 2000\r\n";
            let head = head(206, range.to_owned());
            ([head.as_bytes(), &content[500..][..lost]].concat(), false)
        }
        _ => {
            let status = asks_number(target, "status").unwrap_or(200);
            let head = head(status, format!("Content-Length: {}\r\n", content.len()));
            ([head.as_bytes(), &content[..lost]].concat(), lost == content.len())
        }
    }
}

/// A path with this query, whose owner is the second of two members.
fn of_two(query: &str) -> String {
    path_of(&format!("{query}&cc=max-age=600"), |path| owner(&ALL[..2], path) == 2)
}

#[test]
fn a_body_of_a_member_that_is_lost_is_continued_from_the_origin() {
    each_way(reverse, async |world: Rc<World>| {
        let one = Node::start(1, &ALL[..2]);
        let _two = lost(2, false);
        // On one connection, so that a byte too many is seen.
        let mut client = one.client().await;
        for (query, fields, range) in [
            ("size=3000&etag=a&ranges=1&lost=1000", "", Some("bytes=1000-")),
            ("size=200000&etag=a&ranges=1&lost=150000", "", Some("bytes=150000-")),
            // The origin knows no ranges.
            ("size=3000&etag=a&lost=1000", "", Some("bytes=1000-")),
            ("size=3000&etag=a&lost=0", "", None),
            ("size=3000&etag=a&ranges=1&lost=1000&as=chunked", "", Some("bytes=999-")),
            // Only the end of the last chunk is missing.
            ("size=3000&etag=a&ranges=1&lost=3000&as=chunked", "", Some("bytes=2999-")),
            ("size=3000&etag=a&frame=chunked&lost=1000&as=chunked", "", Some("bytes=999-")),
            ("size=3000&etag=a&ranges=1&lost=900&as=part", PART, Some("bytes=1400-2499")),
        ] {
            let path = of_two(query);
            let got = client.get(&path, fields).await;
            let content = expected(&path, None);
            match fields {
                "" => assert_eq!((got.status, got.body), (200, content), "{query}"),
                _ => assert_eq!((got.status, &got.body[..]), (206, &content[500..2500])),
            }
            let asked = world.origin.last();
            assert_eq!((asked.target.as_str(), asked.field("range")), (path.as_str(), range));
            assert_eq!(asked.field("if-range"), range.map(|_| "\"a.0\""));
            assert_eq!(world.origin.count(&path), 1);
        }
        assert_eq!((one.counter("cluster_continued"), one.counter("cluster_failed")), (8, 0));
        assert!(one.log().await.contains(" CARP/10.0.1.2 "));
    });
}

#[test]
fn a_body_that_is_sent_slowly_is_continued_too() {
    each_way(reverse, async |world: Rc<World>| {
        let mut config = reverse();
        let bytes = Some("10000/s".parse().unwrap());
        let (name, bytes_burst) = ("all".into(), Some(1000));
        config.quotas = vec![Quota { name, by: By::All, bytes, bytes_burst, ..Quota::default() }];
        let one = Node::deaf(1, &ALL[..2], config);
        let _two = lost(2, false);
        let path = of_two("size=3000&etag=a&ranges=1&lost=1000");
        assert_eq!(one.get(&path, "").await.body, expected(&path, None));
        assert_eq!(world.origin.last().field("range"), Some("bytes=1000-"));
    });
}

#[test]
fn the_next_member_is_asked_for_the_rest_before_the_origin() {
    each_way(reverse, async |world: Rc<World>| {
        let nodes = [1, 3].map(|host| Node::start(host, &ALL));
        let _two = lost(2, false);
        let path = path_of("size=3000&cc=max-age=600&etag=a&ranges=1&lost=1000", |path| {
            owner(&ALL, path) == 2 && owner(&[1, 3], path) == 3
        });
        assert_eq!(nodes[0].get(&path, "").await.body, expected(&path, None));
        assert_eq!(nodes.each_ref().map(|node| node.counter("cluster_continued")), [1, 0]);
        let asked = world.origin.last();
        assert_eq!((asked.field("range"), world.origin.count(&path)), (Some("bytes=1000-"), 1));
        assert_eq!(nodes[1].counter("requests"), 1);
    });
}

#[test]
fn the_rest_of_another_version_is_not_sent() {
    each_way(reverse, async |world: Rc<World>| {
        let one = Node::start(1, &ALL[..2]);
        let _two = lost(2, false);
        world.origin.version.set(1);
        for (nth, query) in ["ranges=1&", "", "as=chunked&"].into_iter().enumerate() {
            let path = of_two(&format!("{query}size=3000&etag=a&lost=1000"));
            broken(&one, &path).await;
            assert_eq!(world.origin.count(&path), 1, "{nth}");
        }
        assert_eq!(one.counter("cluster_continued"), 0);
    });
}

/// The response is not whole, and the client sees that.
async fn broken(node: &Node, path: &str) {
    let mut client: Client = node.client().await;
    client.send(format!("GET {path} HTTP/1.1\r\nHost: site\r\n\r\n").as_bytes()).await.unwrap();
    client.response().await.unwrap_err();
}

/// What has no strong validator could be continued with another version.
#[test]
fn a_short_body_whose_rest_cannot_be_asked_for_is_awaited_and_a_long_one_breaks_off() {
    each_way(reverse, async |world: Rc<World>| {
        let one = Node::start(1, &ALL[..2]);
        let _two = lost(2, false);
        // An error has no parts.
        for (query, status) in [("size=60000", 200), ("size=3000&etag=a&status=404", 404)] {
            let path = of_two(&format!("{query}&lost=2000"));
            let got = one.get(&path, "").await;
            assert_eq!((got.status, got.body), (status, expected(&path, None)));
            assert_eq!(world.origin.count(&path), 1);
        }
        assert_eq!(one.counter("cluster_continued"), 2);
        let long = of_two("size=70000&lost=50000");
        broken(&one, &long).await;
        assert_eq!(world.origin.count(&long), 0);
    });
}

/// What is requested often is fetched for this member's store, too.
#[test]
fn a_body_that_is_kept_is_continued_for_all_who_wait_and_stored_whole() {
    each_way(reverse, async |world: Rc<World>| {
        let one = Node::start(1, &ALL[..2]);
        let two = lost(2, false);
        let path = of_two("size=3000&etag=a&ranges=1&lost=1000");
        for _ in 0..15 {
            assert_eq!(one.get(&path, "").await.body, expected(&path, None));
        }
        assert_eq!((one.counter("cluster_kept"), one.counter("hits")), (0, 0));
        for _ in 0..3 {
            assert_eq!(one.get(&path, "").await.body, expected(&path, None));
        }
        assert_eq!((one.counter("cluster_kept"), one.counter("hits")), (1, 2));
        assert_eq!((world.origin.count(&path), one.counter("cluster_continued")), (16, 16));
        let got = String::from_utf8(two.got.borrow().clone()).unwrap();
        assert_eq!(got.matches("GET ").count(), 16);
    });
}

/// One that is stopped keeps its connections. Its checks fail long before the time-outs for it end.
#[test]
fn a_member_that_hangs_is_waited_for_until_it_is_down() {
    each_way(reverse, async |world: Rc<World>| {
        let one = Node::start(1, &ALL[..2]);
        let _two = lost(2, true);
        let path = of_two("size=3000&etag=a&ranges=1&lost=1000");
        let got = timeout(one.patience() / 3, one.get(&path, "")).await.unwrap();
        assert_eq!((got.status, got.body), (200, expected(&path, None)));
        assert_eq!(world.origin.last().field("range"), Some("bytes=1000-"));
    });
    each_way(reverse, async |world: Rc<World>| {
        let one = Node::start(1, &ALL[..2]);
        let _two = Peer::start(&at(2, 7000).to_string(), async |_, _stream| {
            sleep(Duration::from_secs(1000)).await;
        });
        let path = of_two("size=3000&etag=a");
        let got = timeout(one.patience() / 3, one.get(&path, "")).await.unwrap();
        assert_eq!((got.status, got.body), (200, expected(&path, None)));
        assert_eq!((world.origin.count(&path), one.counter("cluster_failed")), (1, 1));
    });
}
