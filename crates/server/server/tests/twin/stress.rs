//! More than can be served: of clients, of slowness, of work.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use runtime::net::{ListenOptions, TcpListener};
use runtime::sim;
use runtime::time::{now, sleep};

use crate::origin::expected;
use crate::world::{Client, PROXY, Version, World, each_version, each_way, reverse, run};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// A byte now and then keeps the time-out between two pieces from firing, and is cut all the same.
#[test]
fn a_body_that_trickles_is_cut() {
    each_way(reverse, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let head = b"POST /b HTTP/1.1\r\nHost: site\r\nContent-Length: 1000\r\n\r\n";
        client.send(head).await.unwrap();
        let start = now();
        while client.is_silent_for(SECOND).await {
            assert!(start.elapsed() < 40 * SECOND, "it goes on for ever");
            if client.send(b"x").await.is_err() {
                break;
            }
        }
        assert!((29..=33).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
        assert_eq!((world.counter("timeouts"), world.counter("upstream_errors")), (1, 0));
    });
}

/// A body that takes as long, at a rate that is no attack.
#[test]
fn a_slow_body_that_keeps_coming_is_served() {
    each_version(&sim::Options::new(1), &reverse(), async |_: Rc<World>| {
        let mut client = Client::new().await;
        let head = b"POST /b HTTP/1.1\r\nHost: site\r\nContent-Length: 12000\r\n\r\n";
        client.send(head).await.unwrap();
        for _ in 0..60 {
            sleep(SECOND).await;
            client.send(&[b'x'; 200]).await.unwrap();
        }
        assert_eq!(client.response().await.unwrap().status, 200);
    });
}

/// The same the other way: a client that takes a few bytes each second.
#[test]
fn a_client_that_reads_next_to_nothing_is_cut() {
    let small = sim::Options::new(1).with_buffer_bytes(600);
    for target in ["/r?size=100000&cc=no-store", "/r?size=100000&cc=max-age=60"] {
        each_version(&small, &reverse(), async |world: Rc<World>| {
            let client = Client::new().await;
            let request = format!("GET {target} HTTP/1.1\r\nHost: s\r\n\r\n");
            client.send(request.as_bytes()).await.unwrap();
            let start = now();
            // Over HTTP/2 the stream alone is cut, and the 64 KiB that our output takes count as
            // read, at 128 bytes a second.
            let longest = if client.is_http1() { 60 } else { 600 } * SECOND;
            let is_cut = || match client.is_http1() {
                true => world.counter("connections_open") == 0,
                false => world.counter("timeouts") > 0,
            };
            while !is_cut() || start.elapsed() < SECOND {
                assert!(start.elapsed() < longest, "it goes on for ever");
                let _ = client.take(20).await;
                sleep(SECOND).await;
            }
            assert!(start.elapsed() >= 29 * SECOND, "{:?}", start.elapsed());
            assert_eq!(world.counter("timeouts"), 1);
        });
    }
}

/// A thousand clients whose windows are nearly full when the next answer comes, and who do not
/// read: what is held for them grows to its bound, and then by no more than a small piece each.
#[test]
fn slow_readers_in_any_number_hold_a_bounded_memory() {
    const CLIENTS: usize = 1000;
    const HELD_BYTES_MAX: usize = 1 << 20;
    /// What is read at once under pressure, and the head.
    const PIECE: usize = 4 * 1024 + 1024;
    const BOUND: usize = HELD_BYTES_MAX + 64 * 1024 + CLIENTS * PIECE;
    // Without it, most of the second answer would be held for each.
    const _: () = assert!(BOUND < CLIENTS * 50_000 / 8);
    let mut config = reverse();
    config.limits.held_bytes_max = HELD_BYTES_MAX as u64;
    run(sim::Options::new(1), config, async |world: Rc<World>| {
        let warm = "/warm?size=60000&cc=max-age=600";
        assert_eq!(Client::new().await.get(warm, "").await.status, 200);
        let mut clients = Vec::new();
        for at in 0..CLIENTS {
            let client = Client::new().await;
            let target = format!("/{}?size=60000&cc=no-store", at % 50);
            for target in [warm, &target] {
                let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
                client.send(request.as_bytes()).await.unwrap();
            }
            clients.push(client);
        }
        let mut most = 0;
        for _ in 0..20 {
            sleep(SECOND).await;
            most = most.max(world.counter("client_held_bytes") as usize);
        }
        assert_eq!(world.counter("connections_busy") as usize, CLIENTS);
        assert!((HELD_BYTES_MAX..=BOUND).contains(&most), "{most} bytes held, at most {BOUND}");
        drop(clients);
        sleep(SECOND).await;
        assert_eq!(world.counter("client_held_bytes"), 0);
    });
}

