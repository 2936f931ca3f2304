//! Quotas: who is refused, who waits, and who notices nothing.

use std::rc::Rc;
use std::time::Duration;

use config::{By, Counts, Over, Path, Quota, Role, Route};
use runtime::sim;
use runtime::time::{now, sleep};
use server::{Config, NameServers, Users};

use crate::dns::{NameServer, SERVER};
use crate::http3_client::knock;
use crate::origin::expected;
use crate::world::{
    ADMIN, Client, PROXY, Version, World, address, each_version, each_way, each_way_http1,
    each_way_tcp, forward, on_disk, over, reverse, run, with,
};

/// Reverse mode with one quota, by the field `X-Client`: the twin's clients have one address.
fn limited(change: impl Fn(&mut Quota)) -> impl Fn() -> Config {
    with(reverse, move |config| {
        let by = By::Field("x-client".into());
        let mut quota = Quota { name: "q".into(), by, memory: 1 << 16, ..Quota::default() };
        change(&mut quota);
        config.quotas = vec![quota];
    })
}

/// So many at once, and hardly any after that.
fn slow(quota: &mut Quota, burst: u64) {
    quota.requests = Some("1/h".parse().unwrap());
    quota.burst = Some(burst);
}

async fn admin(path: &str) -> serde_json::Value {
    let mut client = Client::to(ADMIN).await.unwrap();
    let got = client.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await;
    assert_eq!(got.status, 200, "{}", String::from_utf8_lossy(&got.body));
    serde_json::from_slice(&got.body).unwrap()
}

const HIT: &str = "/q?size=30&cc=max-age=6000";

/// One of 100 clients asks for ten times its quota; the others ask for as much as they may. All
/// requests but the first are hits.
#[test]
fn the_client_above_its_quota_is_refused_and_99_others_lose_nothing() {
    let config = limited(|quota| slow(quota, 5));
    sim::check(0..1, |seed| {
        each_version(&sim::Options::new(seed), &config(), async |world: Rc<World>| {
            let mut loud = Client::new().await;
            let mut quiet = Client::new().await;
            let (mut passed, mut refused) = (0, 0);
            for round in 0..5 {
                for _ in 0..10 {
                    match loud.get(HIT, "X-Client: loud\r\n").await.status {
                        200 => passed += 1,
                        429 => refused += 1,
                        other => panic!("{other}"),
                    }
                }
                for client in 0..99 {
                    let got = quiet.get(HIT, &format!("X-Client: {client}\r\n")).await;
                    assert_eq!(got.status, 200, "client {client} in round {round}");
                    assert_eq!(got.body, expected(HIT, None));
                }
            }
            assert_eq!((passed, refused), (5, 45));
            assert_eq!(world.origin.count(HIT), 1);
            assert_eq!(world.counter("hits"), 5 + 5 * 99 - 1);
            let quotas = admin("/quotas").await;
            let quota = &quotas["quotas"][0];
            assert_eq!((&quota["allowed"], &quota["refused"]), (&500.into(), &45.into()));
            // The value of a field may be a secret.
            let name = quota["busiest"][0]["client"].as_str().unwrap();
            assert!(name.len() == 16 && u64::from_str_radix(name, 16).is_ok(), "{name}");
            assert_eq!(quota["busiest"][0]["over"], 45);
            assert_eq!((&quota["table"], &quota["evicted"]), (&(1 << 16).into(), &0.into()));
            let metrics = world.metrics().await;
            let refused = "plimsoll_quota_refused_total{quota=\"q\"}";
            assert!(metrics.iter().any(|(name, value)| name == refused && *value == 45));
        });
    });
}

