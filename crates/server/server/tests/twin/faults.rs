//! Origins that refuse, reset, close early and close late; and what the client can tell of it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use config::UpstreamReuse;
use runtime::sim;
use runtime::time::sleep;

use crate::hostile::{HOSTILE, origin_of};
use crate::origin::expected;
use crate::world::{
    Broken, Client, ORIGIN, World, address, each_version, each_way, forward, reverse, run, with,
};

#[test]
fn an_origin_that_is_not_there_is_502() {
    each_way(forward, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for cc in ["", "Cache-Control: no-store\r\n"] {
            let got = client.get("http://10.0.0.9:8081/", cc).await;
            assert_eq!(got.status, 502);
        }
        let post = "POST http://10.0.0.9:8081/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(client.ask(post.as_bytes()).await.status, 502);
        assert!(client.ends().await);
        assert_eq!(world.counter("upstream_errors"), 3);
    });
}

#[test]
fn all_requests_waiting_for_a_failing_origin_get_the_error() {
    each_way(reverse, async |world: Rc<World>| {
        for (target, status) in [("/g?garbage=1&delay=100", 502), ("/z?silent=1", 504)] {
            let asked: Vec<_> = (0..5)
                .map(|_| {
                    runtime::spawn(async move { Client::new().await.get(target, "").await.status })
                })
                .collect();
            for one in asked {
                assert_eq!(one.await, status);
            }
        }
        assert_eq!(world.counter("upstream_errors"), 10);
    });
}

/// Whatever framing reaches the client, it sees that the body is not whole.
#[test]
fn a_body_that_breaks_off_is_never_taken_for_whole() {
    each_way(reverse, async |world: Rc<World>| {
        let mut of = 0;
        for ending in ["cut=2000", "reset=2000"] {
            for frame in ["length", "chunked", "close"] {
                if (ending, frame) == ("cut=2000", "close") {
                    continue; // unknown
                }
                for cc in ["no-store", "max-age=60"] {
                    for version in ["1.0", "1.1"] {
                        let target = format!("/b{of}?size=4000&frame={frame}&cc={cc}&{ending}");
                        of += 1;
                        let mut client = Client::new().await;
                        let request = format!("GET {target} HTTP/{version}\r\nHost: site\r\n\r\n");
                        client.send(request.as_bytes()).await.unwrap();
                        let got = client.response().await;
                        assert!(got.is_err(), "{target} for {version}: {got:?}");
                        // And it is not in the store.
                        let again = Client::new().await;
                        again.send(request.as_bytes()).await.unwrap();
                        sleep(Duration::from_secs(3)).await;
                        assert_eq!(world.origin.count(&target), 2, "{target}");
                    }
                }
            }
        }
    });
}

#[test]
fn requests_that_share_a_broken_fetch_see_the_break_too() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/b?size=4000&cc=max-age=60&delay=300&reset=2000";
        let asked: Vec<_> = (0..8)
            .map(|_| {
                runtime::spawn(async move {
                    let mut client = Client::new().await;
                    let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
                    client.send(request.as_bytes()).await.unwrap();
                    client.response().await.map(|got| got.body.len())
                })
            })
            .collect();
        for one in asked {
            assert_eq!(one.await.unwrap_err(), Broken::Within);
        }
        assert_eq!(world.origin.count(target), 1);
    });
}

/// The origin closes behind its answer without a word; the next request finds the connection gone.
#[test]
fn a_pooled_connection_that_has_gone_is_replaced() {
    each_way(reverse, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for round in 0..6 {
            let target = format!("/d{round}?size=10&cc=no-store&drop=1");
            assert_eq!(client.get(&target, "").await.body, expected(&target, None));
            if round % 2 == 0 {
                sleep(Duration::from_millis(200)).await;
            }
        }
        let post = "POST /d?drop=1 HTTP/1.1\r\nHost: site\r\nContent-Length: 0\r\n\r\n";
        for _ in 0..3 {
            assert_eq!(client.ask(post.as_bytes()).await.status, 200);
        }
        for target in ["/half?size=10&half=1&cc=no-store", "/half?size=10&half=1&cc=max-age=60"] {
            assert_eq!(client.get(target, "").await.body, expected(target, None));
            assert_eq!(client.get("/x?size=9&cc=no-store", "").await.body.len(), 9);
        }
        assert_eq!(world.counter("upstream_errors"), 0);
    });
}

