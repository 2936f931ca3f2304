//! Tunnels: CONNECT and upgraded connections, between simulated clients and servers.

use std::cell::{Cell, RefCell};
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

use runtime::net::{ListenOptions, TcpListener, TcpStream};
use runtime::sim;
use runtime::time::sleep;
use server::{Config, Origin, Users};

use crate::common::content;
use crate::dns::{NameServer, SERVER};
use crate::origin::expected;
use crate::world::{
    Client, World, address, each_version, each_way_http1 as each_way, forward, reverse, run, with,
};

/// A server that does what a test wants with each connection.
pub(crate) struct Peer {
    connections: Cell<usize>,
    /// What it was sent, all connections together.
    pub(crate) got: RefCell<Vec<u8>>,
}

pub(crate) const PEER: &str = "10.0.0.5:443";
const WEB: &str = "10.0.0.5:8080";

impl Peer {
    pub(crate) fn start(at: &str, serve: impl AsyncFn(&Peer, TcpStream) + 'static) -> Rc<Peer> {
        let peer = Rc::new(Peer { connections: Cell::new(0), got: RefCell::default() });
        let listener = TcpListener::bind(address(at), &ListenOptions::default()).unwrap();
        let (serving, serve) = (Rc::clone(&peer), Rc::new(serve));
        runtime::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                serving.connections.set(serving.connections.get() + 1);
                let (peer, serve) = (Rc::clone(&serving), Rc::clone(&serve));
                runtime::spawn(async move { serve(&peer, stream).await }).detach();
            }
        })
        .detach();
        peer
    }

    /// Sends back what it gets, and its end.
    pub(crate) fn echo(at: &str) -> Rc<Peer> {
        Peer::start(at, async |peer, stream| {
            let mut piece = [0; 5000];
            while let Ok(read @ 1..) = stream.read(&mut piece).await {
                peer.got.borrow_mut().extend_from_slice(&piece[..read]);
                if stream.write_all(&piece[..read]).await.is_err() {
                    return;
                }
            }
        })
    }
}

/// All until the end; whether the end was no error.
pub(crate) async fn all_of(stream: &TcpStream) -> (Vec<u8>, bool) {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut piece).await {
            Ok(0) => return (all, true),
            Ok(read) => all.extend_from_slice(&piece[..read]),
            Err(_) => return (all, false),
        }
    }
}

async fn exactly(stream: &TcpStream, bytes: usize) -> Vec<u8> {
    let mut got = vec![0; bytes];
    stream.read_exact(&mut got).await.unwrap();
    got
}

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Asks for a tunnel, with these bytes right behind the request.
async fn connect(to: &str, behind: &[u8]) -> Rc<TcpStream> {
    let client = Client::new().await;
    let head = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
    client.send(&[head.as_bytes(), behind].concat()).await.unwrap();
    assert_eq!(exactly(client.stream(), ESTABLISHED.len()).await, ESTABLISHED);
    Rc::clone(client.stream())
}

/// Anything may go through.
pub(crate) fn open() -> Config {
    let mut config = forward();
    config.forward.check_server_name = false;
    config.forward.connect_ports = vec!["1-65535".parse().unwrap()];
    config
}

#[test]
fn a_tunnel_carries_all_bytes_both_ways_and_both_ends() {
    each_way(open, async |world: Rc<World>| {
        let peer = Peer::echo(PEER);
        let sent = content("up", 40_000);
        let stream = connect(PEER, &sent[..300]).await;
        let sending = async {
            stream.write_all(&sent[300..]).await.unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        };
        let ((), (got, well)) = runtime::join(sending, all_of(&stream)).await;
        assert!(well && got == sent && *peer.got.borrow() == sent);
        drop(stream);
        sleep(Duration::from_secs(1)).await;
        for (name, count) in [
            ("tunnels", 1),
            ("tunnels_open", 0),
            ("tunnel_bytes_sent", 40_000),
            ("tunnel_bytes_received", 40_000),
        ] {
            assert_eq!(world.counter(name), count, "{name}");
        }
        world.stopped().await;
        let log = String::from_utf8(world.log.lock().unwrap().clone()).unwrap();
        let bytes = 40_000 + ESTABLISHED.len();
        let line = format!(" TCP_TUNNEL/200 {bytes} CONNECT {PEER} - HIER_DIRECT/10.0.0.5 -");
        assert!(log.contains(&line), "{log}");
    });
}