#[test]
fn a_refusal_says_when_to_come_again_and_is_not_stored() {
    let config = limited(|quota| slow(quota, 1));
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        assert_eq!(client.get(HIT, "X-Client: a\r\n").await.status, 200);
        let refused = client.get(HIT, "X-Client: a\r\n").await;
        assert_eq!(refused.status, 429);
        let after: u64 = refused.field("retry-after").unwrap().parse().unwrap();
        assert!((3500..=3601).contains(&after), "{after}");
        assert_eq!(refused.field("ratelimit-policy"), Some("\"q\";q=1;w=3600"));
        assert!(refused.field("ratelimit").unwrap().starts_with("\"q\";r=0;t=3"));
        assert_eq!(refused.field("cache-control"), Some("no-store"));
        assert!(refused.field("proxy-status").unwrap().contains("details=\"quota\""));
        assert!(String::from_utf8_lossy(&refused.body).contains("the quota `q`"));
        // Other clients get the stored response on the same connection; none without the field is
        // limited.
        for fields in ["X-Client: b\r\n", "", ""] {
            let got = client.get(HIT, fields).await;
            assert_eq!((got.status, got.field("ratelimit")), (200, None));
        }
        assert_eq!(world.origin.count(HIT), 1);
        world.stopped().await;
        let refused = world.log_lines().iter().filter(|(status, _)| *status == 429).count();
        assert_eq!(refused, 1);
    });
}

#[test]
fn a_quota_of_fetches_lets_hits_pass() {
    let config = limited(|quota| {
        slow(quota, 2);
        quota.counts = Counts::Fetches;
    });
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for _ in 0..5 {
            assert_eq!(client.get(HIT, "X-Client: a\r\n").await.status, 200);
        }
        for (target, status) in [("/2?size=5", 200), ("/3?size=5", 429), (HIT, 200)] {
            assert_eq!(client.get(target, "X-Client: a\r\n").await.status, status, "{target}");
        }
        assert_eq!(world.origin.count("/3?size=5"), 0);
    });
}

#[test]
fn requests_above_the_rate_wait_within_bounds() {
    let config = limited(|quota| {
        quota.requests = Some("1/s".parse().unwrap());
        quota.over = Over::Delay;
        quota.delay_max = Duration::from_secs(3);
    });
    each_way(config, async |_: Rc<World>| {
        let mut client = Client::new().await;
        assert_eq!(client.get(HIT, "X-Client: a\r\n").await.status, 200);
        let start = now();
        for _ in 0..4 {
            let got = client.get(HIT, "X-Client: a\r\n").await;
            assert_eq!((got.status, got.body), (200, expected(HIT, None)));
        }
        assert!(start.elapsed() > Duration::from_millis(2500), "{:?}", start.elapsed());
        // Those that would wait for longer than the bound are refused.
        let mut clients = Vec::new();
        for _ in 0..12 {
            let client = Client::new().await;
            let request = format!("GET {HIT} HTTP/1.1\r\nHost: site\r\nX-Client: b\r\n\r\n");
            client.send(request.as_bytes()).await.unwrap();
            clients.push(client);
        }
        let (mut passed, mut refused) = (0, 0);
        for mut client in clients {
            match client.response().await.unwrap().status {
                200 => passed += 1,
                429 => refused += 1,
                other => panic!("{other}"),
            }
        }
        assert!(passed >= 4 && refused > 0, "{passed} passed, {refused} refused");
    });
}

#[test]
fn only_so_many_requests_wait() {
    let config = limited(|quota| {
        quota.requests = Some("6/m".parse().unwrap());
        quota.burst = Some(1);
        quota.over = Over::Delay;
        quota.delay_max = Duration::from_secs(3600);
        quota.waiting_max = 2;
    });
    sim::check(0..2, |seed| {
        each_version(&sim::Options::new(seed), &config(), async |_: Rc<World>| {
            let mut clients = Vec::new();
            for _ in 0..6 {
                let client = Client::new().await;
                let request = format!("GET {HIT} HTTP/1.1\r\nHost: site\r\nX-Client: a\r\n\r\n");
                client.send(request.as_bytes()).await.unwrap();
                clients.push(client);
            }
            let mut refused = 0;
            for mut client in clients {
                refused += u32::from(client.response().await.unwrap().status == 429);
            }
            assert_eq!(refused, 3);
        });
    });
}

