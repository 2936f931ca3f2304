//! Names: their time to live, name servers that lose, delay, lie and refuse, and what is not
//! believed.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::time::Duration;

use config::{Addresses, Group};
use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SRV};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use runtime::net::{ListenOptions, TcpListener, TcpStream, UdpSocket};
use runtime::sim;
use runtime::time::sleep;
use server::{Config, NameServers, Origin as OriginUrl};

use crate::origin::{Origin, expected};
use crate::world::{
    ADMIN, Client, ORIGIN, World, address, each_way, each_way_tcp, forward, reverse, run,
};

pub(crate) const SERVER: &str = "10.0.0.53:53";
const SILENT_SERVER: &str = "10.0.0.54:53";
const OTHER_ORIGIN: &str = "10.0.0.3:80";

/// How the simulated name server misbehaves.
#[derive(Clone, Copy, Default)]
struct Manner {
    /// It says nothing to so many questions first.
    silent: usize,
    /// It says nothing to questions about this name.
    silent_about: Option<&'static str>,
    /// It says nothing to questions about addresses of IPv6.
    silent_about_v6: bool,
    /// Replies with another id, to another question, and with unsolicited records come first.
    lies: bool,
    /// UDP replies are truncated: the whole reply comes over TCP.
    truncates: bool,
    refuses: bool,
}

/// A host of a service: priority, weight, port and name.
type Host = (u16, u16, u16, &'static str);

/// A simulated name server.
pub(crate) struct NameServer {
    /// Addresses, TTL.
    zone: RefCell<HashMap<&'static str, (Vec<Ipv4Addr>, u32)>>,
    /// The hosts of services. Their TTL is 5 seconds.
    services: RefCell<HashMap<&'static str, Vec<Host>>>,
    /// Addresses of IPv6, which all names have.
    v6: RefCell<Vec<Ipv6Addr>>,
    manner: Cell<Manner>,
    /// Questions that came.
    pub(crate) asked: Cell<usize>,
}

impl NameServer {
    pub(crate) fn start() -> Rc<NameServer> {
        let server = Rc::new(NameServer {
            zone: RefCell::default(),
            services: RefCell::default(),
            v6: RefCell::default(),
            manner: Cell::default(),
            asked: Cell::new(0),
        });
        let socket = UdpSocket::bind(address(SERVER)).unwrap();
        let listener = TcpListener::bind(address(SERVER), &ListenOptions::default()).unwrap();
        runtime::spawn(Rc::clone(&server).by_udp(socket)).detach();
        runtime::spawn(Rc::clone(&server).by_tcp(listener)).detach();
        server
    }

    pub(crate) fn resolves(&self, name: &'static str, last: &[u8], ttl: u32) {
        let ips = last.iter().map(|last| Ipv4Addr::new(10, 0, 0, *last)).collect();
        self.resolves_to(name, ips, ttl);
    }

    pub(crate) fn resolves_to(&self, name: &'static str, ips: Vec<Ipv4Addr>, ttl: u32) {
        self.zone.borrow_mut().insert(name, (ips, ttl));
    }

    fn behaves(&self, manner: Manner) {
        self.manner.set(manner);
    }

    async fn by_udp(self: Rc<Self>, socket: UdpSocket) {
        let mut bytes = [0; 1500];
        loop {
            let Ok((read, from)) = socket.recv_from(&mut bytes).await else { continue };
            self.asked.set(self.asked.get() + 1);
            let mut manner = self.manner.get();
            if manner.silent > 0 {
                manner.silent -= 1;
                self.manner.set(manner);
                continue;
            }
            let asked = Message::from_vec(&bytes[..read]).unwrap();
            let name = asked.queries[0].name.to_string();
            let is_v6 = asked.queries[0].query_type == RecordType::AAAA;
            if manner.silent_about == Some(name.trim_end_matches('.'))
                || manner.silent_about_v6 && is_v6
            {
                continue;
            }
            let mut replies = Vec::new();
            if manner.lies {
                replies.extend(lies(&asked));
            }
            let mut reply = self.reply(&asked);
            if manner.truncates {
                reply.answers.clear();
                reply.metadata.truncation = true;
            }
            replies.push(reply);
            for reply in replies {
                let _ = socket.send_to(&reply.to_vec().unwrap(), from).await;
            }
        }
    }

    async fn by_tcp(self: Rc<Self>, listener: TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let _ = self.answer_by_tcp(&stream).await;
        }
    }

    async fn answer_by_tcp(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut length = [0; 2];
        stream.read_exact(&mut length).await?;
        let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut bytes).await?;
        let reply = self.reply(&Message::from_vec(&bytes).unwrap()).to_vec().unwrap();
        stream.write_all(&(reply.len() as u16).to_be_bytes()).await?;
        stream.write_all(&reply).await
    }

    fn reply(&self, asked: &Message) -> Message {
        let mut reply = Message::response(asked.metadata.id, OpCode::Query);
        let query = asked.queries[0].clone();
        let name = query.name.to_string();
        if self.manner.get().refuses {
            reply.metadata.response_code = ResponseCode::Refused;
        } else if let Some(hosts) = self.services.borrow().get(name.trim_end_matches('.')) {
            assert_eq!(query.query_type, RecordType::SRV);
            for (priority, weight, port, target) in hosts {
                let target = Name::from_ascii(target).unwrap();
                let srv = RData::SRV(SRV::new(*priority, *weight, *port, target));
                reply.add_answer(Record::from_rdata(query.name.clone(), 5, srv));
            }
        } else if let Some((ips, ttl)) = self.zone.borrow().get(name.trim_end_matches('.')) {
            // Every name is an alias here.
            let host = Name::from_ascii("host.example.").unwrap();
            let alias = RData::CNAME(CNAME(host.clone()));
            reply.add_answer(Record::from_rdata(query.name.clone(), *ttl, alias));
            if query.query_type == RecordType::A {
                for ip in ips {
                    reply.add_answer(Record::from_rdata(host.clone(), 3600, RData::A(A(*ip))));
                }
            } else {
                for ip in self.v6.borrow().iter() {
                    let aaaa = RData::AAAA(AAAA(*ip));
                    reply.add_answer(Record::from_rdata(host.clone(), 3600, aaaa));
                }
            }
        } else {
            reply.metadata.response_code = ResponseCode::NXDomain;
        }
        reply.add_query(query);
        reply
    }
}

