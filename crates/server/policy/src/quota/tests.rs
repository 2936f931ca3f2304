//! Quotas by what they count and whom, without a server.

use conditions::Sent;
use http1::{Limits, Scratch, parse_request};

use super::*;

fn quota(change: impl FnOnce(&mut config::Quota)) -> config::Quota {
    let mut config = config::Quota { name: "q".into(), memory: 1 << 16, ..Default::default() };
    change(&mut config);
    config
}

fn quotas(registry: &Registry, change: impl FnOnce(&mut config::Quota)) -> Arc<Quotas> {
    registry.quotas((&[quota(change)], &Lists::new()), &routes(), &KeyHasher::seeded(1, 2)).unwrap()
}

/// One route for `/api` and below, and one for all else.
fn routes() -> Routes {
    let route = |path: &str| Route { path: config::Path::Prefix(path.into()), ..Route::to("") };
    Routes::new(&[route("/api"), route("/")], &[])
}

/// The key of a request from this address with these fields.
fn key(quotas: &Quotas, peer: &str, path: &str, fields: &str, user: Option<&[u8]>) -> Option<u64> {
    let bytes = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let (mut scratch, limits) = (Scratch::new(), Limits::default());
    let head = parse_request(bytes.as_bytes(), &mut scratch, &limits).unwrap().unwrap();
    let routes = routes();
    let who = Who {
        peer: peer.parse().unwrap(),
        role: Role::Reverse,
        user,
        head: &head,
        reading: Reading::of(b"a", path.as_bytes()),
        routes: &routes,
        facts: Facts {
            host: b"",
            path: b"",
            query: b"",
            sent: Sent::default(),
            method: head.method_bytes,
            scheme: "http",
            listener: "",
            port: 80,
            client: peer.parse().unwrap(),
            user,
            fields: head.fields,
            tls: None,
            now_s: 0,
            random: 0.5,
            response: None,
        },
    };
    quotas.key(&quotas.all[0], &who)
}

#[test]
fn a_network_is_its_prefix() {
    let registry = Registry::default();
    let by_default = quotas(&registry, |_| {});
    let of = |quotas: &Quotas, peer| key(quotas, peer, "/", "", None).unwrap();
    assert_eq!(of(&by_default, "10.0.0.1"), of(&by_default, "::ffff:10.0.0.1"));
    assert_ne!(of(&by_default, "10.0.0.1"), of(&by_default, "10.0.0.2"));
    assert_eq!(of(&by_default, "2001:db8::1"), of(&by_default, "2001:db8::ffff:1"));
    assert_ne!(of(&by_default, "2001:db8::1"), of(&by_default, "2001:db8:0:1::1"));
    let wide = quotas(&registry, |quota| (quota.v4_prefix, quota.v6_prefix) = (24, 0));
    assert_eq!(of(&wide, "10.0.0.1"), of(&wide, "10.0.0.200"));
    assert_ne!(of(&wide, "10.0.0.1"), of(&wide, "10.0.1.1"));
    assert_eq!(of(&wide, "2001:db8::1"), of(&wide, "fe80::1"));
}

#[test]
fn a_request_has_a_key_only_if_the_quota_applies() {
    let registry = Registry::default();
    let of = |change: fn(&mut config::Quota), path, fields, user| {
        key(&quotas(&registry, change), "10.0.0.1", path, fields, user).is_some()
    };
    assert!(of(|quota| quota.prefix = "/api".into(), "/x/../api/y", "", None));
    assert!(!of(|quota| quota.prefix = "/api".into(), "/apix", "", None));
    assert!(!of(|quota| quota.role = Some(Role::Forward), "/", "", None));
    assert!(!of(|quota| quota.except_from = vec!["10.0.0.0/8".parse().unwrap()], "/", "", None));
    assert!(of(|quota| quota.by = By::User, "/", "", Some(b"u")));
    assert!(!of(|quota| quota.by = By::User, "/", "", None));
    let by_field = |quota: &mut config::Quota| quota.by = By::Field("x-key".into());
    assert!(of(by_field, "/", "X-KEY: a\r\n", None));
    assert!(!of(by_field, "/", "", None));
}

