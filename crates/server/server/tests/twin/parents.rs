//! Parents: a second proxy between the proxy and the origin.

use std::net::Shutdown;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use config::{Ejection, Group, Hierarchy, Login, PARENTS};
use runtime::net::{ListenOptions, TcpListener};
use runtime::stop::StopSource;
use runtime::time::sleep;
use server::{Config, Core, LogTo, Origin as OriginUrl, Role, Users};

use crate::common::{Response, content};
use crate::origin::expected;
use crate::tunnels::{PEER, Peer, USERS, all_of, open};
use crate::world::{
    ADMIN, Client, PROXY, Version, World, address, each_way, each_way_http1, forward, with,
};

const PARENT: &str = "10.0.0.7:3128";
/// No parent listens here.
const MISSING: &str = "10.0.0.9:3128";

/// A second proxy in the same world.
pub(crate) struct Neighbour {
    core: Core,
    log: Arc<Mutex<Vec<u8>>>,
    stop: StopSource,
}

impl Neighbour {
    pub(crate) fn start(at: &str, config: Config) -> Neighbour {
        Neighbour::start_as(at, Role::Forward, config)
    }

    pub(crate) fn start_as(at: &str, role: Role, mut config: Config) -> Neighbour {
        config.listeners = vec![server::Listener::plain(address(at), role)];
        // Its own name in Via comes from this.
        config.hash_seed = Some([at.len() as u64, 77]);
        let log = Arc::new(Mutex::new(Vec::new()));
        let to = LogTo::Memory(Arc::clone(&log));
        let listener = config.listeners[0].clone();
        let core = Core::of(config, 1, &to).pop().unwrap();
        let socket = TcpListener::bind(address(at), &ListenOptions::default()).unwrap();
        let stop = StopSource::new();
        let sockets = vec![(socket, listener)];
        runtime::spawn(core.clone().run(sockets, Vec::new(), None, stop.token())).detach();
        Neighbour { core, log, stop }
    }

