//! Time-outs by the virtual clock, and how much is held for whom.

use std::rc::Rc;
use std::time::Duration;

use runtime::sim;
use runtime::time::{now, sleep, timeout};
use server::Config;

use crate::origin::expected;
use crate::some;
use crate::world::{
    Broken, Client, Version, World, combined, each_version, each_way, each_way_http1, over,
    reverse, run,
};

const SECOND: Duration = Duration::from_secs(1);

/// How long it takes, to the second below.
async fn seconds(wait: impl Future<Output = ()>) -> u64 {
    let start = now();
    wait.await;
    start.elapsed().as_secs()
}

#[test]
fn a_silent_origin_is_504() {
    each_way(reverse, async |world: Rc<World>| {
        for target in ["/s?silent=1", "/s?silent=1&cc=max-age=60"] {
            let mut client = Client::new().await;
            let waited = seconds(async {
                assert_eq!(client.get(target, "").await.status, 504);
            });
            assert!((60..=61).contains(&waited.await));
            // The connection is as good as before.
            assert_eq!(client.get("/ok?size=3", "").await.status, 200);
        }
        assert_eq!(world.counter("upstream_errors"), 2);
    });
}

#[test]
fn a_body_over_the_limit_is_refused() {
    let limited = || {
        let mut config = reverse();
        config.limits.body_bytes_max = Some(5);
        config
    };
    each_way(limited, async |_: Rc<World>| {
        for (body, is_sent) in [("12345", true), ("123456", false)] {
            let head = "POST /b?size=3 HTTP/1.1\r\nHost: s\r\n";
            let length = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
            let chunks = format!(
                "{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
                body.len()
            );
            for request in [length, chunks] {
                let status = Client::new().await.ask(request.as_bytes()).await.status;
                assert_eq!(status, if is_sent { 200 } else { 413 }, "{body}");
            }
        }
    });
}

#[test]
fn an_origin_that_stops_within_a_body_breaks_the_response() {
    each_way(reverse, async |_: Rc<World>| {
        for cc in ["no-store", "max-age=60"] {
            let mut client = Client::new().await;
            let target = format!("/st?size=4000&pause=90000&cc={cc}");
            client
                .send(format!("GET {target} HTTP/1.1\r\nHost: s\r\n\r\n").as_bytes())
                .await
                .unwrap();
            assert_eq!(client.response().await.unwrap_err(), Broken::Within);
        }
    });
}

/// To a client of HTTP/1.0 a body without a length ends with the connection: one that is cut for
/// its slowness must not see an orderly end.
#[test]
fn a_client_cut_for_being_slow_sees_that_the_response_is_incomplete() {
    each_way(reverse, async |_: Rc<World>| {
        for cc in ["no-store", "max-age=60"] {
            let mut client = Client::new().await;
            let target = format!("/sl?size=2000000&frame=close&cc={cc}");
            let request = format!("GET {target} HTTP/1.0\r\nHost: s\r\n\r\n");
            client.send(request.as_bytes()).await.unwrap();
            sleep(200 * SECOND).await;
            // A reset of QUIC takes along what was not read, the head too.
            let broken = if client.is_http3() { Broken::Ended } else { Broken::Within };
            assert_eq!(client.response().await.unwrap_err(), broken, "{cc}");
        }
    });
}

#[test]
fn an_idle_connection_is_closed_after_its_time_and_not_before() {
    each_way(reverse, async |world: Rc<World>| {
        let mut fresh = Client::new().await;
        assert!(fresh.is_silent_for(74 * SECOND).await);
        assert!(fresh.ends().await);
        let mut used = Client::new().await;
        for _ in 0..3 {
            used.get("/i?size=3&cc=max-age=600", "").await;
            assert!(used.is_silent_for(70 * SECOND).await);
        }
        assert!(timeout(10 * SECOND, used.ends()).await.unwrap());
        assert_eq!(world.counter("timeouts"), 0, "idling is no fault");
    });
}

