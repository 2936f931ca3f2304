//! Processes that work as one cache: their hit ratio beside that of one process with the sum of
//! their memory, and a member that is killed and another that is added under load.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Accepting, Home, OurServer, SOON, free_port, get, plimsoll, wait_for};

/// The members of the comparison.
const MEMBERS: usize = 4;
/// Objects of the made-up trace, and its requests.
const OBJECTS: usize = 6_000;
const REQUESTS: usize = 24_000;

/// From this size on, a body has a validator, by which its rest can be asked for.
const TAGGED_BYTES_MIN: usize = 32 * 1024;
/// Slow bodies that are on their way when a member is killed. Of four members, it is the owner of
/// none of them once in ten thousand runs.
const SLOW: usize = 32;
/// Bytes of which every body is a part.
const CONTENT_BYTES: usize = 1 << 20;

/// An origin that answers `/NUMBER/SIZE` with so many bytes, and counts its requests. It sends
/// `/slowNUMBER/SIZE` up to the middle of the body, and the rest when `go` says so.
fn origin(go: &Arc<AtomicBool>) -> (Accepting, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let (counted, go) = (Arc::clone(&count), Arc::clone(go));
    let origin = Accepting::start(move |stream| {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut stream = stream;
        while let Some(Ok(request)) = lines.next() {
            let fields = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty());
            let from = fields.fold(None, |from, line| from.or(first_of(&line)));
            counted.fetch_add(1, Ordering::Relaxed);
            let path = request.split(' ').nth(1).unwrap_or_default();
            let size = path.rsplit('/').next().and_then(|size| size.parse().ok()).unwrap_or(0);
            let tagged = size >= TAGGED_BYTES_MIN;
            let tag = if tagged { format!("ETag: \"{size}\"\r\n") } else { String::new() };
            let from = from.filter(|from| tagged && *from < size);
            let (status, range) = match from {
                Some(from) => (206, format!("Content-Range: bytes {from}-{}/{size}\r\n", size - 1)),
                None => (200, String::new()),
            };
            let content = &content_of(path, size)[from.unwrap_or(0)..];
            let head = format!(
                "HTTP/1.1 {status} OK\r\nCache-Control: max-age=3600\r\n{tag}{range}\
                 Content-Length: {}\r\n\r\n",
                content.len()
            );
            let is_slow = path.starts_with("/slow");
            let (before, after) =
                content.split_at(if is_slow { content.len() / 2 } else { content.len() });
            if stream.write_all(&[head.as_bytes(), before].concat()).is_err() {
                return;
            }
            let until = Instant::now() + SOON;
            while is_slow && !go.load(Ordering::Relaxed) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            if stream.write_all(after).is_err() {
                return;
            }
        }
    });
    (origin, count)
}

/// Where the range begins that a request asks for by this line.
fn first_of(line: &str) -> Option<usize> {
    let line = line.to_ascii_lowercase();
    line.strip_prefix("range: bytes=")?.split('-').next()?.parse().ok()
}

/// The configuration of a process, which is a member if there are any.
fn configuration(
    origin: SocketAddr,
    listen: u16,
    memory: &str,
    own: u16,
    members: &[u16],
) -> String {
    let addresses: Vec<String> =
        members.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
    let cluster = match members {
        [] => String::new(),
        _ => format!(
            "[cluster]\nlisten = \"127.0.0.1:{own}\"\nmembers = [{}]\n",
            addresses.join(", ")
        ),
    };
    format!(
        "[server]\nworkers = 1\nadmin = \"127.0.0.1:0\"\n\
         [[listen]]\naddress = \"127.0.0.1:{listen}\"\n\
         [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"http://{origin}\"\n\
         [store]\nmemory = \"{memory}\"\n{cluster}"
    )
}

