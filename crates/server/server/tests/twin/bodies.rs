//! Bodies in every framing, both ways, and which connections stay open after them.

use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

use runtime::sim;
use runtime::time::sleep;

use crate::leaving::finishing;
use crate::origin::expected;
use crate::world::{
    Broken, Client, ORIGIN, World, address, each_version, each_way, each_way_http1, reverse, run,
};

const FRAMES: [&str; 3] = ["length", "chunked", "close"];

#[test]
fn every_framing_of_the_origin_reaches_every_client_whole() {
    each_way(reverse, async |_: Rc<World>| {
        for frame in FRAMES {
            for cc in ["no-store", "max-age=60"] {
                for size in [0, 1, 5000] {
                    let target = format!("/f?frame={frame}&cc={cc}&size={size}");
                    let mut client = Client::new().await;
                    for _ in 0..2 {
                        let got = client.get(&target, "").await;
                        assert_eq!((got.status, got.body), (200, expected(&target, None)));
                    }
                    let old = format!("GET {target} HTTP/1.0\r\nHost: site\r\n\r\n");
                    let got = client.ask(old.as_bytes()).await;
                    assert_eq!(got.field("transfer-encoding"), None, "HTTP/1.0 knows no chunks");
                    assert_eq!((got.status, got.body), (200, expected(&target, None)));
                    assert!(client.ends().await);
                }
            }
        }
    });
}

#[test]
fn an_old_client_keeps_its_connection_when_it_asks_and_the_length_is_known() {
    each_way_http1(reverse, async |_: Rc<World>| {
        let mut client = Client::new().await;
        let ask = |target: &str| {
            format!("GET {target} HTTP/1.0\r\nHost: site\r\nConnection: keep-alive\r\n\r\n")
        };
        for target in
            ["/k?size=9&cc=max-age=60", "/k?size=9&cc=max-age=60", "/k?size=9&cc=no-store"]
        {
            let got = client.ask(ask(target).as_bytes()).await;
            assert_eq!(got.field("connection"), Some("keep-alive"));
            assert_eq!(got.body, expected(target, None));
        }
        let unknown = "/k?size=9&cc=no-store&frame=chunked";
        let got = client.ask(ask(unknown).as_bytes()).await;
        assert_eq!(got.field("connection"), Some("close"));
        assert_eq!(got.body, expected(unknown, None));
        assert!(client.ends().await);
    });
}

#[test]
fn close_is_obeyed() {
    each_way_http1(reverse, async |_: Rc<World>| {
        for target in
            ["/c?size=9&cc=max-age=60", "/c?size=9&cc=max-age=60", "/c?size=9&cc=no-store"]
        {
            let mut client = Client::new().await;
            let got = client.get(target, "Connection: close\r\n").await;
            assert_eq!(got.field("connection"), Some("close"));
            assert!(client.ends().await);
        }
    });
}

#[test]
fn bodies_of_requests_come_back() {
    each_way(reverse, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for size in [0, 1, 300, 4000] {
            let body = crate::common::content("sent", size);
            let mut request =
                format!("POST /echo HTTP/1.1\r\nHost: site\r\nContent-Length: {size}\r\n\r\n")
                    .into_bytes();
            request.extend_from_slice(&body);
            assert_eq!(client.ask(&request).await.body, body);
            let mut request =
                b"PUT /echo?cc=no-store HTTP/1.1\r\nHost: s\r\nTransfer-Encoding: chunked\r\n\r\n"
                    .to_vec();
            for chunk in body.chunks(123) {
                request.extend_from_slice(format!("{:X} ; x=y\r\n", chunk.len()).as_bytes());
                request.extend_from_slice(chunk);
                request.extend_from_slice(b"\r\n");
            }
            request.extend_from_slice(b"0\r\nX-Trailer: t\r\nHost: dropped\r\n\r\n");
            client.ask(&request).await;
            assert_eq!(world.origin.last().body, body);
        }
        assert_eq!(client.get("/after?size=20", "").await.body.len(), 20);
    });
}