#[test]
fn a_client_that_is_delayed_leaves_places_for_others() {
    let config = limited(|quota| {
        quota.requests = Some("6/m".parse().unwrap());
        quota.burst = Some(1);
        quota.over = Over::Delay;
        quota.delay_max = Duration::from_secs(3600);
        quota.waiting_max = 6;
    });
    let send = async |name: &str| {
        let client = Client::new().await;
        let request = format!("GET {HIT} HTTP/1.1\r\nHost: s\r\nX-Client: {name}\r\n\r\n");
        client.send(request.as_bytes()).await.unwrap();
        client
    };
    sim::check(0..2, |seed| {
        each_version(&sim::Options::new(seed), &config(), async |_: Rc<World>| {
            let mut loud = Vec::new();
            for _ in 0..12 {
                loud.push(send("loud").await);
            }
            sleep(Duration::from_secs(2)).await;
            assert_eq!(admin("/quotas").await["quotas"][0]["waiting"], 4);
            for mut client in [send("quiet").await, send("quiet").await] {
                assert_eq!(client.response().await.unwrap().status, 200);
            }
            let mut passed = 0;
            for mut client in loud {
                passed += u32::from(client.response().await.unwrap().status == 200);
            }
            assert_eq!(passed, 5, "one at once, and as many as may wait of one client");
        });
    });
}

/// A request that waits for nothing costs nothing: the one in progress was the only one that the
/// other quota counted.
#[test]
fn a_request_that_one_quota_refuses_costs_nothing_at_the_others() {
    let config = with(limited(|quota| slow(quota, 5)), |config| {
        let by = By::Field("x-client".into());
        let concurrency = Some(1);
        config.quotas.push(Quota { name: "c".into(), by, concurrency, ..Quota::default() });
    });
    each_way(config, async |_: Rc<World>| {
        let mut slow = Client::new().await;
        let request = b"GET /s?size=5&delay=20000 HTTP/1.1\r\nHost: s\r\nX-Client: a\r\n\r\n";
        slow.send(request).await.unwrap();
        sleep(Duration::from_secs(5)).await;
        let mut client = Client::new().await;
        for _ in 0..4 {
            let refused = client.get("/d?size=5", "X-Client: a\r\n").await;
            assert_eq!(refused.status, 429);
            assert!(String::from_utf8_lossy(&refused.body).contains("the quota `c`"));
        }
        assert_eq!(slow.response().await.unwrap().status, 200);
        for _ in 0..4 {
            assert_eq!(client.get(HIT, "X-Client: a\r\n").await.status, 200);
        }
        // Nor is one in progress that the rate refuses.
        let refused = client.get(HIT, "X-Client: a\r\n").await;
        assert!(String::from_utf8_lossy(&refused.body).contains("the quota `q`"));
        assert_eq!(admin("/quotas").await["quotas"][1]["in_progress"], 0);
    });
}

/// A tunnel has a host without a URL, and `*` is the server as a whole.
#[test]
fn a_quota_for_a_host_counts_its_tunnels_and_the_server_as_a_whole() {
    let for_host = |config: fn() -> Config, role: Role| {
        with(config, move |config| {
            let hosts = vec!["10.0.0.2".parse().unwrap()];
            let mut quota = Quota { name: "q".into(), hosts, role: Some(role), ..Quota::default() };
            slow(&mut quota, 2);
            config.quotas = vec![quota];
            config.forward.connect_ports = vec!["1-65535".parse().unwrap()];
        })
    };
    each_way_http1(for_host(forward, Role::Forward), async |_: Rc<World>| {
        for status in [200, 200, 429] {
            let mut client = Client::new().await;
            let request = b"CONNECT 10.0.0.2:80 HTTP/1.1\r\nHost: 10.0.0.2:80\r\n\r\n";
            client.send(request).await.unwrap();
            assert_eq!(client.response_to("HEAD").await.unwrap().status, status);
        }
        let mut client = Client::new().await;
        assert_eq!(
            client.ask(b"GET http://10.0.0.2/ HTTP/1.1\r\nHost: a\r\n\r\n").await.status,
            429
        );
    });
    each_way_http1(for_host(reverse, Role::Reverse), async |_: Rc<World>| {
        let mut client = Client::new().await;
        for status in [200, 200, 429] {
            let got = client.ask(b"OPTIONS * HTTP/1.1\r\nHost: 10.0.0.2\r\n\r\n").await;
            assert_eq!(got.status, status);
        }
        assert_eq!(client.get(HIT, "").await.status, 200);
    });
    each_way_http1(for_host(reverse, Role::Forward), async |_: Rc<World>| {
        let mut client = Client::new().await;
        for _ in 0..3 {
            let got = client.ask(b"GET / HTTP/1.1\r\nHost: 10.0.0.2\r\n\r\n").await;
            assert_eq!(got.status, 200, "the quota is for listeners with another role");
        }
    });
}