/// What somebody would send who wants the name to lead elsewhere.
fn lies(asked: &Message) -> Vec<Message> {
    let evil = RData::A(A(Ipv4Addr::new(10, 0, 0, 66)));
    let query = asked.queries[0].clone();
    let lie = |id: u16, question: &Name, owner: &Name| {
        let mut reply = Message::response(id, OpCode::Query);
        let mut asked = query.clone();
        asked.name = question.clone();
        reply.add_query(asked);
        reply.add_answer(Record::from_rdata(owner.clone(), 3600, evil.clone()));
        reply
    };
    let other = Name::from_ascii("bank.example.").unwrap();
    let id = asked.metadata.id;
    vec![lie(id.wrapping_add(1), &query.name, &query.name), lie(id, &other, &query.name)]
}

fn asking() -> Config {
    Config { name_servers: NameServers::At(vec![address(SERVER)]), ..forward() }
}

async fn get(name: &str, path: &str) -> u16 {
    let target = format!("http://{name}{path}");
    let request = format!("GET {target} HTTP/1.1\r\nHost: {name}\r\n\r\n");
    let got = Client::new().await.ask(request.as_bytes()).await;
    if got.status == 200 {
        assert_eq!(got.body, expected(path, None));
    }
    got.status
}

#[test]
fn an_answer_holds_for_its_ttl_and_no_longer() {
    // One of the datagrams that are counted on would be lost.
    each_way_tcp(asking, async |world: Rc<World>| {
        let server = NameServer::start();
        let other = Origin::start(address(OTHER_ORIGIN));
        server.resolves("site.example", &[2], 30);
        assert_eq!(get("site.example", "/a?size=9&cc=no-store").await, 200);
        assert_eq!(get("SITE.example", "/b?size=9&cc=no-store").await, 200);
        assert_eq!(server.asked.get(), 2, "A and AAAA, once");
        server.resolves("site.example", &[3], 30);
        sleep(Duration::from_secs(20)).await;
        assert_eq!(get("site.example", "/c?size=9&cc=no-store").await, 200);
        assert_eq!((world.origin.seen.borrow().len(), other.seen.borrow().len()), (3, 0));
        sleep(Duration::from_secs(11)).await;
        assert_eq!(get("site.example", "/d?size=9&cc=no-store").await, 200);
        assert_eq!((world.origin.seen.borrow().len(), other.seen.borrow().len()), (3, 1));
        assert_eq!(server.asked.get(), 4);
    });
}

