//! Hierarchies with Debian's Squid: as our parent, as our sibling, and as a child and sibling that
//! asks us. What was served across is counted the same in both logs.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{
    Home, OurServer, Running, SOON, am_root, free_port, get, id, output_file, program, wait_for,
};

/// Objects of each measurement. For a long one, set `PLIMSOLL_HIERARCHY_REQUESTS=10000`.
pub(crate) const FEW: usize = 40;

/// A running Squid. It has another address than ours, because it ignores datagrams from its own.
pub(crate) struct Squid {
    pub(crate) child: Running,
    pub(crate) http: SocketAddr,
    pub(crate) icp: u16,
    htcp: u16,
    name: &'static str,
}

impl Squid {
    /// `{at}` is its directory.
    pub(crate) fn start(home: &Home, name: &'static str, more: &str) -> Squid {
        Squid::with_access(home, name, &format!("http_access allow all\n{more}"))
    }

    /// The same with other rules on who may use it.
    pub(crate) fn with_access(home: &Home, name: &'static str, more: &str) -> Squid {
        let squid = program("squid", "squid");
        let own = home.path().join(name);
        fs::create_dir(&own).unwrap();
        let user = if am_root() {
            let number = |flag| id(flag, Some("proxy")).parse().ok();
            std::os::unix::fs::chown(&own, number("-u"), number("-g")).unwrap();
            "cache_effective_user proxy"
        } else {
            ""
        };
        let (at, port) = (own.display(), free_port());
        let more = more.replace("{at}", &at.to_string());
        let (icp, htcp) = (free_port(), free_port());
        let conf = home.write(
            &format!("{name}.conf"),
            format!(
                "http_port 127.0.0.2:{port}
icp_port {icp}
udp_incoming_address 127.0.0.2
acl all_ src all
icp_access allow all_
htcp_port {htcp}
htcp_access allow all_
htcp_clr_access allow all_
cache_mem 128 MB
memory_cache_shared off
access_log stdio:{at}/access.log squid
log_icp_queries on
cache_log {at}/cache.log
pid_filename {at}/squid.pid
coredump_dir {at}
{user}
{more}
visible_hostname {name}.test
shutdown_lifetime 0 seconds
pinger_enable off
max_filedescriptors 4096
"
            ),
        );
        let flags = home.squid(name, &conf);
        if more.contains("cache_dir") {
            let made = Command::new(&squid).args(&flags).arg("-z").output().unwrap();
            assert!(made.status.success(), "{made:?}");
        }
        let mut child = Running::start(
            Command::new(squid)
                .args(flags)
                .stdout(Stdio::null())
                .stderr(output_file(home, &format!("{name}.err"))),
        );
        let http = SocketAddr::from(([127, 0, 0, 2], port));
        wait_for("squid", SOON, || {
            assert!(!child.has_ended(), "{}", home.read(&format!("{name}.err")));
            TcpStream::connect(http).ok()
        });
        Squid { child, http, icp, htcp, name }
    }

    /// The lines of its log that contain all of these words.
    pub(crate) fn count(&self, home: &Home, words: &[&str]) -> usize {
        lines(&home.read(&format!("{}/access.log", self.name)), words)
    }
}

/// Objects that are not counted.
pub(crate) const WARM: &str = "/obj/9000000";

pub(crate) fn lines(log: &str, words: &[&str]) -> usize {
    let counts = |line: &&str| !line.contains(WARM);
    log.lines().filter(counts).filter(|line| words.iter().all(|word| line.contains(word))).count()
}

/// Our forward proxy with its log.
pub(crate) fn ours(home: &Home, name: &str, more: &str) -> OurServer {
    let log = home.at(&format!("{name}.log"));
    let text = format!(
        "[server]\nworkers = 1\nadmin = \"127.0.0.1:0\"\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"forward\"\n\
         [forward]\nallow_to = [\"127.0.0.0/8\"]\nconnect_ports = [\"1-65535\"]\n\
         check_server_name = false\n[log]\npath = {log:?}\n{more}"
    );
    OurServer::configured(&home.write(&format!("{name}.toml"), text))
}