/// Two thousand heads that trickle in: each ends at its time, whatever the others do.
#[test]
fn slow_heads_in_any_number_end_at_their_time() {
    run(sim::Options::new(1), reverse(), async |world: Rc<World>| {
        let mut clients = Vec::new();
        for _ in 0..2000 {
            let client = Client::new().await;
            client.send(b"GET / HTTP/1.1\r\nX: ").await.unwrap();
            clients.push(client);
        }
        for _ in 0..28 {
            sleep(SECOND).await;
            for client in &clients {
                let _ = client.send(b"x").await;
            }
        }
        assert_eq!(world.counter("connections_open"), 2000);
        sleep(4 * SECOND).await;
        assert_eq!((world.counter("connections_open"), world.counter("timeouts")), (0, 2000));
    });
}

/// They were closed without a word, and without a line in the log.
#[test]
fn a_head_that_takes_too_long_is_answered_and_logged() {
    run(sim::Options::new(1), reverse(), async |world: Rc<World>| {
        let mut half = Client::http1().await;
        half.send(b"GET /a HTTP/1.1\r\nHo").await.unwrap();
        let mut second = Client::http1().await;
        assert_eq!(second.get("/b?size=3&cc=max-age=600", "").await.status, 200);
        second.send(b"GET").await.unwrap();
        let silent = Client::http1().await;
        // A head over HTTP/2 that has no end.
        let mut over_http2 = Client::http1().await;
        let frames = [&[0, 0, 0, 4, 0, 0, 0, 0, 0][..], &[0, 0, 1, 1, 1, 0, 0, 0, 1, 0x82]];
        over_http2.send(&[http2::PREFACE, &frames.concat()].concat()).await.unwrap();
        let mut over_http3 = Client::over(Version::Http3, PROXY).await.unwrap();
        over_http3.http3().begin_head();
        for client in [&mut half, &mut second, &mut over_http3] {
            let response = client.response().await.unwrap();
            assert_eq!(response.status, 408);
            let details = response.field("proxy-status").unwrap();
            assert!(details.contains("head-timeout"), "{details}");
        }
        // The connection of HTTP/3 goes on.
        assert_eq!(over_http3.get("/b?size=3", "").await.status, 200);
        assert!(over_http2.response().await.is_err(), "it gets GOAWAY");
        sleep(80 * SECOND).await;
        drop(silent);
        let statuses: Vec<u16> = world.log_lines().iter().map(|line| line.0).collect();
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 2);
        assert_eq!(statuses.iter().filter(|status| **status != 200).count(), 4, "{statuses:?}");
    });
}

/// No descriptor is left, and most are those of clients that say nothing: they go first.
#[test]
fn idle_connections_make_room_when_descriptors_are_out() {
    let closed = Cell::new(0);
    // Who gets the last descriptor, the proxy or a client, is a matter of their number.
    for descriptors in 60..64 {
        let few = sim::Options::new(1).with_descriptors_max(descriptors);
        each_version(&few, &reverse(), async |world: Rc<World>| {
            let mut idle = Vec::new();
            for _ in 0..20 {
                let mut client = Client::new().await;
                assert_eq!(client.get("/d?size=3", "").await.body.len(), 3);
                idle.push(client);
            }
            sleep(2 * SECOND).await;
            let mut late = Vec::new();
            while let Ok(client) = Client::to(PROXY).await {
                late.push(client);
            }
            sleep(SECOND).await;
            eprintln!(
                "{descriptors} {} {} {}",
                world.counter("connections_closed_for_room"),
                world.counter("connections_refused"),
                world.counter("connections_open")
            );
            closed.set(closed.get() + world.counter("connections_closed_for_room"));
            drop(idle);
            for mut client in late {
                assert_eq!(client.get("/d?size=3&cc=max-age=60", "").await.body.len(), 3);
            }
        });
    }
    assert!(closed.get() > 0);
}

/// Takes all descriptors that are left.
fn the_rest() -> Vec<TcpListener> {
    let one = |port| {
        TcpListener::bind(SocketAddr::from(([10, 0, 0, 8], port)), &ListenOptions::default())
    };
    (1..10_000).map_while(|port| one(port).ok()).collect()
}

