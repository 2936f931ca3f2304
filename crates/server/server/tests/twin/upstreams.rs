//! Groups of servers: fairness, health, retries and their budget, queues, and servers that die at
//! any moment.

use std::cell::RefCell;
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use config::{Balance, Ejection, Group, HealthCheck, Queue, Retries, Sticky, Timeouts};
use runtime::net::{ListenOptions, TcpListener};
use runtime::sim;
use runtime::time::{now, sleep};
use server::{Config, Origin as OriginUrl};

use crate::common::Response;
use crate::origin::{Origin, expected};
use crate::world::{
    ADMIN, Broken, Client, ORIGIN, World, address, each_version, each_way, reverse, run,
};

/// The second and the third server; the first is the world's own.
const SECOND: &str = "10.0.0.3:80";
const THIRD: &str = "10.0.0.4:80";
/// No server listens here.
const MISSING: &str = "10.0.0.9:80";

fn group(servers: &[&str]) -> Group {
    Group::of("g", servers.iter().map(|at| OriginUrl::at(address(at))))
}

fn before(group: Group) -> Config {
    Config { groups: vec![group], ..reverse() }
}

fn target(at: usize) -> String {
    format!("/t{at}?size=30&cc=no-store")
}

/// So many requests, one after the other, none of which may fail.
async fn ask(from: usize, count: usize) {
    let mut client = Client::new().await;
    for at in from..from + count {
        let got = client.get(&target(at), "").await;
        assert_eq!((got.status, got.body), (200, expected(&target(at), None)));
    }
}

fn seen(origin: &Origin) -> usize {
    origin.seen.borrow().iter().filter(|seen| seen.target.starts_with("/t")).count()
}

/// A response, or how it broke.
async fn try_get(target: String) -> Result<Response, Broken> {
    let mut client = Client::new().await;
    let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
    client.send(request.as_bytes()).await.unwrap();
    client.response().await
}

/// Accepts connections at an address, and resets each when its first bytes have come.
fn start_crashing(at: SocketAddr) {
    start_server(at, b"");
}

/// Accepts connections at an address, and answers a request on each like this. Without an answer,
/// each is reset when its first bytes have come.
fn start_server(at: SocketAddr, answer: &'static [u8]) {
    let listener = TcpListener::bind(at, &ListenOptions::default()).unwrap();
    let serving = async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let crash = async move {
                let (mut got, mut piece) = (Vec::new(), [0; 1024]);
                while let Ok(read @ 1..) = stream.read(&mut piece).await {
                    got.extend_from_slice(&piece[..read]);
                    if answer.is_empty() {
                        return stream.abort();
                    }
                    if got.ends_with(b"\r\n\r\n") {
                        drop(stream.write_all(answer).await);
                        drop(stream.shutdown(Shutdown::Write));
                    }
                }
            };
            runtime::spawn(crash).detach();
        }
    };
    runtime::spawn(serving).detach();
}

#[test]
fn requests_are_shared_out_by_weight() {
    let config = || {
        let mut group = group(&[ORIGIN, SECOND]);
        group.servers[1].weight = 3;
        before(group)
    };
    each_way(config, async |world: Rc<World>| {
        let second = Origin::start(address(SECOND));
        ask(0, 40).await;
        assert_eq!((seen(&world.origin), seen(&second)), (10, 30));
    });
}

#[test]
fn a_url_has_always_the_same_server_until_that_one_is_gone() {
    let config = || Config {
        groups: vec![Group { balance: Balance::HASH, ..group(&[ORIGIN, SECOND, MISSING]) }],
        ..reverse()
    };
    each_way(config, async |world: Rc<World>| {
        let second = Origin::start(address(SECOND));
        // Those of the server that is not there go to the others, each to the same one again.
        ask(0, 60).await;
        let of = |origin: &Origin| -> Vec<String> {
            let mut of: Vec<_> = origin.seen.borrow_mut().drain(..).map(|s| s.target).collect();
            of.sort();
            of
        };
        let first_time = (of(&world.origin), of(&second));
        ask(0, 60).await;
        assert_eq!((of(&world.origin), of(&second)), first_time);
        assert!(first_time.0.len() > 15 && first_time.1.len() > 15, "{first_time:?}");
    });
}