/// Requests over one connection, each of which must be answered with 200.
pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) fn to(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client(stream)
    }

    /// The head of the response.
    pub(crate) fn get(&mut self, url: &str) -> String {
        let request = format!("GET {url} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        self.0.write_all(request.as_bytes()).unwrap();
        let (mut got, mut piece) = (Vec::new(), [0; 16 * 1024]);
        loop {
            // A read with a time-out ends with a signal, such as that of a process that went on.
            let read = match self.0.read(&mut piece) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.unwrap(),
            };
            assert!(read > 0, "{url}: {}", String::from_utf8_lossy(&got));
            got.extend_from_slice(&piece[..read]);
            let Some(end) = got.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&got[..end]).into_owned();
            assert!(head.starts_with("HTTP/1.1 200 "), "{url}: {head}");
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let length: usize = length.expect("a length").parse().unwrap();
            if got.len() == end + 4 + length {
                return head;
            }
        }
    }
}

pub(crate) fn urls(origin: &OurServer, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("{}/obj/{at}", origin.url())).collect()
}

/// Asks for each once.
pub(crate) fn fetch(address: SocketAddr, urls: &[String]) {
    let mut client = Client::to(address);
    for url in urls {
        client.get(url);
    }
}

/// Waits until a log has as many such lines.
pub(crate) fn logged(what: &str, expected: usize, count: impl Fn() -> usize) {
    wait_for(what, SOON, || (count() >= expected).then_some(()));
    assert_eq!(count(), expected, "{what}");
}