/// A pipe needs two of them.
#[test]
fn a_long_body_is_copied_if_no_descriptor_is_left() {
    run(sim::Options::new(1).with_descriptors_max(80), reverse(), async |world: Rc<World>| {
        let mut client = Client::new().await;
        assert_eq!(client.get("/warm?size=3&cc=no-store", "").await.status, 200);
        for copied in [true, false] {
            let taken = if copied { the_rest() } else { Vec::new() };
            let before = world.counter("spliced_bytes");
            let target = "/l?size=300000&cc=no-store";
            assert!(client.get(target, "").await.body == expected(target, None));
            assert_eq!(world.counter("spliced_bytes") == before, copied);
            drop(taken);
        }
    });
}

/// One moment without a pipe does not mean that all of a long body is copied.
#[test]
fn a_long_body_is_not_copied_any_more_once_there_is_a_pipe() {
    let upload = crate::common::content("upload", 4_000_000);
    let (first, rest) = upload.split_at(2_000_000);
    let target = "/l?size=4000000&cc=no-store";
    let get = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n").into_bytes();
    let put = b"PUT /u?size=3 HTTP/1.1\r\nHost: site\r\nContent-Length: 4000000\r\n\r\n";
    // One world for each, because a core keeps its pipes.
    for (request, then) in [(get, &[][..]), ([&put[..], first].concat(), rest)] {
        let few = sim::Options::new(1).with_descriptors_max(80);
        run(few, reverse(), async |world: Rc<World>| {
            let mut client = Client::new().await;
            assert_eq!(client.get("/warm?size=3&cc=no-store", "").await.status, 200);
            let taken = the_rest();
            client.send(&request).await.unwrap();
            sleep(SECOND).await;
            assert_eq!(world.counter("spliced_bytes"), 0, "there is no pipe");
            drop(taken);
            client.send(then).await.unwrap();
            let got = client.response().await.unwrap();
            match then {
                [] => assert!(got.body == expected(target, None)),
                _ => assert!(world.origin.last().body == upload),
            }
            let spliced = world.counter("spliced_bytes");
            assert!(spliced > 1_000_000, "{spliced} bytes");
        });
    }
}

/// A connection to an upstream is as good a reason for it as a client's.
#[test]
fn idle_connections_make_room_for_an_upstream() {
    let few = |seed| sim::Options::new(seed).with_descriptors_max(80);
    let room = |world: &World| world.counter("connections_closed_for_room");
    sim::check(0..4, |seed| {
        run(few(seed), reverse(), async |world: Rc<World>| {
            let mut asking = Client::new().await;
            let mut idle = Vec::new();
            for _ in 0..10 {
                let mut client = Client::new().await;
                assert_eq!(client.get("/d?size=3&cc=max-age=60", "").await.status, 200);
                idle.push(client);
            }
            sleep(60 * SECOND).await;
            let taken = the_rest();
            assert_eq!(asking.get("/r?size=3&cc=no-store", "").await.status, 200);
            assert!(room(&world) > 0);
            drop(taken);
        });
        // No room can be made: the error names the cause, and the server is not blamed.
        run(few(seed), reverse(), async |world: Rc<World>| {
            let mut asking = Client::new().await;
            sleep(60 * SECOND).await;
            let taken = the_rest();
            for _ in 0..6 {
                let got = asking.get("/r?size=3&cc=no-store", "").await;
                assert_eq!(got.status, 503);
                let rule = "plimsoll; error=proxy_internal_error; details=\"no-descriptor\"";
                assert_eq!(got.field("proxy-status"), Some(rule));
            }
            assert_eq!((room(&world), world.counter("upstream_retries")), (0, 0));
            drop(taken);
            assert_eq!(asking.get("/r?size=3&cc=no-store", "").await.status, 200);
            let failures = "plimsoll_upstream_server_failures_total";
            let metrics = world.metrics().await;
            let of_server = metrics.iter().find(|(name, _)| name.starts_with(failures));
            assert_eq!(of_server.unwrap().1, 0);
        });
    });
}

/// The core computes for 90 of each 91 ms until it is changed.
fn burning() -> Rc<Cell<bool>> {
    let burns = Rc::new(Cell::new(true));
    let goes_on = Rc::clone(&burns);
    runtime::spawn(async move {
        while goes_on.get() {
            sim::burn(90 * MS);
            sleep(MS).await;
        }
    })
    .detach();
    burns
}

