//! Siblings: a second proxy that is asked by ICP before a request is sent, on networks that lose,
//! duplicate and forge datagrams.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use config::{AskedPeer, FieldRule, Group, Hierarchy, Host, PeerKind, Queries, QueryServer, Route};
use peering::htcp;
use peering::icp::{Kind, Message};
use runtime::net::{ListenOptions, TcpListener, UdpSocket};
use runtime::sim;
use runtime::time::{now, sleep, timeout};
use server::{Config, Origin as OriginUrl};

use crate::common::Response;
use crate::origin::expected;
use crate::parents::{Neighbour, hierarchy, log_of};
use crate::tunnels::{Peer, open};
use crate::world::{
    ADMIN, Client, World, address, each_way, each_way_tcp, on_disk, reverse, run, with,
};

pub(crate) const SIBLING: &str = "10.0.0.8:3128";
const SIBLING_ICP: &str = "10.0.0.8:3130";
const OUR_ICP: &str = "10.0.0.1:3130";
const SECOND: Duration = Duration::from_secs(1);

fn sibling_of(at: &str) -> AskedPeer {
    let group = Group::of(at, [OriginUrl::at(address(at))]);
    AskedPeer::new(PeerKind::Sibling, group, Some(Queries::Icp(3130)), 2 * SECOND)
}

fn icp(listen: &str) -> Option<QueryServer> {
    let networks = ["10.0.0.0/8", "127.0.0.0/8"];
    let allow_from = networks.map(|network| network.parse().unwrap()).to_vec();
    Some(QueryServer { listen: address(listen), allow_from, clear_from: Vec::new() })
}

fn asking() -> Hierarchy {
    let mut peers = hierarchy(&[]);
    peers.parents = None;
    peers.asked = vec![sibling_of(SIBLING)];
    peers.query_timeout = SECOND;
    peers
}

/// A proxy that asks the sibling.
fn beside() -> Config {
    let mut config = open();
    config.hierarchy = Some(asking());
    config.icp = icp(OUR_ICP);
    config
}

/// The sibling itself.
fn sibling() -> Neighbour {
    let mut config = open();
    config.icp = icp(SIBLING_ICP);
    Neighbour::start(SIBLING, config)
}

pub(crate) async fn get(at: &str, path: &str, fields: &str) -> Response {
    let target = format!("http://10.0.0.2{path}");
    if at == SIBLING {
        let mut client = Client::over(crate::world::Version::Http1, at).await.unwrap();
        return client.get(&target, fields).await;
    }
    Client::new().await.get(&target, fields).await
}

pub(crate) const HERE: &str = crate::world::PROXY;

/// The figures of the peer, as the admin address shows them.
pub(crate) async fn figure(name: &str) -> u64 {
    let request = b"GET /upstreams HTTP/1.1\r\nHost: a\r\n\r\n";
    let got = Client::to(ADMIN).await.unwrap().ask(request).await;
    let shown: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
    shown["peers"][0][name].as_u64().unwrap_or_else(|| panic!("no {name} in {shown}"))
}

#[test]
fn a_hit_of_the_sibling_is_served_and_a_miss_goes_to_the_origin() {
    each_way(beside, async |world: Rc<World>| {
        let sibling = sibling();
        let path = "/s?size=300&cc=max-age=60";
        get(SIBLING, path, "").await;
        for _ in 0..2 {
            let got = get(HERE, path, "").await;
            assert_eq!((got.status, got.body), (200, expected(path, None)));
        }
        assert_eq!(world.origin.count(path), 1, "only the sibling asked");
        assert_eq!((sibling.counter("hits"), world.counter("hits")), (1, 1));
        let other = "/other?size=30&cc=max-age=60";
        assert_eq!(get(HERE, other, "").await.body, expected(other, None));
        assert_eq!(world.origin.count(other), 1);
        assert_eq!((figure("queries").await, figure("hits").await), (2, 1));
        assert_eq!((figure("misses").await, figure("false_hits").await), (1, 0));
        let log = log_of(&world).await;
        assert!(log.contains(" SIBLING_HIT/10.0.0.8 ") && log.contains(" HIER_DIRECT/10.0.0.2 "));
        assert_eq!(sibling.counter("requests"), 2, "it gets no misses");
    });
}

/// A reverse proxy with a route that asks the sibling.
fn reverse_beside() -> Config {
    let mut config = reverse();
    config.hierarchy = Some(asking());
    let hosts = vec![Host::parse("site").unwrap()];
    config.routes = vec![Route { hosts, peers: true, ..Route::to("origin") }];
    config
}