#[test]
fn squid_is_a_parent() {
    let home = Home::new();
    let origin = OurServer::origin();
    let squid = Squid::start(&home, "parent", "");
    let peer =
        format!("[[peer]]\nurl = \"http://{}\"\n[hierarchy]\nnever_direct = [\"*\"]\n", squid.http);
    let urls = urls(&origin, FEW);
    fetch(squid.http, &urls[..FEW / 2]);
    let child = ours(&home, "child", &peer);
    fetch(child.address(), &urls);
    fetch(child.address(), &urls);
    let log = || home.read("child.log");
    logged("our hits", FEW, || lines(&log(), &["TCP_MEM_HIT/200"]));
    logged("our misses", FEW, || lines(&log(), &["TCP_MISS/200", " FIRSTUP_PARENT/127.0.0.2 "]));
    // From its own client each was a miss.
    logged("hits of Squid", FEW / 2, || squid.count(&home, &["TCP_MEM_HIT/200", "127.0.0.1"]));
    logged("misses of Squid", FEW, || squid.count(&home, &["TCP_MISS/200"]));
    // A purge here is not undone by Squid, which has it: it validates.
    let purge = Command::new(crate::PLIMSOLL)
        .args(["purge", "--admin", &child.admin().to_string(), &urls[0]])
        .output()
        .unwrap();
    assert!(purge.status.success(), "{purge:?}");
    // Also after a reload.
    child.child.signal("HUP");
    let reloaded = || get(child.admin(), "/metrics");
    wait_for("the reload", SOON, || {
        reloaded().lines().any(|line| line == "plimsoll_config_reloads_total 1").then_some(())
    });
    fetch(child.address(), &urls[..1]);
    let asked = format!("GET {} - HIER_DIRECT/", urls[0]);
    logged("Squid asks the origin again", 2, || squid.count(&home, &[&asked]));
    // A tunnel.
    let mut stream = TcpStream::connect(child.address()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let to = origin.address();
    let tunnelled = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
    stream.write_all(tunnelled.as_bytes()).unwrap();
    let mut head = [0; 19];
    stream.read_exact(&mut head).unwrap();
    assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
}

/// How many objects a measurement takes.
pub(crate) fn objects() -> usize {
    let count = std::env::var("PLIMSOLL_HIERARCHY_REQUESTS").ok();
    count.map_or(FEW, |count| count.parse().unwrap())
}

#[test]
fn squid_is_a_sibling_both_ways() {
    let count = objects();
    for protocol in ["icp", "htcp"] {
        across(&Home::new(), count, protocol);
    }
}

/// Squid and we are siblings of each other. Half of the objects are first fetched by the other.
fn across(home: &Home, count: usize, protocol: &str) {
    let origin = OurServer::origin();
    let (queries, port) = (free_port(), free_port());
    let by_htcp = protocol == "htcp";
    let to_us = format!(
        // Squid asks no peer about origins that are near.
        "cache_peer 127.0.0.1 sibling {port} {queries} {}\nicp_query_timeout 2000\n\
         minimum_direct_hops 0\nminimum_direct_rtt 0",
        if by_htcp { "htcp" } else { "" }
    );
    let squid = Squid::start(home, "sibling", &to_us);
    let more = format!(
        "[[peer]]\nurl = \"http://{}\"\nkind = \"sibling\"\n{protocol} = {}\n\
         [{protocol}]\nlisten = \"127.0.0.1:{queries}\"\nallow_from = [\"127.0.0.0/8\"]\n",
        squid.http,
        if by_htcp { squid.htcp } else { squid.icp }
    );
    let log = home.at("ours.log");
    let text = format!(
        "[server]\nworkers = 1\nadmin = \"127.0.0.1:0\"\n\
         [[listen]]\naddress = \"127.0.0.1:{port}\"\nrole = \"forward\"\n\
         [forward]\nallow_to = [\"127.0.0.0/8\"]\n[log]\npath = {log:?}\n{more}"
    );
    let ours = OurServer::configured(&home.write("ours.toml", text));
    let all = urls(&origin, 2 * count);
    let (for_us, for_squid) = all.split_at(count);
    let half = count / 2;
    // We ask Squid, which has half of them.
    fetch(squid.http, &for_us[..half]);
    fetch(ours.address(), for_us);
    let our_log = || home.read("ours.log");
    logged("our hits in Squid", half, || lines(&our_log(), &[" SIBLING_HIT/127.0.0.2 "]));
    logged("our requests to the origin", count - half, || {
        lines(&our_log(), &["TCP_MISS/200", " HIER_DIRECT/127.0.0.1 "])
    });
    logged("hits that Squid announced", half, || squid.count(home, &["UDP_HIT/"]));
    logged("hits that Squid served", half, || squid.count(home, &["TCP_MEM_HIT/200"]));
    // Squid waits for the answers of a peer only after it has seen that one answers.
    let mut warm = 0;
    wait_for("Squid's trust in us", SOON, || {
        let url = [format!("{}{WARM}{warm}", origin.url())];
        warm += 1;
        fetch(ours.address(), &url);
        fetch(squid.http, &url);
        home.read("sibling/access.log").contains(" SIBLING_HIT/127.0.0.1 ").then_some(())
    });
    // Squid asks us, who have half of the others.
    fetch(ours.address(), &for_squid[..half]);
    fetch(squid.http, for_squid);
    logged("Squid's hits here", half, || squid.count(home, &[" SIBLING_HIT/127.0.0.1 "]));
    logged("hits that we served", half, || lines(&our_log(), &["TCP_MEM_HIT/200"]));
    let metrics = get(ours.admin(), "/metrics");
    let figure = |name: &str| {
        let start = format!("plimsoll_peer_{name}_total{{peer=\"{}\"}} ", squid.http);
        let value = metrics.lines().find_map(|line| line.strip_prefix(&start));
        value.unwrap_or_else(|| panic!("no {name}: {metrics}")).parse::<usize>().unwrap()
    };
    assert_eq!((figure("hits"), figure("false_hits"), figure("unanswered")), (half, 0, 0));
    assert_eq!(figure("queries"), count + half + warm);
    if by_htcp {
        // A purge here is one there.
        let purge = Command::new(crate::PLIMSOLL)
            .args(["purge", "--admin", &ours.admin().to_string(), &for_us[0]])
            .output()
            .unwrap();
        assert!(purge.status.success(), "{purge:?}");
        let asked = format!("GET {} - HIER_DIRECT/", for_us[0]);
        assert_eq!(squid.count(home, &[&asked]), 1);
        logged("the CLR", 2, || squid.count(home, &["HTCP_CLR"]));
        fetch(squid.http, &for_us[..1]);
        logged("Squid asks the origin again", 2, || squid.count(home, &[&asked]));
    }
    eprintln!(
        "{protocol}, {count} requests each way: {} hits in Squid, {} hits here, no false ones",
        figure("hits"),
        squid.count(home, &[" SIBLING_HIT/127.0.0.1 "])
    );
}

/// Otherwise each reload would cost a time-out.
#[test]
fn a_reload_keeps_what_is_known_of_a_dead_sibling() {
    let home = Home::new();
    let origin = OurServer::origin();
    // It receives queries and does not answer.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let peer = format!(
        "[[peer]]\nurl = \"http://127.0.0.1:{}\"\nkind = \"sibling\"\nicp = {port}\n",
        free_port()
    );
    let ours = ours(&home, "ours", &peer);
    let metrics = || get(ours.admin(), "/metrics");
    let unanswered = |count: usize| {
        let end = format!("\"}} {count}");
        let is_it = |line: &str| line.starts_with("plimsoll_peer_unanswered_total{");
        metrics().lines().any(|line| is_it(line) && line.ends_with(&end))
    };
    let urls = urls(&origin, 6);
    fetch(ours.address(), &urls[..3]);
    assert!(unanswered(1), "{}", metrics());
    ours.child.signal("HUP");
    wait_for("the reload", SOON, || {
        metrics().lines().any(|line| line == "plimsoll_config_reloads_total 1").then_some(())
    });
    fetch(ours.address(), &urls[3..]);
    assert!(unanswered(1), "{}", metrics());
}