#[test]
fn a_core_with_a_persistent_queue_sheds_requests_for_an_upstream_and_recovers() {
    sim::check(0..3, |seed| {
        each_version(&sim::Options::new(seed), &reverse(), async |world: Rc<World>| {
            let mut client = Client::new().await;
            let hit = "/hit?size=5&cc=max-age=600";
            assert_eq!(client.get(hit, "").await.status, 200);
            let burns = burning();
            sleep(SECOND / 4).await;
            assert_eq!(client.get("/m?size=5&cc=no-store", "").await.status, 200, "a burst");
            sleep(4 * SECOND).await;
            let asked = world.origin.seen.borrow().len();
            for target in ["/m?size=5&cc=no-store", "/n?size=5&cc=max-age=60"] {
                let shed = client.get(target, "").await;
                assert_eq!((shed.status, shed.all("retry-after")), (503, vec!["2"]));
            }
            assert_eq!(client.get(hit, "").await.status, 200, "fresh hits are always served");
            assert_eq!(world.origin.seen.borrow().len(), asked);
            // The door is closed as well.
            assert!(Client::new().await.ends().await);
            assert!(world.counter("connections_shed") > 0);
            burns.set(false);
            sleep(10 * SECOND).await;
            assert_eq!(client.get("/m?size=5&cc=no-store", "").await.status, 200);
            assert_eq!(Client::new().await.get(hit, "").await.status, 200);
        });
    });
}

/// A request that is shed costs its client nothing of a quota.
#[test]
fn no_request_pays_with_its_quota_for_a_503() {
    let mut config = reverse();
    let counts = config::Counts::Fetches;
    let quota = config::Quota { name: "q".into(), counts, burst: Some(1), ..Default::default() };
    config.quotas = vec![config::Quota { requests: Some("1/h".parse().unwrap()), ..quota }];
    each_version(&sim::Options::new(1), &config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        // It costs nothing: the server answers by itself.
        assert!(client.get("/m?size=5", "Cache-Control: only-if-cached\r\n").await.status == 504);
        let burns = burning();
        sleep(5 * SECOND).await;
        for _ in 0..3 {
            assert_eq!(client.get("/m?size=5&cc=no-store", "").await.status, 503);
        }
        assert_eq!(world.origin.seen.borrow().len(), 0);
        burns.set(false);
        sleep(10 * SECOND).await;
        for status in [200, 429] {
            assert_eq!(client.get("/m?size=5&cc=no-store", "").await.status, status);
        }
    });
}

/// Neither a service nor a password costs anything for a request that is shed. What was verified
/// before is served.
#[test]
fn what_is_shed_asks_no_service_and_verifies_no_password() {
    let mut config = reverse();
    let named = config.groups[0].name.clone();
    let route = |prefix: &str, guard| config::Route {
        path: config::Path::Prefix(prefix.to_owned()),
        guard,
        ..config::Route::to(&named)
    };
    let auth = config::Auth {
        upstream: named.clone(),
        path: "/check?size=3".to_owned(),
        timeout: 2 * SECOND,
        ..config::Auth::default()
    };
    let service = config::Guard { auth: Some(auth), ..config::Guard::default() };
    let users = Some(config::Users::from_text(crate::guards::USERS).unwrap());
    let login = config::Guard { users, ..config::Guard::default() };
    config.routes =
        vec![route("/service", service), route("/login", login), route("/", <_>::default())];
    each_version(&sim::Options::new(1), &config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let stored = ["/service/a?size=5&cc=max-age=600", "/login/a?size=5&cc=max-age=600"];
        let (right, other) = (crate::guards::LOGIN, "Authorization: Basic YTpk\r\n");
        for target in stored {
            assert_eq!(client.get(target, right).await.status, 200);
        }
        let burns = burning();
        sleep(5 * SECOND).await;
        let asked = world.origin.seen.borrow().len();
        assert_eq!(client.get(stored[0], "").await.status, 503, "the service is not asked");
        assert_eq!(client.get(stored[1], right).await.status, 200, "the password is known");
        assert_eq!(client.get(stored[1], other).await.status, 503, "nothing is hashed");
        assert_eq!(world.origin.seen.borrow().len(), asked);
        burns.set(false);
        sleep(10 * SECOND).await;
        assert_eq!(client.get(stored[0], "").await.status, 200);
        assert_eq!(client.get(stored[1], other).await.status, 401);
    });
}

#[test]
fn shedding_can_be_turned_off() {
    let mut config = reverse();
    config.limits.overload_shed = false;
    each_version(&sim::Options::new(1), &config, async |_: Rc<World>| {
        let mut client = Client::new().await;
        let burns = burning();
        sleep(5 * SECOND).await;
        assert_eq!(client.get("/m?size=5&cc=no-store", "").await.status, 200);
        burns.set(false);
    });
}
