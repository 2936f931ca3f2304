//! Routes: which group gets a request, what is answered here, and what is changed on the way.

use std::rc::Rc;
use std::time::Duration;

use config::{Action, FieldRule, ForwardedFields, Group, Host, HostSent, Path, Route};
use runtime::time::sleep;
use server::{Config, Origin as OriginUrl};

use crate::common::Response;
use crate::origin::{Origin, expected};
use crate::world::{Client, ORIGIN, World, address, each_way, reverse, scheme};

const OTHER: &str = "10.0.0.3:80";

fn group(name: &str, at: &str) -> Group {
    Group::of(name, [OriginUrl::at(address(at))])
}

fn route(hosts: &[&str], prefix: &str, to: &str) -> Route {
    let hosts = hosts.iter().map(|host| Host::parse(host).unwrap()).collect();
    Route { hosts, path: Path::Prefix(prefix.into()), ..Route::to(to) }
}

fn with(routes: Vec<Route>) -> Config {
    let groups = vec![group("first", ORIGIN), group("other", OTHER)];
    let config = Config { groups, routes, ..reverse() };
    config.check_routes().unwrap();
    config
}

async fn get(client: &mut Client, host: &str, target: &str, fields: &str) -> Response {
    client.ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n").as_bytes()).await
}

#[test]
fn host_and_path_lead_to_a_group() {
    let config = || {
        with(vec![
            route(&[], "/", "first"),
            route(&[], "/api", "other"),
            route(&["*.example.org"], "/", "other"),
        ])
    };
    each_way(config, async |world: Rc<World>| {
        let other = Origin::start(address(OTHER));
        let mut client = Client::new().await;
        for (host, path, of_other) in [
            ("site", "/a", false),
            ("site:8080", "/api/a", true),
            ("site", "/apix", false),
            ("www.example.org", "/a", true),
            ("example.org", "/a", false),
        ] {
            let target = format!("{path}?size=30&cc=max-age=60");
            let before = (world.origin.count(&target), other.count(&target));
            for _ in 0..2 {
                let got = get(&mut client, host, &target, "").await;
                assert_eq!((got.status, got.body), (200, expected(&target, None)));
            }
            let more = if of_other { (0, 1) } else { (1, 0) };
            let now = (world.origin.count(&target), other.count(&target));
            assert_eq!(
                (now.0 - before.0, now.1 - before.1),
                more,
                "{host} {path}, then from store"
            );
        }
    });
}

#[test]
fn a_route_may_answer_itself_and_a_request_without_a_route_is_refused() {
    let redirect = Action::Redirect {
        status: 308,
        location: "https://new.example.org".into(),
        with_path: true,
    };
    let denied = Action::Answer { status: 403, body: "not here\n".into() };
    let config = || {
        with(vec![
            Route { action: redirect.clone(), ..route(&["old.example.org"], "/", "") },
            route(&["site"], "/", "first"),
            Route { action: denied.clone(), ..route(&["site"], "/admin", "") },
        ])
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let got = get(&mut client, "old.example.org", "/a?b=c", "").await;
        assert_eq!(got.field("location"), Some("https://new.example.org/a?b=c"));
        assert_eq!((got.status, got.body.len()), (308, 0));
        for path in ["/admin", "/x/../%61dmin/y"] {
            let got = get(&mut client, "site", path, "").await;
            assert_eq!((got.status, &got.body[..]), (403, &b"not here\n"[..]));
        }
        let post = "POST /admin HTTP/1.1\r\nHost: site\r\nContent-Length: 3\r\n\r\nabc";
        let mut poster = Client::new().await;
        assert_eq!(poster.ask(post.as_bytes()).await.status, 403);
        assert!(!poster.is_http1() || poster.ends().await, "its body was not read");
        assert_eq!(get(&mut client, "unknown", "/", "").await.status, 404);
        assert_eq!(get(&mut client, "site", "/a?size=3", "").await.status, 200);
        assert_eq!(world.origin.seen.borrow().len(), 1);
    });
}

/// As they are of what comes from an upstream.
#[test]
fn the_fields_of_redirects_and_of_own_answers_are_changed() {
    let response = vec![
        set("Strict-Transport-Security", "max-age=60"),
        FieldRule::Default("Content-Type".into(), "text/x".into()),
        FieldRule::Remove("X-None".into()),
    ];
    let redirect =
        Action::Redirect { status: 301, location: "https://new.example".into(), with_path: true };
    let denied = Action::Answer { status: 403, body: "not here\n".into() };
    let config = || {
        let ruled = |action: &Action, path| Route {
            action: action.clone(),
            response: response.clone(),
            ..route(&[], path, "")
        };
        with(vec![ruled(&redirect, "/"), ruled(&denied, "/admin")])
    };
    each_way(config, async |_: Rc<World>| {
        let mut client = Client::new().await;
        let moved = get(&mut client, "site", "/a?b=c", "").await;
        assert_eq!((moved.status, moved.body.len()), (301, 0));
        assert_eq!(moved.field("location"), Some("https://new.example/a?b=c"));
        assert_eq!(moved.field("content-type"), Some("text/x"));
        let answer = get(&mut client, "site", "/admin", "").await;
        assert_eq!((answer.status, &answer.body[..]), (403, &b"not here\n"[..]));
        assert_eq!(answer.field("content-type"), Some("text/plain; charset=utf-8"));
        for got in [moved, answer] {
            assert_eq!(got.field("strict-transport-security"), Some("max-age=60"));
            assert_eq!(got.all("content-length").len(), 1);
        }
    });
}