/// The close is in flight to us when the request goes out: it is repeated, but only once.
#[test]
fn a_request_is_repeated_once_when_its_pooled_connection_was_closing() {
    let repeated = Cell::new(0);
    sim::check(0..12, |seed| {
        let options = sim::Options::new(seed)
            .with_delay(Duration::from_micros(10)..Duration::from_millis(20));
        each_version(&options, &reverse(), async |world: Rc<World>| {
            let targets: Vec<_> =
                (0..12).map(|at| format!("/d{at}?size=10&cc=no-store&drop=1")).collect();
            let all: String =
                targets.iter().map(|t| format!("GET {t} HTTP/1.1\r\nHost: s\r\n\r\n")).collect();
            // One behind the other without a pause, so that some go out while the close comes in.
            let mut client = Client::new().await;
            let answers = client.pipeline(all.as_bytes(), targets.len()).await;
            for (target, got) in targets.iter().zip(answers) {
                assert_eq!((got.status, got.body), (200, expected(target, None)));
            }
            repeated.set(repeated.get() + world.counter("upstream_retries"));
            assert_eq!(world.counter("upstream_errors"), 0);
        });
    });
    assert!(repeated.get() > 0, "no seed came to it");
}

#[test]
fn upstream_connections_are_used_again_and_closed_when_idle() {
    each_way(reverse, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for frame in ["length", "chunked", "length"] {
            for cc in ["no-store", "max-age=60"] {
                let target = format!("/u?size=2000&frame={frame}&cc={cc}");
                assert_eq!(client.get(&target, "").await.body, expected(&target, None));
                // The core gives it back when it has seen the end of the body.
                sleep(Duration::from_millis(100)).await;
            }
        }
        assert_eq!(world.origin.connections.get(), 1);
        assert_eq!(world.counter("upstream_reuses"), 4);
        assert_eq!(world.counter("upstream_idle"), 1);
        sleep(Duration::from_secs(51)).await;
        assert_eq!(world.counter("upstream_idle"), 0);
    });
}

#[test]
fn an_origin_that_crashes_and_comes_back_is_asked_again() {
    each_way(reverse, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for round in 0..5 {
            let target = format!("/c{round}?size=100&cc=no-store");
            assert_eq!(client.get(&target, "").await.body, expected(&target, None));
            sim::crash_connections(address(ORIGIN));
            sleep(Duration::from_millis(300)).await;
        }
        assert_eq!(world.counter("upstream_errors"), 0);
    });
}

/// One who asked first and went away does not take the fetch with him.
#[test]
fn a_fetch_goes_on_for_the_others_if_its_first_client_leaves() {
    each_way(reverse, async |world: Rc<World>| {
        for target in
            ["/l?size=3000&cc=max-age=60&delay=500", "/l?size=3000&cc=max-age=60&pause=500"]
        {
            let leader = Client::new().await;
            leader
                .send(format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n").as_bytes())
                .await
                .unwrap();
            sleep(Duration::from_millis(200)).await;
            let asked: Vec<_> = (0..4)
                .map(|_| {
                    runtime::spawn(async move { Client::new().await.get(target, "").await.body })
                })
                .collect();
            sleep(Duration::from_millis(50)).await;
            leader.abort();
            for one in asked {
                assert_eq!(one.await, expected(target, None));
            }
            assert_eq!(world.origin.count(target), 1);
        }
    });
}

/// Unsolicited bytes on a pooled connection are not the next response.
#[test]
fn an_unsolicited_response_reaches_no_client() {
    each_way(reverse, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for round in 0..20 {
            let target = format!("/x{round}?size=30&cc=no-store&extra=1");
            assert_eq!(client.get(&target, "").await.body, expected(&target, None));
            // Past its arrival, and before or after the pool is swept.
            sleep(Duration::from_millis(150 + 7 * round)).await;
        }
        assert_eq!(world.origin.connections.get(), 20);
    });
}