#[test]
fn a_route_is_the_one_that_the_request_takes() {
    let registry = Registry::default();
    let by_route = quotas(&registry, |quota| quota.by = By::Route);
    let of = |path| key(&by_route, "10.0.0.1", path, "", None).unwrap();
    assert_eq!(of("/api/a?x"), of("/x/../%61pi/b"));
    assert_ne!(of("/api/a"), of("/a"));
    assert_eq!(of("/a"), of("/b"));
}

#[test]
fn a_quota_of_connections_takes_no_requests() {
    let registry = Registry::default();
    let quotas = quotas(&registry, |quota| quota.connections = Some(2));
    assert_eq!(quotas.all[0].stage(), None);
    assert!(!quotas.has(Stage::Head) && !quotas.has(Stage::User) && !quotas.has(Stage::Fetch));
}

#[test]
fn a_reload_keeps_the_connections_that_are_open() {
    let registry = Registry::default();
    let with = |rate: &str| {
        let rate = rate.parse().unwrap();
        quotas(&registry, |quota| (quota.requests, quota.connections) = (Some(rate), Some(2)))
    };
    let peer = "10.0.0.1".parse().unwrap();
    let before = with("10/s");
    let first = before.connect(peer, Role::Reverse).unwrap();
    let after = with("20/s");
    drop(before);
    let _second = after.connect(peer, Role::Reverse).unwrap();
    assert!(after.connect(peer, Role::Reverse).is_err(), "one was opened before the reload");
    drop(first);
    assert!(after.connect(peer, Role::Reverse).is_ok());
}

/// One client asks for more than all places; the others find some, each as many as are free.
#[test]
fn a_client_that_is_delayed_does_not_fill_the_places_of_others() {
    let registry = Registry::default();
    let with = |memory, by| {
        quotas(&registry, |quota| {
            (quota.requests, quota.burst) = (Some("1/h".parse().unwrap()), Some(1));
            (quota.over, quota.delay_max) = (Over::Delay, Duration::from_secs(90 * 3600));
            (quota.waiting_max, quota.memory, quota.by) = (8, memory, by);
        })
    };
    let now_ns = time::now().as_ns();
    // As many as may wait of a client that asks ten times.
    let wait = |quotas: &Quotas, key| {
        let quota = &quotas.all[0];
        let mut waiting = Vec::new();
        for _ in 0..10 {
            if quota.judge(key, now_ns).is_ok() && quota.take(key, now_ns) != Ok(Duration::ZERO) {
                waiting.extend(quota.state.waiting.enter(key, u32::MAX));
            }
        }
        waiting
    };
    let by_network = with(1 << 12, By::Network);
    let first = wait(&by_network, 1);
    let others: Vec<_> = (2..5).map(|key| wait(&by_network, key)).collect();
    let of = |list: &Vec<Counted>| list.len();
    assert_eq!((of(&first), others.iter().map(of).collect::<Vec<_>>()), (5, vec![2, 1, 0]));
    // What waits is counted after a reload, too.
    let after = with(1 << 13, By::Network);
    assert_eq!(after.all[0].state.waiting.all(), 8);
    drop(first);
    assert_eq!(of(&wait(&after, 5)), 3, "five places are free, of which it may have half");
    // All clients together are one, and so are those of a route.
    assert_eq!(of(&wait(&with(1 << 12, By::All), 0)), 8);
    assert_eq!(of(&wait(&with(1 << 12, By::Route), 1)), 8);
}

