//! The stop: requests in flight finish, idle connections close, and every request gets a response.

use std::rc::Rc;
use std::time::Duration;

use runtime::net::{ListenOptions, TcpListener};
use runtime::sim;
use runtime::stop::StopSource;
use runtime::time::{now, sleep};
use server::{Core, LogTo};

use crate::origin::{Origin, expected};
use crate::world::{Client, ORIGIN, PROXY, PROXY_TOO, World, address, each_way, reverse, run};

#[test]
fn requests_in_flight_finish_and_idle_connections_close() {
    each_way(reverse, async |world: Rc<World>| {
        let mut idle = Client::new().await;
        idle.get("/i?size=3&cc=max-age=60", "").await;
        let mut tasks = Vec::new();
        for target in [
            "/slow?size=2000&delay=3000&cc=no-store",
            "/slow?size=2000&delay=3000&cc=max-age=60",
            "/slow?size=2000&pause=3000&cc=max-age=60",
            "/slow?size=2000&pause=3000&cc=no-store&frame=chunked",
        ] {
            for _ in 0..3 {
                tasks.push(runtime::spawn(async move {
                    let mut client = Client::new().await;
                    let got = client.get(target, "").await;
                    assert_eq!((got.status, &got.body), (200, &expected(target, None)));
                    assert!(client.ends().await);
                    !client.is_http1() || got.field("connection") == Some("close")
                }));
            }
        }
        // Handshakes of HTTP/3 may take some attempts.
        while idle.is_http3() && world.counter("tls_handshakes") < 13 {
            sleep(Duration::from_millis(100)).await;
        }
        sleep(Duration::from_secs(1)).await;
        let start = now();
        world.stop.stop();
        // A client of HTTP/3 may have to find out by itself, if the server's last word is lost.
        if !idle.is_http3() {
            assert!(idle.ends().await);
            assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        }
        world.stopped().await;
        // What could not be stored was asked for again by those who had waited for it.
        assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
        assert!(idle.ends().await);
        for (at, one) in tasks.into_iter().enumerate() {
            let is_announced = one.await;
            // Responses whose head had not been sent could still announce the close.
            assert!(at >= 6 || is_announced, "{at}");
        }
        if let Ok(mut late) = Client::to(PROXY).await {
            // The socket of HTTP/3 is open for a while, and new clients are refused.
            assert!(late.is_http3() && late.ends().await, "the listener is closed");
        }
    });
}

/// Requests that had reached the machine when the stop came, whether or not the core knew of them.
#[test]
fn a_request_that_came_before_the_stop_is_answered() {
    each_way(reverse, async |world: Rc<World>| {
        let target = "/q?size=10&cc=max-age=60";
        let mut asked = Vec::new();
        for _ in 0..10 {
            let client = Client::new().await;
            client
                .send(format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n").as_bytes())
                .await
                .unwrap();
            asked.push(client);
        }
        // Long enough for the last byte to arrive.
        sleep(Duration::from_millis(2000)).await;
        let mut late = Vec::new();
        for client in &mut asked {
            assert_eq!(client.response().await.unwrap().status, 200);
        }
        for client in asked {
            client
                .send(format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n").as_bytes())
                .await
                .unwrap();
            late.push(client);
        }
        sleep(Duration::from_millis(2000)).await;
        world.stopped().await;
        for mut client in late {
            assert_eq!(client.response().await.unwrap().body, expected(target, None));
            assert!(client.ends().await);
        }
    });
}

/// As close to the stop as can be: accepted by the system, not yet by the core.
#[test]
fn a_connection_in_the_backlog_is_answered() {
    let at_once = sim::Options::new(5).with_delay(Duration::ZERO..Duration::from_nanos(1));
    run(at_once, reverse(), async |world: Rc<World>| {
        let mut asked = Vec::new();
        for _ in 0..300 {
            asked.push(runtime::spawn(async {
                let mut client = Client::new().await;
                client.get("/b?size=4&cc=max-age=60", "").await.status
            }));
        }
        // They have connected and sent; the core is stopped in the same turn.
        while world.counter("connections_accepted") == 0 {
            runtime::yield_now().await;
        }
        world.stopped().await;
        let mut answered = 0;
        for one in asked {
            answered += u32::from(one.await == 200);
        }
        assert_eq!(answered, 300);
    });
}

#[test]
fn a_drain_ends_after_its_time() {
    each_way(reverse, async |world: Rc<World>| {
        let client = Client::new().await;
        client.send(b"GET /s?silent=1 HTTP/1.1\r\nHost: site\r\n\r\n").await.unwrap();
        let partial = Client::new().await;
        partial.send(b"GET /s").await.unwrap();
        sleep(Duration::from_secs(1)).await;
        let start = now();
        world.stopped().await;
        assert!((30..=31).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
        // The unfinished head had its own time-out, and its answer may still be on its way; the
        // rest ends with the runtime, or is closed.
        let open = world.counter("connections_open");
        assert!((1..=2).contains(&open) || open == 0 && client.is_http3(), "{open}");
        world.cut.set(true);
        drop((client, partial));
    });
}

/// Two cores that share their fetches; the one that fetches has no clients left when it has to
/// stop, but the other's client is still reading along.
#[test]
fn a_core_does_not_end_before_the_requests_that_share_its_fetch() {
    sim::check(0..4, |seed| {
        let mut runtime = runtime::Runtime::simulated(sim::Options::new(seed));
        runtime.block_on(async {
            let _origin = Origin::start(address(ORIGIN));
            let stops = [StopSource::new(), StopSource::new()];
            let config = reverse();
            let listeners = config.listeners.clone();
            let cores = Core::of(config, 2, &LogTo::Off);
            let mut running = Vec::new();
            for ((core, of), stop) in cores.into_iter().zip(listeners).zip(&stops) {
                let socket = TcpListener::bind(of.address, &ListenOptions::default()).unwrap();
                running.push(runtime::spawn(core.run(
                    vec![(socket, of)],
                    Vec::new(),
                    None,
                    stop.token(),
                )));
            }
            let target = "/long?size=5000&cc=max-age=60&drip=1000";
            let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
            let leader = Client::to(PROXY).await.unwrap();
            leader.send(request.as_bytes()).await.unwrap();
            sleep(Duration::from_secs(1)).await;
            let mut follower = Client::to(PROXY_TOO).await.unwrap();
            follower.send(request.as_bytes()).await.unwrap();
            sleep(Duration::from_secs(1)).await;
            leader.abort();
            stops[0].stop();
            sleep(Duration::from_secs(5)).await;
            // The leader's end has been seen: only the other core's client holds it.
            assert!(!running[0].is_finished());
            assert_eq!(follower.response().await.unwrap().body, expected(target, None));
            sleep(Duration::from_secs(1)).await;
            assert!(running[0].is_finished());
            stops[1].stop();
            for core in running {
                core.await;
            }
        });
    });
}