/// The time-out runs from the first byte of a head, however steadily more of them come.
#[test]
fn a_head_that_trickles_in_is_cut() {
    each_way_http1(reverse, async |world: Rc<World>| {
        for warm in [false, true] {
            let mut client = Client::new().await;
            if warm {
                client.get("/t?size=3&cc=max-age=600", "").await;
                sleep(20 * SECOND).await;
            }
            let start = now();
            let mut cut = false;
            for byte in b"GET /t HTTP/1.1\r\nHost: site\r\nX-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
            {
                if client.send(&[*byte]).await.is_err() {
                    break;
                }
                if !client.is_silent_for(SECOND).await {
                    cut = true;
                    break;
                }
            }
            assert!(cut, "after {:?}", start.elapsed());
            assert!((29..=32).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
        }
        assert_eq!(world.counter("timeouts"), 2);
    });
}

#[test]
fn a_slow_head_that_ends_in_time_is_served_each_time() {
    each_way_http1(reverse, async |_: Rc<World>| {
        let mut client = Client::new().await;
        for _ in 0..3 {
            for part in ["GET /slow?size=5", " HTTP/1.1\r\nHost:", " site\r\n"] {
                client.send(part.as_bytes()).await.unwrap();
                sleep(9 * SECOND).await;
            }
            assert_eq!(client.ask(b"\r\n").await.body.len(), 5);
        }
    });
}

#[test]
fn a_body_that_stops_coming_is_cut() {
    each_way(reverse, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let head = "POST /b HTTP/1.1\r\nHost: site\r\nContent-Length: 10\r\n\r\nhalf";
        let waited = seconds(async {
            assert_eq!(client.ask(head.as_bytes()).await.status, 408);
        });
        assert!((60..=61).contains(&waited.await));
        assert!(client.ends().await);
        assert_eq!((world.counter("timeouts"), world.counter("upstream_errors")), (1, 0));
    });
}

#[test]
fn a_client_that_does_not_read_is_cut() {
    for target in
        ["/large?size=600000&cc=no-store", "/large?size=600000&cc=max-age=600&frame=chunked"]
    {
        sim::check(0..2, |seed| {
            each_version(&sim::Options::new(seed), &reverse(), async |world: Rc<World>| {
                for round in 1..=2 {
                    let client = Client::new().await;
                    let request = format!("GET {target} HTTP/1.1\r\nHost: s\r\n\r\n");
                    client.send(request.as_bytes()).await.unwrap();
                    sleep(59 * SECOND).await;
                    assert_eq!(world.counter("connections_open"), 1);
                    sleep(3 * SECOND).await;
                    assert_eq!(world.counter("timeouts"), round);
                    // Over HTTP/2 the stream alone is cut, and its connection is idle then.
                    sleep(if client.is_http1() { 0 } else { 80 } * SECOND).await;
                    assert_eq!(world.counter("connections_open"), 0);
                }
                // Cut or not, it was a request: it has its line.
                world.stopped().await;
                assert_eq!(world.log_lines().len(), 2);
            });
        });
    }
}

/// What has been read of the origin for a client that reads nothing: the sockets' buffers, what one
/// read of the upstream gives, and the window of a body that is not to be stored.
#[test]
fn a_stalled_client_holds_its_origin() {
    const BUFFERS: usize = 4 * 64 * 1024;
    const READ: usize = 2 * 64 * 1024;
    let window = reverse().limits.stream_window_bytes;
    let object = 1 << 20; // an eighth of 8 MiB
    for (target, bound) in [
        ("/big?size=6000000&cc=no-store", BUFFERS + READ),
        ("/big?size=6000000&cc=no-store&frame=chunked", BUFFERS + READ),
        // Longer than any object may be: known from its head, found out on the way.
        ("/big?size=6000000&cc=max-age=60", BUFFERS + READ),
        ("/big?size=6000000&cc=max-age=60&frame=chunked", BUFFERS + READ + window + object),
    ] {
        sim::check(some(0..2), |seed| {
            each_version(&sim::Options::new(seed), &reverse(), async |world: Rc<World>| {
                let mut client = Client::new().await;
                let request = format!("GET {target} HTTP/1.1\r\nHost: s\r\n\r\n");
                client.send(request.as_bytes()).await.unwrap();
                sleep(50 * SECOND).await;
                let sent = world.origin.sent.get();
                assert!(sent <= bound, "{sent} bytes for {target}, at most {bound}");
                assert!(world.counter("client_held_bytes") > 0);
                // It reads after all, and gets all of it.
                assert_eq!(client.response().await.unwrap().body, expected(target, None));
                assert_eq!(world.origin.count(target), 1);
            });
        });
    }
}