#[test]
fn a_burst_through_a_tunnel_is_not_copied() {
    sim::check(0..4, |seed| {
        run(sim::Options::new(seed), open(), async |world: Rc<World>| {
            let _peer = Peer::echo(PEER);
            let sent = content("burst", 400_000);
            let stream = connect(PEER, b"").await;
            let sending = async {
                stream.write_all(&sent).await.unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            };
            let ((), (got, well)) = runtime::join(sending, all_of(&stream)).await;
            assert!(well && got == sent);
            sleep(Duration::from_secs(1)).await;
            for (name, least) in [
                ("spliced_bytes", 100_000),
                ("tunnel_bytes_sent", 400_000),
                ("tunnel_bytes_received", 400_000),
                ("upstream_received_bytes", 400_000),
            ] {
                assert!(world.counter(name) >= least, "{name} {}", world.counter(name));
            }
        });
    });
}

#[test]
fn the_servers_end_leaves_the_clients_direction_open() {
    each_way(open, async |_: Rc<World>| {
        let peer = Peer::start(PEER, async |peer, stream| {
            stream.write_all(b"that is all from me").await.unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let (got, well) = all_of(&stream).await;
            assert!(well);
            peer.got.borrow_mut().extend(got);
        });
        let stream = connect(PEER, b"").await;
        assert_eq!(all_of(&stream).await, (b"that is all from me".to_vec(), true));
        stream.write_all(b"but not from me").await.unwrap();
        sleep(Duration::from_secs(60)).await;
        stream.write_all(b", yet").await.unwrap();
        drop(stream);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(*peer.got.borrow(), b"but not from me, yet");
    });
}

#[test]
fn a_reset_is_passed_on_as_a_reset() {
    each_way(open, async |_: Rc<World>| {
        let _peer = Peer::start(PEER, async |_, stream| {
            stream.write_all(b"half of").await.unwrap();
            sleep(Duration::from_secs(1)).await;
            stream.abort();
        });
        let stream = connect(PEER, b"").await;
        let (_, well) = all_of(&stream).await;
        assert!(!well);
    });
}

#[test]
fn a_tunnel_that_is_silent_both_ways_is_closed_and_no_other() {
    let config = with(open, |config| config.limits.tunnel_idle = Duration::from_secs(100));
    each_way(config, async |world: Rc<World>| {
        let _peer = Peer::echo(PEER);
        let (busy, silent) = (connect(PEER, b"").await, connect(PEER, b"").await);
        for _ in 0..5 {
            sleep(Duration::from_secs(60)).await;
            busy.write_all(b"x").await.unwrap();
            exactly(&busy, 1).await;
        }
        assert_eq!(world.counter("tunnels_open"), 1);
        assert_eq!(all_of(&silent).await, (Vec::new(), true));
        assert_eq!(world.counter("timeouts"), 1);
    });
}

/// If one side does not read, the other side waits and the proxy does not buffer.
#[test]
fn a_tunnel_holds_no_more_than_its_bound() {
    sim::check(0..4, |seed| {
        let options = sim::Options::rough(seed).with_buffer_bytes(4096);
        run(options, open(), async |_: Rc<World>| {
            let sent = Rc::new(Cell::new(0));
            let counting = Rc::clone(&sent);
            let _peer = Peer::start(PEER, async move |_, stream| {
                let piece = content("down", 1000);
                for _ in 0..1000 {
                    stream.write_all(&piece).await.unwrap();
                    counting.set(counting.get() + 1000);
                }
            });
            let stream = connect(PEER, b"").await;
            sleep(Duration::from_secs(50)).await;
            assert!(sent.get() < 32 * 1024 + 4 * 4096, "{}", sent.get());
            let (got, well) = all_of(&stream).await;
            assert!(well && got.len() == 1_000_000);
        });
    });
}

