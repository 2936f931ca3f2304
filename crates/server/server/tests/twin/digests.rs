//! Cache digests: ours, as other caches fetch it, and that of a sibling, by which requests go.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use config::{AskedPeer, DigestServer, Group, PeerKind};
use peering::digest::{Digest, HEADER_BYTES, Key, SQUID_FIRST_BYTES};
use runtime::net::TcpStream;
use runtime::sim::{self, Disk};
use runtime::time::sleep;
use server::{Config, Origin as OriginUrl};

use crate::common::Response;
use crate::origin::expected;
use crate::parents::{Neighbour, hierarchy, log_of};
use crate::siblings::{HERE, SIBLING, figure, get};
use crate::tunnels::{Peer, open};
use crate::world::{ADMIN, Client, Version, World, address, each_way, on_disk, reverse, run, with};

const MINUTE: Duration = Duration::from_secs(60);
/// How long a disk takes.
const QUICK: Range<Duration> = Duration::from_micros(20)..Duration::from_micros(200);
const PATH: &str = "/squid-internal-periodic/store_digest";

fn serving(from: &str) -> Option<DigestServer> {
    Some(DigestServer { allow_from: vec![from.parse().unwrap()], interval: MINUTE })
}

/// A proxy that goes by the digest of the sibling.
fn beside() -> Config {
    let mut config = open();
    let group = Group::of(SIBLING, [OriginUrl::at(address(SIBLING))]);
    let asked = AskedPeer::new(PeerKind::Sibling, group, None, Duration::from_secs(2));
    let mut peers = hierarchy(&[]);
    peers.parents = None;
    peers.asked = vec![AskedPeer { digest: true, ..asked }];
    config.hierarchy = Some(peers);
    config
}

/// The sibling itself.
fn sibling() -> Neighbour {
    let mut config = open();
    config.digest = serving("0.0.0.0/0");
    config.purge.from = vec!["0.0.0.0/0".parse().unwrap()];
    Neighbour::start(SIBLING, config)
}

/// The sibling has this response, and we have the digest that says so.
async fn known(path: &str) -> Neighbour {
    let sibling = sibling();
    get(SIBLING, path, "").await;
    // It makes its digest each minute, and we fetch it each minute.
    sleep(3 * MINUTE).await;
    assert_eq!(figure("digest_usable").await, 1);
    sibling
}

async fn purge(at: &str, path: &str) {
    let request = format!("PURGE http://10.0.0.2{path} HTTP/1.1\r\nHost: 10.0.0.2\r\n\r\n");
    let mut client = Client::over(Version::Http1, at).await.unwrap();
    assert_eq!(client.ask(request.as_bytes()).await.status, 200);
}

#[test]
fn a_request_goes_to_the_sibling_whose_digest_has_its_url() {
    each_way(beside, async |world: Rc<World>| {
        let path = "/s?size=300&cc=max-age=3000";
        let sibling = known(path).await;
        for _ in 0..2 {
            let got = get(HERE, path, "").await;
            assert_eq!((got.status, got.body), (200, expected(path, None)));
        }
        assert_eq!((world.origin.count(path), sibling.counter("hits")), (1, 1));
        let other = "/other?size=30&cc=max-age=60";
        assert_eq!(get(HERE, other, "").await.body, expected(other, None));
        assert_eq!(world.origin.count(other), 1);
        assert_eq!((figure("digest_hits").await, figure("digest_false_hits").await), (1, 0));
        assert_eq!(figure("queries").await, 0);
        assert!(figure("digest_bytes").await > 128 && figure("digest_set_ppm").await > 0);
        let log = log_of(&world).await;
        let by_digest = " CD_SIBLING_HIT/10.0.0.8 ";
        assert!(log.contains(by_digest) && log.contains(" HIER_DIRECT/10.0.0.2 "), "{log}");
        assert!(!sibling.log().contains("/other"), "it gets no misses");
    });
}

#[test]
fn a_false_hit_by_digest_is_counted_and_the_client_does_not_notice_it() {
    each_way(beside, async |world: Rc<World>| {
        let path = "/f?size=300&cc=max-age=3000";
        let _sibling = known(path).await;
        purge(SIBLING, path).await;
        let got = get(HERE, path, "").await;
        assert_eq!((got.status, got.body), (200, expected(path, None)));
        assert_eq!(world.origin.count(path), 2);
        assert_eq!((figure("digest_hits").await, figure("digest_false_hits").await), (0, 1));
        assert_eq!(world.counter("upstream_errors"), 0);
    });
}