/// What may not be repeated is never sent where that could become necessary.
#[test]
fn a_post_never_meets_a_connection_that_was_closing() {
    sim::check(0..12, |seed| {
        let options = sim::Options::new(seed)
            .with_delay(Duration::from_micros(10)..Duration::from_millis(20));
        each_version(&options, &reverse(), async |world: Rc<World>| {
            let get = "GET /g?size=9&cc=no-store&drop=1 HTTP/1.1\r\nHost: s\r\n\r\n";
            let post = "POST /p?drop=1 HTTP/1.1\r\nHost: s\r\nContent-Length: 0\r\n\r\n";
            let all = format!("{get}{post}").repeat(6);
            let mut client = Client::new().await;
            for got in client.pipeline(all.as_bytes(), 12).await {
                assert_eq!(got.status, 200);
            }
            assert_eq!(world.origin.count("/p?drop=1"), 6);
        });
    });
}

/// With `reuse = "all"`: a connection that has stayed open after an answer, and was in use a moment
/// ago; no other.
#[test]
fn a_post_takes_a_proven_connection_if_that_is_configured() {
    let config = with(reverse, |config| config.groups[0].reuse = UpstreamReuse::All);
    each_way(config, async |world: Rc<World>| {
        let post = b"POST /p HTTP/1.1\r\nHost: s\r\nContent-Length: 3\r\n\r\nabc";
        let mut client = Client::new().await;
        for (pause_ms, connections) in [(0, 1), (50, 2), (150, 2), (10, 2), (0, 2), (1500, 3)] {
            sleep(Duration::from_millis(pause_ms)).await;
            assert_eq!(client.ask(post).await.status, 200);
            assert_eq!(world.origin.connections.get(), connections, "after {pause_ms} ms");
        }
        // A GET may take any, and proves it.
        client.get("/g?size=9&cc=no-store", "").await;
        assert_eq!(world.origin.connections.get(), 3);
        assert_eq!(client.ask(post).await.status, 200);
        assert_eq!(world.origin.connections.get(), 3);
    });
}

/// Connections that are too old for a POST must not keep the pool full for ever.
#[test]
fn old_connections_make_room_for_one_that_a_post_may_take() {
    let config = with(reverse, |config| {
        config.groups[0].reuse = UpstreamReuse::All;
        config.limits.upstream_idle_max = 1;
    });
    each_way(config, async |world: Rc<World>| {
        let post = b"POST /p HTTP/1.1\r\nHost: s\r\nContent-Length: 3\r\n\r\nabc";
        let mut client = Client::new().await;
        for (pause_ms, connections) in [(0, 1), (1500, 2), (150, 2), (10, 2)] {
            sleep(Duration::from_millis(pause_ms)).await;
            assert_eq!(client.ask(post).await.status, 200);
            assert_eq!(world.origin.connections.get(), connections, "after {pause_ms} ms");
        }
    });
}

/// Further bytes on it could not be distinguished from the response to the next request.
#[test]
fn a_connection_with_bytes_after_the_response_is_not_reused() {
    each_way(reverse, async |world: Rc<World>| {
        for round in 1..4 {
            let target = format!("/b?size=200&cc=no-store&behind=1&n={round}");
            let got = Client::new().await.get(&target, "").await;
            assert_eq!(got.body, expected(&target, None));
            assert_eq!(world.origin.connections.get(), round);
            sleep(Duration::from_secs(1)).await;
        }
    });
}