/// jo:secret
const USERS: &str = "jo:$2y$04$Eoj8yU1OeQpN5XYtx0VtNeKMZ9tpE7bXu38BZbhPEMxcosd6e2VAS\n";

#[test]
fn a_request_above_its_users_quota_does_not_ask_a_name_server() {
    let config = with(forward, |config| {
        config.name_servers = NameServers::At(vec![address(SERVER)]);
        config.forward.users = Some(Users::from_text(USERS).unwrap());
        let mut quota = Quota { name: "q".into(), by: By::User, ..Quota::default() };
        slow(&mut quota, 1);
        config.quotas = vec![quota];
    });
    each_way_http1(config, async |_: Rc<World>| {
        let names = NameServer::start();
        names.resolves("a.test", &[2], 600);
        let mut client = Client::new().await;
        let jo = "Proxy-Authorization: Basic am86c2VjcmV0\r\n";
        assert_eq!(client.get("http://a.test/u?size=5", "").await.status, 407);
        assert_eq!(client.get("http://a.test/u?size=5", jo).await.status, 200);
        let asked = names.asked.get();
        assert_eq!(client.get("http://b.test/u?size=5", jo).await.status, 429);
        assert_eq!(names.asked.get(), asked);
        let quotas = admin("/quotas").await;
        assert_eq!(quotas["quotas"][0]["busiest"][0]["client"], "jo");
    });
}

/// The explanation judged a user's quota without the user.
#[test]
fn an_explanation_knows_the_quota_of_a_user() {
    for counts in [Counts::All, Counts::Fetches] {
        let config = with(forward, move |config| {
            config.forward.users = Some(Users::from_text(USERS).unwrap());
            let mut quota = Quota { name: "q".into(), by: By::User, counts, ..Quota::default() };
            slow(&mut quota, 1);
            config.quotas = vec![quota];
        });
        each_way_http1(config, async |_: Rc<World>| {
            let jo = "Proxy-Authorization: Basic am86c2VjcmV0\r\n";
            let about = "/explain?url=http://10.0.0.2/other&header=Proxy-Authorization:%20Basic%20\
                         am86c2VjcmV0";
            let before = admin(about).await;
            assert_eq!(before["decision"]["does"], "fetch", "{before}");
            assert_eq!(before["quotas"][0]["remaining"], 1, "{before}");
            let mut client = Client::new().await;
            assert_eq!(client.get("http://10.0.0.2/u?size=5", jo).await.status, 200);
            let after = admin(about).await;
            assert_eq!(after["decision"]["rule"], "quota", "{after}");
            assert_eq!(after["answer"]["status"], 429, "{after}");
            assert_eq!(after["quotas"][0]["refused"], true, "{after}");
        });
    }
}

#[test]
fn each_route_has_a_quota() {
    let config = with(reverse, |config| {
        let group = config.groups[0].name.clone();
        let route = |path: &str| Route { path: Path::Prefix(path.into()), ..Route::to(&group) };
        config.routes = vec![route("/a"), route("/")];
        let mut quota = Quota { name: "q".into(), by: By::Route, ..Quota::default() };
        slow(&mut quota, 1);
        config.quotas = vec![quota];
    });
    each_way(config, async |_: Rc<World>| {
        let mut client = Client::new().await;
        for (target, status) in [("/a/1?size=5", 200), ("/a/2?size=5", 429), ("/1?size=5", 200)] {
            assert_eq!(client.get(target, "").await.status, status, "{target}");
        }
        let quotas = admin("/quotas").await;
        assert_eq!(quotas["quotas"][0]["busiest"][0]["client"], " /a*");
    });
}

#[test]
fn the_client_of_a_proxy_header_has_the_quota() {
    let config = with(reverse, |config| {
        for listener in &mut config.listeners {
            listener.proxies = Some(vec!["127.0.0.0/8".parse().unwrap()]);
        }
        let connections = Some(1);
        config.quotas = vec![Quota { name: "q".into(), connections, ..Quota::default() }];
    });
    each_way_http1(config, async |_: Rc<World>| {
        let from = async |host: &str| {
            let client = Client::new().await;
            let header = format!("PROXY TCP4 {host} 198.51.100.1 4711 80\r\n");
            let request = format!("{header}GET {HIT} HTTP/1.1\r\nHost: site\r\n\r\n");
            let _ = client.send(request.as_bytes()).await;
            client
        };
        let mut first = from("192.0.2.7").await;
        assert_eq!(first.response().await.unwrap().status, 200);
        assert!(from("192.0.2.7").await.response().await.is_err());
        assert_eq!(from("192.0.2.8").await.response().await.unwrap().status, 200);
        let quotas = admin("/quotas").await;
        assert_eq!(quotas["quotas"][0]["busiest"][0]["client"], "192.0.2.7/32");
    });
}

