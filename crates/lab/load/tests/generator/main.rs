//! The generator against servers that behave, stall, and misbehave.

#[cfg(test)]
mod common;
#[cfg(test)]
mod http2;
#[cfg(test)]
#[cfg(feature = "tls")]
mod http3;
#[cfg(test)]
#[cfg(feature = "tls")]
mod tls;

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use common::{PATIENCE, Server, conserved, run, run_observed, say};
use load::{Error, Opening, Outcome, Phase, Plan, Population, Size, Tick};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

fn answer_and_close(stream: &mut TcpStream, _: u32) -> bool {
    say(stream, OK);
    false
}

#[test]
fn every_intended_request_is_sent_and_answered() {
    let server = Server::null();
    let outcome = run(&server.requests("/", 2000.0, 3000));
    assert_eq!(outcome.counts.intended, 3000);
    assert_eq!(outcome.counts.completed, 3000);
    assert_eq!(outcome.counts.body_bytes, 3000 * 1024);
    assert_eq!(outcome.counts.connects, 0, "connections are made before the run and kept");
    assert!(outcome.rows.len() >= 2, "a row each second: {}", outcome.rows.len());
    assert!(outcome.latency_invalid.max_ns.max(outcome.latency.max_ns) > 0);
    assert!(outcome.cpu_per_request_us > 0.0);
}

#[test]
fn a_closed_loop_keeps_every_connection_busy() {
    let server = Server::null();
    for busy_poll in [false, true] {
        let plan = Plan { busy_poll, ..server.closed("/") };
        let outcome = run_observed(&plan, |tick| tick.counts.completed > 100);
        assert!(outcome.counts.completed > 100, "{:?}", outcome.counts);
        assert_eq!(outcome.counts.errors.total(), 0);
        assert_eq!((outcome.in_flight, outcome.unstarted), (0, 0));
    }
}

#[test]
fn a_stall_is_not_hidden() {
    const STALL: Duration = Duration::from_millis(300);
    let count = AtomicU32::new(0);
    let gate = std::sync::Mutex::new(());
    let server = Server::scripted(move |stream, _| {
        // All requests wait for the stalled one, as if the server had a single thread.
        let _held = gate.lock().unwrap();
        if count.fetch_add(1, Ordering::Relaxed) == 100 {
            thread::sleep(STALL);
        }
        say(stream, OK)
    });
    let outcome = run(&server.requests("/", 500.0, 500));
    assert_eq!(outcome.counts.completed, 500);
    // 150 requests were meant to start during the stall, but only 8 connections were available. The
    // others still count their waiting time: each waited for the rest of the stall.
    let mut waited = 0;
    for latency in [&outcome.latency, &outcome.latency_invalid] {
        let histogram = latency.histogram().unwrap();
        waited += histogram.len() - histogram.count_between(0, STALL.as_nanos() as u64 / 2);
    }
    let longest = outcome.latency.max_ns.max(outcome.latency_invalid.max_ns);
    assert!(longest >= STALL.as_nanos() as u64, "{longest}");
    assert!(waited >= 70, "only {waited} saw half of the stall");
    let queued_max = outcome.rows.iter().map(|row| row.queued_max).max().unwrap();
    assert!(queued_max >= 50, "{queued_max}");
}

#[test]
fn requests_that_a_slow_server_leaves_unstarted_are_reported() {
    let server = Server::scripted(|stream, _| {
        thread::sleep(Duration::from_millis(20));
        say(stream, OK)
    });
    let outcome = run(&server.plan("/", "2000", 300));
    assert_eq!(outcome.counts.intended, 600);
    // 8 connections, at most 50 requests per second each.
    assert!(outcome.counts.started <= 8 * 16, "{}", outcome.counts.started);
    assert_eq!(outcome.unstarted, 600 - outcome.counts.started);
    assert!(outcome.unstarted_waited_ns >= 150_000_000, "{}", outcome.unstarted_waited_ns);
}

#[test]
fn cold_connections_stay_open_and_silent() {
    let server = Server::origin();
    let plan = Plan { cold: 300, sources: 3, ..server.requests("/obj/1", 500.0, 200) };
    let mut open = Vec::new();
    let outcome = run_observed(&plan, |tick| {
        if tick.phase == Phase::Running {
            open.push(tick.open);
        }
        false
    });
    assert!(open.len() >= 2 && open.iter().all(|count| *count == 300), "{open:?}");
    assert_eq!((outcome.cold_open, outcome.counts.cold_closed), (300, 0));
    assert_eq!(outcome.counts.completed, 200);
}