/// The last bytes come while no task waits for the origin. What it does after that ends the
/// connection.
#[test]
fn what_comes_after_a_response_for_a_slow_client_is_seen() {
    let slowly = async |world: Rc<World>| {
        for after in ["extra", "drop", "half"] {
            let mut client = Client::http1().await;
            let target = format!("/s?size=200000&cc=no-store&{after}=1");
            let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
            client.send(request.as_bytes()).await.unwrap();
            let (body, mut got) = (expected(&target, None), Vec::new());
            while !got.ends_with(&body) {
                sleep(Duration::from_millis(1)).await;
                let mut piece = [0; 3000];
                let read = client.stream().read(&mut piece).await.unwrap();
                assert!(read > 0, "{} bytes", got.len());
                got.extend_from_slice(&piece[..read]);
            }
            sleep(Duration::from_millis(200)).await;
            let next = "/next?size=20&cc=no-store&drop=1";
            assert_eq!(client.get(next, "").await.body, expected(next, None), "{after}");
            sleep(Duration::from_millis(200)).await;
        }
        assert_eq!((world.counter("upstream_reuses"), world.counter("upstream_retries")), (0, 0));
    };
    sim::check(0..3, |seed| run(sim::Options::new(seed), reverse(), slowly));
}

#[test]
fn a_response_that_fills_the_buffer_does_not_cost_its_connection() {
    run(sim::Options::new(1), forward(), async |world: Rc<World>| {
        // As many bytes as are read at once before a head is complete.
        let head = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 16317\r\n\r\n";
        let response = [head.as_bytes(), &[b'x'; 16317]].concat();
        assert_eq!(response.len(), 16 * 1024);
        runtime::spawn(origin_of(response, false)).detach();
        let mut client = Client::new().await;
        for _ in 0..3 {
            assert_eq!(client.get(&format!("http://{HOSTILE}/"), "").await.body.len(), 16317);
        }
        assert_eq!((world.counter("upstream_connects"), world.counter("upstream_reuses")), (1, 2));
    });
}

#[test]
fn a_request_that_may_not_be_repeated_is_not() {
    each_way(reverse, async |world: Rc<World>| {
        for (method, times) in [("POST", 1), ("PATCH", 1), ("PUT", 2)] {
            let mut client = Client::new().await;
            client.get("/g?size=9&cc=no-store", "").await;
            let target = format!("/p?gone=1&by={method}");
            let wire =
                format!("{method} {target} HTTP/1.1\r\nHost: s\r\nContent-Length: 0\r\n\r\n");
            assert_eq!(client.ask(wire.as_bytes()).await.status, 502);
            assert_eq!(world.origin.count(&target), times, "{method}");
        }
    });
}

/// Over all versions to the client, and with the rule in `Proxy-Status`.
#[test]
fn each_deviation_of_a_response_is_repaired_or_refused_by_its_rule() {
    let rows = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", Ok(200)),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
            Err("repeated-length"),
        ),
        ("HTTP/1.1 200 OK\nContent-Length: 2\n\nok", Ok(200)),
        ("HTTP/1.1 200 OK\r\nX: a\nContent-Length: 2\r\n\r\nok", Err("bare-lf")),
        ("HTTP/1.1 200 OK\r\nX: a\x01\x1b\x7f\r\nContent-Length: 2\r\n\r\nok", Ok(200)),
        ("HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 2\r\n\r\nok", Err("nul")),
        ("HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 2\r\n\r\nok", Err("bare-cr")),
        ("HTTP/1.1 200 OK\r\nX (y): a\r\nContent-Length: 2\r\n\r\nok", Err("field-name")),
        ("HTTP/1.1 999 Denied\r\nContent-Length: 2\r\n\r\nok", Ok(999)),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n\
             2\r\nok\r\n0\r\n\r\n",
            Ok(200),
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2   \r\nok\r\n0\r\n\r\n", Ok(200)),
        // Nothing of it has been sent to the client, so it gets an answer that says why.
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n",
            Err("chunk-size"),
        ),
        ("ICY 200 OK\r\nContent-Length: 2\r\n\r\nok", Err("version")),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nok", Err("switched")),
    ];
    for (response, result) in rows {
        each_version(&sim::Options::new(1), &forward(), async |world: Rc<World>| {
            runtime::spawn(origin_of(response.as_bytes().to_vec(), false)).detach();
            let mut client = Client::new().await;
            let got = client.get(&format!("http://{HOSTILE}/x"), "").await;
            match result {
                Ok(status) => assert_eq!((got.status, &got.body[..]), (status, &b"ok"[..])),
                Err(rule) => {
                    assert_eq!(got.status, 502, "{response}");
                    let status = got.field("proxy-status").unwrap();
                    let details = format!("details=\"upstream-{rule}\"");
                    assert!(status.ends_with(&details), "{response}: {status}");
                }
            }
            assert_eq!(world.counter("upstream_errors"), u64::from(result.is_err()));
        });
    }
}

