//! A cluster: several proxies in one simulated network, as one cache in front of the origin.
//!
//! The proxy of [`World`] takes no part. Each member is one host in `10.0.1.0/24`, where it
//! serves clients at port 80, other members at 7000 and its operator at 9090.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use config::{Cluster, ForwardedFields, Front, Origin as OriginUrl, RequestId, Role, Take};
use runtime::net::{ListenOptions, TcpListener, TcpStream};
use runtime::sim::{self, Disk, Faults};
use runtime::stop::StopSource;
use runtime::time::sleep;
use server::explain::Explained;
use server::{Config, Core, Listener, LogTo};
use upstream::members::{Members, url_number};
use upstream::registry::Registry;

use crate::common::Response;
use crate::origin::expected;
use crate::tunnels::{Peer, all_of, open};
use crate::world::{
    Client, Version, World, address, each_way, each_way_http1, http3, on_disk, reverse, run, scheme,
};

const SECOND: Duration = Duration::from_secs(1);
pub(crate) const ALL: [u8; 3] = [1, 2, 3];

pub(crate) fn at(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, host], port))
}

pub(crate) fn cluster(host: u8, hosts: &[u8]) -> Cluster {
    let cluster = Cluster::new(at(host, 7000), hosts.iter().map(|host| at(*host, 7000)).collect());
    // On this network all connections come from there.
    Cluster { allow_from: vec!["127.0.0.0/8".parse().unwrap()], ..cluster }
}

/// A member.
pub(crate) struct Node {
    host: u8,
    core: Core,
    members: Listener,
    log: Arc<Mutex<Vec<u8>>>,
    stop: StopSource,
}

impl Node {
    pub(crate) fn start(host: u8, hosts: &[u8]) -> Node {
        let node = Node::deaf(host, hosts, reverse());
        node.listens();
        node
    }

    /// One that members cannot connect to yet.
    pub(crate) fn deaf(host: u8, hosts: &[u8], config: Config) -> Node {
        Node::of(host, cluster(host, hosts), config)
    }

    pub(crate) fn of(host: u8, cluster: Cluster, mut config: Config) -> Node {
        let role = config.listeners[0].role;
        let front = config.listeners[0].front.clone();
        let clients = Listener { front, ..Listener::plain(at(host, 80), role) };
        let members = cluster.listener(role);
        config.listeners = vec![clients.clone(), members.clone()];
        config.cluster = Some(cluster);
        // Its name in Via comes from this.
        config.hash_seed = Some([host.into(), 77]);
        let log = Arc::new(Mutex::new(Vec::new()));
        let core = Core::of(config, 1, &LogTo::Memory(Arc::clone(&log))).pop().unwrap();
        let stop = StopSource::new();
        let datagrams = http3(&clients).into_iter().collect();
        let sockets = vec![(bind(at(host, 80)), clients)];
        let admin = Some(bind(at(host, 9090)));
        runtime::spawn(core.clone().run(sockets, datagrams, admin, stop.token())).detach();
        Node { host, core, members, log, stop }
    }

    /// Members can connect from now on.
    pub(crate) fn listens(&self) {
        let sockets = vec![(bind(at(self.host, 7000)), self.members.clone())];
        let serving = self.core.clone().run(sockets, Vec::new(), None, self.stop.token());
        runtime::spawn(serving).detach();
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        let counters = self.core.counters();
        counters.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no {name}")).1
    }

    pub(crate) async fn log(&self) -> String {
        sleep(SECOND).await;
        String::from_utf8(self.log.lock().unwrap().clone()).unwrap()
    }

    /// How long it waits for another member to answer.
    pub(crate) fn patience(&self) -> Duration {
        cluster(self.host, &ALL).timeouts.first_byte.unwrap()
    }

    pub(crate) async fn get(&self, target: &str, fields: &str) -> Response {
        self.client().await.get(target, fields).await
    }

    pub(crate) async fn client(&self) -> Client {
        Client::to(&at(self.host, 80).to_string()).await.unwrap()
    }

