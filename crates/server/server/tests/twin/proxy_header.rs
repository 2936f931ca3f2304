//! The PROXY protocol towards servers: which client the header names, and that no connection whose
//! header named one client is ever used for another.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use config::{Group, HealthCheck, Path, ProxyHeader, Route};
use runtime::net::{ListenOptions, TcpListener};
use runtime::time::sleep;
use server::{Config, Origin as OriginUrl};
use transport::proxy_protocol::{Ends, append_v1, append_v2, parse_header};

use crate::world::{
    Client, ORIGIN, PROXY, World, address, each_way, each_way_http1, each_way_tcp, reverse,
};

const BOTH: [ProxyHeader; 2] = [ProxyHeader::V1, ProxyHeader::V2];

fn group(name: &str, at: &str, proxy_header: ProxyHeader) -> Group {
    Group { proxy_header, ..Group::of(name, [OriginUrl::at(address(at))]) }
}

fn with_header(header: ProxyHeader) -> Config {
    Config { groups: vec![group("g", ORIGIN, header)], ..reverse() }
}

/// The connections on which requests arrived, with the ends that each header named.
fn named_ends(world: &World) -> Vec<(usize, Option<Ends>)> {
    let seen = world.origin.seen.borrow();
    let ends = |header: transport::proxy_protocol::Header| header.ends;
    seen.iter().map(|seen| (seen.connection, ends(seen.proxy_header.expect("a header")))).collect()
}

fn ends_of(client: &Client) -> Option<Ends> {
    let source = client.local_addr();
    Some(Ends { source, destination: address(PROXY) })
}

#[test]
fn each_request_has_its_own_connection_that_names_its_client() {
    for header in BOTH {
        each_way(
            || with_header(header),
            async |world: Rc<World>| {
                let (mut one, mut other) = (Client::new().await, Client::new().await);
                let post = "POST /p HTTP/1.1\r\nHost: s\r\nContent-Length: 5\r\n\r\nhello";
                let mut expected = Vec::new();
                for client in [&mut one, &mut other] {
                    let at = ends_of(client);
                    for target in ["/a?size=30&cc=no-store", "/a?size=30&cc=no-store"] {
                        assert_eq!(client.get(target, "").await.status, 200);
                    }
                    assert_eq!(client.ask(post.as_bytes()).await.body, b"hello");
                    expected.extend([at; 3]);
                }
                // A stored response is fetched for the first client.
                for client in [&mut one, &mut other] {
                    let got = client.get("/s?size=30&cc=max-age=60", "").await;
                    assert_eq!(got.status, 200);
                }
                expected.push(ends_of(&one));
                let expected: Vec<_> = expected.into_iter().enumerate().collect();
                let numbered: Vec<_> = expected.iter().map(|(at, ends)| (at + 1, *ends)).collect();
                assert_eq!(named_ends(&world), numbered);
                let counted = ["upstream_connects", "upstream_reuses", "upstream_idle"];
                assert_eq!(counted.map(|name| world.counter(name)), [7, 0, 0]);
            },
        );
    }
}

/// The received header is passed on unchanged: both ends of the client's connection.
#[test]
fn the_client_of_a_received_header_is_passed_on() {
    let config = |header| {
        let mut config = with_header(header);
        for listener in &mut config.listeners {
            listener.proxies = Some(vec!["127.0.0.0/8".parse().unwrap()]);
        }
        config
    };
    let ends = |source: &str, destination: &str| Ends {
        source: address(source),
        destination: address(destination),
    };
    let known = [
        ends("192.0.2.7:4711", "198.51.100.1:443"),
        ends("[2001:db8::7]:4711", "[2001:db8::1]:443"),
        // The port is passed on even if it is 0.
        ends("192.0.2.8:0", "198.51.100.1:65535"),
    ];
    for header in BOTH {
        each_way_tcp(
            || config(header),
            async |world: Rc<World>| {
                let request = b"GET /a?size=3&cc=no-store HTTP/1.1\r\nHost: s\r\n\r\n";
                for ends in known {
                    for append in [append_v1, append_v2] {
                        let mut bytes = Vec::new();
                        append(&mut bytes, ends);
                        let mut client = Client::new().await;
                        client.stream().write_all(&bytes).await.unwrap();
                        assert_eq!(client.ask(request).await.status, 200);
                        assert_eq!(named_ends(&world).last().unwrap().1, Some(ends));
                    }
                }
                // A proxy in front of us that sends its own request is itself the client.
                let mut client = Client::new().await;
                client.stream().write_all(b"PROXY UNKNOWN\r\n").await.unwrap();
                assert_eq!(client.ask(request).await.status, 200);
                assert_eq!(named_ends(&world).last().unwrap().1, ends_of(&client));
            },
        );
    }
}

