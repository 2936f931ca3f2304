//! HTTP/3 where datagrams matter: they are lost, reordered and duplicated, and come from elsewhere.

use std::rc::Rc;
use std::time::Duration;

use runtime::sim;
use runtime::time::{now, sleep};

use crate::origin::expected;
use crate::world::{Client, PROXY_TOO, Version, World, over, reverse, run, with};

const SECOND: Duration = Duration::from_secs(1);

/// Runs a scenario on networks with bad datagrams.
fn on_bad_networks(seeds: std::ops::Range<u64>, scenario: impl AsyncFn(Rc<World>)) {
    over(Version::Http3, || {
        sim::check(seeds, |seed| {
            let options = sim::Options::new(seed).with_bad_datagrams();
            run(options, reverse(), &scenario);
        });
    });
}

async fn ask(client: &Client, target: &str) {
    let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
    client.send(request.as_bytes()).await.unwrap();
}

#[test]
fn every_handshake_is_completed_with_a_third_of_the_datagrams_lost() {
    over(Version::Http3, || {
        sim::check(0..4, |seed| {
            // With a shorter delay a client sends so many probes that the pause between them, which
            // doubles each time, exceeds the time-out of the handshake.
            let delay = Duration::from_millis(5)..Duration::from_millis(25);
            let mut options = sim::Options::new(seed).with_delay(delay).with_bad_datagrams();
            options.loss = 0.3;
            run(options, reverse(), async |world: Rc<World>| {
                // One after the other, so that a server that is slow for one does not count.
                for at in 1..=8 {
                    let mut client = Client::new().await;
                    assert_eq!(client.get("/h?size=10&cc=max-age=600", "").await.status, 200);
                    assert_eq!(world.counter("tls_handshakes"), at);
                }
                assert_eq!(world.counter("tls_failures_slow"), 0);
            });
        });
    });
}

#[test]
fn large_bodies_arrive_whole_both_ways() {
    on_bad_networks(0..4, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for _ in 0..2 {
            let target = "/large?size=100000&cc=max-age=600";
            let got = client.get(target, "").await;
            assert_eq!((got.status, got.body == expected(target, None)), (200, true));
        }
        assert_eq!(world.counter("hits"), 1);
        let body = crate::common::content("sent", 100_000);
        let head = b"POST /up?duplex=1 HTTP/1.1\r\nHost: site\r\nContent-Length: 100000\r\n\r\n";
        assert!(client.ask(&[&head[..], &body].concat()).await.body == body);
    });
}

#[test]
fn many_requests_at_once_are_answered_each_with_its_own() {
    on_bad_networks(0..2, async |_: Rc<World>| {
        let mut client = Client::new().await;
        let targets: Vec<_> = (0..300).map(|at| format!("/m{}?size=700", at % 7)).collect();
        let one = |target: &String| format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
        let text: String = targets.iter().map(one).collect();
        let got = client.pipeline(text.as_bytes(), targets.len()).await;
        for (response, target) in got.iter().zip(&targets) {
            assert_eq!(response.body, expected(target, None));
        }
    });
}

/// A client that has gone acknowledges nothing and says nothing.
#[test]
fn a_client_that_vanishes_is_forgotten_with_all_that_was_held_for_it() {
    on_bad_networks(0..3, async |world: Rc<World>| {
        for target in ["/v?size=600000&cc=no-store", "/v?size=600000&cc=max-age=600", "/v?silent=1"]
        {
            let mut idle = Client::new().await;
            assert_eq!(idle.get("/i?size=10", "").await.status, 200);
            let reading = Client::new().await;
            ask(&reading, target).await;
            sleep(SECOND).await;
            let _ = reading.take(1000).await;
            assert_eq!(world.counter("connections_open"), 2);
            idle.http3().vanish();
            reading.http3().vanish();
            // A response that is not taken is reset after 60 seconds, and a connection without
            // requests ends after 75.
            sleep(140 * SECOND).await;
            assert_eq!(world.counter("connections_open"), 0, "{target}");
            assert_eq!(world.counter("client_held_bytes"), 0, "{target}");
        }
    });
}

/// On a long way, small messages always have something that is not acknowledged yet. Their rate was
/// taken for that of a slow client.
#[test]
fn a_client_of_small_messages_on_a_long_way_is_not_slow() {
    let config = with(reverse, |config| config.limits.rate_min = 2000);
    over(Version::Http3, || {
        let delay = Duration::from_millis(400)..Duration::from_millis(401);
        run(sim::Options::new(1).with_delay(delay), config(), async |world: Rc<World>| {
            let mut client = Client::new().await;
            let target = "/slow?size=40000&cc=no-store&drip=700";
            assert!(client.get(target, "").await.body == expected(target, None));
            assert_eq!(world.counter("timeouts"), 0);
        });
    });
}