#[test]
fn a_client_that_waits_for_100_gets_it_and_then_its_answer() {
    each_way(reverse, async |_: Rc<World>| {
        let mut client = Client::new().await;
        for round in 1..=2 {
            let head = "POST /e HTTP/1.1\r\nHost: site\r\nContent-Length: 5\r\n\
                        Expect: 100-continue\r\n\r\n";
            client.send(head.as_bytes()).await.unwrap();
            sleep(Duration::from_secs(2)).await;
            assert_eq!(client.ask(b"hello").await.body, b"hello");
            assert_eq!(client.interim, vec![100; round]);
        }
        // A client of HTTP/1.0 never gets it.
        let old = "POST /e HTTP/1.0\r\nHost: site\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(client.ask(old.as_bytes()).await.body, b"hello");
        assert_eq!(client.interim, [100, 100]);
        assert!(client.ends().await);
    });
}

#[test]
fn an_answer_before_the_body_ends_the_connection_and_the_client_sees_it() {
    each_way(reverse, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let head = "POST /e?early=1&status=413&size=0 HTTP/1.1\r\nHost: site\r\n\
                    Content-Length: 5000\r\n\r\n";
        client.send(head.as_bytes()).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        // The client keeps sending without reading, as many do.
        let _ = client.send(&[b'x'; 1000]).await;
        let got = client.response().await.unwrap();
        let close = client.is_http1().then_some("close");
        assert_eq!((got.status, got.field("connection")), (413, close));
        assert!(client.ends().await);
        assert_eq!(world.counter("requests"), 1);
    });
}

/// The origin answers and keeps its connection, but there it still waits for the rest of a body: it
/// would take the next request for that.
#[test]
fn a_connection_with_half_a_request_is_not_used_again() {
    each_way(reverse, async |world: Rc<World>| {
        for size in [50, 100_000] {
            let mut client = Client::new().await;
            let head = format!(
                "POST /e?early=1&cc=no-store HTTP/1.1\r\nHost: s\r\nContent-Length: {size}\r\n\r\n"
            );
            client.send(head.as_bytes()).await.unwrap();
            assert_eq!(client.response().await.unwrap().status, 200);
            let target = "/next?size=10&cc=no-store";
            let mut other = Client::new().await;
            assert_eq!(other.get(target, "").await.body, expected(target, None));
            let seen = world.origin.seen.borrow();
            let [.., first, second] = &seen[..] else { panic!("two requests") };
            assert_ne!(first.connection, second.connection);
        }
    });
}

#[test]
fn interim_responses_do_not_disturb() {
    each_way(reverse, async |_: Rc<World>| {
        let mut client = Client::new().await;
        let (passed, stored) =
            ("/i?interim=3&size=40&cc=no-store", "/i?interim=3&size=40&cc=max-age=60");
        for target in [stored, stored, passed, passed] {
            assert_eq!(client.get(target, "").await.body, expected(target, None));
        }
        assert_eq!(client.interim, [103; 9], "each fetch's own, and none of a hit");
        // Those beyond the limit are dropped.
        client.interim.clear();
        let many = "/i?interim=30&size=40&cc=no-store";
        assert_eq!(client.get(many, "").await.body, expected(many, None));
        assert_eq!(client.interim, [103; 8]);
        let post = "POST /i?interim=30 HTTP/1.1\r\nHost: site\r\nContent-Length: 5\r\n\r\nhello";
        client.interim.clear();
        assert_eq!(client.ask(post.as_bytes()).await.body, b"hello");
        assert_eq!(client.interim, [103; 8]);
        let post = "POST /i?interim=2 HTTP/1.1\r\nHost: site\r\nContent-Length: 5\r\n\r\nhello";
        client.interim.clear();
        assert_eq!(client.ask(post.as_bytes()).await.body, b"hello");
        assert_eq!(client.interim, [103, 103]);
    });
}

#[test]
fn a_head_does_not_wait_for_its_body() {
    each_way(reverse, async |_: Rc<World>| {
        for cc in ["no-store", "max-age=60"] {
            let mut client = Client::new().await;
            let target = format!("/early?size=1&pause=30000&cc={cc}");
            let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
            client.send(request.as_bytes()).await.unwrap();
            sleep(Duration::from_secs(10)).await;
            assert!(!client.is_silent_for(Duration::from_secs(1)).await);
            assert_eq!(client.response().await.unwrap().body, expected(&target, None));
        }
    });
}