#[test]
fn a_response_that_a_route_excludes_from_the_store_is_fetched_each_time() {
    let config = || with(vec![Route { store: false, ..route(&[], "/", "first") }]);
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for _ in 0..3 {
            assert_eq!(client.get("/a?size=30&cc=max-age=60", "").await.body.len(), 30);
        }
        assert_eq!(world.origin.seen.borrow().len(), 3);
    });
}

/// An origin that takes `%2F` for a slash, or drops `;parameters`, reads a denied path in these.
#[test]
fn no_spelling_of_a_path_or_a_host_leads_around_a_route_that_denies() {
    let denied = || Action::Answer { status: 403, body: String::new() };
    let config = || {
        with(vec![
            route(&[], "/", "first"),
            Route { action: denied(), ..route(&[], "/admin", "") },
            Route { action: denied(), ..route(&["admin.example.org", "10.9.8.7"], "/", "") },
            Route { store: false, ..route(&[], "/account", "first") },
            route(&[], "/api", "other"),
        ])
    };
    each_way(config, async |world: Rc<World>| {
        let _other = Origin::start(address(OTHER));
        let mut client = Client::new().await;
        for (host, path, status) in [
            ("site", "/admin", 403),
            ("site", "/admin%2Fusers", 403),
            ("site", "/x/..%2fadmin/users", 403),
            ("site", "/x/..;/admin", 403),
            ("site", "/admin;a=b/users", 403),
            ("site", "/x%5C..%5Cadmin", 403),
            ("site", "//h/admin", 403),
            ("site", "/admin/..%2fx", 403),
            ("ADMIN.example.org.", "/", 403),
            ("admin%2Eexample.org", "/", 403),
            ("[::ffff:10.9.8.7]:80", "/", 403),
            ("site", "/api%2Fusers", 400),
            ("site", "/x/..;v=1/api", 400),
        ] {
            let got = get(&mut client, host, path, "").await;
            assert_eq!(got.status, status, "{host} {path}");
        }
        assert_eq!(world.origin.seen.borrow().len(), 0);
        // Origins get a path as it came, whatever its readings.
        for path in ["/administrator", "/a%2Fb;v=1//c", "/%2561dmin"] {
            let target = format!("{path}?size=3");
            assert_eq!(get(&mut client, "site", &target, "").await.status, 200, "{path}");
            assert_eq!(world.origin.last().target, target);
        }
    });
}

/// RFC 9110, 4.2.3: an empty path is that of the root.
#[test]
fn an_absolute_target_with_a_query_and_no_path_is_for_the_root() {
    let config = || with(vec![route(&[], "/", "first"), route(&[], "/api", "other")]);
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::http1().await;
        let query = "?size=30&cc=max-age=60";
        let (empty, root) = (format!("http://site{query}"), format!("/{query}"));
        for target in [&empty, &root, &empty] {
            let got = get(&mut client, "site", target, "").await;
            assert_eq!((got.status, got.body.len()), (200, 30), "{target}");
        }
        assert_eq!(world.origin.count(&root), 1, "both have one key");
        let purge = format!("PURGE {empty} HTTP/1.1\r\nHost: site\r\n\r\n");
        assert_eq!(client.ask(purge.as_bytes()).await.status, 200);
        assert_eq!(get(&mut client, "site", &root, "").await.status, 200);
        assert_eq!(world.origin.count(&root), 2);
    });
}

#[test]
fn a_host_with_an_empty_label_is_no_host() {
    let config = || with(vec![route(&[], "/", "first")]);
    each_way(config, async |world: Rc<World>| {
        for host in ["admin.example.org..", "a..b", ".a", "."] {
            let got = get(&mut Client::new().await, host, "/", "").await;
            assert_eq!(got.status, 400, "{host}");
        }
        assert_eq!(world.origin.seen.borrow().len(), 0);
    });
}