/// Requests to a reverse listener, however a stranger writes them, are no way into the caches of
/// siblings, which forward listeners share.
#[test]
fn a_reverse_listener_asks_siblings_only_for_routes_that_say_so() {
    let silent = with(reverse_beside, |config| config.routes[0].peers = false);
    let direct = with(reverse_beside, |config| {
        config.hierarchy.as_mut().unwrap().always_direct = vec!["*".parse().unwrap()];
    });
    let by_method = with(reverse_beside, |config| {
        config.hierarchy.as_mut().unwrap().always_direct_methods = vec!["GET".to_owned()];
    });
    let cases: [&dyn Fn() -> Config; 3] = [&silent, &direct, &by_method];
    for config in cases {
        each_way(config, async |_: Rc<World>| {
            let queries = answering(SIBLING_ICP, Kind::Hit);
            let path = "/r?size=30&cc=max-age=60";
            assert_eq!(Client::new().await.get(path, "").await.body, expected(path, None));
            assert_eq!(queries.get(), 0);
        });
    }
    // A route leads to the same servers whatever the port; a sibling may have another's response.
    each_way(reverse_beside, async |_: Rc<World>| {
        let queries = answering(SIBLING_ICP, Kind::Hit);
        let request = b"GET /port?size=30&cc=max-age=60 HTTP/1.1\r\nHost: site:8443\r\n\r\n";
        assert_eq!(Client::new().await.ask(request).await.status, 200);
        assert_eq!(queries.get(), 0);
    });
}

/// Reverse listeners do not show tags to clients, so that a purge by tag would leave the response.
#[test]
fn a_purge_by_tag_removes_what_a_sibling_sent_without_its_tags() {
    each_way(reverse_beside, async |world: Rc<World>| {
        if crate::world::scheme() == "https" {
            // The sibling's listener is without TLS.
            return;
        }
        let mut of_sibling = reverse();
        of_sibling.icp = icp(SIBLING_ICP);
        let _sibling = Neighbour::start_as(SIBLING, server::Role::Reverse, of_sibling);
        let path = "/tag?size=30&cc=max-age=600&key=news";
        let mut client = Client::over(crate::world::Version::Http1, SIBLING).await.unwrap();
        client.get(path, "").await;
        assert_eq!(Client::new().await.get(path, "").await.body, expected(path, None));
        assert_eq!(world.origin.count(path), 1, "it is that of the sibling");
        let purge = b"POST /purge?tag=news HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(Client::to(ADMIN).await.unwrap().ask(purge).await.status, 200);
        Client::new().await.get(path, "").await;
        assert_eq!(world.origin.count(path), 2);
    });
}

/// What a route adds can be a key to its origin.
#[test]
fn a_sibling_gets_nothing_that_the_route_adds_and_a_query_has_no_cookie() {
    let config = with(reverse_beside, |config| {
        config.routes[0].request = vec![FieldRule::Set("X-Key".into(), "secret".into())];
        config.hierarchy.as_mut().unwrap().asked[0].queries = Some(Queries::Htcp(4827));
    });
    each_way(config, async |world: Rc<World>| {
        let queries = UdpSocket::bind(address(SIBLING_HTCP)).unwrap();
        let sibling = Peer::start(SIBLING, async |peer, stream| {
            let mut piece = [0; 2000];
            while let Ok(read @ 1..) = stream.read(&mut piece).await {
                peer.got.borrow_mut().extend_from_slice(&piece[..read]);
                if peer.got.borrow().ends_with(b"\r\n\r\n") {
                    let none = b"HTTP/1.1 504 No\r\nContent-Length: 0\r\n\r\n";
                    stream.write_all(none).await.ok();
                }
            }
        });
        let answering = async {
            let mut buffer = [0; 2000];
            let (read, from) = queries.recv_from(&mut buffer).await.unwrap();
            let message = htcp::Message::read(&buffer[..read]).unwrap();
            let mut out = Vec::new();
            let hit = htcp::Response::Present(htcp::Detail::default());
            message.answer(hit).unwrap().write(&mut out).unwrap();
            queries.send_to(&out, from).await.unwrap();
            String::from_utf8_lossy(&buffer[..read]).into_owned()
        };
        let path = "/k?size=30&cc=max-age=60";
        let mut client = Client::new().await;
        let asking = client.get(path, "Cookie: id=7\r\nX-Color: red\r\n");
        let (query, got) = runtime::join(answering, asking).await;
        assert_eq!(got.body, expected(path, None));
        assert_eq!(world.origin.last().field("x-key"), Some("secret"));
        let sent = String::from_utf8(sibling.got.borrow().clone()).unwrap();
        assert!(sent.contains("only-if-cached") && sent.contains("\r\nHost: site\r\n"), "{sent}");
        for text in [&sent, &query] {
            assert!(!text.contains("secret") && text.to_lowercase().contains("x-color: red"));
        }
        assert!(!query.contains("id=7"), "{query}");
    });
}