#[test]
fn a_response_without_a_date_gets_ours() {
    each_way(reverse, async |_: Rc<World>| {
        let mut client = Client::new().await;
        for target in ["/d?nodate=1&cc=no-store", "/d?nodate=1&cc=max-age=9", "/d?garbage=1"] {
            let date = client.get(target, "").await.field("date").map(str::to_owned);
            assert!(date.unwrap().starts_with("Thu, 01 Jan 2026 00:0"), "{target}");
        }
    });
}

/// We forward no Upgrade, so the origin may not switch: the client would wait for another protocol.
#[test]
fn an_unrequested_switch_of_protocols_is_502() {
    each_way(reverse, async |_: Rc<World>| {
        let mut client = Client::new().await;
        for cc in ["no-store", "max-age=60"] {
            let target = format!("/u?status=101&cc={cc}");
            assert_eq!(
                client.get(&target, "Upgrade: x\r\nConnection: Upgrade\r\n").await.status,
                502
            );
        }
    });
}

#[test]
fn head_and_statuses_without_content_have_none() {
    each_way(reverse, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for frame in FRAMES {
            for cc in ["no-store", "max-age=60"] {
                let target = format!("/h?size=77&frame={frame}&cc={cc}");
                let got = client.head(&target, "").await;
                let length = got.field("content-length");
                assert_eq!(length.is_some(), frame == "length", "{got:?}");
                for status in [204, 304] {
                    let target = format!("{target}&status={status}");
                    for _ in 0..2 {
                        let got = client.get(&target, "").await;
                        assert_eq!((got.status, got.body.len()), (status, 0));
                    }
                }
            }
        }
        assert_eq!(client.get("/after?size=20", "").await.body.len(), 20);
        assert_eq!(world.counter("upstream_errors"), 0);
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    each_way(reverse, async |_: Rc<World>| {
        let mut client = Client::new().await;
        let targets = [
            "/1?size=3000&cc=max-age=60",
            "/2?size=10&cc=no-store&delay=500",
            "/1?size=3000&cc=max-age=60",
            "/3?size=9000&cc=max-age=60&frame=chunked&pause=100",
            "/1?size=3000&cc=max-age=60",
            "/4?size=0&cc=no-store",
        ];
        for _ in 0..3 {
            let mut all = String::new();
            for target in targets {
                all += &format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
                all += "POST /p HTTP/1.1\r\nHost: site\r\nContent-Length: 3\r\n\r\nabc";
            }
            let got = client.pipeline(all.as_bytes(), 2 * targets.len()).await;
            for (target, got) in targets.iter().zip(got.chunks(2)) {
                assert_eq!(
                    (got[0].status, &got[0].body),
                    (200, &expected(target, None)),
                    "{target}"
                );
                assert_eq!(got[1].body, b"abc");
            }
        }
    });
}

/// More hits than one turn may answer: the responses leave in several turns.
#[test]
fn many_pipelined_hits_are_all_answered() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/many?size=900&cc=max-age=600";
        let mut client = Client::after_get(target).await;
        let one = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
        for got in client.pipeline(one.repeat(150).as_bytes(), 150).await {
            assert_eq!(got.body, expected(target, None));
        }
        assert_eq!(world.origin.count(target), 1);
    });
}

#[test]
fn a_client_that_closes_its_direction_is_still_answered_if_that_is_configured() {
    each_way_http1(finishing(reverse), async |_: Rc<World>| {
        for target in
            ["/hc?size=5000&cc=max-age=60", "/hc?size=5000&cc=max-age=60", "/hc?size=9&delay=300"]
        {
            let mut client = Client::new().await;
            let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n").repeat(3);
            client.send(request.as_bytes()).await.unwrap();
            client.stream().shutdown(Shutdown::Write).unwrap();
            for _ in 0..3 {
                assert_eq!(client.response().await.unwrap().body, expected(target, None));
            }
            assert!(client.ends().await);
        }
    });
}