/// Anybody can write the address of somebody else into a datagram.
#[test]
fn a_connection_whose_address_is_not_validated_is_not_counted() {
    let config = limited(|quota| (quota.by, quota.connections) = (By::Network, Some(2)));
    over(Version::Http3, || {
        run(sim::Options::new(1), config(), async |_: Rc<World>| {
            for _ in 0..5 {
                knock(PROXY);
            }
            sleep(Duration::from_secs(1)).await;
            assert_eq!(admin("/quotas").await["quotas"][0]["connections"], 0);
            let mut client = Client::new().await;
            assert_eq!(client.get(HIT, "").await.status, 200);
            assert_eq!(admin("/quotas").await["quotas"][0]["connections"], 1);
        });
    });
}

/// A client that cancels while its request waits costs the origin nothing.
#[test]
fn a_request_that_is_cancelled_while_it_waits_is_not_sent() {
    let config = limited(|quota| {
        quota.requests = Some("1/m".parse().unwrap());
        quota.over = Over::Delay;
        quota.delay_max = Duration::from_secs(3600);
    });
    sim::check(0..2, |seed| {
        each_version(&sim::Options::new(seed), &config(), async |world: Rc<World>| {
            let mut first = Client::new().await;
            assert_eq!(first.get("/1?size=5", "X-Client: a\r\n").await.status, 200);
            if first.is_http1() {
                return;
            }
            let second = Client::new().await;
            let request = b"GET /2?size=5 HTTP/1.1\r\nHost: site\r\nX-Client: a\r\n\r\n";
            second.send(request).await.unwrap();
            sleep(Duration::from_secs(2)).await;
            assert_eq!(admin("/quotas").await["quotas"][0]["waiting"], 1);
            drop(second);
            sleep(Duration::from_secs(90)).await;
            assert_eq!(admin("/quotas").await["quotas"][0]["waiting"], 0);
            assert_eq!(world.origin.count("/2?size=5"), 0);
        });
    });
}

/// 50 kB at 10 kB/s, of which 10 kB may come at once, take four seconds: from the origin, in
/// memory, on the disk, in parts, and while they arrive. No byte is lost or added.
#[test]
fn bodies_are_sent_as_slowly_as_the_pool_says() {
    let config = limited(|quota| {
        quota.bytes = Some("10000/s".parse().unwrap());
        quota.bytes_burst = Some(10_000);
    });
    each_way(config, async |_: Rc<World>| {
        let mut client = Client::new().await;
        let mut unlimited = Client::new().await;
        for cc in ["no-store", "no-store&frame=chunked", "max-age=6000", "max-age=6000"] {
            let target = format!("/p?size=50000&cc={cc}");
            sleep(Duration::from_secs(10)).await;
            let start = now();
            let got = client.get(&target, "X-Client: a\r\n").await;
            assert_eq!((got.status, got.body), (200, expected(&target, None)));
            let took = start.elapsed();
            assert!(took > Duration::from_millis(3900), "{target} took {took:?}");
            let start = now();
            assert_eq!(unlimited.get(&target, "").await.body.len(), 50_000);
            assert!(start.elapsed() < took, "{target}");
        }
        let stored = "/p?size=50000&cc=max-age=6000";
        sleep(Duration::from_secs(10)).await;
        let start = now();
        let got = client.get(stored, "X-Client: a\r\nRange: bytes=10000-39999\r\n").await;
        assert_eq!((got.status, &got.body[..]), (206, &expected(stored, None)[10_000..40_000]));
        assert!(start.elapsed() > Duration::from_millis(1900), "{:?}", start.elapsed());
        assert!(client.head(stored, "X-Client: a\r\n").await.body.is_empty());
        let quota = &admin("/quotas").await["quotas"][0];
        assert_eq!((&quota["delayed"], &quota["busiest"][0]["over"]), (&5.into(), &5.into()));
    });
}