#[test]
fn cold_connections_closed_by_the_server_are_reopened() {
    let accepted = Arc::new(AtomicU32::new(0));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let count = Arc::clone(&accepted);
    // Closes the first 20 connections soon and keeps the others.
    thread::spawn(move || {
        let mut kept = Vec::new();
        let mut first = Vec::new();
        for stream in listener.incoming().flatten() {
            if count.fetch_add(1, Ordering::Relaxed) < 20 {
                first.push(stream);
                if first.len() == 20 {
                    thread::sleep(Duration::from_millis(50));
                    first.clear();
                }
            } else {
                kept.push(stream);
            }
        }
    });
    let target = format!("http://{addr}/").parse().unwrap();
    let mut plan = Plan::new(target, "1".parse().unwrap(), PATIENCE);
    (plan.cold, plan.connections, plan.keep_alive) = (20, 1, false);
    // The other connections are those of the requests.
    let reopened = || accepted.load(Ordering::Relaxed) >= 40;
    let is_enough = |tick: &Tick<'_>| tick.open == 20 && tick.counts.cold_closed == 20;
    let outcome = run_observed(&plan, |tick| reopened() && is_enough(tick));
    assert_eq!(outcome.counts.cold_closed, 20);
    assert!(reopened());
}

#[test]
fn one_connection_per_request() {
    for server in [Server::origin(), Server::scripted(answer_and_close)] {
        let plan = Plan { keep_alive: false, ..server.requests("/obj/1", 300.0, 150) };
        let outcome = run(&plan);
        assert_eq!(outcome.counts.completed, 150, "{:?}", outcome.counts.errors);
        assert_eq!(outcome.counts.connects, 150);
        let closed = Plan { keep_alive: false, ..server.closed("/obj/1") };
        let outcome = run_observed(&closed, |tick| tick.counts.completed > 20);
        assert!(outcome.counts.completed > 20);
        assert_eq!(outcome.counts.errors.total(), 0, "{:?}", outcome.counts.errors);
    }
}

#[test]
fn a_server_that_ends_the_connection_after_some_requests_is_no_error() {
    let server = Server::scripted(|stream, number| {
        let last = number == 2;
        let close = if last { "Connection: close\r\n" } else { "" };
        say(stream, &format!("HTTP/1.1 200 OK\r\n{close}Content-Length: 2\r\n\r\nhi")) && !last
    });
    let outcome = run(&server.requests("/", 600.0, 300));
    assert_eq!(outcome.counts.completed, 300, "{:?}", outcome.counts.errors);
    assert!(outcome.counts.connects >= 80, "{}", outcome.counts.connects);
}

#[test]
fn idle_connections_closed_by_the_server_are_reopened() {
    let server = Server::scripted(answer_and_close);
    // At most three at a time, so each connection has been idle for long when it is closed.
    let outcome = run(&server.requests("/", 40.0, 20));
    assert_eq!(outcome.counts.completed, 20, "{:?}", outcome.counts.errors);
    assert_eq!(outcome.counts.connects, 12, "8 were made before");
}

/// A server that answers each request with `text` and then does what `after` says.
fn server_answering(text: &'static str, after: fn(&mut TcpStream) -> bool) -> Server {
    Server::scripted(move |stream, _| say(stream, text) && after(stream))
}

/// The outcome of thirty requests to such a server.
fn outcome_answering(text: &'static str, after: fn(&mut TcpStream) -> bool) -> Outcome {
    let server = server_answering(text, after);
    run(&server.requests("/", 100.0, 30))
}