#[test]
fn an_old_digest_is_used_no_more() {
    each_way(beside, async |world: Rc<World>| {
        let path = "/o?size=30&cc=max-age=3000";
        drop(known(path).await);
        sleep(3 * MINUTE).await;
        assert_eq!(figure("digest_usable").await, 0);
        assert!(figure("digest_failures").await > 1);
        assert_eq!(get(HERE, path, "").await.status, 200);
        assert_eq!((world.origin.count(path), figure("digest_hits").await), (2, 0));
        // It is fetched again when the sibling is back.
        let _sibling = sibling();
        sleep(10 * MINUTE).await;
        assert_eq!(figure("digest_usable").await, 1);
    });
}

/// All URLs are in this one.
fn full() -> Vec<u8> {
    let mut bytes = Vec::new();
    Digest::new(160).write(&mut bytes);
    bytes[HEADER_BYTES..].fill(0xff);
    bytes
}

#[test]
fn a_useless_digest_sends_no_request_anywhere() {
    let answers = [
        ("200 OK", full(), 1),
        ("200 OK", b"this is no digest".to_vec(), 0),
        ("404 Not Found", Vec::new(), 0),
    ];
    for (status, content, fetched) in answers {
        each_way(beside, async |world: Rc<World>| {
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", content.len());
            let answer = [answer.as_bytes(), &content].concat();
            let sibling = Peer::start(SIBLING, async move |peer, stream: TcpStream| {
                let mut piece = [0; 2000];
                while let Ok(read @ 1..) = stream.read(&mut piece).await {
                    peer.got.borrow_mut().extend_from_slice(&piece[..read]);
                    if peer.got.borrow().ends_with(b"\r\n\r\n") {
                        stream.write_all(&answer).await.ok();
                    }
                }
            });
            sleep(MINUTE / 2).await;
            let path = "/u?size=30&cc=max-age=60";
            assert_eq!(get(HERE, path, "").await.body, expected(path, None));
            assert_eq!(world.origin.count(path), 1);
            let sent = String::from_utf8(sibling.got.borrow().clone()).unwrap();
            let first = format!("GET {PATH} HTTP/1.1\r\nHost: {SIBLING}\r\n");
            assert!(sent.starts_with(&first) && !sent.contains("/u?"), "{sent}");
            assert_eq!(
                (figure("digest_usable").await, figure("digest_fetches").await),
                (0, fetched)
            );
        });
    }
}

