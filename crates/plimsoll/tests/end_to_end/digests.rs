//! Cache digests with Debian's Squid, which is our sibling or parent, and whose sibling we are.
//! Each goes by the digest of the other, and both logs count the same.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::hierarchy::{Squid, WARM, fetch, lines, logged, objects, urls};
use crate::support::{Home, OurServer, SOON, free_port, get, wait_for};

/// Squid makes no digest without a store on disk.
const MAKES: &str = "cache_dir ufs {at}/store 500 4 4
digest_generation on
digest_rebuild_period 3 seconds
digest_rewrite_period 3 seconds
";

/// Squid asks no peer about origins that are near.
const ASKS: &str = "minimum_direct_hops 0\nminimum_direct_rtt 0\n";

#[test]
fn squid_has_a_digest_for_us() {
    for kind in ["sibling", "parent"] {
        by_its_digest(&Home::new(), objects(), kind);
    }
}

#[test]
fn we_have_a_digest_for_squid() {
    by_our_digest(&Home::new(), objects());
}

/// How many URLs are in the digest of a cache, as it says. Fetched as another cache would.
fn digest_urls(of: SocketAddr) -> Option<u32> {
    let mut stream = TcpStream::connect(of).ok()?;
    stream.set_read_timeout(Some(SOON)).unwrap();
    let request = format!(
        "GET /squid-internal-periodic/store_digest HTTP/1.1\r\nHost: {of}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).ok()?;
    let content = got.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let count = got.get(content + 8..content + 12)?;
    got.starts_with(b"HTTP/1.1 200 ").then(|| u32::from_be_bytes(count.try_into().unwrap()))
}

fn figure(ours: &OurServer, name: &str, peer: SocketAddr) -> u64 {
    let metrics = get(ours.admin(), "/metrics");
    let start = format!("plimsoll_peer_digest_{name}{{peer=\"{peer}\"}} ");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&start));
    value.unwrap_or_else(|| panic!("no {name}: {metrics}")).parse::<f64>().unwrap() as u64
}

/// The lines of a log in Squid's format with the status 504, which answers `only-if-cached`.
fn refused(log: &str) -> usize {
    let is_it = |line: &&str| line.split_whitespace().nth(3).is_some_and(|of| of.ends_with("/504"));
    log.lines().filter(is_it).count()
}

fn configured(home: &Home, port: u16, more: &str) -> OurServer {
    let log = home.at("ours.log");
    let text = format!(
        "[server]\nworkers = 1\nadmin = \"127.0.0.1:0\"\n\
         [[listen]]\naddress = \"127.0.0.1:{port}\"\nrole = \"forward\"\n\
         [forward]\nallow_to = [\"127.0.0.0/8\"]\n[log]\npath = {log:?}\n{more}"
    );
    OurServer::configured(&home.write("ours.toml", text))
}

/// Squid has half of the objects.
fn by_its_digest(home: &Home, count: usize, kind: &str) {
    let origin = OurServer::origin();
    let squid = Squid::start(home, "squid", MAKES);
    let (all, half) = (urls(&origin, count), count / 2);
    // It has its icons at first.
    let icons = wait_for("its first digest", SOON, || digest_urls(squid.http)) as usize;
    fetch(squid.http, &all[..half]);
    let has_all = |urls: &u32| *urls as usize >= icons + half;
    wait_for("its digest", SOON, || digest_urls(squid.http).filter(has_all));
    let peer =
        format!("[[peer]]\nurl = \"http://{}\"\nkind = \"{kind}\"\ndigest = true\n", squid.http);
    let ours = configured(home, free_port(), &peer);
    wait_for("our copy", SOON, || (figure(&ours, "usable", squid.http) == 1).then_some(()));
    fetch(ours.address(), &all);
    let our_log = || home.read("ours.log");
    logged("all requests", count, || lines(&our_log(), &["TCP_MISS/200"]));
    let hits = figure(&ours, "hits_total", squid.http) as usize;
    let false_hits = figure(&ours, "false_hits_total", squid.http) as usize;
    let by_digest = format!(" CD_{}_HIT/127.0.0.2 ", kind.to_uppercase());
    assert_eq!(lines(&our_log(), &[&by_digest]), hits);
    logged("hits that Squid served", half, || squid.count(home, &["_HIT/200", "/obj/"]));
    match kind {
        "sibling" => {
            assert_eq!(hits, half);
            assert_eq!(refused(&home.read("squid/access.log")), false_hits);
            assert_eq!(lines(&our_log(), &[" HIER_DIRECT/127.0.0.1 "]), count - half);
        }
        // What a parent has not, it fetches.
        _ => {
            assert!(hits >= half, "{hits} of {half}: {}", get(ours.admin(), "/metrics"));
            assert_eq!(lines(&our_log(), &[" FIRSTUP_PARENT/127.0.0.2 "]), count - hits);
        }
    }
    eprintln!(
        "by the digest of Squid, a {kind}, {count} requests: {hits} hits, {false_hits} false"
    );
}

/// We have half of the objects, and some more by which it is seen that Squid has our digest.
fn by_our_digest(home: &Home, count: usize) {
    const WARM_COUNT: usize = 200;
    let origin = OurServer::origin();
    let port = free_port();
    let serves = "[digest]\nallow_from = [\"127.0.0.0/8\"]\ninterval = \"1m\"\n";
    let ours = configured(home, port, serves);
    let (all, half) = (urls(&origin, count), count / 2);
    let warm: Vec<String> =
        (0..WARM_COUNT).map(|at| format!("{}{WARM}{at}", origin.url())).collect();
    fetch(ours.address(), &warm);
    fetch(ours.address(), &all[..half]);
    let has_all = |urls: &u32| *urls as usize == half + WARM_COUNT;
    // The first one was made at the start, and the second is a minute later.
    wait_for("our digest", 2 * Duration::from_secs(60), || {
        digest_urls(ours.address()).filter(has_all)
    });
    let to_us = format!("cache_peer 127.0.0.1 sibling {port} 0 no-query\n{ASKS}");
    let squid = Squid::start(home, "squid", &to_us);
    let mut warm = warm.iter();
    let by_digest = " CD_SIBLING_HIT/127.0.0.1 ";
    wait_for("its copy", SOON, || {
        std::thread::sleep(Duration::from_millis(50));
        let log = || home.read("ours.log") + &home.read("squid/access.log");
        let next = warm.next().unwrap_or_else(|| panic!("it has no digest: {}", log()));
        fetch(squid.http, std::slice::from_ref(next));
        home.read("squid/access.log").contains(by_digest).then_some(())
    });
    fetch(squid.http, &all);
    logged("all requests", count, || squid.count(home, &["GET ", "/obj/"]));
    let our_log = || home.read("ours.log");
    logged("hits that we served", half, || lines(&our_log(), &["TCP_MEM_HIT/200"]));
    assert_eq!(squid.count(home, &[by_digest]), half);
    assert_eq!(squid.count(home, &[" HIER_DIRECT/127.0.0.1 ", "/obj/"]), count - half);
    let false_hits = refused(&our_log());
    eprintln!("Squid by our digest, {count} requests: {half} hits, {false_hits} false");
}