#[test]
fn a_health_check_names_no_client() {
    let check = HealthCheck { path: "/health?size=3".into(), ..HealthCheck::default() };
    for header in BOTH {
        let config = || {
            let group = group("g", ORIGIN, header);
            Config { groups: vec![Group { health: Some(check.clone()), ..group }], ..reverse() }
        };
        each_way(config, async |world: Rc<World>| {
            sleep(Duration::from_secs(9)).await;
            let ends = named_ends(&world);
            assert!(ends.len() >= 3, "{ends:?}");
            assert!(ends.iter().all(|(_, ends)| ends.is_none()), "{ends:?}");
        });
    }
}

/// Two groups with the same server: neither uses a connection of the other.
#[test]
fn connections_with_and_without_a_header_are_never_mixed() {
    let route =
        |prefix: &str, to: &str| Route { path: Path::Prefix(prefix.into()), ..Route::to(to) };
    let config = || {
        let plain = group("plain", ORIGIN, ProxyHeader::None);
        let groups = vec![plain, group("named", ORIGIN, ProxyHeader::V2)];
        Config { groups, routes: vec![route("/", "plain"), route("/named", "named")], ..reverse() }
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for _ in 0..3 {
            for (target, with) in [("/plain?cc=no-store", false), ("/named?cc=no-store", true)] {
                assert_eq!(client.get(target, "").await.status, 200);
                assert_eq!(world.origin.last().proxy_header.is_some(), with, "{target}");
            }
        }
        assert_eq!(world.origin.connections.get(), 4, "one for the plain, one each for the others");
    });
}

/// A server that accepts any upgrade after a PROXY header and echoes what it receives.
fn start_agreeing(at: SocketAddr, received: Rc<std::cell::RefCell<Vec<Option<Ends>>>>) {
    let listener = TcpListener::bind(at, &ListenOptions::default()).unwrap();
    let serving = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut got = Vec::new();
            let mut piece = [0; 500];
            while !got.ends_with(b"\r\n\r\n") || parse_header(&got).unwrap().is_none() {
                let read = stream.read(&mut piece).await.unwrap();
                got.extend_from_slice(&piece[..read]);
            }
            received.borrow_mut().push(parse_header(&got).unwrap().unwrap().ends);
            let answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                           Connection: Upgrade\r\n\r\n";
            stream.write_all(answer).await.unwrap();
            while let Ok(read @ 1..) = stream.read(&mut piece).await {
                stream.write_all(&piece[..read]).await.unwrap();
            }
        }
    };
    runtime::spawn(serving).detach();
}

#[test]
fn a_tunnel_begins_with_the_header_too() {
    const AGREEING: &str = "10.0.0.3:80";
    let config = || Config { groups: vec![group("g", AGREEING, ProxyHeader::V1)], ..reverse() };
    each_way_http1(config, async |_: Rc<World>| {
        let received = Rc::default();
        start_agreeing(address(AGREEING), Rc::clone(&received));
        let client = Client::new().await;
        let request = b"GET /ws HTTP/1.1\r\nHost: s\r\nConnection: Upgrade\r\n\
                        Upgrade: websocket\r\n\r\n";
        client.send(request).await.unwrap();
        let (mut got, mut piece) = (Vec::new(), [0; 500]);
        while !got.ends_with(b"echo") {
            let read = client.stream().read(&mut piece).await.unwrap();
            assert!(read > 0, "{}", got.escape_ascii());
            got.extend_from_slice(&piece[..read]);
            if got.ends_with(b"\r\n\r\n") {
                client.send(b"echo").await.unwrap();
            }
        }
        assert!(got.starts_with(b"HTTP/1.1 101 "), "{}", got.escape_ascii());
        assert_eq!(*received.borrow(), [ends_of(&client)]);
    });
}