/// The body of a response. No two places in it look alike.
fn content_of(path: &str, size: usize) -> &'static [u8] {
    static ALL: OnceLock<Vec<u8>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut random = Random(0xb0d7);
        (0..CONTENT_BYTES).map(|_| (random.next() * 256.0) as u8).collect()
    });
    let number = path.bytes().fold(7, |sum: usize, byte| sum * 31 % 65_521 + usize::from(byte));
    &all[number..][..size]
}

/// A client's connection.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn new(to: SocketAddr) -> Client {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Client { stream: BufReader::new(stream) }
    }

    /// The length of a response, which has to be whole.
    fn get(&mut self, path: &str) -> Result<usize, String> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: site\r\n\r\n");
        let said = |error: std::io::Error| error.to_string();
        self.stream.get_mut().write_all(request.as_bytes()).map_err(said)?;
        let (mut length, mut line) = (0, String::new());
        self.stream.read_line(&mut line).map_err(said)?;
        if !line.starts_with("HTTP/1.1 200 ") {
            return Err(line);
        }
        loop {
            line.clear();
            self.stream.read_line(&mut line).map_err(said)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).map_err(|error| format!("in the body: {error}"))?;
        if body != content_of(path, length) {
            return Err(format!("another body of {path}"));
        }
        Ok(length)
    }
}