/// Neither side waits for the other to finish: the body is larger than all buffers.
#[test]
fn a_body_comes_back_while_it_is_sent() {
    each_way(reverse, async |world: Rc<World>| {
        let body = crate::common::content("duplex", 40_000);
        let head = format!(
            "POST /d?duplex=1&cc=no-store HTTP/1.1\r\nHost: site\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut client = Client::new().await;
        let got = client.pipeline(&[head.as_bytes(), &body].concat(), 1).await;
        assert!(got[0].body == body);
        if got[0].field("connection") == Some("close") {
            assert!(client.ends().await);
        }
        assert_eq!(world.counter("upstream_errors"), 0);
    });
}

/// Smooth and rough networks; byte by byte, long bodies would take long.
fn long_ways(scenario: impl AsyncFn(Rc<World>)) {
    sim::check(0..2, |seed| run(sim::Options::new(seed), reverse(), &scenario));
    let rough = |seed| sim::Options::rough(seed).with_split(0.001);
    sim::check(2..4, |seed| run(rough(seed), reverse(), &scenario));
}

/// A long body of known length is not copied on its way. Both connections go on, and nothing of
/// what follows the body is taken for a part of it.
#[test]
fn a_long_body_is_passed_on_without_copies() {
    long_ways(async |world: Rc<World>| {
        let mut client = Client::new().await;
        for size in [64 * 1024 + 10_000, 150_000] {
            let target = format!("/l?size={size}&cc=no-store");
            for _ in 0..2 {
                let got = client.get(&target, "").await;
                assert!(got.status == 200 && got.body == expected(&target, None), "{size}");
            }
        }
        assert_eq!(world.origin.connections.get(), 1);
        // One read of 64 KiB comes with the head.
        assert!(world.counter("spliced_bytes") > 2 * (150_000 - 64 * 1024));
        assert!(world.counter("upstream_received_bytes") > 2 * (150_000 + 74_000));
        let target = "/b?size=150000&cc=no-store&behind=1";
        assert!(client.get(target, "").await.body == expected(target, None));
        assert_eq!(client.get("/after?size=20&cc=no-store", "").await.body.len(), 20);
        assert_eq!(world.origin.connections.get(), 2, "bytes after a body answer no request");
        let ask = async |target: &str| {
            let client = Client::new().await;
            let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
            client.send(request.as_bytes()).await.unwrap();
            client
        };
        for end in ["cut", "reset"] {
            let mut client = ask(&format!("/c?size=150000&cc=no-store&{end}=120000")).await;
            assert_eq!(client.response().await.unwrap_err(), Broken::Within, "{end}");
        }
        assert_eq!(world.counter("upstream_errors"), 2);
        world.stopped().await;
        let log = String::from_utf8(world.log.lock().unwrap().clone()).unwrap();
        let bytes = |line: &str| line.split_whitespace().nth(4).unwrap().parse::<u64>().unwrap();
        assert_eq!(log.lines().map(bytes).sum::<u64>(), world.counter("sent_bytes"));
    });
}

/// The same the other way. A client that leaves in the middle has sent no whole request.
#[test]
fn a_long_body_of_a_request_is_passed_on_without_copies() {
    long_ways(async |world: Rc<World>| {
        let body = crate::common::content("upload", 150_000);
        let head = "PUT /u?cc=no-store HTTP/1.1\r\nHost: site\r\nContent-Length: 150000\r\n\r\n";
        let mut client = Client::new().await;
        for _ in 0..2 {
            let after = "GET /after?size=20 HTTP/1.1\r\nHost: site\r\n\r\n".as_bytes();
            let all = [head.as_bytes(), &body, after].concat();
            assert_eq!(client.pipeline(&all, 2).await[1].body.len(), 20);
            assert!(world.origin.seen.borrow().iter().rev().nth(1).unwrap().body == body);
        }
        assert!(world.counter("spliced_bytes") > 2 * 10_000);
        assert!(world.counter("upstream_sent_bytes") > 2 * 150_000);
        let leaving = Client::new().await;
        leaving.send(&[head.as_bytes(), &body[..130_000]].concat()).await.unwrap();
        leaving.abort();
        assert_eq!(client.get("/next?size=20", "").await.body.len(), 20);
        assert_eq!(world.origin.count("/u?cc=no-store"), 2);
    });
}

/// What was on its way to a client that has gone reaches no other one.
#[test]
fn a_client_that_leaves_within_a_long_body_disturbs_no_other() {
    long_ways(async |world: Rc<World>| {
        for round in 0..3 {
            let gone = Client::new().await;
            let target = format!("/g{round}?size=150000&cc=no-store");
            let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
            gone.send(request.as_bytes()).await.unwrap();
            let mut taken = 0;
            while taken < 80_000 {
                taken += gone.take(1000).await.unwrap();
            }
            gone.abort();
            let target = format!("/n{round}?size=140000&cc=no-store");
            assert!(Client::new().await.get(&target, "").await.body == expected(&target, None));
        }
        assert_eq!(world.counter("client_held_bytes"), 0);
    });
}

/// If a hit left the body unread, it would be parsed as a request that no client sent.
#[test]
fn the_body_of_a_get_is_not_the_next_request() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/g?size=20&cc=max-age=60";
        let mut client = Client::after_get(target).await;
        let hidden = "GET /hidden?size=5 HTTP/1.1\r\nHost: site\r\n\r\n";
        let length = hidden.len();
        let wire = format!(
            "GET {target} HTTP/1.1\r\nHost: site\r\nContent-Length: {length}\r\n\r\n{hidden}"
        );
        let got = client.ask(wire.as_bytes()).await;
        assert_eq!(got.body, expected(target, None));
        let next = Client::new().await.get("/next?size=7", "").await;
        assert_eq!(next.status, 200);
        assert_eq!(world.origin.count("/hidden?size=5"), 0);
        assert_eq!(world.counter("requests"), 3);
    });
}