#[test]
fn concurrent_lookups_share_a_query_and_a_used_name_is_refreshed_before_it_expires() {
    // One of the datagrams that are counted on would be lost.
    each_way_tcp(asking, async |world: Rc<World>| {
        let server = NameServer::start();
        server.resolves("site.example", &[2], 100);
        let all: Vec<_> = (0..20)
            .map(|at| format!("/{at}?size=3"))
            .map(|path| runtime::spawn(async move { get("site.example", &path).await }))
            .collect();
        for one in all {
            assert_eq!(one.await, 200);
        }
        assert_eq!(server.asked.get(), 2);
        sleep(Duration::from_secs(95)).await;
        // Used near its end: the old answer serves, the new one comes behind it.
        server.behaves(Manner { silent: 2, ..Manner::default() });
        assert_eq!(get("site.example", "/x?size=3").await, 200);
        sleep(Duration::from_secs(6)).await;
        assert_eq!(server.asked.get(), 6);
        assert_eq!(get("site.example", "/y?size=3").await, 200);
        assert_eq!(server.asked.get(), 6, "it is looked up again");
        assert_eq!(world.counter("upstream_errors"), 0);
    });
}

#[test]
fn forged_replies_are_ignored() {
    each_way(asking, async |world: Rc<World>| {
        let server = NameServer::start();
        server.resolves("site.example", &[2], 30);
        for manner in [
            Manner { lies: true, ..Manner::default() },
            Manner { lies: true, truncates: true, ..Manner::default() },
        ] {
            server.behaves(manner);
            assert_eq!(get("site.example", "/a?size=9&cc=no-store").await, 200);
            sleep(Duration::from_secs(40)).await;
        }
        // The record of the other name is ignored.
        server.behaves(Manner::default());
        assert_eq!(get("bank.example", "/b?size=9").await, 502);
        assert_eq!(world.origin.seen.borrow().len(), 2);
    });
}

#[test]
fn a_negative_reply_is_cached_for_a_while() {
    // One of the datagrams that are counted on would be lost.
    each_way_tcp(asking, async |_: Rc<World>| {
        let server = NameServer::start();
        for _ in 0..3 {
            assert_eq!(get("none.example", "/a?size=9").await, 502);
        }
        assert_eq!(server.asked.get(), 2);
        server.resolves("none.example", &[2], 30);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(get("none.example", "/a?size=9").await, 200);
    });
}

#[test]
fn a_silent_or_refusing_server_costs_time_and_the_next_is_asked() {
    let servers = || NameServers::At(vec![address(SILENT_SERVER), address(SERVER)]);
    let config = || Config { name_servers: servers(), ..forward() };
    // One of the datagrams that are counted on would be lost.
    each_way_tcp(config, async |_: Rc<World>| {
        // A socket that is never read.
        let _silent = UdpSocket::bind(address(SILENT_SERVER)).unwrap();
        let server = NameServer::start();
        server.resolves("site.example", &[2], 30);
        assert_eq!(get("site.example", "/a?size=9").await, 200);
        server.behaves(Manner { refuses: true, ..Manner::default() });
        assert_eq!(get("other.example", "/a?size=9").await, 504);
    });
    // No server at all.
    each_way(asking, async |_: Rc<World>| {
        assert_eq!(get("site.example", "/a?size=9").await, 504);
    });
}

#[test]
fn a_query_is_repeated_if_its_datagram_is_lost() {
    sim::check(0..8, |seed| {
        let mut options = sim::Options::new(seed);
        options.loss = 0.1;
        run(options, asking(), async |_: Rc<World>| {
            let server = NameServer::start();
            server.resolves("site.example", &[2], 1);
            let mut answered = 0;
            for at in 0..10 {
                answered += usize::from(get("site.example", &format!("/{at}?size=9")).await == 200);
                sleep(Duration::from_secs(3)).await;
            }
            assert!(answered >= 8, "{answered} of 10");
        });
    });
}