/// So many clients that their first pieces are more than the pool gets in a long time.
#[test]
fn clients_that_go_away_do_not_close_the_pool_for_others() {
    let config = with(reverse, |config| {
        let bytes = Some("10000/s".parse().unwrap());
        let (name, bytes_burst) = ("all".into(), Some(1000));
        config.quotas = vec![Quota { name, by: By::All, bytes, bytes_burst, ..Quota::default() }];
    });
    each_way(config, async |world: Rc<World>| {
        let target = "/go?size=50000&cc=max-age=6000";
        let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
        assert_eq!(Client::new().await.get(target, "").await.body.len(), 50_000);
        let mut clients = Vec::new();
        for _ in 0..120 {
            clients.push(Client::new().await);
        }
        for client in &clients {
            client.send(request.as_bytes()).await.unwrap();
        }
        sleep(Duration::from_secs(1)).await;
        // The first ones wait, and the pool is owed too much for the others.
        let refused = admin("/quotas").await["quotas"][0]["refused"].as_u64().unwrap();
        assert!((60..=90).contains(&refused), "{refused}");
        let mut late = Client::new().await;
        let is_seen = !late.is_http1();
        drop(clients);
        // A client of HTTP/1 is found to be gone when its piece is sent.
        sleep(Duration::from_secs(if is_seen { 2 } else { 40 })).await;
        let start = now();
        assert_eq!(late.get("/go2?size=2000&cc=no-store", "").await.status, 200);
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        world.stopped().await;
    });
}

/// A pool of 5,000 bytes a second, and a memory that is too small for the body of these tests.
fn paced_from_disk() -> impl Fn() -> Config {
    let pool = limited(|quota| {
        quota.bytes = Some("5000/s".parse().unwrap());
        quota.bytes_burst = Some(1024);
    });
    with(pool, |config| {
        *config = Config { memory_bytes: 64 << 10, ..on_disk(config.clone()) };
    })
}

/// The body is larger than memory takes, and has a dozen blocks on the disk.
#[test]
fn a_paced_body_from_the_disk_holds_one_block_and_it_is_counted() {
    let config = paced_from_disk();
    sim::check(0..2, |seed| {
        each_version(&sim::Options::new(seed), &config(), async |world: Rc<World>| {
            let target = "/disk?size=50000&cc=max-age=6000";
            assert_eq!(Client::new().await.get(target, "").await.body, expected(target, None));
            let mut client = Client::new().await;
            let reads = async {
                let got = client.get(target, "X-Client: a\r\n").await;
                assert_eq!(got.body, expected(target, None));
            };
            let looks = async {
                for _ in 0..8 {
                    sleep(Duration::from_secs(1)).await;
                    let held = world.counter("client_held_bytes");
                    // A piece that QUIC has sent is held until it is acknowledged.
                    assert!((1..=4096 + 1024).contains(&held), "{held} bytes");
                }
            };
            runtime::join(reads, looks).await;
            sleep(Duration::from_secs(1)).await;
            assert_eq!(world.counter("client_held_bytes"), 0);
            assert_eq!(world.origin.count(target), 1);
        });
    });
}

/// Each of two clients is read for while the other one waits.
#[test]
fn paced_clients_of_a_pressed_core_hold_small_parts_of_blocks() {
    let config = with(paced_from_disk(), |config| {
        config.limits.held_bytes_max = 0;
        let disk = config.disk.as_mut().unwrap();
        disk.geometry.block_bytes = 16 << 10;
    });
    sim::check(0..2, |seed| {
        each_version(&sim::Options::new(seed), &config(), async |world: Rc<World>| {
            let target = "/disk?size=50000&cc=max-age=6000";
            assert_eq!(Client::new().await.get(target, "").await.body, expected(target, None));
            let reads = async |name: &str, after_ms: u64| {
                sleep(Duration::from_millis(after_ms)).await;
                let mut client = Client::new().await;
                let got = client.get(target, &format!("X-Client: {name}\r\n")).await;
                assert_eq!(got.body, expected(target, None));
            };
            let looks = async {
                // The first blocks were read before clients held anything.
                sleep(Duration::from_millis(4200)).await;
                for _ in 0..10 {
                    sleep(Duration::from_millis(430)).await;
                    let held = world.counter("client_held_bytes");
                    assert!((1..=2 * (4096 + 1024)).contains(&held), "{held} bytes");
                }
            };
            runtime::join(runtime::join(reads("a", 0), reads("b", 400)), looks).await;
        });
    });
}