#[test]
fn a_missing_server_costs_no_client_a_response_and_soon_no_attempts() {
    each_way(
        || before(group(&[ORIGIN, MISSING])),
        async |world: Rc<World>| {
            ask(0, 40).await;
            assert_eq!(seen(&world.origin), 40);
            assert_eq!(world.counter("upstream_retries"), 5, "then it is left alone");
            assert_eq!(world.counter("upstream_errors"), 0);
            // It comes back, and gets its share when its time is over.
            let back = Origin::start(address(MISSING));
            sleep(Duration::from_secs(6)).await;
            ask(40, 40).await;
            assert_eq!(seen(&back), 20);
        },
    );
}

#[test]
fn only_repeatable_requests_go_to_another_server() {
    each_way(
        || before(group(&[ORIGIN, SECOND])),
        async |world: Rc<World>| {
            start_crashing(address(SECOND));
            for at in 0..4 {
                assert_eq!(try_get(target(at)).await.unwrap().status, 200);
            }
            assert_eq!(seen(&world.origin), 4);
            let post = "POST /p HTTP/1.1\r\nHost: site\r\nContent-Length: 0\r\n\r\n";
            let mut statuses = Vec::new();
            for _ in 0..4 {
                statuses.push(Client::new().await.ask(post.as_bytes()).await.status);
            }
            statuses.sort_unstable();
            assert_eq!(statuses, [200, 200, 502, 502]);
            assert_eq!(world.origin.count("/p"), 2, "never twice");
        },
    );
    // Nothing was sent to one who is not there: then also what may not be repeated goes on.
    each_way(
        || before(group(&[ORIGIN, MISSING])),
        async |world: Rc<World>| {
            for body in ["", "with a body"] {
                let length = body.len();
                let post = format!(
                    "POST /p HTTP/1.1\r\nHost: s\r\nContent-Length: {length}\r\n\r\n{body}"
                );
                for _ in 0..4 {
                    assert_eq!(Client::new().await.ask(post.as_bytes()).await.status, 200);
                }
            }
            assert_eq!(world.origin.count("/p"), 8);
        },
    );
}

#[test]
fn retries_do_not_multiply_an_outage() {
    let config = || {
        let mut group = group(&[SECOND, THIRD]);
        group.retries = Retries { budget_percent: 10, burst: 5, ..Retries::default() };
        group.ejection.failures = 0;
        before(group)
    };
    each_way(config, async |world: Rc<World>| {
        start_crashing(address(SECOND));
        start_crashing(address(THIRD));
        for at in 0..100 {
            assert_eq!(try_get(target(at)).await.unwrap().status, 502);
        }
        let retries = world.counter("upstream_retries");
        assert!((13..=16).contains(&retries), "{retries}");
    });
}

/// nginx: `proxy_next_upstream http_503`; HAProxy: `retry-on 503`.
#[test]
fn a_request_goes_to_another_server_because_of_a_status() {
    const BUSY: &[u8] = b"HTTP/1.1 503 X\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy";
    let config = |servers: &'static [&'static str]| {
        move || {
            let mut group = group(servers);
            group.retries = Retries { statuses: [503].into_iter().collect(), ..group.retries };
            group.ejection.failures = 0;
            before(group)
        }
    };
    each_way(config(&[ORIGIN, SECOND]), async |world: Rc<World>| {
        start_server(address(SECOND), BUSY);
        ask(0, 20).await;
        assert_eq!((seen(&world.origin), world.counter("upstream_retries")), (20, 10));
        let mut statuses = Vec::new();
        for _ in 0..2 {
            let post = b"POST /p HTTP/1.1\r\nHost: s\r\nContent-Length: 0\r\n\r\n";
            statuses.push(Client::new().await.ask(post).await.status);
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 503], "what may not be repeated is not");
    });
    each_way(config(&[SECOND, THIRD]), async |world: Rc<World>| {
        start_server(address(SECOND), BUSY);
        start_server(address(THIRD), BUSY);
        let got = try_get(target(0)).await.unwrap();
        assert_eq!((got.status, &got.body[..]), (503, &b"busy"[..]));
        assert_eq!(world.counter("upstream_retries"), 1);
    });
    each_way(config(&[SECOND, MISSING]), async |_: Rc<World>| {
        start_server(address(SECOND), BUSY);
        for at in 0..4 {
            let got = try_get(target(at)).await.unwrap();
            assert_eq!((got.status, &got.body[..]), (503, &b"busy"[..]), "the first answer");
        }
    });
}