#[test]
fn a_server_with_a_name_is_followed_to_its_new_address() {
    let config = || {
        let first = vec![address(ORIGIN)];
        let server = OriginUrl { authority: "site.example:80".into(), addresses: first, tls: None };
        let name_servers = NameServers::At(vec![address(SERVER)]);
        Config { name_servers, groups: vec![Group::of("g", [server])], ..reverse() }
    };
    each_way(config, async |world: Rc<World>| {
        let server = NameServer::start();
        let other = Origin::start(address(OTHER_ORIGIN));
        server.resolves("site.example", &[2], 10);
        let mut client = Client::new().await;
        let mut counts = Vec::new();
        for round in 0..4 {
            let got = client.get(&format!("/m{round}?size=9&cc=no-store"), "").await;
            assert_eq!(got.status, 200);
            counts.push((world.origin.seen.borrow().len(), other.seen.borrow().len()));
            match round {
                0 => server.resolves("site.example", &[3], 10),
                // Its old address is used while no server answers, and when the name is gone.
                1 => server.behaves(Manner { silent: 1000, ..Manner::default() }),
                _ => {}
            }
            sleep(Duration::from_secs(15)).await;
        }
        assert_eq!(counts, [(1, 0), (1, 1), (1, 2), (1, 3)]);
    });
}

/// How many of some requests went to each of these servers.
async fn shares(origins: &[&Origin], requests: usize) -> Vec<usize> {
    let mut client = Client::new().await;
    origins.iter().for_each(|origin| origin.seen.borrow_mut().clear());
    for at in 0..requests {
        let got = client.get(&format!("/s{at}?size=9&cc=no-store"), "").await;
        assert_eq!(got.status, 200);
    }
    origins.iter().map(|origin| origin.seen.borrow().len()).collect()
}

fn behind(url: &str, addresses: Addresses) -> Config {
    let mut group = Group::of("g", [OriginUrl::from_url(url).unwrap()]);
    group.servers[0].addresses = addresses;
    let name_servers = NameServers::At(vec![address(SERVER)]);
    Config { name_servers, groups: vec![group], ..reverse() }
}

/// nginx: `server app.example resolve`; HAProxy: `server-template app 4 app.example:80`.
#[test]
fn each_address_of_a_name_is_a_server_for_as_long_as_the_name_has_it() {
    let config = || behind("http://app.example", Addresses::All);
    each_way_tcp(config, async |world: Rc<World>| {
        let server = NameServer::start();
        let other = Origin::start(address(OTHER_ORIGIN));
        let got = Client::new().await.get("/?size=9", "").await;
        assert_eq!(got.status, 503, "it has no address yet");
        server.resolves("app.example", &[2, 3], 5);
        sleep(Duration::from_secs(65)).await;
        let both = [&*world.origin, &*other];
        assert_eq!(shares(&both, 20).await, [10, 10]);
        server.resolves("app.example", &[3], 5);
        sleep(Duration::from_secs(8)).await;
        assert_eq!(shares(&both, 20).await, [0, 20]);
        server.resolves("app.example", &[2, 3], 5);
        sleep(Duration::from_secs(8)).await;
        assert_eq!(shares(&both, 20).await, [10, 10]);
    });
}

