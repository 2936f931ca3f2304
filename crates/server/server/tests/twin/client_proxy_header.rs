//! The PROXY protocol on a listener: which address counts, which peers are trusted, and what is
//! refused.

use std::rc::Rc;
use std::time::Duration;

use config::Quota;
use runtime::sim;
use runtime::time::{now, sleep};
use server::Config;
use transport::proxy_protocol::{Ends, append_v1, append_v2};

use crate::tls_client::{TlsClient, client_config, reverse_tls};
use crate::world::{Client, PROXY, World, each_way_http1, each_way_tcp, reverse, run};

const SECOND: Duration = Duration::from_secs(1);
/// The network of the twin's clients.
const CLIENTS: &str = "127.0.0.0/8";

fn trusting(mut config: Config, networks: &str) -> Config {
    for listener in &mut config.listeners {
        listener.proxies = Some(vec![networks.parse().unwrap()]);
    }
    config
}

fn header(append: fn(&mut Vec<u8>, Ends)) -> Vec<u8> {
    let mut out = Vec::new();
    let source = "192.0.2.7:4711".parse().unwrap();
    append(&mut out, Ends { source, destination: "198.51.100.1:80".parse().unwrap() });
    out
}

const REQUEST: &[u8] = b"GET /p?size=9 HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n";

#[test]
fn the_client_of_the_header_is_logged() {
    each_way_tcp(
        || trusting(reverse(), CLIENTS),
        async |world: Rc<World>| {
            for append in [append_v1, append_v2] {
                let mut client = Client::new().await;
                client.stream().write_all(&header(append)).await.unwrap();
                assert_eq!(client.ask(REQUEST).await.status, 200);
            }
            // The proxy in front of us sends its own request: a health check.
            for own in [&b"PROXY UNKNOWN\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
                let mut client = Client::new().await;
                client.stream().write_all(own).await.unwrap();
                assert_eq!(client.ask(REQUEST).await.status, 200);
            }
            world.stopped().await;
            let log = String::from_utf8(world.log.lock().unwrap().clone()).unwrap();
            let named = |line: &str| line.contains(" 192.0.2.7 ");
            assert_eq!(log.lines().map(named).collect::<Vec<_>>(), [true, true, false, false]);
        },
    );
}

#[test]
fn a_header_cut_at_every_byte() {
    let run_it = async |_: Rc<World>| {
        for append in [append_v1, append_v2] {
            let all = [&header(append), REQUEST].concat();
            for cut in 1..all.len() {
                let mut client = Client::new().await;
                client.send(&all[..cut]).await.unwrap();
                sleep(SECOND / 10).await;
                client.send(&all[cut..]).await.unwrap();
                assert_eq!(client.response().await.unwrap().status, 200, "cut at {cut}");
            }
        }
    };
    run(sim::Options::new(1), trusting(reverse(), CLIENTS), run_it);
}

#[test]
fn a_connection_without_its_header_is_refused() {
    each_way_http1(
        || trusting(reverse(), CLIENTS),
        async |world: Rc<World>| {
            for wrong in [REQUEST, b"PROXY TCP4 1.2.3.4\r\n", b"PROXY TCP4 1.2.3.4 2.3.4.5 1 2\n"] {
                let mut client = Client::new().await;
                let _ = client.send(wrong).await;
                assert!(client.response().await.is_err());
            }
            assert_eq!(world.counter("proxy_headers_refused"), 3);
            assert_eq!((world.counter("connections_denied"), world.counter("requests")), (3, 0));
            // A header that takes too long ends the connection too.
            let begun = now();
            let mut slow = Client::new().await;
            slow.send(b"PROXY ").await.unwrap();
            assert!(slow.response().await.is_err());
            assert!((9..=10).contains(&begun.elapsed().as_secs()));
        },
    );
}

#[test]
fn a_header_from_another_network_is_refused() {
    each_way_tcp(
        || trusting(reverse(), "192.0.2.0/24"),
        async |world: Rc<World>| {
            let mut client = Client::new().await;
            let _ = client.stream().write_all(&header(append_v1)).await;
            let _ = client.send(REQUEST).await;
            assert!(client.response().await.is_err());
            assert_eq!(world.counter("proxy_headers_refused"), 1);
        },
    );
}

#[test]
fn the_header_comes_before_tls() {
    each_way_http1(
        || trusting(reverse_tls(), CLIENTS),
        async |world: Rc<World>| {
            let mut client = TlsClient::connect(&client_config()).await;
            client.stream.write_all(&header(append_v2)).await.unwrap();
            client.handshake().await;
            assert_eq!(client.get("/p?size=9", "").await.status, 200);
            world.stopped().await;
            let log = String::from_utf8(world.log.lock().unwrap().clone()).unwrap();
            assert!(log.contains(" 192.0.2.7 "), "{log}");
        },
    );
}

/// A client above its quota got a handshake of TLS before it was counted.
#[test]
fn the_client_of_the_header_is_counted_before_its_handshake() {
    let mut config = trusting(reverse_tls(), CLIENTS);
    config.quotas = vec![Quota { name: "q".into(), connections: Some(1), ..Quota::default() }];
    run(sim::Options::new(1), config, async |world: Rc<World>| {
        let from_client = async || {
            let client = Client::to(PROXY).await.unwrap();
            client.send(&header(append_v2)).await.unwrap();
            client
        };
        let _first = from_client().await;
        sleep(SECOND / 10).await;
        let began = now();
        // It says nothing after the header, and is closed all the same.
        assert!(from_client().await.response().await.is_err());
        assert!(began.elapsed() < SECOND);
        let counted = |name| world.counter(name);
        assert_eq!((counted("tls_handshakes"), counted("timeouts")), (0, 0));
    });
}