/// Each answer held the place of its server while the request waited for the other one.
#[test]
fn no_request_waits_for_another_server_while_it_has_an_answer() {
    const BUSY: &[u8] = b"HTTP/1.1 503 X\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy";
    let config = || {
        let mut group = group(&[SECOND, THIRD]);
        group.retries = Retries { statuses: [503].into_iter().collect(), ..group.retries };
        group.ejection.failures = 0;
        group.servers.iter_mut().for_each(|server| server.outstanding_max = Some(1));
        before(group)
    };
    each_way(config, async |_: Rc<World>| {
        start_server(address(SECOND), BUSY);
        start_server(address(THIRD), BUSY);
        let began = now();
        let all: Vec<_> = (0..6).map(|at| runtime::spawn(try_get(target(at)))).collect();
        for one in all {
            assert_eq!(one.await.unwrap().status, 503);
        }
        assert!(now() - began < Duration::from_secs(3), "{:?}", now() - began);
    });
}

/// Those who waited for the server of one session took all places, and others were refused.
#[test]
fn a_full_queue_refuses_only_who_finds_no_room() {
    let config = || {
        let mut group = group(&[ORIGIN, SECOND]);
        group.sticky = Some(Sticky::default());
        group.servers.iter_mut().for_each(|server| server.outstanding_max = Some(1));
        group.queue = Queue { length_max: 1, ..group.queue };
        before(group)
    };
    each_way(config, async |_: Rc<World>| {
        let _second = Origin::start(address(SECOND));
        let got = try_get(target(0)).await.unwrap();
        let cookie = got.field("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let of_session = |at: usize| {
            let line =
                format!("GET /t{at}?size=30&cc=no-store&late=2000 HTTP/1.1\r\nHost: site\r\n");
            let request = format!("{line}Cookie: {cookie}\r\n\r\n");
            async move {
                let mut client = Client::new().await;
                client.send(request.as_bytes()).await.unwrap();
                client.response().await.map(|got| got.status)
            }
        };
        let slow: Vec<_> = (0..2).map(|at| runtime::spawn(of_session(at))).collect();
        sleep(Duration::from_millis(500)).await;
        for at in 0..3 {
            assert_eq!(try_get(target(at)).await.unwrap().status, 200, "the other server is idle");
        }
        for one in slow {
            assert_eq!(one.await.unwrap(), 200);
        }
    });
}