/// What is read before it is written is the whole record, and stays in memory for the reader.
#[test]
fn a_paced_body_counts_a_record_that_is_not_written_until_it_is() {
    let config = paced_from_disk();
    sim::check(0..2, |seed| {
        each_version(&sim::Options::new(seed), &config(), async |world: Rc<World>| {
            let target = "/disk?size=50000&cc=max-age=6000";
            let other = async |fields: &str| {
                let got = Client::new().await.get(target, fields).await;
                assert_eq!(got.body, expected(target, None));
            };
            other("").await;
            let looks = async {
                sleep(Duration::from_millis(200)).await;
                let record = world.counter("client_held_bytes");
                assert!(record > 16 << 10, "{record} bytes");
                sleep(Duration::from_secs(4)).await;
                let block = world.counter("client_held_bytes");
                assert!((1..=2 * 4096).contains(&block), "{block} bytes");
            };
            runtime::join(other("X-Client: a\r\n"), looks).await;
        });
    });
}

/// Two pools as Squid's class 2 has: one for all, one for each client.
#[test]
fn a_pool_for_all_is_shared() {
    let config = with(reverse, |config| {
        let pool = |name: &str, by, rate: &str| Quota {
            name: name.into(),
            by,
            bytes: Some(rate.parse().unwrap()),
            bytes_burst: Some(1024),
            ..Quota::default()
        };
        let each = pool("each", By::Field("x-client".into()), "8000/s");
        config.quotas = vec![pool("all", By::All, "10000/s"), each];
    });
    each_way_tcp(config, async |_: Rc<World>| {
        let target = "/all?size=20000&cc=no-store";
        let start = now();
        let one = async |name: &str| {
            let mut client = Client::new().await;
            let got = client.get(target, &format!("X-Client: {name}\r\n")).await;
            assert_eq!(got.body, expected(target, None));
        };
        runtime::join(one("a"), one("b")).await;
        let took = start.elapsed();
        assert!(took > Duration::from_millis(3800), "40 kB at 10 kB/s took {took:?}");
    });
}

#[test]
fn one_connection_too_many_is_closed() {
    let config = limited(|quota| {
        (quota.by, quota.connections) = (By::Network, Some(2));
    });
    sim::check(0..2, |seed| {
        each_version(&sim::Options::new(seed), &config(), async |_: Rc<World>| {
            let mut first = Client::new().await;
            let mut second = Client::new().await;
            for client in [&mut first, &mut second] {
                assert_eq!(client.get(HIT, "").await.status, 200);
            }
            if let Ok(mut third) = Client::to(PROXY).await {
                let request = format!("GET {HIT} HTTP/1.1\r\nHost: site\r\n\r\n");
                let _ = third.send(request.as_bytes()).await;
                assert!(third.response().await.is_err());
            }
            let quotas = admin("/quotas").await;
            assert_eq!(quotas["quotas"][0]["connections"], 2);
            assert!(quotas["quotas"][0]["connections_refused"].as_u64() >= Some(1));
            drop(first);
            sleep(Duration::from_secs(100)).await;
            assert_eq!(Client::new().await.get(HIT, "").await.status, 200);
        });
    });
}

/// The table of connections is full of idle ones, which would be closed for one more.
#[test]
fn a_connection_that_a_quota_refuses_takes_the_place_of_no_other() {
    let config =
        with(limited(|quota| (quota.by, quota.connections) = (By::Network, Some(2))), |config| {
            config.limits.connections_max = 2;
        });
    for version in [Version::Http1, Version::Http2] {
        let config = config();
        over(version, || {
            run(sim::Options::new(1), config, async |world: Rc<World>| {
                let mut idle = [Client::new().await, Client::new().await];
                for client in &mut idle {
                    assert_eq!(client.get(HIT, "").await.status, 200);
                }
                sleep(Duration::from_secs(3)).await;
                for _ in 0..3 {
                    drop(Client::to(PROXY).await);
                    sleep(Duration::from_secs(1)).await;
                }
                let quotas = admin("/quotas").await;
                assert_eq!(quotas["quotas"][0]["connections_refused"], 3);
                assert_eq!(world.counter("connections_closed_for_room"), 0);
                for client in &mut idle {
                    assert_eq!(client.get(HIT, "").await.status, 200);
                }
            });
        });
    }
}