/// A sequence of numbers in [0, 1).
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The size of an object, log-normal: about 8 KiB, and a few far larger.
fn size_of(object: u64) -> usize {
    let mut random = Random((object + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let normal: f64 = (0..16).map(|_| random.next()).skip(4).sum::<f64>() - 6.0;
    (8192.0 * (normal * 1.2).exp()).min(400_000.0) as usize
}

/// Requests for objects whose frequency falls with their rank.
fn made_up() -> Vec<u64> {
    let mut sum = 0.0;
    let cumulated: Vec<f64> = (1..=OBJECTS)
        .map(|rank| {
            sum += (rank as f64).powf(-0.8);
            sum
        })
        .collect();
    let mut random = Random(0x5eed);
    let mut one = || {
        let at = random.next() * sum;
        cumulated.partition_point(|below| *below < at) as u64
    };
    (0..REQUESTS).map(|_| one()).collect()
}

/// A trace from the laboratory's data, if it is asked for and there.
fn real() -> Option<Vec<u64>> {
    let name = std::env::var("PLIMSOLL_CLUSTER_TRACE").ok()?;
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut found = above.map(|dir| dir.join("shared/data").join(&name));
    let found = found.find(|path| path.exists());
    let Some(path) = found else {
        println!("skipped: there is no shared/data/{name} beside the repository");
        return None;
    };
    let output = Command::new("xz").arg("-dc").arg(&path).output().unwrap();
    let numbers = output.stdout.chunks_exact(4);
    Some(numbers.map(|four| u32::from_be_bytes(four.try_into().unwrap()).into()).collect())
}

/// Sends a trace to these servers, each request to one of them by chance. Returns the hit ratio.
fn hit_ratio(servers: &[OurServer], trace: &[u64], asked: &AtomicU64) -> f64 {
    let mut clients: Vec<Client> = servers.iter().map(|one| Client::new(one.address())).collect();
    let before = asked.load(Ordering::Relaxed);
    let mut random = Random(77);
    for object in trace {
        let size = size_of(*object);
        let at = (random.next() * clients.len() as f64) as usize;
        assert_eq!(clients[at].get(&format!("/{object}/{size}")), Ok(size));
    }
    let misses = asked.load(Ordering::Relaxed) - before;
    1.0 - misses as f64 / trace.len() as f64
}

fn metric(server: &OurServer, name: &str) -> u64 {
    let text = get(server.admin(), "/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap().parse().unwrap()
}

#[test]
fn nightly_alone_four_members_have_the_hit_ratio_of_one_cache_with_their_memory() {
    let home = Home::alone();
    let (origin, asked) = origin(&Arc::default());
    let (trace, mib) = match real() {
        Some(trace) => (trace, 16),
        None => (made_up(), 4),
    };
    let ports: Vec<u16> = (0..MEMBERS).map(|_| free_port()).collect();
    let start = |name: &str, mib: usize, own: u16, members: &[u16]| {
        let memory = format!("{mib}MiB");
        let text = configuration(origin.address, 0, &memory, own, members);
        OurServer::configured(&home.write(name, text))
    };
    let members: Vec<OurServer> =
        ports.iter().map(|port| start(&format!("{port}.toml"), mib, *port, &ports)).collect();
    let of_cluster = hit_ratio(&members, &trace, &asked);
    let sum = |name: &str| members.iter().map(|member| metric(member, name)).sum::<u64>();
    let (passed, kept) = (sum("plimsoll_cluster_passed_total"), sum("plimsoll_cluster_kept_total"));
    let local = sum("plimsoll_hits_total");
    drop(members);
    let one = [start("one.toml", MEMBERS * mib, 0, &[])];
    let of_one = hit_ratio(&one, &trace, &asked);
    let small = [start("small.toml", mib, 0, &[])];
    let of_small = hit_ratio(&small, &trace, &asked);
    println!(
        "{} requests, {MEMBERS} members with {mib} MiB: hit ratio {of_cluster:.4}; one cache with \
         {} MiB: {of_one:.4}; with {mib} MiB: {of_small:.4}; passed on: {passed}, kept: {kept}, \
         hits where asked or at the owner: {local}",
        trace.len(),
        MEMBERS * mib,
    );
    assert!((of_one - of_cluster).abs() <= 0.02, "{of_cluster}, and {of_one} of one cache");
    assert!(of_one - of_small > 0.04, "the comparison shows something: {of_small}");
}

#[test]
fn alone_a_member_is_killed_and_another_is_added_and_no_request_fails() {
    let home = Home::alone();
    let go = Arc::default();
    let (origin, _) = origin(&go);
    let ports: Vec<u16> = (0..5).map(|_| free_port()).collect();
    let listen: Vec<u16> = (0..5).map(|_| free_port()).collect();
    let write = |at: usize, members: &[u16]| {
        let text = configuration(origin.address, listen[at], "8MiB", ports[at], members);
        home.write(&format!("{at}.toml"), text)
    };
    let mut members: Vec<OurServer> =
        (0..4).map(|at| OurServer::configured(&write(at, &ports[..4]))).collect();
    let mut killed = members.pop().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let until = Instant::now() + Duration::from_secs(60);
    let load = |number: u64, address: SocketAddr| {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            let (mut client, mut random, mut count) = (Client::new(address), Random(number + 1), 0);
            while !stop.load(Ordering::Relaxed) && Instant::now() < until && count < 200_000 {
                let object = (random.next() * 3000.0) as u64;
                let size = size_of(object);
                let got = client.get(&format!("/{object}/{size}"));
                assert_eq!(got, Ok(size), "request {count}");
                count += 1;
            }
            count
        })
    };
    let addresses = members.iter().map(OurServer::address);
    let clients: Vec<_> = addresses.zip(0..).map(|(address, at)| load(at, address)).collect();
    let requests = |server: &OurServer| metric(server, "plimsoll_requests_total");
    wait_for("the member's share", SOON, || (requests(&killed) > 200).then_some(()));
    // Bodies that are on their way at that moment, some of them from the member that is killed.
    let one = members[0].address();
    let slow = |number: usize| {
        std::thread::spawn(move || {
            let (mut client, size) = (Client::new(one), TAGGED_BYTES_MIN + number);
            (client.get(&format!("/slow{number}/{size}")), size)
        })
    };
    let slow: Vec<_> = (0..SLOW).map(slow).collect();
    let busy = || metric(&members[0], "plimsoll_connections_busy") >= SLOW as u64;
    wait_for("the slow requests", SOON, || busy().then_some(()));
    std::thread::sleep(Duration::from_millis(200));
    killed.child.signal("KILL");
    killed.child.ended(SOON);
    go.store(true, Ordering::Relaxed);
    for client in slow {
        let (got, size) = client.join().unwrap();
        assert_eq!(got, Ok(size));
    }
    std::thread::sleep(Duration::from_secs(2));
    let new = [ports[0], ports[1], ports[2], ports[4]];
    let added = OurServer::configured(&write(4, &new));
    for (at, member) in members.iter().enumerate() {
        write(at, &new);
        plimsoll(&["reload", "--admin", &member.admin().to_string()]).succeeded();
    }
    wait_for("the share of the added member", SOON, || (requests(&added) > 200).then_some(()));
    stop.store(true, Ordering::Relaxed);
    let sent: Vec<u64> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    let continued = metric(&members[0], "plimsoll_cluster_continued_total");
    println!("requests: {sent:?}; continued: {continued}");
    assert!(continued > 0, "of {SLOW} bodies, some were on their way from the killed member");
    assert!(sent.iter().all(|count| *count > 300), "{sent:?}");
    let answer = get(members[0].admin(), "/upstreams");
    let shown: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let listed = shown["cluster"]["members"].as_array().unwrap();
    assert_eq!(listed.len(), 4, "{shown}");
    assert!(listed.iter().all(|member| member["state"] == "up"), "{shown}");
    let purged = plimsoll(&["purge", "--all", "--admin", &members[0].admin().to_string()]);
    assert_eq!(purged.code, Some(0), "{purged:?}");
    drop(added);
    let admin = members[0].admin().to_string();
    let purged = plimsoll(&["purge", "--all", "--admin", &admin]);
    assert_eq!(purged.code, Some(1), "{purged:?}");
    assert!(purged.stderr.contains(&format!("127.0.0.1:{}", ports[4])), "{purged:?}");
}

/// What `check` finds.
#[test]
fn mistakes_of_a_cluster_are_found() {
    let home = Home::new();
    let check = |cluster: &str| {
        let text = format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"a\"\n\
             [[upstream.server]]\nurl = \"http://127.0.0.1:1\"\n[cluster]\n{cluster}\n"
        );
        plimsoll(&["check", &home.write("c.toml", text)])
    };
    for (cluster, word) in [
        ("members = [\"127.0.0.1:1\", \"127.0.0.1:2\"]", "listen"),
        ("listen = \"127.0.0.1:1\"", "who are the members"),
        ("listen = \"127.0.0.1:1\"\nmembers = [\"127.0.0.1:1\"]", "no cluster"),
        ("listen = \"127.0.0.1:1\"\nmembers = [\"127.0.0.1:2\", \"127.0.0.1:3\"]", "NAT"),
        ("listen = \"127.0.0.1:1\"\nname = \"localhost\"", "a host and a port"),
        (
            "listen = \"127.0.0.1:1\"\nname = \"localhost:1\"\n\
             members = [\"127.0.0.1:1\", \"127.0.0.1:2\"]",
            "not both",
        ),
        ("listen = \"127.0.0.1:1\"\nmembers = [\"127.0.0.1:1\", \"127.0.0.1:1\"]", "twice"),
        (
            "listen = \"127.0.0.1:1\"\nmembers = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n\
             [[listen]]\naddress = \"127.0.0.1:7\"\nrole = \"forward\"",
            "not both",
        ),
    ] {
        let found = check(cluster);
        assert_eq!(found.code, Some(2), "{found:?}");
        assert!(found.stderr.contains(word), "no {word:?}: {found:?}");
    }
    let good = check("listen = \"0.0.0.0:1\"\nmembers = [\"127.0.0.1:1\", \"192.0.2.1:1\"]");
    let text = good.succeeded().stdout;
    assert!(text.contains("share its store with 127.0.0.1:1, which is this server"), "{text}");
}
