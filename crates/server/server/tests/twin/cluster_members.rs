//! The members of a cluster change, or do not get what concerns them.

use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

use config::{Cluster, ForwardedFields};
use runtime::time::sleep;
use server::NameServers;

use crate::cluster::{ALL, Node, at, cluster, owner, path_of};
use crate::dns::{NameServer, SERVER};
use crate::origin::expected;
use crate::world::{Client, Version, World, address, each_way, each_way_http1, reverse};

const SECOND: Duration = Duration::from_secs(1);
const NAME: &str = "cache.test";

/// A member that finds the others by their name.
fn by_name(host: u8, hosts: &[u8]) -> Node {
    let mut config = reverse();
    config.name_servers = NameServers::At(vec![address(SERVER)]);
    let name = Some((NAME.to_owned(), 7000));
    let node = Node::of(host, Cluster { name, ..cluster(host, hosts) }, config);
    node.listens();
    node
}

/// The name has these members from now on, and all know it when this returns.
async fn are(names: &NameServer, hosts: &[u8]) {
    let ips = hosts.iter().map(|host| Ipv4Addr::new(10, 0, 1, *host)).collect();
    names.resolves_to(NAME, ips, 1);
    sleep(4 * SECOND).await;
}

/// The purges that wait for each member, as one of them shows it.
async fn waiting(node: &Node) -> Vec<(String, u64)> {
    let shown = node.admin("GET /upstreams").await.body;
    let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
    let all = shown["cluster"]["members"].as_array().unwrap().iter();
    all.map(|one| {
        let member = one["member"].as_str().unwrap().to_owned();
        (member, one["purges_waiting"].as_u64().unwrap())
    })
    .collect()
}

#[test]
fn a_member_whose_name_was_lost_gets_the_purges_of_that_time_before_it_is_asked() {
    each_way(reverse, async |world: Rc<World>| {
        let names = NameServer::start();
        are(&names, &ALL[..2]).await;
        let one = by_name(1, &ALL[..2]);
        let two = Node::deaf(2, &ALL[..2], reverse());
        let path = path_of("size=300&cc=max-age=600&etag=a", |path| owner(&ALL[..2], path) == 2);
        two.get(&path, "").await;
        are(&names, &[1]).await;
        assert_eq!(waiting(&one).await, [("10.0.1.1:7000".to_owned(), 0)]);
        assert_eq!(one.purge("all").await.0, 200, "there is no other member");
        are(&names, &ALL[..2]).await;
        let two_waits = |count| ("10.0.1.2:7000".to_owned(), count);
        assert_eq!(waiting(&one).await[1], two_waits(1));
        two.listens();
        sleep(60 * SECOND).await;
        assert_eq!(waiting(&one).await[1], two_waits(0));
        assert_eq!(one.get(&path, "").await.body, expected(&path, None));
        assert_eq!((one.counter("cluster_passed"), two.counter("misses")), (1, 2));
        assert_eq!(world.origin.count(&path), 2, "it had purged");
    });
}

/// Others may have known it as a member before, and it may have missed their purges.
#[test]
fn one_that_joins_validates_what_it_has_stored() {
    each_way(reverse, async |world: Rc<World>| {
        let names = NameServer::start();
        are(&names, &ALL[..2]).await;
        let one = by_name(1, &ALL[..2]);
        let _two = Node::start(2, &ALL[..2]);
        let three = Node::start(3, &ALL);
        let of =
            |host| path_of("size=300&cc=max-age=600&etag=a", move |path| owner(&ALL, path) == host);
        for (node, host) in [(&one, 1), (&three, 3)] {
            node.get(&of(host), "").await;
        }
        are(&names, &ALL).await;
        assert!(waiting(&one).await.iter().all(|(_, count)| *count == 0));
        for (node, host, revalidated) in [(&one, 1, 0), (&three, 3, 1)] {
            assert_eq!(node.get(&of(host), "").await.body, expected(&of(host), None));
            assert_eq!(node.counter("revalidated"), revalidated, "{host}");
        }
        assert_eq!(world.origin.last().field("if-none-match"), Some("\"a.0\""));
    });
}

#[test]
fn a_change_that_does_not_reach_a_member_is_counted() {
    each_way(reverse, async |_: Rc<World>| {
        let one = Node::start(1, &ALL);
        let _two = Node::start(2, &ALL);
        let _three = Node::deaf(3, &ALL, reverse());
        let post = b"POST /a?size=3 HTTP/1.1\r\nHost: site\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(one.client().await.ask(post).await.status, 200);
        assert_eq!(one.counter("cluster_changes_lost"), 1);
    });
}

/// Rules of the origin and the log are about the client, whichever member it has reached.
#[test]
fn the_owner_knows_the_client_by_what_the_member_says() {
    each_way_http1(reverse, async |world: Rc<World>| {
        let mut config = reverse();
        config.groups[0].forwarded = ForwardedFields::XForwarded;
        let one = Node::deaf(1, &ALL[..2], config);
        one.listens();
        let path = path_of("size=30&cc=max-age=600", |path| owner(&ALL[..2], path) == 1);
        let request = format!(
            "GET http://site{path} HTTP/1.1\r\nHost: site\r\nConnection: Plimsoll-Client\r\n\
             Plimsoll-Client: 192.0.2.7:4711\r\n\r\n"
        );
        let member = at(1, 7000).to_string();
        let mut member = Client::over(Version::Http1, &member).await.unwrap();
        assert_eq!(member.ask(request.as_bytes()).await.body, expected(&path, None));
        assert_eq!(world.origin.last().field("x-forwarded-for"), Some("192.0.2.7"));
        let log = one.log().await;
        assert!(log.contains(" 192.0.2.7 ") && !log.contains(" 127.0.0.1 "), "{log}");
    });
}