/// A body that turns out too large, and two readers of it of whom one leaves while the fetch waits
/// for it.
#[test]
fn a_reader_that_leaves_a_bounded_fetch_does_not_hold_it() {
    sim::check(some(0..3), |seed| {
        each_version(&sim::Options::new(seed), &reverse(), async |world: Rc<World>| {
            let target = "/big?size=4000000&cc=max-age=60&frame=chunked&delay=100";
            let request = format!("GET {target} HTTP/1.1\r\nHost: s\r\n\r\n");
            let stalled = Client::new().await;
            stalled.send(request.as_bytes()).await.unwrap();
            let mut reading = Client::new().await;
            reading.send(request.as_bytes()).await.unwrap();
            let start = now();
            let leaving = runtime::spawn(async move {
                sleep(2 * SECOND).await;
                stalled.abort();
            });
            assert_eq!(reading.response().await.unwrap().body, expected(target, None));
            // Not long after it has left, or at the latest when it has had its time.
            assert!((2..=8).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
            assert_eq!(world.origin.count(target), 1);
            leaving.await;
        });
    });
}

#[test]
fn an_object_over_the_limit_is_served_and_not_stored() {
    sim::check(some(0..2), |seed| {
        each_version(&sim::Options::new(seed), &reverse(), async |world: Rc<World>| {
            for frame in ["length", "chunked", "close"] {
                let target = format!("/over?size=1500000&cc=max-age=60&frame={frame}");
                for round in 1..=2 {
                    let mut client = Client::new().await;
                    let got = client.get(&target, "").await;
                    assert_eq!(got.body, expected(&target, None));
                    assert_eq!(world.origin.count(&target), round);
                }
            }
        });
    });
}

/// Twice what the store may hold, asked for once each: it never holds more than its bound.
#[test]
fn the_store_stays_within_its_bound() {
    let config = || Config { memory_bytes: 2 << 20, ..reverse() };
    each_version(&sim::Options::new(1), &config(), async |world: Rc<World>| {
        let mut client = Client::new().await;
        for at in 0..80 {
            let target = format!("/s{at}?size=50000&cc=max-age=60");
            assert_eq!(client.get(&target, "").await.body, expected(&target, None));
            let no = format!("/n{at}?size=5&cc=no-store");
            client.get(&no, "").await;
        }
        let metrics = world.metrics().await;
        let value = |name: &str| metrics.iter().find(|(n, _)| n == name).unwrap().1;
        assert!(value("plimsoll_store_bytes") <= 2 << 20);
        assert_eq!(value("plimsoll_store_bytes_max"), 2 << 20);
        assert!(value("plimsoll_store_evictions_total") > 0);
    });
}

/// More connections than a core may have, and more than the process has descriptors for.
#[test]
fn too_many_connections_do_not_stop_the_ones_there_are() {
    let mut config = reverse();
    config.limits.connections_max = 20;
    sim::check(0..2, |seed| {
        run(sim::Options::new(seed), config.clone(), async |world: Rc<World>| {
            let mut first = Client::new().await;
            first.get("/d?size=3", "").await;
            let mut many = Vec::new();
            for _ in 0..50 {
                many.push(Client::new().await);
            }
            sleep(SECOND / 2).await;
            assert_eq!(world.counter("connections_open"), 20);
            assert_eq!(world.counter("connections_refused"), 0);
            assert_eq!(first.get("/d?size=3", "").await.body.len(), 3);
            drop(many);
            sleep(SECOND).await;
            assert_eq!(Client::new().await.get("/d?size=3", "").await.body.len(), 3);
        });
        let few = sim::Options::new(seed).with_descriptors_max(40);
        run(few, reverse(), async |world: Rc<World>| {
            let mut first = Client::new().await;
            first.get("/d?size=3&cc=max-age=600", "").await;
            let mut many = Vec::new();
            while let Ok(client) = Client::to(crate::world::PROXY).await {
                many.push(client);
            }
            sleep(SECOND).await;
            assert_eq!(first.get("/d?size=3&cc=max-age=600", "").await.body.len(), 3);
            assert_eq!(first.get("/e?size=3&cc=no-store", "").await.status / 100, 2);
            drop(many);
            sleep(SECOND).await;
            assert_eq!(world.counter("connections_open"), 1);
            assert_eq!(Client::new().await.get("/d?size=3", "").await.body.len(), 3);
        });
    });
}

/// A hundred clients at a table for twenty: more than half of them were reset.
#[test]
fn a_burst_above_the_limit_of_connections_is_served_in_turn() {
    let mut config = reverse();
    config.limits.connections_max = 20;
    for version in [Version::Http1, Version::Http2] {
        let served = async |world: Rc<World>| {
            let ask = async || {
                let mut client = Client::new().await;
                let status = client.get("/burst?size=5&cc=max-age=60", "").await.status;
                sleep(SECOND / 4).await;
                status
            };
            let asked: Vec<_> = (0..100).map(|_| runtime::spawn(ask())).collect();
            for one in asked {
                assert_eq!(one.await, 200);
            }
            assert_eq!(world.counter("connections_refused"), 0);
            assert_eq!(world.counter("connections_accepted"), 100);
        };
        over(version, || run(sim::Options::new(1), config.clone(), served));
    }
}

/// A listener for both families sees an IPv4 client at an address of IPv6.
#[test]
fn a_client_of_ipv4_has_its_own_address_at_a_listener_for_both_families() {
    run(sim::Options::new(1), combined(), async |world: Rc<World>| {
        sim::connect_from("::ffff:192.0.2.7".parse().unwrap());
        assert_eq!(Client::new().await.get("/a?size=5", "").await.status, 200);
        sleep(SECOND).await;
        let log = String::from_utf8(world.log.lock().unwrap().clone()).unwrap();
        assert!(log.starts_with("192.0.2.7 "), "{log}");
    });
}

/// A burst larger than one turn accepts.
#[test]
fn no_connection_of_a_burst_is_lost() {
    let at_once = sim::Options::new(1).with_delay(Duration::ZERO..Duration::from_nanos(1));
    run(at_once, reverse(), async |world: Rc<World>| {
        let asked: Vec<_> = (0..300)
            .map(|_| {
                runtime::spawn(async {
                    let mut client = Client::new().await;
                    client.get("/burst?size=5&cc=max-age=60", "").await.status
                })
            })
            .collect();
        for one in asked {
            assert_eq!(one.await, 200);
        }
        assert_eq!(world.counter("connections_accepted"), 300);
    });
}

/// Bodies on their way into the store have a bound of their own: clients that ask for many at once
/// and leave do not fill the memory with unread data.
#[test]
fn bodies_in_flight_stay_within_their_bound() {
    sim::check(some(0..2), |seed| {
        each_version(&sim::Options::new(seed), &reverse(), async |world: Rc<World>| {
            let target =
                |at| format!("/w{at}?size=900000&cc=max-age=600&frame=chunked&pause=20000");
            let mut asked = Vec::new();
            for at in 0..12 {
                let client = Client::new().await;
                let request = format!("GET {} HTTP/1.1\r\nHost: site\r\n\r\n", target(at));
                client.send(request.as_bytes()).await.unwrap();
                asked.push(client);
            }
            drop(asked.split_off(6));
            let mut reading = Vec::new();
            for (at, mut client) in asked.into_iter().enumerate() {
                reading.push(runtime::spawn(async move {
                    assert_eq!(client.response().await.unwrap().body, expected(&target(at), None));
                }));
            }
            let mut most = 0;
            for _ in 0..30 {
                sleep(SECOND).await;
                let metrics = world.metrics().await;
                let arriving = metrics.iter().find(|(n, _)| n == "plimsoll_arriving_bytes");
                most = most.max(arriving.unwrap().1);
            }
            assert!(most > 1 << 20 && most <= 2 << 20, "{most}: a quarter of 8 MiB at most");
            for one in reading {
                one.await;
            }
            let metrics = world.metrics().await;
            assert!(metrics.contains(&("plimsoll_arriving_bytes".into(), 0)));
        });
    });
}

#[test]
fn connections_are_counted_by_state() {
    run(sim::Options::new(1), reverse(), async |world: Rc<World>| {
        let states = async || {
            let metrics = world.metrics().await;
            let of = |state: &str| {
                let name = format!("plimsoll_connections{{state=\"{state}\"}}");
                metrics.iter().find(|(there, _)| *there == name).unwrap().1
            };
            let all = ["arriving", "idle", "reading", "waiting", "sending", "tunnel"].map(of);
            assert_eq!(all.iter().sum::<u64>(), world.counter("connections_open"));
            all
        };
        let mut idle = Client::new().await;
        idle.get("/idle?size=9&cc=max-age=60", "").await;
        let new = Client::new().await;
        let half = Client::new().await;
        half.send(b"GET / HTTP/1.1\r\nHo").await.unwrap();
        let waits = Client::new().await;
        waits.send(b"GET /w?delay=5000 HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let slow = Client::new().await;
        let target = "/slow?size=400000&cc=max-age=60";
        slow.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
        sleep(SECOND).await;
        assert_eq!(states().await, [0, 2, 1, 1, 1, 0]);
        // A hit that the client does not take is no exchange.
        let hit = Client::new().await;
        hit.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
        sleep(SECOND).await;
        assert_eq!(states().await, [0, 2, 1, 1, 2, 0]);
        drop((idle, new, half, waits, slow, hit));
        sleep(SECOND * 6).await;
        assert_eq!(states().await, [0, 0, 0, 0, 0, 0]);
    });
}