#[test]
fn a_drain_lets_tunnels_run_until_its_time_is_over() {
    let config = with(open, |config| config.limits.drain_timeout = Duration::from_secs(20));
    each_way(config, async |world: Rc<World>| {
        let _peer = Peer::echo(PEER);
        let (ends, stays) = (connect(PEER, b"").await, connect(PEER, b"").await);
        world.stop.stop();
        sleep(Duration::from_secs(5)).await;
        for stream in [&ends, &stays] {
            stream.write_all(b"still").await.unwrap();
            assert_eq!(exactly(stream, 5).await, b"still");
        }
        drop(ends);
        sleep(Duration::from_secs(10)).await;
        stays.write_all(b"here").await.unwrap();
        assert_eq!(exactly(&stays, 4).await, b"here");
        let (_, well) = all_of(&stays).await;
        assert!(!well, "it is cut, and can tell");
        world.stopped().await;
        assert_eq!(world.log_lines().len(), 2, "each has its line");
    });
}

/// A TLS record with a ClientHello for this name, and bytes behind it.
fn hello(name: &str) -> Vec<u8> {
    let vector = |bytes: usize, content: &[u8]| {
        [&content.len().to_be_bytes()[8 - bytes..], content].concat()
    };
    let list = vector(2, &[&[0][..], &vector(2, name.as_bytes())].concat());
    let extension = [&[0, 0][..], &vector(2, &list)].concat();
    let suites = [vector(1, &[]), vector(2, &[0x13, 1]), vector(1, &[0])].concat();
    let body = [&[3, 3][..], &[7; 32], &suites, &vector(2, &extension)].concat();
    let message = [&[1][..], &vector(3, &body)].concat();
    [&[22, 3, 1][..], &vector(2, &message), b"\x14\x03\x03\0\x01\x01"].concat()
}

const ALERT: &[u8] = b"\x15\x03\x03\0\x02\x02\x70";

#[test]
fn a_client_hello_for_the_host_goes_on_untouched() {
    each_way(named, async |world: Rc<World>| {
        NameServer::start().resolves("a.test", &[5], 600);
        let peer = Peer::echo(PEER);
        let hello = hello("a.test");
        for together in [0, 1, 7, hello.len()] {
            let stream = connect("A.test:443", &hello[..together]).await;
            stream.write_all(&hello[together..]).await.unwrap();
            assert_eq!(exactly(&stream, hello.len()).await, hello);
            assert_eq!(*peer.got.take(), hello);
        }
        assert_eq!(world.counter("tunnels"), 4);
    });
}

/// Hosts have names.
fn named() -> Config {
    let mut config = forward();
    config.name_servers = server::NameServers::At(vec![address(SERVER)]);
    config
}