#[test]
fn errors_are_distinguished() {
    let close = |_: &mut TcpStream| false;
    let keep = |_: &mut TcpStream| true;
    let kind = |text, after| outcome_answering(text, after).counts.errors;

    let errors = kind("", close);
    assert_eq!((errors.closed, errors.total()), (30, 30), "{errors:?}");
    let errors = kind("HTTP/1.1 200 OK\r\nContent-Le", close);
    assert_eq!((errors.truncated, errors.total()), (30, 30), "{errors:?}");
    let errors = kind("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", close);
    assert_eq!((errors.truncated, errors.total()), (30, 30), "{errors:?}");
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhi";
    let errors = kind(chunked, close);
    assert_eq!((errors.truncated, errors.total()), (30, 30), "{errors:?}");
    let errors = kind("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", keep);
    assert_eq!((errors.bad_status, errors.total()), (30, 30), "{errors:?}");
    for text in [
        "what?\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhigh",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nmore",
    ] {
        let errors = kind(text, close);
        assert_eq!((errors.bad_framing, errors.total()), (30, 30), "{text:?} {errors:?}");
    }
    let server = server_answering("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", keep);
    let timeout = Duration::from_millis(200);
    let errors = run(&Plan { timeout, ..server.requests("/", 100.0, 30) }).counts.errors;
    assert!(errors.timeout >= 8 && errors.timeout == errors.total(), "{errors:?}");
}

#[test]
fn a_reset_is_reported() {
    let errors = outcome_answering("", |stream| {
        assert!(resets_on_close(stream));
        false
    });
    let errors = errors.counts.errors;
    assert_eq!((errors.reset, errors.total()), (30, 30), "{errors:?}");
}

/// Makes the close of `stream` a reset.
fn resets_on_close(stream: &mut TcpStream) -> bool {
    use std::os::fd::AsRawFd;
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: `linger` is valid for reads of its size for the duration of the call.
    let failed = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    failed == 0
}

#[test]
fn correct_responses_of_every_framing_are_completed() {
    for (text, keeps) in [
        (OK, true),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a\r\nhi\r\n0\r\nX: y\r\n\r\n",
            true,
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\n\r\nuntil the end", false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", false),
    ] {
        let outcome = outcome_answering(text, if keeps { |_| true } else { |_| false });
        assert_eq!(outcome.counts.completed, 30, "{text:?} {:?}", outcome.counts.errors);
    }
}

#[test]
fn a_server_that_goes_away_is_counted_and_one_that_was_never_there_is_an_error() {
    let server = Server::null();
    let plan = Plan { keep_alive: false, ..server.plan("/", "100", 300) };
    drop(server);
    let outcome = run(&plan);
    assert_eq!(outcome.counts.errors.refused, outcome.counts.errors.total());
    assert!(outcome.counts.errors.refused >= 29, "{:?}", outcome.counts);
    let error = load::run(&Plan { keep_alive: true, ..plan }, &AtomicBool::new(false), &mut |_| ());
    assert!(matches!(error, Err(Error::Unreachable { .. })), "{error:?}");
}

#[test]
fn bad_plans_are_refused() {
    let server = Server::null();
    let plan = Plan { connections: 0, ..server.plan("/", "1", 100) };
    let error = load::run(&plan, &AtomicBool::new(false), &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("connections"), "{error}");
    let plan = Plan { cold: 900_000, ..server.plan("/", "1", 100) };
    let error = load::run(&plan, &AtomicBool::new(false), &mut |_| ()).unwrap_err();
    assert!(matches!(error, Error::Descriptors { .. }), "{error}");
    let plan = Plan { pin_cpu: Some(100_000), ..server.plan("/", "1", 100) };
    let error = load::run(&plan, &AtomicBool::new(false), &mut |_| ()).unwrap_err();
    assert!(matches!(error, Error::System { .. }), "{error}");
}

#[test]
fn objects_of_the_origin_are_checked_byte_for_byte() {
    let server = Server::origin();
    let population = Population { objects: 500, zipf_s: 0.8, size: Size::web() };
    let path = "/obj/{n}?size={size}";
    for verify in [false, true] {
        let plan =
            Plan { population: population.clone(), verify, ..server.requests(path, 2000.0, 1000) };
        let outcome = run(&plan);
        assert_eq!(outcome.counts.completed, 1000, "{:?}", outcome.counts.errors);
        assert!(outcome.counts.body_bytes > 1_000_000);
    }
    // The bytes of another object and a wrong size are detected.
    let plan = Plan { verify: true, ..server.requests("/obj/7", 100.0, 10) };
    assert_eq!(run(&plan).counts.errors.wrong_bytes, 10);
    let path = "/obj/{n}?size={size}&size=10";
    assert_eq!(run(&server.requests(path, 100.0, 10)).counts.errors.wrong_size, 10);
}

