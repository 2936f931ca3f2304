//! Strangers at one network take all they can of what connections share. A client from another
//! network is served as fast as without them: at most twice the virtual time, in the worst of its
//! attempts.

use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use runtime::net::TcpStream;
use runtime::sim;
use runtime::time::{now, sleep};
use server::Config;

use crate::http3_client::Knocker;
use crate::tls_client::{TlsClient, client_config, reverse_tls};
use crate::world::{ADMIN, Client, PROXY, Version, World, address, reverse, run};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const STRANGERS: &str = "198.51.100.7";
const HONEST: &str = "203.0.113.9";
/// The attempts of the honest client, of which the worst counts.
const ATTEMPTS: u32 = 20;

/// A network where everything takes the same time, so that times can be compared.
fn even(seed: u64) -> sim::Options {
    sim::Options::new(seed).with_delay(Duration::from_micros(500)..Duration::from_micros(501))
}

fn connect_from(network: &str) {
    sim::connect_from(network.parse::<IpAddr>().unwrap());
}

/// The worst time that the honest client's attempt takes.
async fn worst(attempt: impl AsyncFn()) -> Duration {
    connect_from(HONEST);
    let mut worst = Duration::ZERO;
    for _ in 0..ATTEMPTS {
        let start = now();
        attempt().await;
        worst = worst.max(start.elapsed());
        sleep(37 * MS).await;
    }
    connect_from(STRANGERS);
    worst
}

/// Runs an attack, and compares the honest client's attempts before with those during it.
async fn compare<Held>(attempt: impl AsyncFn(), attack: impl AsyncFn() -> Held) {
    let alone = worst(&attempt).await;
    connect_from(STRANGERS);
    let held = attack().await;
    let beside = worst(&attempt).await;
    assert!(beside <= 2 * alone, "{beside:?} beside strangers, {alone:?} alone");
    drop(held);
}

async fn tls_request() {
    let mut client = TlsClient::new(&client_config()).await;
    assert_eq!(client.get("/a?size=10&cc=max-age=600", "").await.status, 200);
}

/// Connections that have sent these bytes, and nothing after them.
async fn silent_after(bytes: &[u8], count: usize) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..count {
        let stream = TcpStream::connect(address(PROXY)).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        held.push(stream);
    }
    held
}

/// 600 of them kept every other client waiting for nearly ten seconds.
#[test]
fn half_a_record_of_tls_takes_no_place_of_a_handshake() {
    run(even(1), reverse_tls(), async |world: Rc<World>| {
        let half = b"\x16\x03\x01\x02\x00";
        compare(tls_request, async || silent_after(half, 3000).await).await;
        assert_eq!(world.counter("tls_failures_evicted"), 0);
    });
}

/// As much as each may send before its ClientHello is whole: 48 MiB in all.
#[test]
fn hellos_that_never_end_have_a_bounded_memory() {
    run(even(2), reverse_tls(), async |world: Rc<World>| {
        let mut half = [&b"\x16\x03\x01\x40\x00\x01\x00\xf0\x00"[..], &[7; 15_000]].concat();
        half.truncate(15_000);
        compare(tls_request, async || silent_after(&half, 3000).await).await;
        // The honest client has lost nothing, and the strangers their oldest connections.
        assert!(world.counter("tls_failures_evicted") > 500);
        assert_eq!(world.counter("tls_failures_slow"), 0);
    });
}

/// A place is taken by those who have sent a whole ClientHello. When all are taken, the oldest of
/// the network that has the most gives way.
#[test]
fn handshakes_that_are_not_completed_give_way() {
    run(even(3), reverse_tls(), async |world: Rc<World>| {
        let attack = async || {
            let mut held = Vec::new();
            for _ in 0..2150 {
                let mut client = TlsClient::connect(&client_config()).await;
                let hello = client.records();
                client.stream.write_all(&hello).await.unwrap();
                held.push(client);
            }
            held
        };
        compare(tls_request, attack).await;
        assert!(world.counter("tls_failures_evicted") > 50);
    });
}

async fn http3_request() {
    let mut client = Client::over(Version::Http3, PROXY).await.unwrap();
    assert_eq!(client.get("/a?size=10&cc=max-age=600", "").await.status, 200);
}

/// The same over QUIC: clients at addresses that are their own, and who say nothing more.
#[test]
fn handshakes_of_quic_that_are_not_completed_give_way() {
    run(even(4), reverse(), async |world: Rc<World>| {
        let attack = async || {
            let mut held = Vec::new();
            for _ in 0..1150 {
                held.push(Knocker::after_retry(PROXY, &format!("{STRANGERS}:0")).await);
            }
            held
        };
        compare(http3_request, attack).await;
        assert!(world.counter("tls_failures_evicted") > 50);
    });
}