#[test]
fn another_name_no_name_and_no_tls_are_refused() {
    each_way(named, async |world: Rc<World>| {
        NameServer::start().resolves("a.test", &[5], 600);
        let peer = Peer::echo(PEER);
        let record = |name: &str| hello(name)[..hello(name).len() - 6].to_vec();
        let rows: [(Vec<u8>, &[u8]); 4] = [
            (record("b.test"), ALERT),
            (record("x.a.test"), ALERT),
            (b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n".to_vec(), b""),
            (b"SSH-2.0-x\r\n".to_vec(), b""),
        ];
        for (first, answer) in &rows {
            let stream = connect("a.test:443", first).await;
            assert_eq!(all_of(&stream).await, (answer.to_vec(), true));
        }
        // By its address, and with a name.
        let stream = connect(PEER, &record("a.test")).await;
        assert_eq!(all_of(&stream).await, (ALERT.to_vec(), true));
        assert!(peer.got.borrow().is_empty(), "the server has seen none of it");
        // Nothing at all, for too long.
        let stream = connect("a.test:443", b"").await;
        assert_eq!(all_of(&stream).await, (Vec::new(), true));
        let metrics = world.metrics().await;
        let name = "plimsoll_refusals_total{rule=\"server-name\"}";
        assert_eq!(metrics.iter().find(|(n, _)| n == name).unwrap().1, 6);
        world.stopped().await;
        let log = String::from_utf8(world.log.lock().unwrap().clone()).unwrap();
        assert_eq!(log.matches(" TCP_DENIED/200 ").count(), 6, "{log}");
    });
}

/// What a client asks for, and how it must be refused.
async fn is_refused(request: &str, status: u16, words: &[&str]) {
    let mut client = Client::new().await;
    let method = request.split(' ').next().unwrap();
    client.send(format!("{request} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).await.unwrap();
    let got = client.response_to(method).await.unwrap();
    let said = String::from_utf8(got.body.clone()).unwrap();
    assert_eq!(got.status, status, "{request}: {said}");
    for word in words {
        assert!(said.contains(word), "{request}: {said}");
    }
    if method == "CONNECT" {
        assert_eq!(got.field("connection"), Some("close"));
        assert!(client.ends().await);
    }
}

#[test]
fn a_forbidden_request_is_refused_with_the_name_of_the_rule_and_reaches_no_server() {
    let config = with(named, |config| {
        config.forward.allow_to = vec!["10.0.0.5/32".parse().unwrap()];
        config.forward.deny_domains = vec!["bad.test".parse().unwrap()];
        let programs = "path.endsWith('.exe') || method == 'CONNECT' && host == 'no.test'";
        config.forward.deny_when = Some(programs.parse().unwrap());
    });
    each_way(config, async |world: Rc<World>| {
        let names = NameServer::start();
        names.resolves("a.test", &[5], 600);
        names.resolves("inside.test", &[2], 600);
        let peer = Peer::echo(PEER);
        let rows: [(&str, u16, &[&str]); 13] = [
            ("GET http://a.test:25/", 403, &["`port`", "ports"]),
            ("CONNECT a.test:22", 403, &["`connect-port`", "connect_ports"]),
            ("CONNECT a.test:80", 403, &["`connect-port`"]),
            ("GET http://x.bad.test/", 403, &["`domain-denied`", "deny_domains"]),
            ("GET http://a.test/x.ex%65", 403, &["`denied-when`", "deny_when"]),
            ("GET http://a.test/x/%2e%2e%2fa.exe?b", 403, &["`denied-when`"]),
            ("GET http://a.test/a.exe;b", 403, &["`denied-when`"]),
            ("CONNECT NO.test.:443", 403, &["`denied-when`"]),
            ("GET http://inside.test/", 403, &["`address`", "--allow-to"]),
            ("GET http://10.0.0.2/", 403, &["`address`"]),
            ("GET http://[::ffff:10.0.0.2]/", 403, &["`address`"]),
            ("CONNECT [64:ff9b::a9fe:a9fe]:443", 403, &["`address`", "allow_to"]),
            ("GET http://169.254.169.254/latest", 403, &["`address`"]),
        ];
        for (request, status, words) in rows {
            is_refused(request, status, words).await;
        }
        assert_eq!((peer.connections.get(), world.origin.connections.get()), (0, 0));
        world.stopped().await;
        let log = String::from_utf8(world.log.lock().unwrap().clone()).unwrap();
        assert_eq!(log.matches(" TCP_DENIED/403 ").count(), rows.len(), "{log}");
    });
}

#[test]
fn a_condition_on_the_url_reads_what_the_client_has_sent() {
    let config = with(named, |config| {
        config.forward.connect_ports = vec!["1-65535".parse().unwrap()];
        let urls = "url in ['http://a.test:8080/?secret', 'no.test:443', 'no.test:80', \
                    'http://[fd00::1]/', 'http://[::7f00:1]/', 'https://a.test/'] || \
                    host == '[::127.0.0.2]' || target == '//a/./b?c'";
        config.forward.deny_when = Some(urls.parse().unwrap());
    });
    each_way(config, async |_world: Rc<World>| {
        NameServer::start();
        for request in [
            "GET http://A.test.:8080?s%65cret",
            "CONNECT NO.test:443",
            "CONNECT no.test:80",
            "GET http://[FD00::0:1]:80/",
            "GET http://[0::127.0.0.1]/",
            "GET http://[::7f00:2]/",
            "GET https://a.test:443/",
            "GET http://b.test//a/%2e/b?c",
        ] {
            is_refused(request, 403, &["`denied-when`"]).await;
        }
        for request in ["GET http://a.test/?secret", "GET http://a.test:8080/?s%2565cret"] {
            is_refused(request, 502, &[]).await;
        }
    });
}

/// A name that resolves to another address each time it is asked for: what was judged is what is
/// connected to.
#[test]
fn a_name_that_changes_its_address_gains_nothing() {
    let config =
        with(named, |config| config.forward.allow_to = vec!["10.0.0.2/32".parse().unwrap()]);
    each_way(config, async |world: Rc<World>| {
        let peer = Peer::echo(WEB);
        let names = NameServer::start();
        for last in [[2, 5], [5, 2]] {
            names.resolves("a.test", &last, 1);
            let mut client = Client::new().await;
            let got = client.get("http://a.test/r?size=5&cc=no-store", "").await;
            assert_eq!(got.status, 200);
            names.resolves("a.test", &[5], 1);
            sleep(Duration::from_secs(5)).await;
            assert_eq!(client.get("http://a.test:8080/", "").await.status, 403);
            sleep(Duration::from_secs(5)).await;
        }
        assert_eq!((peer.connections.get(), world.origin.seen.borrow().len()), (0, 2));
    });
}

#[test]
fn the_proxy_itself_is_reached_by_its_name_alone() {
    each_way(open, async |_: Rc<World>| {
        is_refused("GET http://10.0.0.1/", 403, &["`own-address`"]).await;
        is_refused("CONNECT 10.0.0.1:9090", 403, &["`own-address`", "allow_to"]).await;
    });
    let config = with(open, |config| config.forward.allow_to.push("10.0.0.1/32".parse().unwrap()));
    each_way(config, async |_: Rc<World>| {
        let stream = connect("10.0.0.1:9090", b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(all_of(&stream).await.0.ends_with(b"ok\n"));
        // HTTP comes back to us, and is seen to.
        is_refused("GET http://10.0.0.1/x", 508, &["`loop`"]).await;
    });
}

#[test]
fn a_client_of_another_network_gets_nothing_stored_either() {
    let config =
        with(forward, |config| config.forward.allow_from = vec!["192.168.0.0/16".parse().unwrap()]);
    each_way(config, async |world: Rc<World>| {
        is_refused("GET http://10.0.0.2/a", 403, &["`client`", "--allow-from"]).await;
        is_refused("CONNECT 10.0.0.2:443", 403, &["`client`"]).await;
        assert_eq!(world.origin.connections.get(), 0);
    });
}

/// jo:secret and ann:a:b.
pub(crate) const USERS: &str = "jo:$2y$04$Eoj8yU1OeQpN5XYtx0VtNeKMZ9tpE7bXu38BZbhPEMxcosd6e2VAS\n";

#[test]
fn a_password_is_asked_for_and_the_name_is_logged() {
    let config = with(forward, |config| {
        config.forward.users = Some(Users::from_text(USERS).unwrap());
        config.forward.realm = "the office".parse().unwrap();
    });
    each_way(config, async |world: Rc<World>| {
        let target = "http://10.0.0.2/p?size=50&cc=max-age=600";
        let right = "Proxy-Authorization: Basic am86c2VjcmV0\r\n";
        let mut client = Client::new().await;
        for (fields, status) in [
            ("", 407),
            ("Proxy-Authorization: Basic am86d3Jvbmc=\r\n", 407),
            ("Proxy-Authorization: Basic bm9ib2R5OnNlY3JldA==\r\n", 407),
            ("Proxy-Authorization: Bearer am86c2VjcmV0\r\n", 407),
            (right, 200),
            ("", 407),
            (right, 200),
        ] {
            let got = client.get(target, fields).await;
            assert_eq!(got.status, status, "{fields}");
            let asks = (status == 407).then_some("Basic realm=\"the office\", charset=\"UTF-8\"");
            assert_eq!(got.field("proxy-authenticate"), asks);
            if status == 200 {
                assert_eq!(got.body, expected(target, None));
            }
        }
        assert_eq!(world.origin.seen.borrow().len(), 1);
        assert_eq!(world.origin.last().field("proxy-authorization"), None);
        is_refused("CONNECT 10.0.0.5:443", 407, &["`password-missing`"]).await;
        world.stopped().await;
        let log = String::from_utf8(world.log.lock().unwrap().clone()).unwrap();
        assert_eq!(log.matches(" jo HIER_").count(), 2, "{log}");
        assert_eq!(log.matches(" TCP_DENIED/407 ").count(), 6, "{log}");
    });
}

const HANDSHAKE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// A server that agrees to WebSocket when the target says so, with bytes right behind its 101.
fn agreeing(at: &str) -> Rc<Peer> {
    Peer::start(at, async |peer, stream| {
        while let Some(head) = head_of(&stream).await {
            peer.got.borrow_mut().extend_from_slice(head.as_bytes());
            if !head.starts_with("GET /yes") || !head.contains("Upgrade: websocket\r\n") {
                let answer = b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\n\
                               Connection: Upgrade\r\nContent-Length: 2\r\n\r\nno";
                stream.write_all(answer).await.unwrap();
                continue;
            }
            let answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                           Connection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBi\r\n\r\nfirst";
            stream.write_all(answer).await.unwrap();
            let mut piece = [0; 100];
            while let Ok(read @ 1..) = stream.read(&mut piece).await {
                stream.write_all(&piece[..read].to_ascii_uppercase()).await.unwrap();
            }
            return;
        }
    })
}

async fn head_of(stream: &TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if !matches!(stream.read(&mut byte).await, Ok(1)) {
            return None;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

#[test]
fn an_upgrade_that_is_agreed_to_becomes_a_tunnel() {
    let reversed = || {
        let origin =
            Origin { authority: "origin".into(), addresses: vec![address(WEB)], tls: None };
        let listen = reverse().listeners.iter().map(|of| of.address).collect::<Vec<_>>();
        Config { groups: Config::reverse([origin], &listen).groups, ..reverse() }
    };
    for (config, target) in [
        (reversed as fn() -> Config, "/yes".to_owned()),
        (forward as fn() -> Config, format!("http://{WEB}/yes")),
    ] {
        each_way(config, async |world: Rc<World>| {
            let peer = agreeing(WEB);
            for round in 0..2 {
                let client = Client::new().await;
                let ask = format!("GET {target} HTTP/1.1\r\nHost: site\r\n{HANDSHAKE}\r\nearly");
                client.send(ask.as_bytes()).await.unwrap();
                let head = head_of(client.stream()).await.unwrap();
                assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
                for line in ["Connection: Upgrade", "Upgrade: websocket", "Via: 1.1 plimsoll"] {
                    assert_eq!(head.matches(line).count(), 1, "{line}: {head}");
                }
                assert!(head.contains("Sec-WebSocket-Accept: s3pPLMBi\r\n"), "{head}");
                assert_eq!(exactly(client.stream(), 10).await, b"firstEARLY");
                client.send(b"more").await.unwrap();
                client.stream().shutdown(Shutdown::Write).unwrap();
                assert_eq!(all_of(client.stream()).await, (b"MORE".to_vec(), true));
                assert_eq!(peer.connections.get(), round + 1, "never used again");
            }
            let asked = String::from_utf8(peer.got.take()).unwrap();
            for line in ["Connection: Upgrade\r\n", "Sec-WebSocket-Version: 13\r\n"] {
                assert_eq!(asked.matches(line).count(), 2, "{asked}");
            }
            world.stopped().await;
            let log = String::from_utf8(world.log.lock().unwrap().clone()).unwrap();
            assert_eq!(log.matches(" TCP_TUNNEL/101 ").count(), 2, "{log}");
        });
    }
}

#[test]
fn an_upgrade_that_is_not_agreed_to_is_an_ordinary_response() {
    each_way(forward, async |_: Rc<World>| {
        let peer = agreeing(WEB);
        let mut client = Client::new().await;
        for _ in 0..2 {
            let got = client.get(&format!("http://{WEB}/no"), HANDSHAKE).await;
            assert_eq!((got.status, got.body), (426, b"no".to_vec()));
        }
        // What is not on the list is not passed on, h2c least of all.
        let h2c =
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
        peer.got.take();
        assert_eq!(client.get(&format!("http://{WEB}/yes"), h2c).await.status, 426);
        let asked = String::from_utf8(peer.got.take()).unwrap().to_ascii_lowercase();
        assert!(!asked.contains("upgrade") && !asked.contains("http2-settings"), "{asked}");
    });
}

#[test]
fn the_client_of_a_request_is_named_as_configured() {
    use server::ClientField::{Add, Delete, Off, Replace};
    for (tell, xff, forwarded) in [
        (Off, Some("1.2.3.4"), Some("for=1.2.3.4")),
        (Add, Some("1.2.3.4, 127."), Some("for=1.2.3.4, for=127.")),
        (Replace, Some("127."), Some("for=127.")),
        (Delete, None, None),
    ] {
        let config = with(forward, |config| {
            config.forward.x_forwarded_for = tell;
            config.forward.forwarded = tell;
        });
        each_version(&sim::Options::new(1), &config(), async |world: Rc<World>| {
            let mut client = Client::new().await;
            let fields = "X-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\n";
            let target = "http://10.0.0.2/f?size=1&cc=no-store";
            assert_eq!(client.get(target, fields).await.status, 200);
            let seen = world.origin.last();
            for (name, begins) in [("x-forwarded-for", xff), ("forwarded", forwarded)] {
                let value = seen.field(name);
                assert_eq!(value.is_some(), begins.is_some(), "{name} {tell:?}");
                let begins = begins.unwrap_or_default();
                assert!(value.unwrap_or_default().starts_with(begins), "{tell:?} {value:?}");
            }
            assert!(seen.fields.iter().filter(|(n, _)| n == "x-forwarded-for").count() < 2);
        });
    }
}

#[test]
fn via_names_the_version_of_an_old_client() {
    each_way(forward, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let ask = b"GET http://10.0.0.2/old?size=9&cc=no-store HTTP/1.0\r\n\
                    Proxy-Connection: keep-alive\r\n\r\n";
        assert_eq!(client.ask(ask).await.body.len(), 9);
        assert!(client.ends().await, "its keep-alive may be another's");
        let seen = world.origin.last();
        assert!(seen.field("via").unwrap().starts_with("1.0 plimsoll-"));
        assert_eq!(seen.field("host"), Some("10.0.0.2"));
    });
}