#[test]
fn a_session_begins_with_what_is_not_stored_and_stays_at_its_server() {
    let config = || {
        let mut group = group(&[ORIGIN, SECOND]);
        group.sticky = Some(Sticky::default());
        group.ejection.failures = 0;
        before(group)
    };
    each_way(config, async |world: Rc<World>| {
        let second = Origin::start(address(SECOND));
        let mut client = Client::new().await;
        let session = |got: &Response| {
            let line = got.field("set-cookie")?;
            let plain = line.replace("; Secure", "");
            assert!(plain.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{line}");
            Some(line.split(';').next().unwrap().to_owned())
        };
        // No other client and no other cache gets a session.
        for _ in 0..2 {
            let got = client.get("/stored?size=30&cc=max-age=60", "").await;
            assert_eq!(session(&got), None);
        }
        let first = client.get(&target(0), "").await;
        let cookie = session(&first).unwrap();
        assert!(cookie.starts_with("plimsoll_server=") && cookie.len() == 20, "{cookie}");
        let of = |origin: &Origin| std::mem::take(&mut *origin.seen.borrow_mut()).len();
        assert_eq!(of(&world.origin) + of(&second), 2);
        let lines = format!("Cookie: a=1; {cookie}\r\n");
        for at in 1..9 {
            let got = client.get(&target(at), &lines).await;
            assert_eq!((got.status, session(&got)), (200, None));
        }
        let seen = [of(&world.origin), of(&second)];
        assert!(seen == [8, 0] || seen == [0, 8], "{seen:?}");
        // The session moves when an operator takes its server out.
        let at = [ORIGIN, SECOND][usize::from(seen[1] == 8)];
        let order = format!(
            "POST /upstreams?server={at}&state=disabled HTTP/1.1\r\nHost: a\r\n\
             Content-Length: 0\r\n\r\n"
        );
        let ordered = Client::to(ADMIN).await.unwrap().ask(order.as_bytes()).await;
        assert_eq!(ordered.status, 200);
        let got = client.get(&target(9), &lines).await;
        let moved = session(&got).unwrap();
        assert_ne!(moved, cookie);
        let control = got.field("cache-control").unwrap();
        assert!(control.contains("no-store"), "{control}");
        let got = client.get(&target(10), &format!("Cookie: {moved}\r\n")).await;
        assert_eq!(session(&got), None);
    });
}

#[test]
fn a_check_takes_a_server_out_and_brings_it_back() {
    let check = HealthCheck { path: "/health?size=3".into(), ..HealthCheck::default() };
    let config = || before(Group { health: Some(check.clone()), ..group(&[ORIGIN, MISSING]) });
    each_way(config, async |world: Rc<World>| {
        sleep(Duration::from_secs(10)).await;
        ask(0, 20).await;
        assert_eq!((seen(&world.origin), world.counter("upstream_retries")), (20, 0));
        assert_eq!(world.origin.last().field("host"), Some("site"));
        let back = Origin::start(address(MISSING));
        sleep(Duration::from_secs(5)).await;
        ask(20, 20).await;
        assert_eq!((seen(&world.origin), seen(&back)), (30, 10));
        assert!(back.count("/health?size=3") >= 2);
        assert_eq!(back.seen.borrow()[0].field("host"), Some(MISSING));
    });
}

#[test]
fn with_all_servers_down_it_is_503_and_stored_responses_are_still_served() {
    let check = HealthCheck { path: "/h?status=500".into(), ..HealthCheck::default() };
    let config = || before(Group { health: Some(check.clone()), ..group(&[ORIGIN]) });
    each_way(config, async |world: Rc<World>| {
        let kept = "/kept?size=30&cc=max-age=1,stale-if-error=600";
        assert_eq!(try_get(kept.into()).await.unwrap().status, 200);
        sleep(Duration::from_secs(10)).await;
        let got = try_get(target(0)).await.unwrap();
        assert_eq!(got.status, 503);
        let text = String::from_utf8(got.body).unwrap();
        assert!(text.contains("every server of the upstream group is down"), "{text}");
        assert_eq!(try_get(kept.into()).await.unwrap().status, 200);
        assert_eq!(seen(&world.origin), 0);
    });
}

#[test]
fn a_server_gets_no_more_than_it_may_and_the_others_wait_their_turn() {
    let config = || {
        let mut group = group(&[ORIGIN]);
        group.servers[0].outstanding_max = Some(2);
        group.queue = Queue { length_max: 4, timeout: Duration::from_secs(60) };
        before(group)
    };
    each_way(config, async |world: Rc<World>| {
        let order = Rc::new(RefCell::new(Vec::new()));
        let asked: Vec<_> = (0..8)
            .map(|at| {
                let order = Rc::clone(&order);
                runtime::spawn(async move {
                    sleep(Duration::from_millis(100 * at)).await;
                    let target = format!("/q{at}?size=30&cc=no-store&delay=2000");
                    let status = try_get(target).await.unwrap().status;
                    order.borrow_mut().push((at, status));
                })
            })
            .collect();
        for one in asked {
            one.await;
        }
        let served: Vec<_> = order.borrow().iter().map(|(at, status)| (*at, *status)).collect();
        let expected =
            [(6, 503), (7, 503), (0, 200), (1, 200), (2, 200), (3, 200), (4, 200), (5, 200)];
        assert_eq!(served, expected);
        assert!(world.origin.connections.get() <= 2);
    });
}

#[test]
fn a_request_that_waits_too_long_gets_503_and_one_that_leaves_holds_no_place() {
    let config = || {
        let mut group = group(&[ORIGIN]);
        group.servers[0].outstanding_max = Some(1);
        group.queue = Queue { length_max: 10, timeout: Duration::from_secs(3) };
        before(group)
    };
    each_way(config, async |_: Rc<World>| {
        let long = || try_get("/q?size=30&cc=no-store&delay=5000".into());
        let first = runtime::spawn(long());
        sleep(Duration::from_millis(500)).await;
        let began = now();
        assert_eq!(try_get(target(0)).await.unwrap().status, 503);
        assert!((2_900..3_500).contains(&began.elapsed().as_millis()));
        sleep(Duration::from_millis(500)).await;
        // The next in the queue goes away; the one behind it is served.
        let leaver = runtime::spawn(try_get(target(1)));
        sleep(Duration::from_millis(100)).await;
        let stayer = runtime::spawn(try_get(target(2)));
        sleep(Duration::from_millis(100)).await;
        leaver.abort();
        assert_eq!(first.await.unwrap().status, 200);
        assert_eq!(stayer.await.unwrap().status, 200);
    });
}

#[test]
fn a_server_that_dies_within_its_answer_breaks_that_answer_alone() {
    each_way(
        || before(group(&[ORIGIN, SECOND])),
        async |world: Rc<World>| {
            let second = Origin::start(address(SECOND));
            let broken = "/b?size=4000&cc=no-store&reset=2000";
            assert!(try_get(broken.into()).await.is_err());
            assert_eq!(world.origin.count(broken) + second.count(broken), 1, "not asked again");
            ask(0, 20).await;
        },
    );
    // Killed again and again while requests come: who had nothing of an answer yet gets one from
    // the other server; no client gets a wrong response.
    sim::check(0..8, |seed| {
        let options = sim::Options::new(seed);
        each_version(&options, &before(group(&[ORIGIN, SECOND])), async |_: Rc<World>| {
            let _second = Origin::start(address(SECOND));
            let asking: Vec<_> = (0..100)
                .map(|at| format!("/k{at}?size=30&cc=no-store&delay={}", at % 20))
                .map(|target| runtime::spawn(try_get(target)))
                .collect();
            for _ in 0..5 {
                sleep(Duration::from_millis(4)).await;
                sim::crash_connections(address(SECOND));
            }
            let mut broken = 0;
            for (at, one) in asking.into_iter().enumerate() {
                let target = format!("/k{at}?size=30&cc=no-store&delay={}", at % 20);
                match one.await {
                    Ok(got) => assert_eq!((got.status, got.body), (200, expected(&target, None))),
                    Err(how) => broken += usize::from(how == Broken::Within),
                }
            }
            assert!(broken <= 5, "{broken}: only those that had begun");
        });
    });
}

#[test]
fn each_time_out_is_the_groups_own() {
    let times = Timeouts {
        connect: Some(Duration::from_secs(1)),
        first_byte: Some(Duration::from_secs(2)),
        idle: Some(Duration::from_secs(3)),
        total: Some(Duration::from_secs(10)),
    };
    let config = || before(Group { timeouts: times, ..group(&[ORIGIN]) });
    each_way(config, async |_: Rc<World>| {
        for (target, status, seconds) in [
            ("/f?size=30&delay=5000", Some(504), 2),
            ("/i?size=3000&cc=no-store&pause=5000", None, 3),
            // Never idle for long, but too long all in all.
            ("/l?size=30000&cc=no-store&drip=1000", None, 10),
        ] {
            let began = now();
            let got = try_get(target.into()).await.ok().map(|got| got.status);
            assert_eq!(got, status, "{target}");
            let took = began.elapsed().as_millis() as u64;
            assert!((1000 * seconds..1000 * seconds + 900).contains(&took), "{target}: {took}");
        }
    });
}

#[test]
fn a_server_that_stops_reading_a_body_has_its_time_once() {
    let (idle, first_byte) = (Some(Duration::from_secs(3)), Some(Duration::from_secs(30)));
    let timeouts = Timeouts { idle, first_byte, ..Timeouts::default() };
    let config = before(Group { timeouts, ..group(&[SECOND]) });
    run(sim::Options::new(1), config, async |_: Rc<World>| {
        let _never_accepts = TcpListener::bind(address(SECOND), &ListenOptions::default()).unwrap();
        let head = "PUT /u HTTP/1.1\r\nHost: site\r\nContent-Length: 300000\r\n\r\n";
        let request = [head.as_bytes(), &[b'x'; 300_000]].concat();
        let mut client = Client::new().await;
        let began = now();
        let (_, got) = runtime::join(client.sending(&request), client.response()).await;
        assert_eq!(got.unwrap().status, 504);
        assert!((3000..3900).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    });
}

#[test]
fn failures_by_status_do_not_count_if_configured_so() {
    let ejection = Ejection { failures: 3, statuses: vec![503], ..Ejection::default() };
    let config = || before(Group { ejection: ejection.clone(), ..group(&[ORIGIN, SECOND]) });
    each_way(config, async |world: Rc<World>| {
        let second = Origin::start(address(SECOND));
        for _ in 0..6 {
            let _ = try_get("/s?status=503&cc=no-store".into()).await;
        }
        let before = (world.origin.seen.borrow().len(), second.seen.borrow().len());
        assert_eq!(before, (3, 3));
        ask(0, 10).await;
        let split = (seen(&world.origin), seen(&second));
        assert!(split == (10, 0) || split == (0, 10), "one, and never both: {split:?}");
    });
}

#[test]
fn the_state_of_the_servers_is_reported() {
    let config = || {
        let mut group = group(&[ORIGIN, MISSING]);
        group.servers[0].weight = 2;
        before(group)
    };
    each_way(config, async |world: Rc<World>| {
        ask(0, 30).await;
        let metrics = world.metrics().await;
        let value = |name: &str, server: &str| {
            let name = format!("plimsoll_upstream_{name}{{group=\"g\",server=\"{server}\"}}");
            metrics.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no {name}")).1
        };
        assert_eq!((value("server_up", ORIGIN), value("server_up", MISSING)), (1, 0));
        assert_eq!(value("server_requests_total", ORIGIN), 30);
        assert_eq!(value("server_connects_total", ORIGIN), 1);
        assert_eq!(value("server_reuses_total", ORIGIN), 29);
        assert_eq!(value("server_failures_total", MISSING), 5);
        assert_eq!(value("server_ejections_total", MISSING), 1);
        let mut admin = Client::to(ADMIN).await.unwrap();
        let got = admin.ask(b"GET /upstreams HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(got.field("content-type"), Some("application/json"));
        let report: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
        let servers = &report["groups"][0]["servers"];
        assert_eq!(servers[0]["state"], "up");
        assert_eq!(servers[1]["state"], "ejected");
        assert_eq!(servers[1]["addresses"][0], MISSING);
        assert_eq!(report["groups"][0]["retries"], 5);
    });
}