#[test]
fn a_digest_is_not_consulted_for_what_was_purged_here_or_what_rules_keep_here() {
    each_way(beside, async |world: Rc<World>| {
        let path = "/p?size=30&cc=max-age=3000";
        let sibling = known(path).await;
        for fields in ["Authorization: Basic am86c2VjcmV0\r\n", "Cache-Control: no-cache\r\n"] {
            assert_eq!(get(HERE, path, fields).await.status, 200);
        }
        let url = "http://10.0.0.2/p%3fsize%3d30%26cc%3dmax-age%3d3000";
        let request =
            format!("POST /purge?url={url} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(Client::to(ADMIN).await.unwrap().ask(request.as_bytes()).await.status, 200);
        assert_eq!(get(HERE, path, "").await.status, 200);
        assert_eq!((world.origin.count(path), sibling.counter("hits")), (4, 0));
    });
    let direct = with(beside, |config| {
        config.hierarchy.as_mut().unwrap().always_direct = vec!["*".parse().unwrap()];
    });
    each_way(direct, async |world: Rc<World>| {
        let path = "/d?size=30&cc=max-age=3000";
        let _sibling = known(path).await;
        assert_eq!(get(HERE, path, "").await.status, 200);
        assert_eq!(world.origin.count(path), 2);
    });
}

#[test]
fn an_explanation_names_the_peer_whose_digest_has_the_url() {
    each_way(beside, async |_: Rc<World>| {
        let path = "/e?size=30&cc=max-age=3000";
        let _sibling = known(path).await;
        for (about, peer) in [("e%3fsize%3d30%26cc%3dmax-age%3d3000", SIBLING), ("none", "")] {
            let request =
                format!("GET /explain?url=http://10.0.0.2/{about} HTTP/1.1\r\nHost: a\r\n\r\n");
            let got = Client::to(ADMIN).await.unwrap().ask(request.as_bytes()).await;
            let shown: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
            assert_eq!(shown["request"]["digest"].as_str().unwrap_or_default(), peer, "{shown}");
            assert_eq!(shown["request"]["asks"].as_array().unwrap().len(), 0);
        }
    });
}

/// A sibling that has nothing of what it says.
#[test]
fn a_digest_that_is_always_wrong_is_left_alone_until_the_next() {
    each_way(beside, async |world: Rc<World>| {
        let mut config = open();
        let server = serving("0.0.0.0/0").unwrap();
        config.digest = Some(DigestServer { interval: 10 * MINUTE, ..server });
        config.purge.from = vec!["0.0.0.0/0".parse().unwrap()];
        let sibling = Neighbour::start(SIBLING, config);
        let path = |at: usize| format!("/b{at}?size=30&cc=max-age=3000");
        for at in 0..230 {
            get(SIBLING, &path(at), "").await;
        }
        // The digest of minute 7 is valid until minute 17.
        sleep(9 * MINUTE).await;
        for at in 0..230 {
            purge(SIBLING, &path(at)).await;
        }
        for at in 0..230 {
            assert_eq!(get(HERE, &path(at), "").await.body, expected(&path(at), None));
        }
        assert_eq!((figure("digest_false_hits").await, figure("rests").await), (200, 1));
        assert_eq!(figure("digest_usable").await, 0);
        assert_eq!(world.origin.seen.borrow().len(), 460);
        // Its next hit is one.
        let path = "/true?size=30&cc=max-age=3000";
        get(SIBLING, path, "").await;
        sleep(12 * MINUTE).await;
        get(HERE, path, "").await;
        assert_eq!((figure("digest_hits").await, figure("rests").await), (1, 1));
        assert_eq!(sibling.counter("hits"), 1);
    });
}

fn digest_of(got: &Response) -> Digest<Vec<u8>> {
    assert_eq!(got.status, 200);
    assert_eq!(got.field("content-type"), Some("application/cache-digest"));
    let digest = Digest::read(&got.body).expect("a digest");
    assert!(digest.is_useful());
    digest.with_own_mask()
}

fn has(digest: &Digest<Vec<u8>>, url: &str) -> bool {
    digest.contains(&Key::of_get(url.as_bytes()))
}

#[test]
fn our_digest_has_what_stays_fresh_and_is_for_the_networks_that_are_listed() {
    let config = with(open, |config| config.digest = serving("0.0.0.0/0"));
    each_way(config, async |_: Rc<World>| {
        let kept = "/kept?size=30&cc=max-age=3000";
        let varies = "/varies?size=30&cc=max-age=3000&vary=x-color";
        for path in [kept, "/short?size=30&cc=max-age=30", "/none?size=30&cc=no-store"] {
            get(HERE, path, "").await;
        }
        get(HERE, varies, "X-Color: red\r\n").await;
        let url = format!("http://10.0.0.1{PATH}");
        sleep(MINUTE + MINUTE / 2).await;
        let got = Client::new().await.get(&url, "").await;
        let digest = digest_of(&got);
        assert!(has(&digest, &format!("http://10.0.0.2{kept}")));
        assert_eq!(digest.header().count(), 1, "no other is a hit for a plain GET until the next");
        let age: u64 = got.field("cache-control").unwrap()["max-age=".len()..].parse().unwrap();
        assert!(age <= 60 && got.field("expires").is_some());
        let head = Client::new().await.head(&url, "").await;
        let length = got.body.len().to_string();
        assert_eq!((head.status, head.field("content-length")), (200, Some(&length[..])));
        let condition = format!("If-None-Match: {}\r\n", got.field("etag").unwrap());
        assert_eq!(Client::new().await.get(&url, &condition).await.status, 304);
        // As Squid asks: of us, as if we were the origin.
        let request = format!("GET {PATH} HTTP/1.1\r\nHost: cache.test:3128\r\n\r\n");
        let got = Client::http1().await.ask(request.as_bytes()).await;
        assert_eq!(digest_of(&got), digest);
        get(HERE, varies, "").await;
        sleep(MINUTE + MINUTE / 2).await;
        let digest = digest_of(&Client::new().await.get(&url, "").await);
        assert!(has(&digest, &format!("http://10.0.0.2{varies}")));
        assert_eq!(digest.header().count(), 2);
    });
    for (rules, status) in [(serving("192.0.2.0/24"), 403), (None, 400)] {
        let config = with(open, |config| config.digest.clone_from(&rules));
        each_way(config, async |_: Rc<World>| {
            let request = format!("GET {PATH} HTTP/1.1\r\nHost: cache.test:3128\r\n\r\n");
            assert_eq!(Client::http1().await.ask(request.as_bytes()).await.status, status);
        });
    }
}

#[test]
fn our_digest_is_there_on_reverse_listeners_too() {
    let config = with(reverse, |config| config.digest = serving("0.0.0.0/0"));
    each_way(config, async |_: Rc<World>| {
        let path = "/r?size=30&cc=max-age=3000";
        // Without TLS there is no listener for `https`.
        let mut client = Client::http1().await;
        client.get(path, "").await;
        sleep(MINUTE + MINUTE / 2).await;
        let digest = digest_of(&Client::http1().await.get(PATH, "").await);
        assert!(has(&digest, &format!("http://site{path}")));
        assert_eq!(digest.header().count(), 1);
    });
}

/// A server with a store on disk, and with a digest for all.
fn announcing() -> Config {
    let mut config = on_disk(open());
    config.digest = serving("0.0.0.0/0");
    config
}

#[test]
fn our_digest_has_what_only_the_disk_has_and_not_what_was_purged() {
    sim::check(0..3, |seed| {
        let disk = Disk::new(seed);
        let options = |seed| sim::Options::rough(seed).with_disk(disk.clone(), QUICK);
        let path = |at: usize| format!("/disk{at}?size=900&cc=max-age=3000");
        let url = format!("http://10.0.0.1{PATH}");
        run(options(seed), announcing(), async |_: Rc<World>| {
            for at in 0..6 {
                get(HERE, &path(at), "").await;
            }
            get(HERE, &format!("{}&vary=x-color", path(6)), "X-Color: red\r\n").await;
            // Written within a quarter of a second, synced within five.
            sleep(Duration::from_secs(6)).await;
        });
        run(options(seed + 1000), announcing(), async |world: Rc<World>| {
            sleep(Duration::from_secs(5)).await;
            let digest = digest_of(&Client::new().await.get(&url, "").await);
            assert_eq!(digest.header().count(), 6);
            assert!((0..6).all(|at| has(&digest, &format!("http://10.0.0.2{}", path(at)))));
            let purge = b"POST /purge?prefix=http://10.0.0.2/disk0 HTTP/1.1\r\nHost: a\r\n\
                          Content-Length: 0\r\n\r\n";
            assert_eq!(Client::to(ADMIN).await.unwrap().ask(purge).await.status, 200);
            sleep(MINUTE + MINUTE / 2).await;
            let digest = digest_of(&Client::new().await.get(&url, "").await);
            assert_eq!(digest.header().count(), 5);
            assert_eq!(world.origin.seen.borrow().len(), 0, "a digest fetches nothing");
        });
    });
}

#[test]
fn our_digest_has_nothing_that_was_purged_softly_and_that_only_the_disk_has() {
    sim::check(0..3, |seed| {
        let disk = Disk::new(seed);
        let options = |seed| sim::Options::rough(seed).with_disk(disk.clone(), QUICK);
        let path = |at: usize| format!("/disk{at}?size=900&cc=max-age=3000");
        run(options(seed), announcing(), async |_: Rc<World>| {
            for at in 0..3 {
                get(HERE, &path(at), "").await;
            }
            sleep(Duration::from_secs(6)).await;
        });
        run(options(seed + 1000), announcing(), async |_: Rc<World>| {
            let purge = b"POST /purge?prefix=http://10.0.0.2/disk0&soft=1 HTTP/1.1\r\nHost: a\r\n\
                          Content-Length: 0\r\n\r\n";
            assert_eq!(Client::to(ADMIN).await.unwrap().ask(purge).await.status, 200);
            sleep(MINUTE + MINUTE / 2).await;
            let url = format!("http://10.0.0.1{PATH}");
            let digest = digest_of(&Client::new().await.get(&url, "").await);
            assert!(!has(&digest, &format!("http://10.0.0.2{}", path(0))));
            assert_eq!(digest.header().count(), 2);
        });
    });
}

/// The disk here takes too long for all that is on it.
#[test]
fn our_first_digest_does_not_wait_for_the_disk_and_the_next_has_what_was_read_in_time() {
    sim::check(0..1, |seed| {
        let disk = Disk::new(seed);
        let path = |at: usize| format!("/disk{at}?size=900&cc=max-age=3000");
        let options =
            |seed, read: Duration| sim::Options::new(seed).with_disk(disk.clone(), read..read * 2);
        run(options(seed, Duration::from_micros(20)), announcing(), async |_: Rc<World>| {
            for at in 0..60 {
                get(HERE, &path(at), "").await;
            }
            sleep(Duration::from_secs(6)).await;
        });
        let slow = Duration::from_secs(1);
        run(options(seed + 1000, slow), announcing(), async |_: Rc<World>| {
            let url = format!("http://10.0.0.1{PATH}");
            sleep(Duration::from_secs(2)).await;
            let first = Client::new().await.get(&url, "").await;
            assert_eq!(digest_of(&first).header().count(), 0, "memory has none");
            sleep(MINUTE + MINUTE / 2).await;
            let second = digest_of(&Client::new().await.get(&url, "").await);
            let count = second.header().count();
            assert!((1..60).contains(&count), "{count} of 60");
            // The next one begins with those that there was no time for.
            sleep(2 * MINUTE).await;
            let third = digest_of(&Client::new().await.get(&url, "").await);
            let is_new = |at: &usize| {
                let url = format!("http://10.0.0.2{}", path(*at));
                has(&third, &url) && !has(&second, &url)
            };
            assert!((0..60).any(|at| is_new(&at)), "the same URLs again");
        });
    });
}

#[test]
fn our_digest_has_no_error_and_after_a_domain_is_denied_nothing_of_it() {
    sim::check(0..3, |seed| {
        let disk = Disk::new(seed);
        let options = |seed| sim::Options::rough(seed).with_disk(disk.clone(), QUICK);
        let of_url = async || {
            let got = Client::new().await.get(&format!("http://10.0.0.1{PATH}"), "").await;
            digest_of(&got)
        };
        run(options(seed), announcing(), async |_: Rc<World>| {
            let path = "/d?size=30&cc=max-age=3000";
            get(HERE, path, "").await;
            get(HERE, "/broken?size=30&status=500&cc=max-age=3000", "").await;
            sleep(MINUTE + MINUTE / 2).await;
            let digest = of_url().await;
            assert!(has(&digest, &format!("http://10.0.0.2{path}")));
            assert_eq!(digest.header().count(), 1);
        });
        let mut denied = announcing();
        denied.forward.deny_domains = vec!["10.0.0.2".parse().unwrap()];
        run(options(seed + 1000), denied, async |_: Rc<World>| {
            sleep(MINUTE + MINUTE / 2).await;
            assert_eq!(of_url().await.header().count(), 0);
        });
    });
}

#[test]
fn the_digest_of_another_host_is_requested_from_it() {
    let config = with(open, |config| config.digest = serving("192.0.2.0/24"));
    each_way(config, async |world: Rc<World>| {
        let got = get(HERE, PATH, "").await;
        assert_ne!(got.field("content-type"), Some("application/cache-digest"));
        assert_eq!((got.status, world.origin.count(PATH)), (200, 1));
        let ours = format!("http://10.0.0.1{PATH}");
        assert_eq!(Client::new().await.get(&ours, "").await.status, 403);
    });
}

/// Squid reads a digest wrongly if more of it comes with the head.
#[test]
fn our_digest_is_sent_in_two_parts() {
    let config = with(open, |config| config.digest = serving("0.0.0.0/0"));
    sim::check(0..1, |seed| {
        run(sim::Options::new(seed), config(), async |_: Rc<World>| {
            for at in 0..400 {
                get(HERE, &format!("/{at}?size=1&cc=max-age=3000"), "").await;
            }
            sleep(MINUTE + MINUTE / 2).await;
            let client = Client::http1().await;
            let request = format!("GET {PATH} HTTP/1.1\r\nHost: a\r\n\r\n");
            client.send(request.as_bytes()).await.unwrap();
            let (mut got, mut piece) = (Vec::new(), [0; 16 * 1024]);
            let content = |got: &[u8]| {
                let head = got.windows(4).position(|four| four == b"\r\n\r\n");
                head.map_or(0, |head| got.len() - head - 4)
            };
            while content(&got) < SQUID_FIRST_BYTES {
                let read = client.stream().read(&mut piece).await.unwrap();
                got.extend_from_slice(&piece[..read]);
            }
            assert_eq!(content(&got), SQUID_FIRST_BYTES);
            assert!(client.stream().read(&mut piece).await.unwrap() > 0);
        });
    });
}