#[test]
fn the_hosts_of_a_service_get_requests_by_their_weights_and_the_worse_ones_none() {
    const SERVICE: &str = "_http._tcp.app.example";
    let config = || behind("srv:_http._tcp.app.example", Addresses::One);
    each_way_tcp(config, async |world: Rc<World>| {
        let server = NameServer::start();
        let (second, third) = (Origin::start(address("10.0.0.3:8080")), address("10.0.0.4:81"));
        let third = Origin::start(third);
        server.resolves("a.example", &[2], 5);
        server.resolves("b.example", &[3], 5);
        server.resolves("c.example", &[4], 5);
        let hosts = |hosts: &[Host]| {
            server.services.borrow_mut().insert(SERVICE, hosts.to_vec());
        };
        hosts(&[(1, 3, 80, "a.example."), (1, 1, 8080, "b.example."), (2, 9, 81, "c.example.")]);
        // A service that was not there is asked for again after a second.
        sleep(Duration::from_secs(8)).await;
        let all = [&*world.origin, &*second, &*third];
        assert_eq!(shares(&all, 20).await, [15, 5, 0]);
        hosts(&[(2, 9, 81, "c.example."), (3, 1, 80, "a.example.")]);
        sleep(Duration::from_secs(8)).await;
        assert_eq!(shares(&all, 20).await, [0, 0, 20]);
        // The last hosts are used while no server answers.
        server.behaves(Manner { silent: 1000, ..Manner::default() });
        sleep(Duration::from_secs(20)).await;
        assert_eq!(shares(&all, 20).await, [0, 0, 20]);
    });
}

/// The servers of the only group, as `/upstreams` shows them: the label, and whether the address is
/// from an earlier look-up.
async fn servers_shown() -> Vec<(String, bool)> {
    let request = b"GET /upstreams HTTP/1.1\r\nHost: a\r\n\r\n";
    let got = Client::to(ADMIN).await.unwrap().ask(request).await;
    let shown: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
    let servers = shown["groups"][0]["servers"].as_array().unwrap().iter();
    let one = |server: &serde_json::Value| {
        (server["server"].as_str().unwrap().to_owned(), server["stale_address"].as_bool().unwrap())
    };
    let mut servers: Vec<_> = servers.map(one).collect();
    servers.sort();
    servers
}

#[test]
fn a_host_of_a_service_without_an_answer_keeps_its_addresses_and_delays_no_other() {
    const SERVICE: &str = "_http._tcp.app.example";
    let config = || behind("srv:_http._tcp.app.example", Addresses::One);
    each_way_tcp(config, async |world: Rc<World>| {
        let server = NameServer::start();
        let (second, third) = (Origin::start(address(OTHER_ORIGIN)), address("10.0.0.4:80"));
        let third = Origin::start(third);
        let all = [&*world.origin, &*second, &*third];
        server.resolves("a.example", &[2], 5);
        server.resolves("b.example", &[3], 5);
        let hosts = vec![(1, 1, 80, "a.example."), (1, 1, 80, "b.example.")];
        server.services.borrow_mut().insert(SERVICE, hosts);
        let shown = |hosts: [(u8, bool); 2]| {
            hosts.map(|(host, is_stale)| (format!("10.0.0.{host}:80"), is_stale))
        };
        let silent = Manner { silent_about: Some("a.example"), ..Manner::default() };
        // A host that has never been found is left out, and the other one is used soon.
        server.behaves(silent);
        sleep(Duration::from_secs(5)).await;
        assert_eq!(shares(&all, 10).await, [0, 10, 0]);
        server.behaves(Manner::default());
        sleep(Duration::from_secs(8)).await;
        assert_eq!(servers_shown().await, shown([(2, false), (3, false)]));
        // The other one moves while nothing is said about the first.
        server.behaves(silent);
        server.resolves("b.example", &[4], 5);
        sleep(Duration::from_secs(20)).await;
        assert_eq!(servers_shown().await, shown([(2, true), (4, false)]));
        assert_eq!(shares(&all, 10).await, [5, 0, 5]);
        // Nothing is said that is not about an address: the hosts are there without addresses.
        server.behaves(Manner::default());
        server.resolves("a.example", &[], 5);
        server.resolves("b.example", &[], 5);
        sleep(Duration::from_secs(20)).await;
        assert_eq!(servers_shown().await, shown([(2, true), (4, true)]));
        assert_eq!(shares(&all, 10).await, [5, 0, 5]);
        // The service itself is gone.
        server.services.borrow_mut().clear();
        sleep(Duration::from_secs(20)).await;
        assert_eq!(servers_shown().await, shown([(2, true), (4, true)]));
        assert_eq!(shares(&all, 10).await, [5, 0, 5]);
        // All answer again.
        let hosts = vec![(1, 1, 80, "a.example."), (1, 1, 80, "b.example.")];
        server.services.borrow_mut().insert(SERVICE, hosts);
        server.resolves("a.example", &[2], 5);
        server.resolves("b.example", &[3], 5);
        sleep(Duration::from_secs(70)).await;
        assert_eq!(servers_shown().await, shown([(2, false), (3, false)]));
        assert_eq!(shares(&all, 10).await, [5, 5, 0]);
    });
}