/// Bytes that follow would answer the next request.
#[test]
fn a_connection_whose_framing_was_repaired_is_not_used_again() {
    for (head, reuses) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", 0),
        ("HTTP/1.1 200 OK\nContent-Length: 2\n\nok", 0),
        ("HTTP/1.1 200 OK\r\nX : a\r\nContent-Length: 2\r\n\r\nok", 0),
        ("HTTP/1.1 200 OK\r\nX: a\x01\r\nContent-Length: 2\r\n\r\nok", 2),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 2),
    ] {
        run(sim::Options::new(1), forward(), async |world: Rc<World>| {
            runtime::spawn(origin_of(head.as_bytes().to_vec(), false)).detach();
            let mut client = Client::new().await;
            for _ in 0..3 {
                let got = client.get(&format!("http://{HOSTILE}/x"), "").await;
                assert_eq!((got.status, &got.body[..]), (200, &b"ok"[..]), "{head}");
            }
            assert_eq!(world.counter("upstream_reuses"), reuses, "{head}");
        });
    }
}

/// The log says so, and the server's failures agree, wherever in the body it was.
#[test]
fn a_body_that_breaks_off_is_logged_and_counts_as_a_failure() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n";
    for (response, code) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\nok".to_owned(), "TCP_MISS_ABORTED/200"),
        (format!("{chunked}\r\nzz\r\n"), "NONE_NONE/502"),
        (format!("{chunked}\r\n2\r\nok\r\n2\r\nok\r\nzz\r\n"), "TCP_MISS_ABORTED/200"),
        (format!("{chunked}Cache-Control: max-age=60\r\n\r\n2\r\nok\r\n"), "TCP_MISS_ABORTED/200"),
        (format!("{chunked}Cache-Control: max-age=60\r\n\r\n2\r\nok\r\nzz\r\n"), "NONE_NONE/502"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned(), "TCP_MISS/200"),
    ] {
        let mut config = reverse();
        config.groups[0].servers[0].origin.addresses = vec![address(HOSTILE)];
        each_version(&sim::Options::new(1), &config, async |world: Rc<World>| {
            runtime::spawn(origin_of(response.clone().into_bytes(), true)).detach();
            let mut client = Client::new().await;
            client.send(b"GET /x HTTP/1.1\r\nHost: site\r\n\r\n").await.unwrap();
            let got = client.response().await;
            assert_eq!(got.is_ok(), !code.ends_with("ABORTED/200"), "{response}");
            sleep(Duration::from_secs(1)).await;
            let log = String::from_utf8(world.log.lock().unwrap().clone()).unwrap();
            assert!(log.contains(&format!(" {code} ")), "{response}: {log}");
            let failures = world.metrics().await.into_iter();
            let failures = failures.filter(|(name, _)| name.contains("upstream_server_failures_"));
            let failures: u64 = failures.map(|(_, count)| count).sum();
            let expected = u64::from(code != "TCP_MISS/200");
            assert_eq!((failures, world.counter("upstream_errors")), (expected, expected));
        });
    }
}