#[test]
fn siblings_of_a_reverse_listener_work_too() {
    each_way(reverse_beside, async |world: Rc<World>| {
        if crate::world::scheme() == "https" {
            // The sibling's listener is without TLS.
            return;
        }
        let mut of_sibling = reverse();
        of_sibling.icp = icp(SIBLING_ICP);
        let sibling = Neighbour::start_as(SIBLING, server::Role::Reverse, of_sibling);
        let path = "/s?size=300&cc=max-age=60";
        let mut client = Client::over(crate::world::Version::Http1, SIBLING).await.unwrap();
        client.get(path, "").await;
        assert_eq!(Client::new().await.get(path, "").await.body, expected(path, None));
        assert_eq!((world.origin.count(path), sibling.counter("hits")), (1, 1));
    });
}

/// A sibling that answers every query with a hit, and no request.
#[test]
fn a_false_hit_is_counted_and_the_client_does_not_notice_it() {
    each_way(beside, async |world: Rc<World>| {
        let _sibling = Neighbour::start(SIBLING, open());
        let queries = answering(SIBLING_ICP, Kind::Hit);
        for at in 0..3 {
            let path = format!("/f{at}?size=30&cc=max-age=60");
            assert_eq!(get(HERE, &path, "").await.body, expected(&path, None));
            assert_eq!(world.origin.count(&path), 1);
        }
        assert_eq!((figure("false_hits").await, queries.get()), (3, 3));
        assert_eq!(world.counter("upstream_errors"), 0);
    });
}

/// Answers queries at an address, and counts them.
fn answering(at: &str, kind: Kind<'static>) -> Rc<Cell<usize>> {
    answering_after(Duration::ZERO, at, kind)
}

/// The same, with a delay.
fn answering_after(delay: Duration, at: &str, kind: Kind<'static>) -> Rc<Cell<usize>> {
    let socket = UdpSocket::bind(address(at)).unwrap();
    let queries = Rc::new(Cell::new(0));
    let count = Rc::clone(&queries);
    runtime::spawn(async move {
        let mut buffer = [0; 2000];
        while let Ok((read, from)) = socket.recv_from(&mut buffer).await {
            count.set(count.get() + 1);
            let mut out = Vec::new();
            Message::read(&buffer[..read]).unwrap().answer(kind).write(&mut out).unwrap();
            if !delay.is_zero() {
                sleep(delay).await;
            }
            socket.send_to(&out, from).await.unwrap();
        }
    })
    .detach();
    queries
}

#[test]
fn a_dead_sibling_costs_one_time_out_and_is_used_when_it_is_back() {
    // One of the datagrams that are counted on would be lost.
    each_way_tcp(beside, async |world: Rc<World>| {
        let began = now();
        for at in 0..10 {
            let path = format!("/d{at}?size=30&cc=max-age=60");
            assert_eq!(get(HERE, &path, "").await.body, expected(&path, None));
        }
        // Time is simulated: all else is far below a second.
        let waited = began.elapsed();
        assert!((SECOND..SECOND * 2).contains(&waited), "{waited:?}");
        assert_eq!((figure("unanswered").await, figure("answers").await), (1, 0));
        let sibling = sibling();
        let path = "/back?size=300&cc=max-age=60";
        get(SIBLING, path, "").await;
        sleep(2 * SECOND).await;
        // A query in the background finds that it answers again.
        get(HERE, "/first?size=30&cc=max-age=60", "").await;
        sleep(SECOND).await;
        assert_eq!(figure("answers").await, 1);
        assert_eq!(get(HERE, path, "").await.body, expected(path, None));
        assert_eq!((world.origin.count(path), sibling.counter("hits")), (1, 1));
    });
}

#[test]
fn a_sibling_that_answers_queries_and_no_requests_costs_one_time_out() {
    let config = with(beside, |config| {
        let peers = config.hierarchy.as_mut().unwrap();
        peers.asked[0].group.timeouts.first_byte = Some(2 * SECOND);
    });
    each_way(config, async |_: Rc<World>| {
        let queries = answering(SIBLING_ICP, Kind::Hit);
        // Connections are accepted, and nothing more.
        let _hangs = TcpListener::bind(address(SIBLING), &ListenOptions::default()).unwrap();
        let began = now();
        for at in 0..20 {
            let path = format!("/h{at}?size=30&cc=max-age=60");
            assert_eq!(get(HERE, &path, "").await.body, expected(&path, None));
        }
        // Time is simulated: all else is far below a second.
        let waited = began.elapsed();
        assert!((2 * SECOND..4 * SECOND).contains(&waited), "{waited:?}");
        assert_eq!(queries.get(), 1);
    });
}