/// A reading of these is a page of one user, and a route keeps such pages out of the store.
#[test]
fn a_page_that_one_reading_keeps_from_the_store_is_given_to_no_other_client() {
    let config = || {
        let lifetime = config::Lifetime {
            ttl: Some(Duration::from_secs(3600)),
            overrule: true,
            ..config::Lifetime::default()
        };
        with(vec![
            route(&[], "/", "first"),
            Route { store: false, ..route(&[], "/account", "first") },
            Route { lifetimes: vec![lifetime.clone()], ..route(&[], "/static", "first") },
        ])
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for (path, fetches) in [
            ("/account%2Fme?cc=max-age=60", 2),
            ("/account;a=b/me?cc=max-age=60", 2),
            ("/x/..%2faccount/me?cc=max-age=60", 2),
            ("/static/..%2faccount?cc=no-cache", 2),
            ("/static/..;/x?cc=no-cache", 2),
            ("/static/a%2Fb?cc=no-cache", 1),
            ("/a%2Fb;c?cc=max-age=60", 1),
        ] {
            let target = format!("{path}&size=30");
            for _ in 0..2 {
                assert_eq!(get(&mut client, "site", &target, "").await.status, 200);
            }
            assert_eq!(world.origin.count(&target), fetches, "{path}");
        }
    });
}

fn set(name: &str, value: &str) -> FieldRule {
    FieldRule::Set(name.into(), value.into())
}

#[test]
fn fields_are_changed_and_stored_changed() {
    let config = || {
        let mut route = route(&[], "/", "first");
        route.request = vec![
            set("X-Key", "secret"),
            FieldRule::Remove("Cookie".into()),
            FieldRule::Default("Accept".into(), "*/*".into()),
        ];
        route.response = vec![
            set("Cache-Control", "max-age=5"),
            FieldRule::Add("X-Served-By".into(), "us".into()),
            FieldRule::Remove("X-Internal".into()),
        ];
        with(vec![route])
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let target = "/f?size=30&cc=no-store&etag=a";
        let check = |got: &Response| {
            assert_eq!(got.status, 200);
            assert_eq!(got.field("cache-control"), Some("max-age=5"));
            let served: Vec<_> = got.fields.iter().filter(|(n, _)| n == "x-served-by").collect();
            assert_eq!(served.len(), 1);
            assert_eq!(got.body, expected(target, None));
        };
        let fields = "X-Key: mine\r\nCookie: a=b\r\nAccept: text/html\r\n";
        check(&get(&mut client, "site", target, fields).await);
        check(&get(&mut client, "site", target, "").await);
        assert_eq!(world.origin.count(target), 1, "it was stored as the rule says");
        let seen = world.origin.last();
        assert_eq!((seen.field("x-key"), seen.field("cookie")), (Some("secret"), None));
        assert_eq!(seen.field("accept"), Some("text/html"));
        // And again after it was confirmed.
        sleep(Duration::from_secs(7)).await;
        check(&get(&mut client, "site", target, "").await);
        assert_eq!(world.origin.last().field("accept"), Some("*/*"));
        check(&get(&mut client, "site", target, "").await);
        assert_eq!((world.origin.count(target), world.counter("revalidated")), (2, 1));
    });
}

#[test]
fn servers_learn_about_the_client_as_configured() {
    let config = |forwarded, host: Option<&str>| {
        let host = host.map_or(HostSent::Client, |host| HostSent::Named(host.into()));
        let group = Group { forwarded, host, ..group("g", ORIGIN) };
        Config { groups: vec![group], ..reverse() }
    };
    let fields = "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2\r\n\
                  X-Forwarded-Proto: https\r\nForwarded: for=192.0.2.3\r\n";
    each_way(
        || config(ForwardedFields::XForwarded, Some("own:81")),
        async |world: Rc<World>| {
            let mut client = Client::new().await;
            get(&mut client, "site:80", "/a?size=3", fields).await;
            let seen = world.origin.last();
            let us = "127.0.0.1";
            let all = format!("192.0.2.1, 192.0.2.2, {us}");
            assert_eq!(seen.field("x-forwarded-for"), Some(all.as_str()));
            assert_eq!(seen.field("x-forwarded-proto"), Some(scheme()));
            assert_eq!(seen.field("x-forwarded-host"), Some("site:80"));
            assert_eq!(seen.field("host"), Some("own:81"));
        },
    );
    each_way(
        || config(ForwardedFields::Forwarded, None),
        async |world: Rc<World>| {
            let mut client = Client::new().await;
            get(&mut client, "site", "/a?size=3", fields).await;
            let seen = world.origin.last();
            let all: Vec<_> = seen.fields.iter().filter(|(name, _)| name == "forwarded").collect();
            assert_eq!(all[0].1, "for=192.0.2.3");
            assert_eq!(all[1].1, format!("for=127.0.0.1;host=\"site\";proto={}", scheme()));
            assert_eq!(seen.field("x-forwarded-proto"), Some("https"), "as it came");
            assert_eq!(seen.field("host"), Some("site"));
        },
    );
}