    /// Its access log so far.
    pub(crate) fn log(&self) -> String {
        String::from_utf8(self.log.lock().unwrap().clone()).unwrap()
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        let counters = self.core.counters();
        counters.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no {name}")).1
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

/// These proxies are parents.
pub(crate) fn hierarchy(parents: &[&str]) -> Hierarchy {
    let servers = parents.iter().map(|at| OriginUrl::at(address(at)));
    let ejection = Ejection { share_percent_max: 100, ..Ejection::default() };
    let parents = Group { ejection, ..Group::of(PARENTS, servers) };
    Hierarchy {
        parents: Some(parents),
        always_direct: Vec::new(),
        always_direct_methods: Vec::new(),
        never_direct: Vec::new(),
        asked: Vec::new(),
        query_timeout: Duration::from_secs(1),
        doubt_time: Duration::from_secs(7 * 24 * 3600),
        clear_changed: false,
    }
}

fn below(parents: &'static [&'static str], change: impl Fn(&mut Hierarchy)) -> impl Fn() -> Config {
    with(open, move |config| {
        let mut peers = hierarchy(parents);
        change(&mut peers);
        config.hierarchy = Some(peers);
    })
}

fn parent() -> Neighbour {
    Neighbour::start(PARENT, open())
}

const BOTH: &str = "X-Proxies: 2\r\n";

async fn get(path: &str, fields: &str) -> Response {
    Client::new().await.get(&format!("http://10.0.0.2{path}"), fields).await
}

pub(crate) async fn log_of(world: &World) -> String {
    sleep(Duration::from_secs(1)).await;
    String::from_utf8(world.log.lock().unwrap().clone()).unwrap()
}

#[test]
fn a_miss_goes_to_the_parent_and_a_hit_does_not() {
    each_way(below(&[PARENT], |_| {}), async |world: Rc<World>| {
        let parent = parent();
        let path = "/p?size=300&cc=max-age=60";
        for _ in 0..2 {
            let got = get(path, BOTH).await;
            assert_eq!((got.status, got.body.clone()), (200, expected(path, None)));
            let caches = got.all("cache-status").join(", ");
            assert_eq!(caches.matches("plimsoll; ").count(), 2, "the parent's comes first");
            assert!(got.all("via").join(", ").matches("plimsoll").count() == 2);
        }
        assert_eq!((world.origin.count(path), world.counter("hits")), (1, 1));
        assert_eq!((parent.counter("requests"), parent.counter("misses")), (1, 1));
        // What the child passes on, the parent can still have stored.
        assert_eq!(get(path, "X-Proxies: 2\r\nCache-Control: max-age=0\r\n").await.status, 200);
        let log = log_of(&world).await;
        assert!(log.contains(" FIRSTUP_PARENT/10.0.0.7 ") && log.contains(" HIER_NONE/- "));
        assert!(!log.contains("HIER_DIRECT"), "{log}");
        assert!(parent.log().contains(&format!(" GET http://10.0.0.2{path} - HIER_DIRECT/")));
    });
}

#[test]
fn bodies_go_through_a_parent_in_every_framing() {
    each_way(below(&[PARENT], |_| {}), async |world: Rc<World>| {
        let parent = parent();
        let sent = content("up", 40_000);
        for framing in ["Content-Length: 40000\r\n", "Transfer-Encoding: chunked\r\n"] {
            let head = format!(
                "POST http://10.0.0.2/post HTTP/1.1\r\nHost: 10.0.0.2\r\n{BOTH}{framing}\r\n"
            );
            let mut request = head.into_bytes();
            if framing.starts_with('T') {
                request.extend_from_slice(format!("{:x}\r\n", sent.len()).as_bytes());
                request.extend_from_slice(&sent);
                request.extend_from_slice(b"\r\n0\r\n\r\n");
            } else {
                request.extend_from_slice(&sent);
            }
            let got = Client::new().await.ask(&request).await;
            assert!(got.status == 200 && got.body == sent);
        }
        let options = "OPTIONS http://10.0.0.2 HTTP/1.1\r\nHost: 10.0.0.2\r\nX-Proxies: 2\r\n\r\n";
        let mut client = Client::http1().await;
        assert_eq!(client.ask(options.as_bytes()).await.status, 200);
        assert_eq!(world.origin.last().target, "*");
        assert_eq!(parent.counter("requests"), 3);
        for target in ["/c?size=30000&frame=chunked", "/e?size=30000&frame=close"] {
            assert_eq!(get(target, BOTH).await.body, expected(target, None));
        }
    });
}

#[test]
fn rules_decide_what_goes_to_a_parent() {
    let config = below(&[PARENT], |peers| {
        peers.always_direct = vec!["10.0.0.2".parse().unwrap()];
        peers.never_direct = vec!["*".parse().unwrap()];
    });
    each_way(config, async |world: Rc<World>| {
        let parent = parent();
        let path = "/r?size=30&cc=max-age=60";
        assert_eq!(get(path, "").await.body, expected(path, None));
        assert_eq!((world.origin.count(path), parent.counter("requests")), (1, 0));
        assert!(log_of(&world).await.contains(" HIER_DIRECT/10.0.0.2 "));
    });
    let config = below(&[PARENT], |peers| peers.always_direct_methods = vec!["POST".to_owned()]);
    each_way(config, async |_: Rc<World>| {
        let parent = parent();
        let post =
            b"POST http://10.0.0.2/x HTTP/1.1\r\nHost: 10.0.0.2\r\nContent-Length: 2\r\n\r\nab";
        assert_eq!(Client::new().await.ask(post).await.body, b"ab");
        assert_eq!(parent.counter("requests"), 0);
        assert_eq!(get("/y?size=3", BOTH).await.status, 200);
        assert_eq!(parent.counter("requests"), 1);
    });
}

#[test]
fn a_missing_parent_costs_no_client_a_response_unless_nothing_may_go_directly() {
    each_way(below(&[MISSING], |_| {}), async |world: Rc<World>| {
        for at in 0..20 {
            let path = format!("/m{at}?size=30&cc=no-store");
            assert_eq!(get(&path, "").await.body, expected(&path, None));
        }
        let post =
            b"POST http://10.0.0.2/x HTTP/1.1\r\nHost: 10.0.0.2\r\nContent-Length: 2\r\n\r\nab";
        assert_eq!(Client::new().await.ask(post).await.body, b"ab");
        assert_eq!(world.counter("upstream_errors"), 0);
        let log = log_of(&world).await;
        assert!(!log.contains("PARENT"), "{log}");
    });
    let config = below(&[MISSING], |peers| peers.never_direct = vec!["*".parse().unwrap()]);
    each_way(config, async |world: Rc<World>| {
        for _ in 0..8 {
            assert_eq!(get("/never?size=30", "").await.status, 502);
        }
        assert_eq!(world.origin.count("/never?size=30"), 0);
    });
    let none = below(&[], |peers| {
        peers.parents = None;
        peers.never_direct = vec!["*".parse().unwrap()];
    });
    each_way(none, async |_: Rc<World>| {
        let got = get("/never?size=30", "").await;
        assert_eq!(got.status, 503);
        let status = got.field("proxy-status").unwrap();
        assert!(status.contains("details=\"no-parent\""), "{status}");
    });
}

/// A parent that has a response would undo a purge.
#[test]
fn a_purge_is_not_undone_by_the_parent() {
    each_way(below(&[PARENT], |_| {}), async |world: Rc<World>| {
        let _parent = parent();
        let path = "/old?size=30&cc=max-age=600&etag=x";
        get(path, BOTH).await;
        let purge = format!(
            "POST /purge?url=http://10.0.0.2{} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            path.replace('?', "%3f").replace('&', "%26").replace('=', "%3d")
        );
        world.origin.version.set(1);
        let purged = Client::to(ADMIN).await.unwrap().ask(purge.as_bytes()).await;
        assert_eq!(purged.status, 200);
        for _ in 0..2 {
            assert_eq!(get(path, BOTH).await.field("etag"), Some("\"x.1\""));
        }
        assert_eq!(world.origin.count(path), 2, "the second one is a hit");
        // The doubt has ended: what is stale here is validated at the parent, which has it.
        get(path, "X-Proxies: 2\r\nCache-Control: max-age=0\r\n").await;
        let seen = world.origin.count(path);
        assert_eq!(seen, 3, "the client itself asked for it");
    });
}

/// The same for a change that the parent has not seen.
#[test]
fn a_change_past_the_parent_is_not_undone_by_it() {
    let config = below(&[PARENT], |peers| peers.always_direct_methods = vec!["POST".to_owned()]);
    each_way(config, async |_: Rc<World>| {
        let _parent = parent();
        let path = "/changed?size=30&cc=max-age=600&etag=x&bump=1";
        assert_eq!(get(path, BOTH).await.field("etag"), Some("\"x.0\""));
        let post = format!(
            "POST http://10.0.0.2{path} HTTP/1.1\r\nHost: 10.0.0.2\r\nContent-Length: 2\r\n\r\nab"
        );
        assert_eq!(Client::new().await.ask(post.as_bytes()).await.status, 200);
        assert_eq!(get(path, BOTH).await.field("etag"), Some("\"x.1\""));
    });
}

#[test]
fn two_proxies_that_are_parents_of_each_other_end_the_loop() {
    let config = below(&[PARENT], |peers| peers.never_direct = vec!["*".parse().unwrap()]);
    each_way(config, async |world: Rc<World>| {
        let other = below(&[PROXY], |peers| peers.never_direct = vec!["*".parse().unwrap()]);
        let other = Neighbour::start(PARENT, other());
        let got = get("/loop?size=30", "").await;
        assert_eq!(got.status, 508);
        assert_eq!(world.origin.count("/loop?size=30"), 0);
        assert_eq!((other.counter("requests"), world.counter("requests")), (1, 2));
    });
}

#[test]
fn a_parent_that_wants_a_password_gets_it() {
    let config = below(&[PARENT], |peers| {
        let login = Login::from_text("jo:secret").unwrap();
        peers.parents.as_mut().unwrap().servers[0].login = Some(login);
    });
    each_way(config, async |world: Rc<World>| {
        let mut parent = forward();
        parent.forward.users = Some(Users::from_text(USERS).unwrap());
        let parent = Neighbour::start(PARENT, parent);
        let path = "/login?size=30&cc=no-store";
        // The client's own credentials are for us.
        let fields = "X-Proxies: 2\r\nProxy-Authorization: Basic Ym86b28=\r\n";
        assert_eq!(get(path, fields).await.body, expected(path, None));
        assert_eq!(world.origin.last().field("proxy-authorization"), None);
        sleep(Duration::from_secs(1)).await;
        assert!(parent.log().contains(" jo HIER_DIRECT/"), "{}", parent.log());
    });
}

#[test]
fn a_tunnel_goes_through_a_parent() {
    each_way_http1(below(&[PARENT], |_| {}), async |world: Rc<World>| {
        let _parent = parent();
        let peer = Peer::echo(PEER);
        let sent = content("up", 40_000);
        let client = Client::over(Version::Http1, PROXY).await.unwrap();
        let head = format!("CONNECT {PEER} HTTP/1.1\r\nHost: {PEER}\r\n\r\n");
        client.send(&[head.as_bytes(), &sent[..300]].concat()).await.unwrap();
        let stream = Rc::clone(client.stream());
        let mut established = [0; b"HTTP/1.1 200 Connection established\r\n\r\n".len()];
        stream.read_exact(&mut established).await.unwrap();
        let sending = async {
            stream.write_all(&sent[300..]).await.unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        };
        let ((), (got, well)) = runtime::join(sending, all_of(&stream)).await;
        assert!(well && got == sent && *peer.got.borrow() == sent);
        drop(stream);
        let log = log_of(&world).await;
        let line = format!(" CONNECT {PEER} - FIRSTUP_PARENT/10.0.0.7 -");
        assert!(log.contains(&line), "{log}");
        // The parent refuses this one, and what it decides is not bypassed.
        let mut client = Client::http1().await;
        let refused = b"CONNECT 10.0.0.7:3128 HTTP/1.1\r\nHost: 10.0.0.7:3128\r\n\r\n";
        let got = client.ask(refused).await;
        assert_eq!(got.status, 502);
        let status = got.field("proxy-status").unwrap();
        assert!(status.contains("details=\"parent-refused\""), "{status}");
    });
}

#[test]
fn a_tunnel_between_parents_of_each_other_ends() {
    let never = |peers: &mut Hierarchy| peers.never_direct = vec!["*".parse().unwrap()];
    each_way_http1(below(&[PARENT], never), async |world: Rc<World>| {
        let other = Neighbour::start(PARENT, below(&[PROXY], never)());
        let request = format!("CONNECT {PEER} HTTP/1.1\r\nHost: {PEER}\r\n\r\n");
        assert_eq!(Client::http1().await.ask(request.as_bytes()).await.status, 502);
        assert_eq!((other.counter("requests"), world.counter("requests")), (1, 2));
    });
}

/// A parent that has an old response and, if it is asked to, gets the new one.
fn with_old_response() -> Rc<Peer> {
    Peer::start(PARENT, async |peer, stream| {
        let (mut head, mut piece) = (Vec::new(), [0; 2000]);
        while let Ok(read @ 1..) = stream.read(&mut piece).await {
            head.extend_from_slice(&piece[..read]);
            if !head.ends_with(b"\r\n\r\n") {
                continue;
            }
            let is_new = String::from_utf8_lossy(&head).contains("Cache-Control: no-cache");
            let body = if is_new { "new" } else { "old" };
            let head_lines = "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 3";
            let answer = format!("{head_lines}\r\n\r\n{body}");
            peer.got.borrow_mut().append(&mut head);
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    })
}

fn purge_of(path: &str) -> String {
    let path = path.replace('?', "%3f").replace('&', "%26").replace('=', "%3d");
    let url = format!("http://10.0.0.2{path}");
    format!("POST /purge?url={url} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
}

/// What was stored after a purge need not have come from the parent.
#[test]
fn a_purge_is_not_undone_by_a_parent_that_was_away() {
    each_way(below(&[PARENT], |_| {}), async |world: Rc<World>| {
        let path = "/away?size=30&cc=max-age=5";
        let purge = purge_of(path);
        assert_eq!(Client::to(ADMIN).await.unwrap().ask(purge.as_bytes()).await.status, 200);
        assert_eq!(get(path, "").await.body, expected(path, None));
        assert_eq!(world.origin.count(path), 1, "the parent is away");
        let _parent = with_old_response();
        sleep(Duration::from_secs(10)).await;
        assert_eq!(get(path, "").await.body, b"new");
        assert_eq!(get("/other?size=30", "").await.body, b"old", "that is in no doubt");
    });
}

/// Otherwise clients could make the parent useless by sending POST.
#[test]
fn a_change_that_the_only_parent_has_seen_is_no_doubt() {
    each_way(below(&[PARENT], |_| {}), async |_: Rc<World>| {
        let parent = with_old_response();
        let path = "/seen?size=30";
        let post = format!("POST http://10.0.0.2{path} HTTP/1.1\r\nHost: 10.0.0.2\r\n\r\n");
        assert_eq!(Client::new().await.ask(post.as_bytes()).await.status, 200);
        assert_eq!(get(path, "").await.body, b"old");
        assert!(parent.got.borrow().starts_with(b"POST "));
    });
}

/// It may have processed the request.
#[test]
fn a_parent_that_is_slow_is_not_bypassed_whichever_time_ends_first() {
    let config = below(&[PARENT], |peers| {
        peers.parents.as_mut().unwrap().timeouts.total = Some(Duration::from_secs(5));
    });
    each_way(config, async |world: Rc<World>| {
        let _parent = parent();
        let path = "/slow?delay=20000";
        let head = format!("DELETE http://10.0.0.2{path} HTTP/1.1\r\nHost: 10.0.0.2\r\n{BOTH}");
        let delete = format!("{head}\r\n");
        assert_eq!(Client::new().await.ask(delete.as_bytes()).await.status, 504);
        sleep(Duration::from_secs(30)).await;
        assert_eq!(world.origin.count(path), 1);
    });
}