/// Each client waits for it at most once, and no request fails.
#[test]
fn a_sibling_that_is_killed_fails_no_request() {
    const CLIENTS: usize = 4;
    const EACH: usize = 60;
    let home = Home::new();
    let origin = OurServer::origin();
    let squid = Squid::start(&home, "sibling", "");
    let peer = format!(
        "[[peer]]\nurl = \"http://{}\"\nkind = \"sibling\"\nicp = {}\n",
        squid.http, squid.icp
    );
    let ours = ours(&home, "ours", &peer);
    let urls = urls(&origin, CLIENTS * EACH);
    // Squid has all of them, so that it is in use when it dies.
    fetch(squid.http, &urls);
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for of_client in urls.chunks(EACH) {
            let (done, address) = (&done, ours.address());
            scope.spawn(move || {
                let mut client = Client::to(address);
                for url in of_client {
                    client.get(url);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while done.load(Ordering::Relaxed) < CLIENTS * EACH / 4 {
            std::thread::yield_now();
        }
        squid.child.signal("KILL");
    });
    let log = || home.read("ours.log");
    logged("all requests", CLIENTS * EACH, || lines(&log(), &["TCP_MISS/200"]));
    assert!(lines(&log(), &[" SIBLING_HIT/127.0.0.2 "]) >= CLIENTS * EACH / 4, "{}", log());
    let metrics = get(ours.admin(), "/metrics");
    let start = format!("plimsoll_peer_unanswered_total{{peer=\"{}\"}} ", squid.http);
    let unanswered = metrics.lines().find_map(|line| line.strip_prefix(&start)).unwrap();
    assert!(unanswered.parse::<usize>().unwrap() <= CLIENTS, "{unanswered}");
}