#[test]
fn one_request_in_progress_too_many_is_refused() {
    let config = limited(|quota| quota.concurrency = Some(2));
    each_way(config, async |_: Rc<World>| {
        let mut clients = Vec::new();
        for at in 0..2 {
            let client = Client::new().await;
            let request =
                format!("GET /c{at}?size=5&delay=20000 HTTP/1.1\r\nHost: s\r\nX-Client: a\r\n\r\n");
            client.send(request.as_bytes()).await.unwrap();
            clients.push(client);
        }
        sleep(Duration::from_secs(5)).await;
        let mut third = Client::new().await;
        let refused = third.get("/d?size=5", "X-Client: a\r\n").await;
        assert_eq!((refused.status, refused.field("retry-after")), (429, Some("1")));
        let policy = "\"q concurrency\";q=2;qu=\"concurrent-requests\"";
        assert_eq!(refused.field("ratelimit-policy"), Some(policy));
        assert_eq!(third.get("/d?size=5", "X-Client: b\r\n").await.status, 200);
        for mut client in clients {
            assert_eq!(client.response().await.unwrap().status, 200);
        }
        assert_eq!(third.get("/d?size=5", "X-Client: a\r\n").await.status, 200);
    });
}

#[test]
fn all_responses_have_the_fields_if_configured() {
    let config = limited(|quota| {
        slow(quota, 9);
        quota.fields = true;
    });
    each_way(config, async |_: Rc<World>| {
        let mut client = Client::new().await;
        for (target, left) in [(HIT, 8), (HIT, 7), ("/n?size=5&cc=no-store", 6)] {
            let got = client.get(target, "X-Client: a\r\n").await;
            assert_eq!(got.field("ratelimit-policy"), Some("\"q\";q=9;w=32400"));
            assert!(got.field("ratelimit").unwrap().starts_with(&format!("\"q\";r={left};t=")));
            assert_eq!((got.status, got.body), (200, expected(target, None)));
        }
    });
}

#[test]
fn an_explanation_names_the_quota_and_takes_nothing() {
    let config = limited(|quota| slow(quota, 1));
    each_way_tcp(config, async |_: Rc<World>| {
        let about = "/explain?url=http://site/q%3fsize=30&header=X-Client:%20a";
        for _ in 0..3 {
            let explained = admin(about).await;
            assert_eq!(explained["quotas"][0]["name"], "q");
            assert_eq!(explained["quotas"][0]["remaining"], 1);
            assert_eq!(explained["decision"]["does"], "fetch");
        }
        let mut client = Client::new().await;
        assert_eq!(client.get("/q?size=30", "X-Client: a\r\n").await.status, 200);
        let explained = admin(about).await;
        assert_eq!(explained["decision"]["rule"], "quota");
        assert_eq!(explained["answer"]["status"], 429);
        assert_eq!(explained["quotas"][0]["refused"], true);
    });
}

#[test]
fn an_exhausted_quota_of_fetches_does_not_explain_a_hit() {
    let config = limited(|quota| {
        slow(quota, 1);
        quota.counts = Counts::Fetches;
    });
    each_way_tcp(config, async |_: Rc<World>| {
        let mut client = Client::new().await;
        assert_eq!(client.get(HIT, "X-Client: a\r\n").await.status, 200);
        let about = async |target: &str| {
            admin(&format!("/explain?url=http://site{target}&header=X-Client:%20a")).await
        };
        let hit = about("/q%3fsize=30%26cc=max-age=6000").await;
        assert_eq!(
            (&hit["decision"]["does"], &hit["answer"]["status"]),
            (&"serve".into(), &200.into())
        );
        assert_eq!(hit["quotas"][0]["refused"], true);
        let miss = about("/other").await;
        assert_eq!(
            (&miss["decision"]["rule"], &miss["answer"]["status"]),
            (&"quota".into(), &429.into())
        );
    });
}