/// What a sibling has stored it can send at once: it has less time than an origin.
#[test]
fn a_sibling_that_hangs_costs_requests_at_the_same_time_one_short_time_out() {
    each_way(beside, async |_: Rc<World>| {
        let queries = answering(SIBLING_ICP, Kind::Hit);
        let _hangs = TcpListener::bind(address(SIBLING), &ListenOptions::default()).unwrap();
        let began = now();
        let tasks: Vec<_> = (0..20)
            .map(|at| {
                runtime::spawn(async move {
                    let path = format!("/t{at}?size=30&cc=max-age=60");
                    assert_eq!(get(HERE, &path, "").await.body, expected(&path, None));
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        // Time is simulated: all else is far below a second.
        let waited = began.elapsed();
        assert!((2 * SECOND..4 * SECOND).contains(&waited), "{waited:?}");
        assert_eq!(queries.get(), 20);
    });
}

/// A sibling that announces everything and has nothing is asked less and less.
#[test]
fn false_hits_in_a_row_end_the_queries_for_a_while() {
    // On networks that lose no query.
    each_way_tcp(beside, async |_: Rc<World>| {
        let _sibling = Neighbour::start(SIBLING, open());
        let queries = answering(SIBLING_ICP, Kind::Hit);
        for at in 0..40 {
            let path = format!("/r{at}?size=30&cc=max-age=60");
            assert_eq!(get(HERE, &path, "").await.body, expected(&path, None));
            sleep(SECOND).await;
        }
        // Ten, then none for ten seconds, then ten, then none for twenty.
        assert_eq!((figure("false_hits").await, figure("rests").await), (20, 2));
        assert_eq!(queries.get(), 20);
    });
}

/// Its answers to queries in the background prove that it lives, and not that it is fast enough.
#[test]
fn a_sibling_that_is_too_slow_costs_one_time_out() {
    each_way(beside, async |_: Rc<World>| {
        let _queries = answering_after(SECOND + SECOND / 2, SIBLING_ICP, Kind::Miss);
        for at in 0..20 {
            let path = format!("/w{at}?size=30&cc=max-age=60");
            assert_eq!(get(HERE, &path, "").await.body, expected(&path, None));
            sleep(SECOND * 7 / 10).await;
        }
        assert_eq!(figure("unanswered").await, 1, "no other request has waited");
        assert!(figure("misses").await > 2, "they are counted");
        assert_eq!(figure("answers").await, 0, "it counts as silent");
    });
}

#[test]
fn lost_and_duplicated_datagrams_cost_hits_and_never_a_response() {
    sim::check(0..6, |seed| {
        let mut options = sim::Options::new(seed).with_bad_datagrams();
        options.loss = 0.3;
        run(options, beside(), async |world: Rc<World>| {
            let sibling = sibling();
            for at in 0..30 {
                let path = format!("/l{at}?size=30&cc=max-age=60");
                get(SIBLING, &path, "").await;
                assert_eq!(get(HERE, &path, "").await.body, expected(&path, None));
                sleep(2 * SECOND).await;
            }
            let from_origin = world.origin.seen.borrow().len() as u64 - 30;
            assert_eq!(sibling.counter("hits") + from_origin, 30);
            assert!(sibling.counter("hits") > 3, "most are lost: {}", sibling.counter("hits"));
        });
    });
}

/// A forged answer has the wrong number, or comes from another address, if its sender does not see
/// the queries.
#[test]
fn a_forged_hit_changes_nothing() {
    each_way(beside, async |_: Rc<World>| {
        // The sibling is silent. An attacker sees the query and answers from elsewhere, and a
        // second one has the address and guesses numbers.
        let asked = UdpSocket::bind(address(SIBLING_ICP)).unwrap();
        let elsewhere = UdpSocket::bind(address("10.0.0.66:3130")).unwrap();
        let path = "/forged?size=30&cc=max-age=60";
        let forging = async {
            let mut buffer = [0; 2000];
            let (read, from) = asked.recv_from(&mut buffer).await.unwrap();
            let query = Message::read(&buffer[..read]).unwrap();
            let mut out = Vec::new();
            query.answer(Kind::Hit).write(&mut out).unwrap();
            elsewhere.send_to(&out, from).await.unwrap();
            for id in 0..50 {
                let guess = Message { id, ..query };
                guess.answer(Kind::Hit).write(&mut out).unwrap();
                asked.send_to(&out, from).await.unwrap();
            }
        };
        let ((), got) = runtime::join(forging, get(HERE, path, "")).await;
        assert_eq!(got.body, expected(path, None));
        assert_eq!((figure("hits").await, figure("unanswered").await), (0, 1));
    });
}

#[test]
fn rules_and_the_client_keep_requests_from_siblings() {
    let config = with(beside, |config| {
        config.hierarchy.as_mut().unwrap().always_direct = vec!["10.0.0.2".parse().unwrap()];
    });
    each_way(config, async |_: Rc<World>| {
        let queries = answering(SIBLING_ICP, Kind::Hit);
        get(HERE, "/direct?size=30&cc=max-age=60", "").await;
        assert_eq!(queries.get(), 0);
    });
    each_way(beside, async |_: Rc<World>| {
        let queries = answering(SIBLING_ICP, Kind::Miss);
        for fields in [
            "Cache-Control: no-cache\r\n",
            "Cache-Control: max-age=0\r\n",
            "Pragma: no-cache\r\n",
            "Authorization: Basic am86c2VjcmV0\r\n",
        ] {
            get(HERE, "/new?size=30", fields).await;
        }
        let only = get(HERE, "/only?size=30", "Cache-Control: only-if-cached\r\n").await;
        assert_eq!(only.status, 504);
        let post =
            b"POST http://10.0.0.2/x HTTP/1.1\r\nHost: 10.0.0.2\r\nContent-Length: 2\r\n\r\nab";
        assert_eq!(Client::new().await.ask(post).await.body, b"ab");
        assert_eq!(queries.get(), 0);
        get(HERE, "/asked?size=30", "Cache-Control: max-age=60\r\n").await;
        assert_eq!(queries.get(), 1);
    });
}

#[test]
fn a_sibling_is_not_asked_for_what_was_purged() {
    each_way(beside, async |world: Rc<World>| {
        let _sibling = sibling();
        let path = "/old?cc=max-age=600";
        get(SIBLING, path, "").await;
        assert_eq!(get(HERE, path, "").await.status, 200);
        assert_eq!(world.origin.count(path), 1);
        let purge =
            b"POST /purge?url=http://10.0.0.2/old%3fcc%3dmax-age%3d600 HTTP/1.1\r\nHost: a\r\n\
                      Content-Length: 0\r\n\r\n";
        assert_eq!(Client::to(ADMIN).await.unwrap().ask(purge).await.status, 200);
        assert_eq!(get(HERE, path, "").await.status, 200);
        assert_eq!(world.origin.count(path), 2);
    });
}

#[test]
fn two_siblings_of_each_other_do_not_loop() {
    each_way(beside, async |world: Rc<World>| {
        let mut other = beside();
        other.icp = icp(SIBLING_ICP);
        let peers = other.hierarchy.as_mut().unwrap();
        peers.asked = vec![sibling_of(HERE)];
        let other = Neighbour::start(SIBLING, other);
        let path = "/twice?size=30&cc=max-age=60";
        assert_eq!(get(HERE, path, "").await.body, expected(path, None));
        assert_eq!(get(SIBLING, path, "").await.body, expected(path, None));
        assert_eq!(world.origin.count(path), 1);
        assert_eq!((world.counter("requests"), other.counter("requests")), (2, 1));
    });
}

/// Sends a datagram, and returns the answer.
async fn asked(from: &str, datagram: &[u8]) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind(address(from)).unwrap();
    socket.send_to(datagram, address(OUR_ICP)).await.unwrap();
    let mut buffer = [0; 2000];
    let answer = timeout(SECOND, socket.recv_from(&mut buffer)).await.ok()?;
    let (read, of): (usize, SocketAddr) = answer.unwrap();
    assert_eq!(of, address(OUR_ICP));
    Some(buffer[..read].to_vec())
}

#[test]
fn queries_are_answered_by_what_is_fresh_and_strangers_are_denied_at_a_rate() {
    let config = || {
        let mut config = beside();
        config.hierarchy = None;
        config
    };
    each_way(config, async |world: Rc<World>| {
        let path = "/q?size=30&cc=max-age=60";
        get(HERE, path, "").await;
        let query = |path: &str| {
            let url = format!("http://10.0.0.2{path}");
            let mut out = Vec::new();
            Message::query(7, url.as_bytes()).write(&mut out).unwrap();
            out
        };
        let kind = async |from: &str, datagram: &[u8]| {
            let answer = asked(from, datagram).await?;
            assert!(answer.len() <= datagram.len(), "nothing is amplified");
            let message = Message::read(&answer).unwrap();
            assert_eq!(message.id, 7);
            Some(format!("{:?}", message.kind))
        };
        let friend = "10.0.0.9:4000";
        assert_eq!(kind(friend, &query(path)).await.as_deref(), Some("Hit"));
        assert_eq!(kind(friend, &query("/none")).await.as_deref(), Some("Miss"));
        sleep(61 * SECOND).await;
        assert_eq!(kind(friend, &query(path)).await.as_deref(), Some("Miss"), "it is stale");
        assert_eq!(kind(friend, b"no message").await, None);
        let stranger = "192.0.2.1:4000";
        assert_eq!(kind(stranger, &query(path)).await.as_deref(), Some("Denied"));
        let socket = UdpSocket::bind(address("192.0.2.1:4001")).unwrap();
        for _ in 0..100 {
            socket.send_to(&query(path), address(OUR_ICP)).await.unwrap();
        }
        let mut denials = 0;
        while timeout(SECOND, socket.recv_from(&mut [0; 2000])).await.is_ok() {
            denials += 1;
        }
        assert!((1..=20).contains(&denials), "{denials} of 100");
        assert_eq!(world.origin.seen.borrow().len(), 1, "a query fetches nothing");
    });
}

/// Queries whose answers are on the disk held up all others, one after the other.
#[test]
fn a_query_that_reads_the_disk_delays_no_other() {
    let mut config = beside();
    (config.hierarchy, config.memory_bytes) = (None, 1 << 20);
    let mut options = sim::Options::new(3);
    options.disk_delay = Duration::from_millis(300)..Duration::from_millis(301);
    run(options, on_disk(config), async |_: Rc<World>| {
        let path = |number: u32| format!("/q{number}?size=20000&cc=max-age=600");
        // More than memory has room for.
        for number in 0..100 {
            get(HERE, &path(number), "").await;
            sleep(SECOND).await;
        }
        let query = |number: u32| {
            let url = format!("http://10.0.0.2{}", path(number));
            let mut out = Vec::new();
            Message::query(number + 1, url.as_bytes()).write(&mut out).unwrap();
            out
        };
        let socket = UdpSocket::bind(address("10.0.0.9:4000")).unwrap();
        for number in (0..20).chain([2000]) {
            socket.send_to(&query(number), address(OUR_ICP)).await.unwrap();
        }
        let (start, mut answers) = (now(), Vec::new());
        let mut buffer = [0; 2000];
        while let Ok(read) = timeout(5 * SECOND, socket.recv_from(&mut buffer)).await {
            let message = Message::read(&buffer[..read.unwrap().0]).unwrap();
            answers.push((message.id, format!("{:?}", message.kind), start.elapsed()));
        }
        assert_eq!(answers.len(), 21);
        let (first, kind, took) = &answers[0];
        assert_eq!((*first, kind.as_str()), (2001, "Miss"), "{answers:?}");
        assert!(*took < Duration::from_millis(10), "{took:?}");
        let hits = answers.iter().filter(|(_, kind, _)| kind == "Hit");
        assert_eq!(hits.count(), 20);
        // They were read at the same time: one after the other takes six seconds at least.
        assert!(answers.iter().all(|(_, _, took)| *took < 3 * SECOND), "{answers:?}");
    });
}

const OUR_HTCP: &str = "10.0.0.1:4827";
const SIBLING_HTCP: &str = "10.0.0.8:4827";

/// A proxy that asks the sibling by HTCP.
fn beside_by_htcp() -> Config {
    let mut config = beside();
    config.hierarchy.as_mut().unwrap().asked[0].queries = Some(Queries::Htcp(4827));
    config.htcp = icp(OUR_HTCP);
    config
}

fn sibling_by_htcp(clears: bool) -> Neighbour {
    let mut config = open();
    let server = icp(SIBLING_HTCP).unwrap();
    let clear_from = if clears { server.allow_from.clone() } else { Vec::new() };
    config.htcp = Some(QueryServer { clear_from, ..server });
    Neighbour::start(SIBLING, config)
}

#[test]
fn by_htcp_a_sibling_is_asked_for_the_variant() {
    each_way(beside_by_htcp, async |world: Rc<World>| {
        let sibling = sibling_by_htcp(false);
        let path = "/v?size=300&cc=max-age=60&vary=x-color";
        get(SIBLING, path, "X-Color: red\r\n").await;
        let got = get(HERE, path, "X-Color: red\r\n").await;
        assert_eq!(got.body, expected(path, Some("red")));
        assert_eq!((world.origin.count(path), sibling.counter("hits")), (1, 1));
        let got = get(HERE, path, "X-Color: blue\r\n").await;
        assert_eq!(got.body, expected(path, Some("blue")));
        assert_eq!(world.origin.count(path), 2);
        assert_eq!((figure("hits").await, figure("misses").await), (1, 1));
        assert_eq!(figure("false_hits").await, 0);
        assert!(log_of(&world).await.contains(" SIBLING_HIT/10.0.0.8 "));
    });
}

#[test]
fn a_purge_is_sent_to_those_who_accept_it() {
    let config = with(beside_by_htcp, |config| {
        config.purge.from = vec!["0.0.0.0/0".parse().unwrap()];
    });
    for clears in [true, false] {
        each_way(&config, async |world: Rc<World>| {
            let _sibling = sibling_by_htcp(clears);
            let paths = ["/p1?cc=max-age=600", "/p2?cc=max-age=600"];
            for path in paths {
                get(SIBLING, path, "").await;
            }
            let purge = b"POST /purge?url=http://10.0.0.2/p1%3fcc%3dmax-age%3d600 HTTP/1.1\r\n\
                          Host: a\r\nContent-Length: 0\r\n\r\n";
            assert_eq!(Client::to(ADMIN).await.unwrap().ask(purge).await.status, 200);
            let purge =
                format!("PURGE http://10.0.0.2{} HTTP/1.1\r\nHost: 10.0.0.2\r\n\r\n", paths[1]);
            let mut client = Client::http1().await;
            assert_eq!(client.ask(purge.as_bytes()).await.status, 200);
            sleep(SECOND).await;
            get(SIBLING, paths[0], "").await;
            assert_eq!(world.origin.count(paths[0]), if clears { 2 } else { 1 });
            get(SIBLING, paths[1], "").await;
            assert_eq!(world.origin.count(paths[1]), if clears { 2 } else { 1 });
            // One for each scheme, because both are purged here.
            assert_eq!(figure("clears").await, 4);
        });
    }
}

#[test]
fn a_change_is_sent_if_that_is_configured() {
    let config = with(beside_by_htcp, |config| {
        config.hierarchy.as_mut().unwrap().clear_changed = true;
    });
    each_way(config, async |world: Rc<World>| {
        let _sibling = sibling_by_htcp(true);
        let path = "/c?cc=max-age=600";
        get(SIBLING, path, "").await;
        let post = format!(
            "POST http://10.0.0.2{path} HTTP/1.1\r\nHost: 10.0.0.2\r\nContent-Length: 2\r\n\r\nab"
        );
        assert_eq!(Client::new().await.ask(post.as_bytes()).await.status, 200);
        sleep(SECOND).await;
        get(SIBLING, path, "").await;
        assert_eq!(world.origin.count(path), 3, "twice from the sibling, and the change");
        assert_eq!(figure("clears").await, 1);
    });
    // Peers learn of no URL that they would never be asked for.
    let direct = with(beside_by_htcp, |config| {
        let hierarchy = config.hierarchy.as_mut().unwrap();
        hierarchy.clear_changed = true;
        hierarchy.always_direct = vec!["10.0.0.2".parse().unwrap()];
    });
    each_way(direct, async |_: Rc<World>| {
        let post = b"POST http://10.0.0.2/secret HTTP/1.1\r\nHost: 10.0.0.2\r\n\
                     Content-Length: 2\r\n\r\nab";
        assert_eq!(Client::new().await.ask(post).await.status, 200);
        assert_eq!(figure("clears").await, 0);
    });
}

#[test]
fn who_may_ask_by_htcp_may_not_purge_and_strangers_may_do_neither() {
    each_way(beside_by_htcp, async |world: Rc<World>| {
        let path = "/h?size=30&cc=max-age=60";
        get(HERE, path, "").await;
        let url = format!("http://10.0.0.2{path}");
        let specifier = htcp::Specifier {
            method: b"GET",
            uri: url.as_bytes(),
            version: b"HTTP/1.1",
            fields: b"",
        };
        let ask = async |from: &str, request: htcp::Request<'_>| {
            let mut out = Vec::new();
            htcp::Message::request(9, request, true).write(&mut out).unwrap();
            let socket = UdpSocket::bind(address(from)).unwrap();
            socket.send_to(&out, address(OUR_HTCP)).await.unwrap();
            let mut buffer = [0; 2000];
            let answer = timeout(SECOND, socket.recv_from(&mut buffer)).await.ok()?;
            let (read, _) = answer.unwrap();
            let message = htcp::Message::read(&buffer[..read]).unwrap();
            assert_eq!(message.id, 9);
            let htcp::Body::Response(response) = message.body else { panic!("no response") };
            Some((format!("{response:?}"), read <= out.len()))
        };
        let (friend, stranger) = ("10.0.0.9:4000", "192.0.2.1:4000");
        let test = htcp::Request::Test(specifier);
        let clear = htcp::Request::Clear { reason: 0, specifier };
        assert!(ask(friend, test).await.unwrap().0.starts_with("Present"));
        for (from, request) in [(friend, clear), (stranger, clear), (stranger, test)] {
            let (said, is_no_longer) = ask(from, request).await.unwrap();
            assert!(said.contains("Disallowed") && is_no_longer, "{said}");
        }
        assert!(ask(friend, test).await.unwrap().0.starts_with("Present"), "it is still there");
        assert_eq!(world.origin.seen.borrow().len(), 1);
    });
}

/// Their senders can be forged.
#[test]
fn purges_by_datagram_have_a_rate() {
    let config = with(beside_by_htcp, |config| {
        let server = config.htcp.as_mut().unwrap();
        server.clear_from = server.allow_from.clone();
    });
    each_way(config, async |world: Rc<World>| {
        let path = "/flood?size=30&cc=max-age=600";
        get(HERE, path, "").await;
        let clear = |uri: &str| {
            let (method, version): (&[u8], &[u8]) = (b"GET", b"HTTP/1.1");
            let specifier = htcp::Specifier { method, uri: uri.as_bytes(), version, fields: b"" };
            let request = htcp::Request::Clear { reason: 0, specifier };
            let mut out = Vec::new();
            htcp::Message::request(9, request, true).write(&mut out).unwrap();
            out
        };
        let socket = UdpSocket::bind(address("10.0.0.9:4000")).unwrap();
        for at in 0..400 {
            let datagram = clear(&format!("http://10.0.0.2/none{at}"));
            socket.send_to(&datagram, address(OUR_HTCP)).await.unwrap();
        }
        let mut answers = 0;
        while timeout(SECOND, socket.recv_from(&mut [0; 2000])).await.is_ok() {
            answers += 1;
        }
        assert!((1..=200).contains(&answers), "{answers} of 400");
        assert!(world.counter("htcp_clears_ignored") >= 200, "they are counted");
        let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
        let metrics = Client::to(ADMIN).await.unwrap().ask(request).await.body;
        let metrics = String::from_utf8(metrics).unwrap();
        assert!(metrics.contains("plimsoll_purge_records 0\n"), "they leave no records");
        // Later, one is carried out as always.
        for _ in 0..5 {
            let datagram = clear(&format!("http://10.0.0.2{path}"));
            socket.send_to(&datagram, address(OUR_HTCP)).await.unwrap();
            sleep(SECOND).await;
        }
        get(HERE, path, "").await;
        assert_eq!(world.origin.count(path), 2);
    });
}

#[test]
fn one_sender_of_purges_does_not_use_up_the_rate_of_another() {
    let config = with(beside_by_htcp, |config| {
        let server = config.htcp.as_mut().unwrap();
        server.clear_from = server.allow_from.clone();
    });
    each_way(config, async |world: Rc<World>| {
        let clear = |uri: &str| {
            let (method, version): (&[u8], &[u8]) = (b"GET", b"HTTP/1.1");
            let specifier = htcp::Specifier { method, uri: uri.as_bytes(), version, fields: b"" };
            let request = htcp::Request::Clear { reason: 0, specifier };
            let mut out = Vec::new();
            htcp::Message::request(9, request, true).write(&mut out).unwrap();
            out
        };
        let path = "/mine?size=30&cc=max-age=600";
        get(HERE, path, "").await;
        let often = UdpSocket::bind(address("10.0.0.9:4000")).unwrap();
        let other = UdpSocket::bind(address("10.0.0.10:4000")).unwrap();
        for _ in 0..5 {
            for at in 0..150 {
                let datagram = clear(&format!("http://10.0.0.2/none{at}"));
                often.send_to(&datagram, address(OUR_HTCP)).await.unwrap();
            }
            let datagram = clear(&format!("http://10.0.0.2{path}"));
            other.send_to(&datagram, address(OUR_HTCP)).await.unwrap();
            sleep(SECOND / 2).await;
        }
        get(HERE, path, "").await;
        assert_eq!(world.origin.count(path), 2);
        assert!(world.counter("htcp_clears_ignored") > 0);
    });
}

#[test]
fn an_explanation_names_the_rule_and_who_would_be_asked() {
    let explain = async |about: &str| {
        let request = format!("GET /explain?{about} HTTP/1.1\r\nHost: a\r\n\r\n");
        let got = Client::to(ADMIN).await.unwrap().ask(request.as_bytes()).await;
        let shown: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
        let request = &shown["request"];
        let asks = request["asks"].as_array().map_or(0, Vec::len);
        (request["hierarchy"].as_str().unwrap_or_default().to_owned(), asks)
    };
    let url = "url=http://10.0.0.2/x";
    each_way(beside, async |_: Rc<World>| {
        let (rule, asks) = explain(url).await;
        assert!(rule.starts_with("a peer that says") && asks == 1, "{rule} {asks}");
    });
    let direct = with(beside, |config| {
        config.hierarchy.as_mut().unwrap().always_direct = vec!["*".parse().unwrap()];
    });
    each_way(direct, async |_: Rc<World>| {
        let (rule, asks) = explain(url).await;
        assert!(rule.starts_with("always_direct") && asks == 0, "{rule} {asks}");
        let (rule, _) = explain("url=https://10.0.0.5/&method=CONNECT").await;
        assert!(rule.starts_with("always_direct"), "{rule}");
    });
    each_way(reverse_beside, async |_: Rc<World>| {
        let (rule, asks) = explain("url=http://site/x").await;
        assert!(rule.starts_with("a peer that says") && asks == 1, "{rule} {asks}");
    });
}