#[test]
fn requests_can_have_bodies_and_go_through_a_tunnel() {
    let origin = Server::origin();
    let mut plan = Plan { body_bytes: 1024, ..origin.requests("/obj/3?size=9", 1000.0, 200) };
    assert_eq!(run(&plan).counts.body_bytes, 200 * 9);
    // A proxy that sends its answer to CONNECT in two pieces.
    let to = origin.addr;
    let proxy = Server::connections(move |mut client| {
        let mut request = vec![0; format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").len()];
        client.read_exact(&mut request).unwrap();
        assert!(request.starts_with(b"CONNECT 127.0.0.1:") && request.ends_with(b"\r\n\r\n"));
        let mut server = TcpStream::connect(to).unwrap();
        say(&mut client, "HTTP/1.");
        thread::sleep(Duration::from_millis(2));
        say(&mut client, "1 200 Opened\r\nA: b\r\n\r\n");
        let (mut from, mut into) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let there = thread::spawn(move || std::io::copy(&mut from, &mut into));
        let _reset_at_the_end = std::io::copy(&mut server, &mut client);
        let _reset_at_the_end = there.join();
    });
    (plan.target.addr, plan.target.tunnel) = (proxy.addr, true);
    let outcome = run(&plan);
    assert_eq!(outcome.counts.body_bytes, 200 * 9, "{:?}", outcome.counts);
    assert_eq!(outcome.counts.connects, 0, "tunnels are opened before the run and kept");
    // One that refuses.
    let refusing = Server::scripted(|stream, _| say(stream, "HTTP/1.1 403 No\r\n\r\n"));
    plan.target.addr = refusing.addr;
    let error = load::run(&plan, &AtomicBool::new(false), &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("no tunnel: HTTP/1.1 403 No"), "{error}");
}

#[test]
fn a_long_body_is_sent_whole() {
    let origin = Server::origin();
    let plan = Plan { body_bytes: 1 << 20, ..origin.requests("/obj/3?size=9", 100.0, 20) };
    assert_eq!(run(&plan).counts.body_bytes, 20 * 9);
}

#[test]
fn messages_go_over_websockets() {
    let origin = Server::origin();
    let plan = origin.requests("/chat", 1000.0, 200);
    let mut plan = Plan { body_bytes: 100, opening: Opening::WebSocket, ..plan };
    assert_eq!(run(&plan).counts.body_bytes, 200 * 102);
    let refusing = Server::scripted(|stream, _| say(stream, "HTTP/1.1 200 OK\r\n\r\n"));
    plan.target.addr = refusing.addr;
    let error = load::run(&plan, &AtomicBool::new(false), &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("no upgrade to WebSocket: HTTP/1.1 200 OK"), "{error}");
}

#[test]
fn connections_can_begin_with_a_proxy_header() {
    let header = b"PROXY TCP4 192.0.2.7 203.0.113.1 40000 80\r\n";
    let server = Server::connections(move |mut client| {
        let mut got = vec![0; header.len()];
        client.read_exact(&mut got).unwrap();
        assert_eq!(got, header);
        let mut request = [0; 1024];
        while client.read(&mut request).is_ok_and(|count| count > 0) {
            assert!(request.starts_with(b"GET / HTTP/1.1\r\n"));
            say(&mut client, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let plan = server.requests("/", 1000.0, 100);
    let plan = Plan { opening: Opening::ProxyHeader, connections: 2, ..plan };
    assert_eq!(run(&plan).counts.completed, 100);
}

#[test]
fn the_null_server_closes_connections_for_one_request() {
    let server = Server::null();
    let plan = Plan { keep_alive: false, ..server.requests("/", 1000.0, 50) };
    let counts = run(&plan).counts;
    assert_eq!((counts.completed, counts.connects), (50, 50));
}

#[test]
fn hits_and_misses_are_distinguished() {
    let ratio = |field: &str| {
        let text = format!("HTTP/1.1 200 OK\r\n{field}Content-Length: 0\r\n\r\n");
        let server = Server::scripted(move |stream, _| say(stream, &text));
        run(&server.requests("/", 100.0, 10)).counts.hit_ratio()
    };
    assert_eq!(ratio("Cache-Status: origin; hit, edge; fwd=miss\r\n"), Some(0.0));
    assert_eq!(ratio("Cache-Status: edge; hit; ttl=9\r\nX-Cache: MISS\r\n"), Some(1.0));
    assert_eq!(ratio("X-Cache: HIT from squid\r\n"), Some(1.0));
    assert_eq!(ratio("X-Cache: MISS\r\nAge: 3\r\n"), Some(0.0));
    assert_eq!(ratio("Age: 3\r\n"), Some(1.0));
    assert_eq!(ratio("Age: 0\r\n"), None);
    assert_eq!(ratio(""), None);
}

#[test]
fn a_run_can_be_stopped() {
    let server = Server::null();
    let stop = AtomicBool::new(false);
    let plan = server.plan("/", "1000", 60_000);
    let outcome = load::run(&plan, &stop, &mut |tick: &Tick<'_>| {
        if tick.counts.completed > 50 {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let outcome = outcome.unwrap();
    conserved(&outcome);
    assert!(outcome.stopped && outcome.length_ns < 60_000_000_000);
}

/// Long responses of a short run are waited for as long as the plan says.
#[test]
fn requests_in_flight_at_the_end_have_the_time_of_the_plan() {
    let server = Server::scripted(|stream, _| {
        thread::sleep(load::DRAIN_MAX + Duration::from_millis(500));
        say(stream, OK)
    });
    let plan = Plan { connections: 1, ..server.plan("/", "closed", 100) };
    let outcome = run(&Plan { drain_max: PATIENCE, timeout: PATIENCE, ..plan });
    assert_eq!((outcome.counts.completed, outcome.in_flight), (1, 0), "{:?}", outcome.counts);
}

/// A stop during this wait was not seen.
#[test]
fn a_stop_shortens_the_wait_for_requests_in_flight() {
    let server = Server::scripted(|_, _| true);
    let plan = Plan { connections: 1, ..server.plan("/", "closed", 100) };
    let (stop, began) = (AtomicBool::new(false), std::time::Instant::now());
    let plan = Plan { drain_max: PATIENCE, timeout: PATIENCE, ..plan };
    let outcome = load::run(&plan, &stop, &mut |tick: &Tick<'_>| {
        stop.fetch_or(tick.phase == Phase::Draining, Ordering::Relaxed);
    });
    assert_eq!(outcome.unwrap().in_flight, 1);
    assert!(began.elapsed() < PATIENCE / 2);
}

#[test]
fn the_outcome_survives_json() {
    let server = Server::origin();
    let plan = Plan { cold: 3, ..server.plan("/obj/{n}", "100..300/2", 1200) };
    let outcome = run(&plan);
    let json = serde_json::to_string(&outcome).unwrap();
    let back: Outcome = serde_json::from_str(&json).unwrap();
    // Parsing may change the last bit of a fraction.
    let whole_numbers = |mut outcome: Outcome| {
        outcome.cpu_per_request_us = outcome.cpu_per_request_us.round();
        let in_rows = outcome
            .rows
            .iter_mut()
            .flat_map(|row| std::iter::once(&mut row.latency).chain(&mut row.latency_invalid));
        for latency in in_rows.chain([&mut outcome.latency, &mut outcome.latency_invalid]) {
            latency.mean_ns = latency.mean_ns.round();
        }
        outcome
    };
    assert_eq!(whole_numbers(back), whole_numbers(outcome));
}

#[test]
fn a_late_generator_marks_its_rows() {
    let server = Server::null();
    let plan = server.requests("/", 1000.0, 500);
    let mut stalled = false;
    // The observer runs in the generator's thread, so a slow one delays it.
    let outcome = run_observed(&plan, |tick| {
        if !stalled && tick.counts.completed > 100 {
            stalled = true;
            thread::sleep(Duration::from_millis(50));
        }
        false
    });
    let row = outcome.rows.iter().max_by_key(|row| row.lag_max_ns).unwrap();
    assert!(row.behind && row.counts.late_starts > 0, "{row:?}");
    assert!(row.lag_max_ns >= 40_000_000, "{}", row.lag_max_ns);
    // About 50 requests had to wait for the generator, the last ones for only a few of their ms.
    assert!(outcome.latency_invalid.count >= 20, "{}", outcome.latency_invalid.count);
    assert!(outcome.latency_invalid.max_ns >= 40_000_000, "{}", outcome.latency_invalid.max_ns);
    let all = outcome.all_latencies().unwrap();
    assert_eq!(outcome.latency.count + outcome.latency_invalid.count, 500);
    // Beside other load, a latency that counts may be the longest.
    let max_ns = outcome.latency.max_ns.max(outcome.latency_invalid.max_ns);
    assert_eq!((all.count, all.max_ns), (500, max_ns));
}