    pub(crate) async fn admin(&self, request: &str) -> Response {
        let admin = at(self.host, 9090).to_string();
        let mut client = Client::over(Version::Http1, &admin).await.unwrap();
        client.ask(format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await
    }

    pub(crate) async fn purge(&self, what: &str) -> (u16, serde_json::Value) {
        let answer = self.admin(&format!("POST /purge?{what}")).await;
        (answer.status, serde_json::from_slice(&answer.body).unwrap())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

fn bind(at: SocketAddr) -> TcpListener {
    TcpListener::bind(at, &ListenOptions::default()).unwrap()
}

/// The host that is responsible for a path of `site`, as seen by members with these hosts.
pub(crate) fn owner(hosts: &[u8], path: &str) -> u8 {
    let addresses: Vec<SocketAddr> = hosts.iter().map(|host| at(*host, 7000)).collect();
    // As seen from outside.
    let members = Members::new(&cluster(99, hosts), &addresses, &Registry::default());
    let owner = members.rank(url_number(b"site", path.as_bytes())).next().unwrap().unwrap();
    hosts[addresses.iter().position(|address| *address == owner.address).unwrap()]
}

/// A path that passes a test.
pub(crate) fn path_of(query: &str, test: impl Fn(&str) -> bool) -> String {
    let mut paths = (0..).map(|number| format!("/{number}?{query}"));
    paths.find(|path| test(path)).unwrap()
}

fn owned_by(host: u8, hosts: &[u8]) -> String {
    path_of("size=300&cc=max-age=600&etag=a", |path| owner(hosts, path) == host)
}

#[test]
fn the_owner_fetches_once_for_all_members() {
    each_way(reverse, async |world: Rc<World>| {
        let nodes = ALL.map(|host| Node::start(host, &ALL));
        let path = owned_by(2, &ALL);
        for node in [&nodes[0], &nodes[2], &nodes[1], &nodes[0]] {
            let got = node.get(&path, "").await;
            assert_eq!((got.status, got.body), (200, expected(&path, None)));
        }
        assert_eq!(world.origin.count(&path), 1);
        let got = nodes[0].get(&path, "").await;
        let caches = got.all("cache-status").join(", ");
        assert!(caches.starts_with("plimsoll; hit, plimsoll; fwd="), "{caches}");
        assert!(caches.contains("detail=cluster") && got.field("age").is_some(), "{caches}");
        let seen = world.origin.last();
        assert!(seen.field("plimsoll-client").is_none(), "{seen:?}");
        assert_eq!(seen.fields.iter().filter(|(name, _)| name == "via").count(), 1);
        assert_eq!((nodes[0].counter("hits"), nodes[0].counter("cluster_passed")), (0, 3));
        assert_eq!(nodes[1].counter("cluster_passed"), 0);
        assert!(nodes[0].log().await.contains(" CARP/10.0.1.2 "));
    });
}

#[test]
fn conditions_ranges_and_head_are_answered_by_the_owner() {
    each_way(reverse, async |world: Rc<World>| {
        let nodes = ALL.map(|host| Node::start(host, &ALL));
        let path = owned_by(2, &ALL);
        let first = nodes[0].get(&path, "").await;
        let tag = first.field("etag").unwrap();
        let not_modified = nodes[2].get(&path, &format!("If-None-Match: {tag}\r\n")).await;
        assert_eq!(not_modified.status, 304);
        let part = nodes[2].get(&path, "Range: bytes=10-19\r\n").await;
        assert_eq!((part.status, part.body), (206, expected(&path, None)[10..20].to_vec()));
        let head = nodes[2].client().await.head(&path, "").await;
        assert_eq!((head.status, head.field("content-length")), (200, Some("300")));
        assert_eq!(world.origin.count(&path), 1);
    });
}

#[test]
fn forward_listeners_are_a_cluster_too() {
    each_way(reverse, async |world: Rc<World>| {
        let nodes = ALL.map(|host| {
            let node = Node::deaf(host, &ALL, open());
            node.listens();
            node
        });
        let target = "http://10.0.0.2/f?size=300&cc=max-age=600";
        for node in &nodes {
            assert_eq!(node.get(target, "").await.body, expected(target, None));
        }
        assert_eq!(world.origin.count("/f?size=300&cc=max-age=600"), 1);
    });
}

/// The owner passed on what a stranger had written: it trusts the member, and the member trusts no
/// stranger.
#[test]
fn a_stranger_names_no_client_to_the_owner() {
    each_way(reverse, async |world: Rc<World>| {
        let nodes = ALL.map(|host| {
            let mut config = reverse();
            config.groups[0].forwarded = ForwardedFields::XForwarded;
            let networks = vec!["192.0.2.0/24".parse().unwrap()];
            let field = "X-Real-IP".parse().unwrap();
            config.listeners[0].front = Some(Arc::new(Front { networks, field, host: false }));
            config.request_id =
                Some(RequestId { field: "X-Request-ID".into(), take: Take::Trusted });
            let node = Node::of(host, cluster(host, &ALL), config);
            node.listens();
            node
        });
        for owner in [1, 2] {
            let path = owned_by(owner, &ALL);
            let fields = "X-Forwarded-For: 10.9.9.9\r\nX-Real-IP: 10.9.9.9\r\n\
                          X-Request-ID: forged\r\nForwarded: for=10.9.9.9\r\n\
                          X-Forwarded-Proto: https\r\n";
            nodes[0].get(&path, fields).await;
            let seen = world.origin.last();
            assert!(!format!("{seen:?}").contains("10.9.9.9"), "{owner}: {seen:?}");
            assert_eq!(seen.field("x-forwarded-proto"), Some(scheme()), "{owner}: {seen:?}");
            let id = seen.field("x-request-id").unwrap();
            assert!(id.len() == 32 && id != "forged", "{owner}: {seen:?}");
        }
    });
}

/// The first takes the second for the owner, and the second takes the third.
#[test]
fn members_that_disagree_pass_a_request_on_once() {
    each_way(reverse, async |world: Rc<World>| {
        let nodes = [(1, [1, 2]), (2, [2, 3]), (3, [3, 1])];
        let path = path_of("size=30&cc=max-age=600", |path| {
            nodes[..2].iter().all(|(host, hosts)| owner(hosts, path) != *host)
        });
        let nodes = nodes.map(|(host, hosts)| Node::start(host, &hosts));
        assert_eq!(nodes[0].get(&path, "").await.body, expected(&path, None));
        assert_eq!(world.origin.count(&path), 1);
        let requests = [&nodes[0], &nodes[1], &nodes[2]].map(|node| node.counter("requests"));
        assert_eq!(requests, [1, 1, 0]);
        // It is stored there, whatever its own list says.
        nodes[0].get(&path, "").await;
        assert_eq!(world.origin.count(&path), 1);
    });
}

#[test]
fn a_member_that_is_gone_costs_no_request_and_is_used_when_it_is_back() {
    each_way(reverse, async |world: Rc<World>| {
        let one = Node::start(1, &ALL[..2]);
        let path = owned_by(2, &ALL[..2]);
        for _ in 0..3 {
            assert_eq!(one.get(&path, "").await.body, expected(&path, None));
        }
        assert_eq!(world.origin.count(&path), 1, "this member took its place, and stored it");
        assert_eq!(one.counter("cluster_failed"), 1, "it is left alone");
        let two = Node::start(2, &ALL[..2]);
        sleep(60 * SECOND).await;
        let path = path_of("size=40&cc=max-age=600", |path| owner(&ALL[..2], path) == 2);
        one.get(&path, "").await;
        assert_eq!((two.counter("misses"), one.counter("misses")), (1, 1));
    });
}

/// A member that dies with the request.
#[test]
fn a_request_in_flight_at_a_member_that_dies_goes_on_from_here() {
    each_way(reverse, async |world: Rc<World>| {
        let one = Node::start(1, &ALL[..2]);
        let dying = Peer::start("10.0.1.2:7000", async |peer, stream| {
            let head = head_of(&stream).await.unwrap_or_default();
            peer.got.borrow_mut().extend_from_slice(head.as_bytes());
        });
        let path = owned_by(2, &ALL[..2]);
        assert_eq!(one.get(&path, "X-Color: red\r\n").await.body, expected(&path, None));
        assert_eq!(world.origin.count(&path), 1);
        let got = String::from_utf8(dying.got.borrow().clone()).unwrap();
        let line = format!("GET {}://site{path} HTTP/1.1\r\nHost: site\r\n", scheme());
        assert!(got.contains(&line) && got.contains("Plimsoll-Client: 127.0.0.1:"), "{got}");
    });
}

#[test]
fn what_is_requested_often_is_kept_by_each_member() {
    each_way(reverse, async |world: Rc<World>| {
        let nodes = ALL.map(|host| Node::start(host, &ALL));
        let path = owned_by(2, &ALL);
        for _ in 0..40 {
            assert_eq!(nodes[0].get(&path, "").await.body, expected(&path, None));
        }
        assert_eq!(world.origin.count(&path), 1);
        assert_eq!(nodes[0].counter("cluster_kept"), 1);
        assert!(nodes[0].counter("hits") > 20 && nodes[1].counter("requests") < 20);
        // It is validated with its owner.
        let got = nodes[0].get(&path, "Cache-Control: no-cache\r\n").await;
        assert_eq!((got.status, got.body), (200, expected(&path, None)));
        assert_eq!(nodes[0].counter("cluster_kept"), 2);
        assert_eq!(world.origin.last().field("if-none-match").map(|_| ()), Some(()));
    });
}

#[test]
fn a_purge_is_acknowledged_by_all_members() {
    each_way(reverse, async |world: Rc<World>| {
        let nodes = ALL.map(|host| Node::start(host, &ALL));
        let path = path_of("size=30&cc=max-age=600&key=news", |path| owner(&ALL, path) == 2);
        let url = format!("url=http://site{}", path.replace('&', "%26").replace('?', "%3F"));
        for (round, what) in [&url, "prefix=http://site/", "tag=news", "all", "soft&tag=news"]
            .into_iter()
            .enumerate()
        {
            for _ in 0..30 {
                nodes[0].get(&path, "").await;
            }
            assert_eq!(world.origin.count(&path), round + 1);
            let (status, said) = nodes[2].purge(what).await;
            assert_eq!((status, said["cluster"]["waiting"].as_array().unwrap().len()), (200, 0));
            let acknowledged = said["cluster"]["acknowledged"].as_array().unwrap();
            assert_eq!(acknowledged, &["10.0.1.1:7000", "10.0.1.2:7000"], "{said}");
        }
        nodes[0].get(&path, "").await;
        assert_eq!(world.origin.count(&path), 6);
        // The method does the same.
        let request = format!("PURGE {path} HTTP/1.1\r\nHost: site\r\n\r\n");
        let answer = nodes[0].client().await.ask(request.as_bytes()).await;
        assert_eq!(answer.status, 200);
        assert!(String::from_utf8(answer.body).unwrap().contains("10.0.1.3:7000"));
        nodes[2].get(&path, "").await;
        assert_eq!(world.origin.count(&path), 7);
    });
}

#[test]
fn a_purge_that_a_member_misses_is_sent_again_and_until_then_it_is_not_asked() {
    each_way(reverse, async |world: Rc<World>| {
        let (one, two) = (Node::start(1, &ALL), Node::start(2, &ALL));
        let three = Node::deaf(3, &ALL, reverse());
        let path = owned_by(3, &ALL);
        three.get(&path, "").await;
        let (status, said) = one.purge("all").await;
        assert_eq!(status, 202);
        assert_eq!(said["cluster"]["acknowledged"], serde_json::json!(["10.0.1.2:7000"]));
        assert_eq!(said["cluster"]["waiting"], serde_json::json!(["10.0.1.3:7000"]));
        three.listens();
        let waiting = async || {
            let shown = one.admin("GET /upstreams").await.body;
            let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
            shown["cluster"]["members"][2]["purges_waiting"].as_u64().unwrap()
        };
        assert_eq!(waiting().await, 1);
        one.get(&path, "").await;
        assert_eq!(world.origin.count(&path), 2, "it would have given the old response");
        sleep(60 * SECOND).await;
        assert_eq!(waiting().await, 0);
        three.get(&path, "").await;
        assert_eq!(world.origin.count(&path), 3);
        two.get(&path, "").await;
        assert_eq!((world.origin.count(&path), three.counter("hits")), (3, 1));
    });
}

/// A member that is slow to purge, and gives its old response to one that has purged already.
#[test]
fn what_a_member_gave_away_during_a_purge_is_purged_too() {
    each_way(reverse, async |_: Rc<World>| {
        let one = Node::start(1, &ALL[..2]);
        let purges = Rc::new(Cell::new(0));
        let counted = Rc::clone(&purges);
        let _slow = Peer::start("10.0.1.2:7000", async move |_, stream| {
            while let Some(head) = head_of(&stream).await {
                if head.starts_with("PUT ") {
                    // The body of a purge of everything.
                    let mut body = [0; 9];
                    stream.read_exact(&mut body).await.unwrap();
                    sleep(2 * SECOND).await;
                    counted.set(counted.get() + 1);
                }
                let content = if counted.get() == 0 { "old" } else { "new" };
                if stream.write_all(said(content).as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        let path = owned_by(2, &ALL[..2]);
        for _ in 0..30 {
            assert_eq!(one.get(&path, "").await.body, b"old");
        }
        let meanwhile = async {
            sleep(SECOND).await;
            one.get(&path, "").await.body
        };
        let ((status, _), got) = runtime::join(one.purge("all"), meanwhile).await;
        assert_eq!((status, got), (200, b"old".to_vec()), "it asked before the purge ended");
        assert_eq!(one.get(&path, "").await.body, b"new");
    });
}

/// The first purge is not acknowledged by the third member, and the second one not at once by the
/// second. Meanwhile the first must not ask the third.
#[test]
fn a_member_that_has_not_purged_is_not_asked_while_others_purge_again() {
    each_way(reverse, async |_: Rc<World>| {
        let one = Node::start(1, &ALL);
        let asked = Rc::new(Cell::new(0));
        let peer = |host: u8, content: &'static str, patience: [Option<u64>; 2]| {
            let purges = Rc::new(Cell::new(0));
            let asked = Rc::clone(&asked);
            Peer::start(&at(host, 7000).to_string(), async move |_, stream| {
                while let Some(head) = head_of(&stream).await {
                    if head.starts_with("PUT ") {
                        stream.read_exact(&mut [0; 9]).await.unwrap();
                        let turn = purges.replace(purges.get() + 1);
                        match patience[turn.min(1)] {
                            Some(seconds) => sleep(Duration::from_secs(seconds)).await,
                            None => return sleep(100 * SECOND).await,
                        }
                    }
                    if head.starts_with("GET http") && content == "old" {
                        asked.set(asked.get() + 1);
                    }
                    if stream.write_all(said(content).as_bytes()).await.is_err() {
                        return;
                    }
                }
            })
        };
        let _two = peer(2, "new", [Some(0), Some(5)]);
        let _three = peer(3, "old", [None, None]);
        let path = owned_by(3, &ALL);
        for _ in 0..30 {
            assert_eq!(one.get(&path, "").await.body, b"old");
        }
        let before = asked.get();
        let meanwhile = async {
            sleep(14 * SECOND).await;
            one.get(&path, "").await.body
        };
        let ((status, said), got) = runtime::join(one.purge("all"), meanwhile).await;
        assert_eq!((status, &got[..], asked.get()), (202, &b"new"[..], before));
        assert_eq!(said["cluster"]["waiting"], serde_json::json!(["10.0.1.3:7000"]));
        assert_ne!(one.get(&path, "").await.body, b"old");
    });
}

/// The second member accepts connections and never answers.
#[test]
fn a_member_that_hangs_does_not_keep_purges_from_another() {
    each_way_http1(reverse, async |_: Rc<World>| {
        let one = Node::start(1, &ALL);
        let three = Node::deaf(3, &ALL, reverse());
        assert_eq!(one.purge("all").await.0, 202);
        three.listens();
        let _two = Peer::start("10.0.1.2:7000", async |_, _stream| sleep(100 * SECOND).await);
        sleep(8 * SECOND).await;
        let shown = one.admin("GET /upstreams").await.body;
        let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
        let waiting = |at: usize| &shown["cluster"]["members"][at]["purges_waiting"];
        assert_eq!((waiting(1), waiting(2)), (&1.into(), &0.into()));
    });
}

/// A 200 of a member says that its disk has it.
#[test]
fn a_purge_that_a_member_cannot_make_durable_is_not_acknowledged() {
    sim::check(0..2, |seed| {
        let delay = Duration::from_micros(20)..Duration::from_micros(200);
        let options = sim::Options::new(seed).with_disk(Disk::new(seed), delay);
        let cluster = cluster(7, &[7, 8]);
        let mut config = on_disk(reverse());
        config.listeners[1] = cluster.listener(Role::Reverse);
        config.cluster = Some(cluster);
        run(options, config, async |_: Rc<World>| {
            let status = async || {
                let put = "PUT /purge HTTP/1.1\r\nHost: a\r\nConnection: Plimsoll-Client\r\n\
                           Plimsoll-Client: none\r\nContent-Length: 9\r\n\r\n\0\0\0\0\0\0\0\0\0";
                let to = at(7, 7000).to_string();
                Client::over(Version::Http1, &to).await.unwrap().ask(put.as_bytes()).await.status
            };
            assert_eq!(status().await, 200);
            sim::disk().set_faults(Faults::default().with_write_error(1.0).with_sync_error(1.0));
            assert_eq!(status().await, 503);
            sim::disk().set_faults(Faults::default());
        });
    });
}

/// A member's answer, of this content and to any request.
fn said(content: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nCache-Status: a; hit\r\n\
         Connection: Plimsoll-Done\r\nPlimsoll-Done: 1\r\nContent-Length: 3\r\n\r\n{content}"
    )
}

pub(crate) async fn head_of(stream: &TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte).await {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8(head).unwrap())
}

#[test]
fn a_change_by_a_client_is_seen_at_every_member() {
    each_way(reverse, async |world: Rc<World>| {
        let nodes = ALL.map(|host| Node::start(host, &ALL));
        let path = owned_by(2, &ALL);
        for _ in 0..30 {
            nodes[0].get(&path, "").await;
        }
        let post = format!("POST {path} HTTP/1.1\r\nHost: site\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(nodes[2].client().await.ask(post.as_bytes()).await.status, 200);
        for node in &nodes {
            node.get(&path, "").await;
        }
        assert_eq!(world.origin.count(&path), 3, "GET, POST and GET");
        assert_eq!(nodes[2].counter("cluster_changes_lost"), 0);
    });
}

/// The owner is slow to remove what a POST has changed, and gives it to the member that has removed
/// it already.
#[test]
fn what_a_member_gave_away_during_a_change_is_removed_too() {
    each_way(reverse, async |_: Rc<World>| {
        let one = Node::start(1, &ALL[..2]);
        let changed = Rc::new(Cell::new(false));
        let _slow = Peer::start("10.0.1.2:7000", async move |_, stream| {
            while let Some(head) = head_of(&stream).await {
                if head.starts_with("PURGE ") {
                    sleep(SECOND).await;
                    changed.set(true);
                }
                let content = if changed.get() { "new" } else { "old" };
                if stream.write_all(said(content).as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        let path = owned_by(2, &ALL[..2]);
        for _ in 0..30 {
            assert_eq!(one.get(&path, "").await.body, b"old");
        }
        let post = format!("POST {path} HTTP/1.1\r\nHost: site\r\nContent-Length: 0\r\n\r\n");
        let mut client = one.client().await;
        let meanwhile = async {
            sleep(SECOND / 2).await;
            one.get(&path, "").await.body
        };
        let (answer, got) = runtime::join(client.ask(post.as_bytes()), meanwhile).await;
        assert_eq!((answer.status, got), (200, b"old".to_vec()), "it asked before the change");
        assert_eq!(one.get(&path, "").await.body, b"new");
    });
}

/// Then its owner is asked as before: it works.
#[test]
fn an_origin_that_hangs_or_breaks_off_is_not_the_fault_of_the_owner() {
    each_way(reverse, async |world: Rc<World>| {
        let nodes = [1, 2].map(|host| Node::start(host, &ALL[..2]));
        let of_two = |query: &str| path_of(query, |path| owner(&ALL[..2], path) == 2);
        let silent = of_two("silent=1");
        assert_eq!(nodes[0].get(&silent, "").await.status, 504);
        assert_eq!(world.origin.count(&silent), 1, "its owner has asked");
        let broken = of_two("size=30000&cut=500");
        let mut client = nodes[0].client().await;
        let request = format!("GET {broken} HTTP/1.1\r\nHost: site\r\n\r\n");
        client.send(request.as_bytes()).await.unwrap();
        assert!(client.response().await.is_err());
        assert_eq!(nodes[0].counter("cluster_failed"), 0);
        let path = owned_by(2, &ALL[..2]);
        let passed = nodes[0].counter("cluster_passed");
        assert_eq!(nodes[0].get(&path, "").await.body, expected(&path, None));
        nodes[1].get(&path, "").await;
        assert_eq!(nodes[0].counter("cluster_passed"), passed + 1);
        assert_eq!(world.origin.count(&path), 1, "it has gone to its owner");
    });
}

/// What members say to each other, as a client of a forward listener would send it.
#[test]
fn a_client_of_a_forward_listener_cannot_speak_for_a_member() {
    each_way(reverse, async |world: Rc<World>| {
        let nodes = [1, 2].map(|host| Node::deaf(host, &ALL[..2], open()));
        nodes.iter().for_each(Node::listens);
        let target = "http://10.0.0.2/f?size=300&cc=max-age=600";
        nodes.iter().for_each(|node| assert_eq!(node.counter("requests"), 0));
        nodes[1].get(target, "").await;
        let put = "PUT http://10.0.1.2:7000/purge HTTP/1.1\r\nHost: 10.0.1.2:7000\r\n\
                   Content-Length: 9\r\n\r\n\0\0\0\0\0\0\0\0\0";
        let answer = nodes[0].client().await.ask(put.as_bytes()).await;
        assert_eq!(answer.status, 403, "{answer:?}");
        let tunnel = "CONNECT 10.0.1.2:7000 HTTP/1.1\r\nHost: 10.0.1.2:7000\r\n\r\n";
        assert_eq!(nodes[0].client().await.ask(tunnel.as_bytes()).await.status, 403);
        nodes[1].get(target, "").await;
        assert_eq!(world.origin.count("/f?size=300&cc=max-age=600"), 1);
    });
}

/// Another proxy on the machine of a member, for example, which members do not see as a stranger.
#[test]
fn where_members_connect_only_their_calls_are_answered() {
    each_way_http1(reverse, async |world: Rc<World>| {
        let node = Node::start(1, &ALL[..2]);
        let path = owned_by(1, &ALL[..2]);
        node.get(&path, "").await;
        let ask = async |request: String| {
            let mut client = Client::over(Version::Http1, &at(1, 7000).to_string()).await.unwrap();
            client.ask(request.as_bytes()).await.status
        };
        let url = format!("http://site{path}");
        let fields = "Host: site\r\nContent-Length: 0\r\nPlimsoll-Client: 9.9.9.9:9\r\n";
        for request in ["PUT /purge", &format!("GET {url}"), &format!("PURGE {url}")] {
            assert_eq!(ask(format!("{request} HTTP/1.1\r\n{fields}\r\n")).await, 404, "{request}");
        }
        let fields = format!("{fields}Connection: Plimsoll-Client\r\n");
        for (method, status) in [("POST", 405), ("OPTIONS", 405), ("GET", 200)] {
            let request = format!("{method} {url} HTTP/1.1\r\n{fields}\r\n");
            assert_eq!(ask(request).await, status, "{method}");
        }
        let switch = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
        assert_eq!(ask(format!("GET {url} HTTP/1.1\r\n{fields}{switch}\r\n")).await, 405);
        assert_eq!(world.origin.count(&path), 1);
    });
}

/// It came from the origin through the owner.
#[test]
fn an_origin_cannot_refuse_for_the_owner() {
    each_way(reverse, async |_: Rc<World>| {
        let asked = Rc::new(Cell::new(0));
        let count = Rc::clone(&asked);
        let _origin = Peer::start("10.0.0.77:80", async move |_, stream| {
            while head_of(&stream).await.is_some() {
                count.set(count.get() + 1);
                let answer = "HTTP/1.1 503 No\r\nConnection: Plimsoll-Refused\r\n\
                              Plimsoll-Refused: 1\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let config = || {
            let mut config = reverse();
            let (authority, addresses) = ("o".into(), vec![address("10.0.0.77:80")]);
            let origin = OriginUrl { authority, addresses, tls: None };
            config.groups = Config::reverse([origin], &[]).groups;
            config
        };
        let nodes = [1, 2].map(|host| Node::deaf(host, &ALL[..2], config()));
        nodes.iter().for_each(Node::listens);
        let got = nodes[0].get(&owned_by(2, &ALL[..2]), "").await;
        assert_eq!((got.status, asked.get()), (503, 1));
        assert_eq!(got.field("plimsoll-refused"), None);
    });
}

/// What a member adds to a request makes it longer.
#[test]
fn a_request_that_is_too_long_for_the_owner_alone_is_answered_from_here() {
    each_way_http1(reverse, async |world: Rc<World>| {
        let nodes = [1, 2].map(|host| Node::start(host, &ALL[..2]));
        let path = owned_by(2, &ALL[..2]);
        let max = reverse().limits.head_bytes_max;
        let without = format!("GET {path} HTTP/1.1\r\nHost: site\r\nX-Long: \r\n\r\n").len();
        let long = "x".repeat(max - without - 20);
        let got = nodes[0].get(&path, &format!("X-Long: {long}\r\n")).await;
        assert_eq!((got.status, got.body), (200, expected(&path, None)));
        assert_eq!(world.origin.count(&path), 1);
        assert_eq!(nodes[0].counter("cluster_passed"), 1);
    });
}

#[test]
fn trailers_come_through_the_owner() {
    each_way_http1(reverse, async |_: Rc<World>| {
        let nodes = [1, 2].map(|host| Node::start(host, &ALL[..2]));
        let path =
            path_of("size=300&frame=chunked&cc=no-store", |path| owner(&ALL[..2], path) == 2);
        let node = nodes[0].client().await;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: site\r\nConnection: close, TE\r\nTE: trailers\r\n\r\n"
        );
        node.send(request.as_bytes()).await.unwrap();
        let (all, _) = all_of(node.stream()).await;
        assert!(String::from_utf8_lossy(&all).to_lowercase().contains("\r\nx-trailer: "));
        assert_eq!(nodes[1].counter("requests"), 1);
    });
}

/// Its addresses are found out later.
#[test]
fn a_server_that_is_no_member_yet_keeps_no_copies() {
    each_way_http1(reverse, async |world: Rc<World>| {
        let nodes = [Node::start(1, &[2]), Node::start(2, &[2])];
        let path = owned_by(2, &[2]);
        for _ in 0..30 {
            nodes[0].get(&path, "").await;
        }
        assert_eq!((world.origin.count(&path), nodes[0].counter("cluster_kept")), (1, 0));
        // Nor if the members do not answer.
        let [one, two] = nodes;
        drop(two);
        sleep(10 * SECOND).await;
        let path = path_of("size=20&cc=max-age=600", |_| true);
        for _ in 0..3 {
            assert_eq!(one.get(&path, "").await.body, expected(&path, None));
        }
        assert_eq!((world.origin.count(&path), one.counter("hits")), (3, 0));
        let shown = one.admin("GET /upstreams").await.body;
        let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
        assert_eq!(shown["cluster"]["is_member"], false);
    });
}

#[test]
fn a_stranger_is_no_member_whatever_it_says() {
    each_way_http1(reverse, async |world: Rc<World>| {
        let forwards = || {
            let mut config = reverse();
            config.groups[0].forwarded = ForwardedFields::XForwarded;
            config
        };
        let nodes = [1, 2].map(|host| Node::deaf(host, &ALL[..2], forwards()));
        nodes.iter().for_each(Node::listens);
        let path = owned_by(2, &ALL[..2]);
        let forged = "Plimsoll-Client: 9.9.9.9:9\r\nPlimsoll-Refused: 1\r\n";
        for (node, target) in [(&nodes[0], path.clone()), (&nodes[1], format!("{path}&b=c"))] {
            assert_eq!(node.get(&target, forged).await.status, 200);
            let client = world.origin.last();
            assert_eq!(client.field("x-forwarded-for"), Some("127.0.0.1"), "{client:?}");
        }
        let closed = cluster(4, &[4, 5]);
        let allow_from = vec!["10.0.1.0/24".parse().unwrap()];
        let four = Node::of(4, Cluster { allow_from, ..closed }, reverse());
        four.listens();
        let mut stranger = Client::over(Version::Http1, "10.0.1.4:7000").await.unwrap();
        stranger.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await.ok();
        assert!(stranger.response().await.is_err());
        assert_eq!(four.counter("cluster_strangers"), 1);
        // The calls of members are nothing where clients connect.
        let put =
            b"PUT /purge HTTP/1.1\r\nHost: site\r\nContent-Length: 9\r\n\r\n\0\0\0\0\0\0\0\0\0";
        nodes[0].client().await.ask(put).await;
        assert_eq!(world.origin.last().target, "/purge");
    });
}

#[test]
fn an_explanation_names_the_owner() {
    each_way(reverse, async |_: Rc<World>| {
        let nodes = ALL.map(|host| Node::start(host, &ALL));
        for (owner, said) in [(1, "this member"), (2, "10.0.1.2:7000")] {
            let path = owned_by(owner, &ALL).replace('&', "%26").replace('?', "%3F");
            let answer = nodes[0].admin(&format!("GET /explain?url=http://site{path}")).await;
            let explained: Explained = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(explained.request.unwrap().owner.as_deref(), Some(said));
        }
        assert_eq!(nodes[0].counter("cluster_passed"), 0);
    });
}