/// A name server is silent about one version of IP for a while.
#[test]
fn servers_of_ipv6_stay_while_only_ipv4_is_answered() {
    let config = || behind("http://app.example", Addresses::All);
    each_way_tcp(config, async |world: Rc<World>| {
        let server = NameServer::start();
        let (v4, v6) = (Origin::start(address(OTHER_ORIGIN)), address("[fd00::3]:80"));
        let v6 = Origin::start(v6);
        let all = [&*world.origin, &*v4, &*v6];
        server.resolves("app.example", &[2], 5);
        server.v6.borrow_mut().push("fd00::3".parse().unwrap());
        sleep(Duration::from_secs(65)).await;
        assert_eq!(shares(&all, 10).await, [5, 0, 5]);
        server.behaves(Manner { silent_about_v6: true, ..Manner::default() });
        server.resolves("app.example", &[3], 5);
        sleep(Duration::from_secs(30)).await;
        assert_eq!(shares(&all, 10).await, [0, 5, 5]);
        let shown = [("10.0.0.3:80".to_owned(), false), ("[fd00::3]:80".to_owned(), true)];
        assert_eq!(servers_shown().await, shown);
        // An answer without such addresses takes them away.
        server.behaves(Manner::default());
        server.v6.borrow_mut().clear();
        sleep(Duration::from_secs(30)).await;
        assert_eq!(shares(&all, 10).await, [0, 10, 0]);
    });
}

#[test]
fn orders_for_a_server_stay_while_its_address_is_missing_in_dns() {
    let config = || behind("http://app.example", Addresses::All);
    each_way_tcp(config, async |world: Rc<World>| {
        let server = NameServer::start();
        let other = Origin::start(address(OTHER_ORIGIN));
        let both = [&*world.origin, &*other];
        server.resolves("app.example", &[2, 3], 5);
        sleep(Duration::from_secs(65)).await;
        let order = b"POST /upstreams?server=10.0.0.2:80&state=disabled&keep=on HTTP/1.1\r\n\
                      Host: a\r\n\r\n";
        assert_eq!(Client::to(ADMIN).await.unwrap().ask(order).await.status, 200);
        assert_eq!(shares(&both, 10).await, [0, 10]);
        server.resolves("app.example", &[3], 5);
        sleep(Duration::from_secs(8)).await;
        assert_eq!(servers_shown().await.len(), 1);
        server.resolves("app.example", &[2, 3], 5);
        sleep(Duration::from_secs(8)).await;
        assert_eq!(servers_shown().await.len(), 2);
        assert_eq!(shares(&both, 10).await, [0, 10]);
    });
}

#[test]
fn the_addresses_of_a_server_are_tried_in_turn() {
    let config = || {
        let unused = address("10.0.0.9:80");
        let six = address("[fd00::9]:80");
        let addresses = vec![six, unused, address(ORIGIN)];
        let server = OriginUrl { authority: "10.0.0.9:80".into(), addresses, tls: None };
        Config { groups: vec![Group::of("g", [server])], ..reverse() }
    };
    each_way(config, async |world: Rc<World>| {
        let got = Client::new().await.get("/a?size=9&cc=no-store", "").await;
        assert_eq!((got.status, world.counter("upstream_retries")), (200, 0));
    });
}

/// Rules of forward mode on names and addresses, with this name server.
fn denying(change: impl Fn(&mut config::Forward)) -> impl Fn() -> Config {
    move || {
        let mut config = asking();
        change(&mut config.forward);
        config
    }
}

fn domains(list: &[&str]) -> Vec<config::Domain> {
    list.iter().map(|one| one.parse().unwrap()).collect()
}