#[test]
fn larger_tables_do_not_forget_what_is_in_progress() {
    let registry = Registry::default();
    let with = |memory, counts| {
        quotas(&registry, |quota| {
            quota.requests = Some("10/d".parse().unwrap());
            (quota.connections, quota.concurrency) = (Some(1), Some(1));
            (quota.memory, quota.counts) = (memory, counts);
        })
    };
    let (peer, now_ns) = ("10.0.0.1".parse().unwrap(), time::now().as_ns());
    let before = with(1 << 12, Counting::All);
    let _connection = before.connect(peer, Role::Reverse).unwrap();
    let _request = before.all[0].begin(7).unwrap();
    assert!(before.all[0].take(7, now_ns).is_ok());
    let fetches = with(1 << 12, Counting::Fetches);
    assert!(fetches.all[0].take(7, now_ns).is_err(), "spent before the reload");
    for after in [fetches, with(1 << 13, Counting::All)] {
        assert!(after.connect(peer, Role::Reverse).is_err(), "a connection is open");
        assert!(after.all[0].begin(7).is_err(), "a request is in progress");
    }
    assert!(with(1 << 13, Counting::All).all[0].take(7, now_ns).is_ok(), "the tables are new");
}

#[test]
fn a_reload_keeps_what_was_spent() {
    let registry = Registry::default();
    let with = |rate: &str, v4_prefix| {
        let rate = rate.parse().unwrap();
        quotas(&registry, |quota| (quota.requests, quota.v4_prefix) = (Some(rate), v4_prefix))
    };
    let now_ns = time::now().as_ns();
    let first = with("10/d", 32);
    assert!(first.all[0].take(7, now_ns).is_ok());
    let same = with("10/d", 32);
    assert!(Arc::ptr_eq(&first.all[0].state, &same.all[0].state));
    assert!(same.all[0].take(7, now_ns).is_err(), "1 at once");
    let faster = with("10/h", 32);
    assert!(faster.all[0].take(7, now_ns).is_err(), "spent before the reload");
    assert!(faster.all[0].take(8, now_ns).is_ok());
    let other = with("10/h", 24);
    assert!(other.all[0].take(7, now_ns).is_ok(), "other networks have other keys");
}

#[test]
fn connections_are_counted_until_they_end() {
    let registry = Registry::default();
    let quotas = quotas(&registry, |quota| quota.connections = Some(2));
    let (peer, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let first = quotas.connect(peer, Role::Reverse).unwrap();
    let _second = quotas.connect(peer, Role::Reverse).unwrap();
    assert!(quotas.connect(peer, Role::Reverse).is_err());
    assert!(quotas.connect(other, Role::Reverse).is_ok());
    drop(first);
    assert!(quotas.connect(peer, Role::Reverse).is_ok());
    let json = figures::json(Some(&quotas));
    assert_eq!(json["quotas"][0]["connections_refused"], 1);
    assert_eq!(json["quotas"][0]["busiest"][0]["client"], "10.0.0.1/32");
}

#[test]
fn the_fields_have_the_syntax_of_the_draft() {
    let registry = Registry::default();
    let quotas = quotas(&registry, |quota| {
        quota.requests = Some("10/m".parse().unwrap());
        quota.burst = Some(5);
        quota.concurrency = Some(3);
        quota.bytes = Some("1MiB/s".parse().unwrap());
    });
    let quota = &quotas.all[0];
    let now_ns = time::now().as_ns();
    assert!(quota.take(1, now_ns).is_ok());
    let _one = quota.begin(1).unwrap();
    let mut out = Vec::new();
    fields::append(&mut out, &[(quota, 1)], now_ns);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "RateLimit-Policy: \"q\";q=5;w=30, \
         \"q concurrency\";q=3;qu=\"concurrent-requests\", \
         \"q bytes\";q=1048576;w=1;qu=\"content-bytes\"\r\n\
         RateLimit: \"q\";r=4;t=7, \"q concurrency\";r=2, \"q bytes\";r=1048576;t=0\r\n"
    );
}
