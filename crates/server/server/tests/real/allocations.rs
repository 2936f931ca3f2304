//! How many blocks of memory a core allocates for a request in a steady state, by type of request.
//!
//! A core runs over real sockets in a thread whose allocations are counted. The clients and the
//! origin run in other threads. The core also allocates at its ticks, but for all of the counted
//! requests together this is less than half a block per request.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use runtime::net::{ListenOptions, TcpListener};
use runtime::stop::StopSource;
use runtime::{CountingAllocator, Options, Runtime, observe_allocations};
use server::{Config, Core, LogTo, Origin as OriginUrl, Role};

use super::{Client, Origin, expected};

/// The types of requests, each with the maximum of blocks that the core allocates for one of them.
/// A maximum may only be lowered. The test prints what it has counted.
const TYPES: &[(&str, u64, Ask)] = &[
    ("hit of 1 KB", 0, |clients, _| clients.get("/hit?size=1024&cc=max-age=600", "", 200)),
    ("hit, 304 to the client", 1, |clients, _| {
        clients.get("/hit?size=1024&cc=max-age=600", "If-None-Match: \"e\"\r\n", 304);
    }),
    ("miss passed on", 0, |clients, _| clients.get("/pass?size=1024", "", 200)),
    ("miss stored", 20, |clients, number| {
        clients.get(&format!("/store{number}?size=1024&cc=max-age=600"), "", 200);
    }),
    ("revalidation", 17, |clients, _| clients.get("/old?size=1024&cc=no-cache", "", 200)),
    ("POST of 1 KB", 8, |clients, _| clients.post()),
    ("round trip in a tunnel", 0, |clients, _| clients.through_tunnel()),
];
/// Requests before the counting begins, and counted requests, of each type.
const FIRST: u64 = 50;
const COUNTED: u64 = 300;

type Ask = fn(&mut Clients, u64);

/// Blocks of this size and above are counted together.
const SIZE_MAX: usize = 1 << 16;
static BLOCKS: [AtomicU64; SIZE_MAX + 1] = [const { AtomicU64::new(0) }; SIZE_MAX + 1];

/// Called for each block that the core's thread allocates. A reallocation counts as a block.
fn count(size: usize) {
    BLOCKS[size.min(SIZE_MAX)].fetch_add(1, Ordering::Relaxed);
}

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

fn blocks() -> Vec<u64> {
    BLOCKS.iter().map(|count| count.load(Ordering::Relaxed)).collect()
}

/// A client of each listener, and one in a tunnel to the origin.
struct Clients {
    reverse: Client,
    tunnel: Client,
}

impl Clients {
    fn new([reverse, forward]: [SocketAddr; 2], origin: SocketAddr) -> Clients {
        let mut tunnel = Client::to(forward);
        write!(tunnel.stream, "CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n\r\n").unwrap();
        let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
        let mut head = vec![0; established.len()];
        tunnel.stream.read_exact(&mut head).unwrap();
        assert_eq!(head, established);
        Clients { reverse: Client::to(reverse), tunnel }
    }

    fn get(&mut self, target: &str, fields: &str, status: u16) {
        let got = self.reverse.get(target, fields);
        assert_eq!(got.status, status, "{target}");
        if status == 200 {
            assert_eq!(got.body, expected(target));
        }
    }

    fn post(&mut self) {
        let body = "x".repeat(1024);
        let request =
            format!("POST /e HTTP/1.1\r\nHost: site\r\nContent-Length: 1024\r\n\r\n{body}");
        assert_eq!(self.reverse.ask("POST", &request).body, body.as_bytes());
    }

    fn through_tunnel(&mut self) {
        let target = "/through?size=1024";
        assert_eq!(self.tunnel.get(target, "").body, expected(target));
    }
}

/// Runs a core with a reverse and a forward listener in this thread.
fn serve(origin: SocketAddr, bound: &mpsc::Sender<([SocketAddr; 2], StopSource)>) {
    let any = "127.0.0.1:0".parse().unwrap();
    let origin = OriginUrl::from_url(&format!("http://{origin}")).unwrap();
    let mut config = Config::reverse([origin], &[any, any]);
    config.listeners[1].role = Role::Forward;
    config.forward.allow_to = vec!["127.0.0.0/8".parse().unwrap()];
    config.forward.connect_ports = vec!["1-65535".parse().unwrap()];
    let listeners = config.listeners.clone();
    let core = Core::of(config, 1, &LogTo::Off).remove(0);
    let mut runtime = Runtime::new(Options::default()).unwrap();
    runtime.block_on(async {
        let bind = || TcpListener::bind(any, &ListenOptions::default()).unwrap();
        let sockets: Vec<_> = listeners.into_iter().map(|listener| (bind(), listener)).collect();
        let at = |number: usize| sockets[number].0.local_addr().unwrap();
        let stop = StopSource::new();
        let token = stop.token();
        bound.send(([at(0), at(1)], stop)).unwrap();
        observe_allocations(Some(count));
        core.run(sockets, Vec::new(), None, token).await;
    });
}

#[test]
fn a_request_in_a_steady_state_allocates_no_more_than_its_type_may() {
    let origin = Origin::start();
    let (sender, receiver) = mpsc::channel();
    let address = origin.address;
    let serving = thread::spawn(move || serve(address, &sender));
    let (bound, stop) = receiver.recv().unwrap();
    let mut clients = Clients::new(bound, address);
    let mut above = Vec::new();
    for (name, blocks_max, ask) in TYPES {
        (0..FIRST).for_each(|number| ask(&mut clients, number));
        let before = blocks();
        (FIRST..FIRST + COUNTED).for_each(|number| ask(&mut clients, number));
        let made: Vec<u64> = blocks().iter().zip(before).map(|(now, then)| now - then).collect();
        let each = (made.iter().sum::<u64>() + COUNTED / 2) / COUNTED;
        eprintln!("{name}: {each} blocks, at most {blocks_max}");
        if each > *blocks_max {
            above.push(*name);
            for (size, count) in made.iter().enumerate().filter(|(_, count)| **count >= COUNTED / 4)
            {
                let more = if size == SIZE_MAX { " or more" } else { "" };
                eprintln!("  {:.1} of {size} bytes{more}", *count as f64 / COUNTED as f64);
            }
        }
    }
    stop.stop();
    drop(clients);
    serving.join().unwrap();
    assert!(above.is_empty(), "more blocks than before for: {}", above.join(", "));
}