/// The status and the rule of the answer to a request for this host, or to a CONNECT.
async fn rule(host: &str) -> (u16, String) {
    let request = format!("GET http://{host}/a?size=9 HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let got = Client::new().await.ask(request.as_bytes()).await;
    (got.status, got.field("proxy-status").unwrap_or_default().to_owned())
}

#[test]
fn a_denied_host_is_denied_in_every_spelling() {
    let config = denying(|forward| {
        forward.deny_domains = domains(&["blocked.example", "10.0.0.2"]);
        forward.allow_to.push("::/0".parse().unwrap());
    });
    each_way(config, async |world: Rc<World>| {
        let server = NameServer::start();
        server.resolves("blocked.example", &[2], 30);
        server.resolves("alias.example", &[2], 30);
        for host in [
            "blocked.example",
            "BLOCKED.example.",
            "x.blocked.example",
            "10.0.0.2",
            "[::ffff:10.0.0.2]",
            "[::10.0.0.2]",
            "[64:ff9b::a00:2]",
            "[2002:a00:2::1]",
        ] {
            let (status, rule) = rule(host).await;
            assert!(status == 403 && rule.contains("domain-denied"), "{host}: {status} {rule}");
        }
        for host in [
            "blocked.example..",
            ".blocked.example",
            "blocked..example",
            "0x0a.2",
            "167772162",
            "0xa000002",
            "10.2",
            "012.0.0.2",
            "10.0.0.2.",
            "%62locked.example",
            &"a".repeat(64),
            &["a"; 128].join("."),
        ] {
            let (status, rule) = rule(host).await;
            // The parser refuses empty labels.
            let is_refused = rule.contains("host-name") || rule.contains("authority");
            assert!(status == 400 && is_refused, "{host}: {status} {rule}");
        }
        assert_eq!(server.asked.get(), 0, "what is refused is not looked up");
        // The address is denied, whatever name leads to it.
        let (status, rule) = rule("alias.example").await;
        assert!(status == 403 && rule.contains("domain-denied"), "{status} {rule}");
        assert_eq!(world.origin.seen.borrow().len(), 0);
    });
}

/// A silent name server uses up the look-ups of one client, and of no others: names that are known
/// and names that are answered are found beside them.
#[test]
fn lookups_have_a_limit_and_the_oldest_makes_room() {
    use dns::limits::LOOKUPS_OF_NETWORK_MAX;
    let servers = || NameServers::At(vec![address(SILENT_SERVER)]);
    let config = || Config { name_servers: servers(), ..forward() };
    each_way_tcp(config, async |_: Rc<World>| {
        let _silent = UdpSocket::bind(address(SILENT_SERVER)).unwrap();
        let ask = |at: usize| async move { rule(&format!("n{at}.example")).await };
        let all: Vec<_> =
            (0..LOOKUPS_OF_NETWORK_MAX + 5).map(|at| runtime::spawn(ask(at))).collect();
        let mut refused = 0;
        for one in all {
            let (status, rule) = one.await;
            assert!(matches!(status, 503 | 504), "{status} {rule}");
            assert_eq!(status == 503, rule.contains("lookups"), "{rule}");
            refused += usize::from(status == 503);
        }
        assert_eq!(refused, 5);
        // They are over.
        assert_eq!(rule("after.example").await.0, 504);
    });
}

/// It is down until then, and the others of its group serve.
#[test]
fn a_server_whose_name_has_no_address_yet_is_used_once_it_has_one() {
    let config = || {
        let named = |authority: &str| OriginUrl {
            authority: authority.into(),
            addresses: Vec::new(),
            tls: None,
        };
        let name_servers = NameServers::At(vec![address(SERVER)]);
        let groups = vec![Group::of("g", [named("site.example:80")])];
        Config { name_servers, groups, ..reverse() }
    };
    // One of the datagrams that are counted on would be lost.
    each_way_tcp(config, async |world: Rc<World>| {
        let server = NameServer::start();
        let mut client = Client::new().await;
        let got = client.get("/a?size=9&cc=no-store", "").await;
        assert_eq!(got.status, 503);
        assert!(got.field("proxy-status").unwrap().contains("upstream-down"));
        server.resolves("site.example", &[2], 30);
        sleep(Duration::from_secs(5)).await;
        assert_eq!(client.get("/b?size=9&cc=no-store", "").await.status, 200);
        assert_eq!(world.origin.seen.borrow().len(), 1);
    });
}