#[test]
fn a_stream_that_is_not_read_ends_alone() {
    on_bad_networks(0..2, async |world: Rc<World>| {
        let mut client = Client::new().await;
        ask(&client, "/unread?size=600000&cc=no-store").await;
        sleep(80 * SECOND).await;
        assert_eq!(world.counter("timeouts"), 1);
        assert!(client.response().await.is_err());
        assert_eq!(client.get("/after?size=10", "").await.status, 200);
        assert_eq!(world.counter("tls_handshakes"), 1);
    });
}

#[test]
fn a_client_that_moves_keeps_its_connection_and_its_response() {
    on_bad_networks(0..4, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let target = "/moving?size=60000&cc=no-store&drip=1000";
        let mut addresses = vec![client.local_addr()];
        ask(&client, target).await;
        for _ in 0..3 {
            sleep(2 * SECOND).await;
            client.http3().migrate();
            addresses.push(client.local_addr());
        }
        assert!(client.response().await.unwrap().body == expected(target, None));
        assert_eq!(client.get("/after?size=10", "").await.status, 200);
        addresses.dedup();
        assert_eq!((addresses.len(), world.counter("tls_handshakes")), (4, 1));
    });
}

#[test]
fn a_drain_on_a_bad_network_lets_requests_finish() {
    on_bad_networks(0..4, async |world: Rc<World>| {
        let mut idle = Client::new().await;
        assert_eq!(idle.get("/i?size=10", "").await.status, 200);
        let mut tasks = Vec::new();
        for at in 0..10 {
            tasks.push(runtime::spawn(async move {
                let target = format!("/d{at}?size=30000&cc=no-store&pause=3000");
                let mut client = Client::new().await;
                assert!(client.get(&target, "").await.body == expected(&target, None));
                assert!(client.ends().await);
            }));
        }
        // Handshakes may take some attempts.
        while world.origin.seen.borrow().len() < 11 {
            sleep(SECOND / 10).await;
        }
        world.stop.stop();
        assert!(idle.ends().await);
        for task in tasks {
            task.await;
        }
        world.stopped().await;
        assert_eq!(world.counter("connections_open"), 0);
    });
}

/// The client says nothing while it waits, which during a drain was taken for its absence.
#[test]
fn a_drain_cuts_no_response_that_comes_late() {
    over(Version::Http3, || {
        run(sim::Options::new(1), reverse(), async |world: Rc<World>| {
            let mut client = Client::new().await;
            let target = "/late?size=2000&delay=9000&cc=no-store";
            ask(&client, target).await;
            sleep(SECOND).await;
            world.stop.stop();
            assert_eq!(client.response().await.unwrap().body, expected(target, None));
            assert!(client.ends().await);
        });
    });
}

/// A client that had been silent for longer than the linger time was not informed: a request that
/// crossed the end would have been lost, or repeated although it was processed.
#[test]
fn a_drain_sends_goaway_to_a_silent_client() {
    on_bad_networks(0..4, async |world: Rc<World>| {
        let mut client = Client::new().await;
        assert_eq!(client.get("/i?size=10", "").await.status, 200);
        sleep(10 * SECOND).await;
        world.stop.stop();
        assert!(client.ends().await && client.http3().is_closing());
    });
}

/// The idle time-out of QUIC, which neither side mentions to the other, came first.
#[test]
fn an_idle_connection_is_closed_with_a_word() {
    let config = with(reverse, |config| config.limits.tunnel_idle = SECOND);
    over(Version::Http3, || {
        sim::check(0..5, |seed| {
            run(sim::Options::new(seed), config(), async |_: Rc<World>| {
                let mut client = Client::new().await;
                assert_eq!(client.get("/i?size=10", "").await.status, 200);
                let start = now();
                assert!(client.ends().await && !client.http3().has_timed_out());
                assert!((74..=76).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
            });
        });
    });
}

/// Times and sizes of all datagrams, and all else, although keys are random.
#[test]
fn a_history_is_repeated_from_its_seed() {
    let history = |seed| {
        let hash = std::cell::Cell::new(0);
        let options = sim::Options::rough(seed).with_bad_datagrams();
        run(options, reverse(), async |world: Rc<World>| {
            let clients: Vec<_> = (0..4)
                .map(|at| {
                    runtime::spawn(async move {
                        let mut client = Client::over(Version::Http3, PROXY_TOO).await.unwrap();
                        let target = format!("/h?size={}&cc=no-store", 8_000 * at);
                        assert_eq!(client.get(&target, "").await.status, 200);
                    })
                })
                .collect();
            for client in clients {
                client.await;
            }
            world.stopped().await;
            hash.set(sim::trace_hash());
        });
        hash.get()
    };
    sim::check(0..2, |seed| assert_eq!(history(seed), history(seed)));
    assert_ne!(history(0), history(1));
}