fn with_body(method: &str, target: &str, body_bytes: usize) -> Vec<u8> {
    let body = "x".repeat(body_bytes);
    let head = format!("{method} {target} HTTP/1.1\r\nHost: s\r\nContent-Length: {body_bytes}");
    format!("{head}\r\n\r\n{body}").into_bytes()
}

/// A request that may be sent twice, with its body, uses a pooled connection. Any other request
/// gets a new connection even if one is idle.
#[test]
fn a_body_that_may_be_sent_twice_goes_on_a_used_connection_and_no_other_does() {
    each_way(reverse, async |world: Rc<World>| {
        let mut client = Client::new().await;
        assert_eq!(client.get("/warm?size=3&cc=no-store", "").await.status, 200);
        for (method, body_bytes, used) in [
            ("PUT", 10, true),
            ("DELETE", 16 * 1024, true),
            ("PUT", 16 * 1024 + 1, false),
            ("POST", 10, false),
            ("POST", 0, false),
            ("PUT", 1, true),
        ] {
            let before = world.origin.connections.get();
            let target = format!("/{method}{body_bytes}?size=5");
            let got = client.pipeline(&with_body(method, &target, body_bytes), 1).await;
            let seen = world.origin.last();
            assert_eq!((got[0].status, seen.method.as_str()), (200, method));
            assert_eq!(seen.body.len(), body_bytes);
            assert_eq!(world.origin.connections.get() == before, used, "{method} {body_bytes}");
        }
        // A request that broke off has reached no origin.
        let mut client = Client::http1().await;
        client
            .send(b"PUT /half HTTP/1.1\r\nHost: s\r\nContent-Length: 9\r\n\r\nhal")
            .await
            .unwrap();
        client.stream().shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.response().await.unwrap().status, 400);
        assert_eq!(world.origin.count("/half"), 0);
    });
}

#[test]
fn a_used_connection_that_closes_under_a_body_loses_no_request() {
    for (method, status, sent) in [("PUT", 200, 2), ("DELETE", 200, 2), ("POST", 502, 1)] {
        sim::check(0..4, |seed| {
            each_version(&sim::Options::new(seed), &reverse(), async |world: Rc<World>| {
                let mut client = Client::new().await;
                assert_eq!(client.get("/warm?size=3&cc=no-store", "").await.status, 200);
                client.send(&with_body(method, "/b?size=5&delay=2000", 100)).await.unwrap();
                sleep(Duration::from_secs(1)).await;
                sim::crash_connections(address(ORIGIN));
                assert_eq!(client.response().await.unwrap().status, status, "{method}");
                assert_eq!(world.origin.count("/b?size=5&delay=2000"), sent, "{method}");
            });
        });
    }
}