async fn request() {
    let mut client = Client::over(Version::Http1, PROXY).await.unwrap();
    assert_eq!(client.get("/a?size=10&cc=max-age=600", "").await.status, 200);
}

fn few_connections() -> Config {
    let mut config = reverse();
    config.limits.connections_max = 64;
    config
}

/// More than the table of connections holds: those that are silent, and those that have sent a part
/// of a head, of a preface, or nothing after it.
#[test]
fn silent_connections_of_strangers_keep_no_other_out() {
    let preface = [http2::PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
    let begins: [&[u8]; 4] = [b"", b"GET / HTTP/1.1\r\nX: ", &http2::PREFACE[..9], &preface];
    for (seed, begin) in (10..).zip(begins) {
        run(even(seed), few_connections(), async |world: Rc<World>| {
            let attack = async || {
                let held = silent_after(begin, 200).await;
                // Those that connect faster than silent ones may be closed wait for each other.
                sleep(8 * SECOND).await;
                held
            };
            compare(request, attack).await;
            assert!(world.counter("connections_closed_for_room") > 100);
            assert_eq!(world.counter("connections_refused"), 0);
        });
    }
}

/// As much as each may send before its head is whole: 90 MiB in all.
#[test]
fn heads_that_never_end_have_a_bounded_memory() {
    let of_http1 = [&b"GET / HTTP/1.1\r\nX: "[..], &[b'x'; 30_000]].concat();
    let headers = [&[0, 0x40, 0, 1, 1, 0, 0, 0, 1][..], &[0; 0x4000]].concat();
    let continued = [&[0, 0x40, 0, 9, 0, 0, 0, 0, 1][..], &[0; 0x3900]].concat();
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let of_http2 = [http2::PREFACE, &settings, &headers, &continued].concat();
    for (seed, head) in (15..).zip([of_http1, of_http2]) {
        run(even(seed), reverse(), async |world: Rc<World>| {
            compare(request, async || silent_after(&head, 3000).await).await;
            let open = world.counter("connections_open");
            assert!((1800..2300).contains(&open), "{open} hold 64 MiB");
        });
    }
}

/// The same before and in the handshake of TLS.
#[test]
fn silent_connections_at_a_port_of_tls_keep_no_other_out() {
    let mut config = reverse_tls();
    config.limits.connections_max = 64;
    run(even(20), config, async |world: Rc<World>| {
        let attack = async || {
            let held = silent_after(b"\x16\x03\x01\x02\x00", 200).await;
            sleep(8 * SECOND).await;
            held
        };
        compare(tls_request, attack).await;
        assert!(world.counter("connections_closed_for_room") > 100);
    });
}

/// The same over HTTP/3, whose connections are in the same table.
#[test]
fn silent_connections_of_http3_keep_no_other_out() {
    run(even(21), few_connections(), async |world: Rc<World>| {
        let attack = async || {
            let mut held = Vec::new();
            for _ in 0..100 {
                held.push(Client::over(Version::Http3, PROXY).await);
                sleep(50 * MS).await;
            }
            held
        };
        compare(request, attack).await;
        compare(http3_request, async || ()).await;
        assert!(world.counter("connections_closed_for_room") > 30);
    });
}

/// An idle connection of a client that has few is not closed for those of a client that has many.
#[test]
fn a_client_with_few_connections_keeps_them() {
    run(even(22), few_connections(), async |world: Rc<World>| {
        connect_from(HONEST);
        let mut idle = Client::http1().await;
        assert_eq!(idle.get("/a?size=10&cc=max-age=600", "").await.status, 200);
        connect_from(STRANGERS);
        let held = silent_after(b"", 200).await;
        sleep(10 * SECOND).await;
        assert!(world.counter("connections_closed_for_room") > 100);
        assert_eq!(idle.get("/a?size=10&cc=max-age=600", "").await.status, 200);
        drop(held);
    });
}

/// Calls to the admin address that are never sent.
#[test]
fn silent_connections_to_the_admin_address_keep_no_other_out() {
    let call = async || {
        let mut client = Client::to(ADMIN).await.unwrap();
        client.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        assert_eq!(client.response().await.unwrap().status, 200);
    };
    run(even(23), reverse(), async |_: Rc<World>| {
        let attack = async || {
            let mut held = Vec::new();
            for _ in 0..400 {
                let client = Client::to(ADMIN).await.unwrap();
                client.send(b"GET /heal").await.unwrap();
                held.push(client);
            }
            held
        };
        let mut held = Vec::new();
        compare(call, async || ()).await;
        held.extend(attack().await);
        compare(call, async || ()).await;
        // The oldest of them have made room.
        assert!(held[0].ends().await);
        assert!(held[399].is_silent_for(MS).await);
    });
}
