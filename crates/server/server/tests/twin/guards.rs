//! Guards of routes and proxies in front of a listener: every spelling of a path meets the guard of
//! the path, the store is no way around it, and only a trusted proxy names the client.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::{
    Auth, FieldRule, ForwardedFields, Front, Guard, Path, Route, Rule, Satisfy, Timeouts, Users,
};
use runtime::time::{now, sleep};
use server::Config;

use crate::common::Response;
use crate::conditions::{answer, rule, with};
use crate::world::{Client, World, each_way, reverse};

/// `a:b`, by the cheapest hash that there is.
pub(crate) const USERS: &str = "a:$2y$04$7qpibGBGC54bhHYsjP9fm.pDO99MgNCebwK0uPNhJexlZsmo.jmeS\n";
/// `a:b` and `a:c`.
pub(crate) const LOGIN: &str = "Authorization: Basic YTpi\r\n";
const WRONG: &str = "Authorization: Basic YTpj\r\n";

fn guarded(prefix: &str, guard: Guard) -> Route {
    Route { path: Path::Prefix(prefix.to_owned()), guard, ..Route::to("first") }
}

fn networks(allow: &[&str]) -> Guard {
    let allow = allow.iter().map(|one| (*one).to_owned()).collect();
    Guard { allow_from: Some(allow), ..Guard::default() }
}

fn logins() -> Guard {
    Guard { users: Some(Users::from_text(USERS).unwrap()), ..Guard::default() }
}

async fn get(client: &mut Client, target: &str, fields: &str) -> Response {
    client.ask(format!("GET {target} HTTP/1.1\r\nHost: site\r\n{fields}\r\n").as_bytes()).await
}

fn is_hit(got: &Response) -> bool {
    got.field("cache-status").is_some_and(|status| status.starts_with("plimsoll; hit"))
}

/// Listeners behind a proxy of the network of the twin's clients.
fn trusting(mut config: Config, field: &str) -> Config {
    for listener in &mut config.listeners {
        let networks = vec!["127.0.0.0/8".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        let field = field.parse().unwrap();
        listener.front = Some(Arc::new(Front { networks, field, host: true }));
    }
    config
}

const ODD: [&str; 6] = [
    "/admin/a?size=9&cc=max-age=60",
    "/public/..%2fadmin/a?size=9&cc=max-age=60",
    "/public/..;/admin/a?size=9&cc=max-age=60",
    "//admin/a?size=9&cc=max-age=60",
    "/%61dmin/a?size=9&cc=max-age=60",
    "/public/%2e%2e/admin/a?size=9&cc=max-age=60",
];

#[test]
fn no_spelling_passes_a_guard_of_networks() {
    let config = || {
        let admin = guarded("/admin", networks(&["192.0.2.0/24"]));
        with(vec![admin, guarded("/", Guard::default())], Vec::new())
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for target in ODD {
            let got = get(&mut client, target, "").await;
            assert_eq!(got.status, 403, "{target}");
            assert!(got.field("proxy-status").is_some_and(|of| of.contains("route-client")));
        }
        assert_eq!(world.origin.seen.borrow().len(), 0);
        assert_eq!(get(&mut client, "/public/a?size=9", "").await.status, 200);
    });
}

#[test]
fn a_login_is_asked_of_each_request_also_where_the_response_is_stored() {
    let config = || {
        let who = Rule { store: false, ..rule("who", "user == 'a' && path == '/admin/who'") };
        let who = Rule { request: vec![FieldRule::Set("X-Who".into(), "a".into())], ..who };
        with(vec![guarded("/admin", logins()), guarded("/", Guard::default())], vec![who])
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for round in 0..2 {
            let got = get(&mut client, ODD[0], LOGIN).await;
            assert_eq!((got.status, is_hit(&got)), (200, round > 0));
            for target in ODD {
                for (fields, rule) in [("", "login-missing"), (WRONG, "login-wrong")] {
                    let got = get(&mut client, target, fields).await;
                    assert_eq!(got.status, 401, "{target}");
                    let challenge = "Basic realm=\"plimsoll\", charset=\"UTF-8\"";
                    assert_eq!(got.field("www-authenticate"), Some(challenge));
                    assert!(got.field("proxy-status").is_some_and(|of| of.contains(rule)));
                }
            }
        }
        assert_eq!(get(&mut client, "/admin/who?size=3", LOGIN).await.status, 200);
        let seen = world.origin.seen.borrow();
        assert_eq!(seen.len(), 2);
        assert!(seen.iter().all(|one| one.field("authorization").is_none()), "it is for us");
        assert_eq!((seen[0].field("x-who"), seen[1].field("x-who")), (None, Some("a")));
    });
}

#[test]
fn one_of_both_is_enough_if_the_guard_says_so() {
    let config = || {
        let guard = |allow: &str, satisfy| Guard { satisfy, ..merged(allow) };
        with(
            vec![
                guarded("/any", guard("127.0.0.0/8", Satisfy::Any)),
                guarded("/other", guard("192.0.2.0/24", Satisfy::Any)),
                guarded("/all", guard("127.0.0.0/8", Satisfy::All)),
                guarded("/never", guard("192.0.2.0/24", Satisfy::All)),
                guarded("/kept", Guard { forward_login: true, ..logins() }),
            ],
            Vec::new(),
        )
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for (target, without, with) in [
            ("/any?size=3", 200, 200),
            ("/other?size=3", 401, 200),
            ("/all?size=3", 401, 200),
            ("/never?size=3", 403, 403),
            ("/kept?size=3", 401, 200),
        ] {
            assert_eq!(get(&mut client, target, "").await.status, without, "{target}");
            assert_eq!(get(&mut client, target, LOGIN).await.status, with, "{target}");
        }
        let seen = world.origin.seen.borrow();
        assert_eq!(seen.last().unwrap().field("authorization"), Some("Basic YTpi"));
        assert!(seen[..seen.len() - 1].iter().all(|one| one.field("authorization").is_none()));
    });
}

fn merged(allow: &str) -> Guard {
    Guard { users: logins().users, ..networks(&[allow]) }
}

/// A rule that answers comes before the guard, and one that reads the user after it.
#[test]
fn rules_that_answer_come_before_the_guard_unless_they_read_the_user() {
    let config = || {
        let moved = Rule { action: answer(410), ..rule("moved", "path == '/admin/moved'") };
        let others = Rule { action: answer(403), ..rule("others", "user != 'a'") };
        with(vec![guarded("/admin", logins())], vec![moved, others])
    };
    each_way(config, async |_: Rc<World>| {
        let mut client = Client::new().await;
        assert_eq!(get(&mut client, "/admin/moved", "").await.status, 410);
        assert_eq!(get(&mut client, "/admin/a?size=3", "").await.status, 401);
        assert_eq!(get(&mut client, "/admin/a?size=3", LOGIN).await.status, 200);
    });
}

#[test]
fn the_smallest_limit_of_all_readings_holds_for_a_body() {
    let config = || {
        let mut small = guarded("/small", Guard::default());
        small.body_bytes_max = Some(3);
        let mut large = guarded("/large", Guard::default());
        large.body_bytes_max = Some(9);
        let mut config = with(vec![small, large, guarded("/", Guard::default())], Vec::new());
        config.limits.body_bytes_max = Some(6);
        config
    };
    each_way(config, async |_: Rc<World>| {
        for (path, most) in [
            ("/small/a", 3),
            ("/large/a", 9),
            ("/other", 6),
            ("/large/..%2fsmall/a", 3),
            ("/large/..%2fother", 6),
        ] {
            for (bytes, expected) in [(most, 200), (most + 1, 413)] {
                let body = "b".repeat(bytes);
                let head = format!("POST {path}?size=3 HTTP/1.1\r\nHost: s\r\n");
                let length = format!("{head}Content-Length: {bytes}\r\n\r\n{body}");
                let chunks = format!(
                    "{head}Transfer-Encoding: chunked\r\n\r\n{bytes:x}\r\n{body}\r\n0\r\n\r\n"
                );
                for request in [length, chunks] {
                    let status = Client::new().await.ask(request.as_bytes()).await.status;
                    assert_eq!(status, expected, "{path} {bytes}");
                }
            }
        }
    });
}

#[test]
fn a_route_waits_as_long_as_it_says() {
    let config = || {
        let mut quick = guarded("/quick", Guard::default());
        let first_byte = Some(Duration::from_secs(1));
        quick.timeouts = Some(Timeouts { first_byte, ..Timeouts::default() });
        with(vec![quick, guarded("/", Guard::default())], Vec::new())
    };
    each_way(config, async |_: Rc<World>| {
        let mut client = Client::new().await;
        assert_eq!(get(&mut client, "/quick?size=3&delay=3000", "").await.status, 504);
        assert_eq!(get(&mut client, "/slow?size=3&delay=3000", "").await.status, 200);
    });
}

#[test]
fn a_trusted_proxy_names_the_client_to_guards_and_upstreams() {
    let config = || {
        let admin = guarded("/admin", networks(&["192.0.2.0/24"]));
        let mut config = with(vec![admin, guarded("/", Guard::default())], Vec::new());
        config.groups[0].forwarded = ForwardedFields::XForwarded;
        trusting(config, "X-Forwarded-For")
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for (list, status) in [
            ("192.0.2.7", 200),
            ("8.8.8.8, 192.0.2.7, 10.1.2.3", 200),
            ("192.0.2.7, 8.8.8.8", 403),
            ("192.0.2.7, nonsense", 403),
        ] {
            for round in 0..2 {
                let fields = format!("X-Forwarded-For: {list}\r\nX-Forwarded-Proto: https\r\n");
                let target = "/admin/a?size=9&cc=max-age=60";
                let got = get(&mut client, target, &fields).await;
                assert_eq!(got.status, status, "{list}, round {round}");
            }
        }
        let host = "X-Forwarded-For: 192.0.2.9\r\nX-Forwarded-Host: shop:8080\r\n";
        assert_eq!(get(&mut client, "/h?size=3", host).await.status, 200);
        world.stopped().await;
        let seen = world.origin.seen.borrow();
        assert_eq!(seen.len(), 2, "the first was stored for the second");
        assert_eq!(seen[0].field("x-forwarded-for"), Some("192.0.2.7"));
        assert_eq!(seen[0].field("x-forwarded-proto"), Some("https"));
        assert_eq!(seen[0].field("host"), Some("site"));
        assert_eq!(seen[1].field("x-forwarded-host"), Some("shop:8080"));
        assert_eq!(seen[1].field("host"), Some("shop:8080"));
        let log = String::from_utf8(world.log.lock().unwrap().clone()).unwrap();
        let named = |address: &str| log.lines().filter(|line| line.contains(address)).count();
        assert_eq!((named(" 192.0.2.7 "), named(" 8.8.8.8 "), named(" 0.0.0.0 ")), (4, 2, 2));
        assert!(log.contains("https://site/admin/a?"), "{log}");
    });
}

/// The same, and no client is a trusted proxy.
fn for_strangers(mut config: Config) -> Config {
    for listener in &mut config.listeners {
        let networks = vec!["10.0.0.0/8".parse().unwrap()];
        let front = listener.front.as_deref().unwrap().clone();
        listener.front = Some(Arc::new(Front { networks, ..front }));
    }
    config
}

#[test]
fn a_stranger_names_nothing() {
    let config = || {
        let mut config =
            with(vec![guarded("/", networks(&["192.0.2.0/24", "127.0.0.0/8"]))], Vec::new());
        config.groups[0].forwarded = ForwardedFields::XForwarded;
        for_strangers(trusting(config, "X-Real-IP"))
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let fields = "X-Real-IP: 8.8.8.8\r\nX-Forwarded-For: 8.8.8.8\r\nForwarded: for=8.8.8.8\r\n\
                      X-Forwarded-Proto: gopher\r\nX-Forwarded-Host: evil\r\n";
        assert_eq!(get(&mut client, "/a?size=3", fields).await.status, 200);
        let seen = world.origin.seen.borrow();
        let of = |name| seen[0].field(name);
        assert_eq!((of("x-real-ip"), of("forwarded")), (None, None));
        assert_eq!(
            (of("x-forwarded-for"), of("x-forwarded-host")),
            (Some("127.0.0.1"), Some("site"))
        );
        assert_eq!(of("x-forwarded-proto"), Some(crate::world::scheme()));
    });
}

/// Without the key, what came is kept, as before.
#[test]
fn without_trusted_proxies_addresses_are_added() {
    let config = crate::world::with(reverse, |config| {
        config.groups[0].forwarded = ForwardedFields::XForwarded;
    });
    each_way(config, async |world: Rc<World>| {
        let fields = "X-Forwarded-For: 8.8.8.8\r\n";
        assert_eq!(get(&mut Client::new().await, "/a?size=3", fields).await.status, 200);
        let seen = world.origin.seen.borrow();
        assert_eq!(seen[0].field("x-forwarded-for"), Some("8.8.8.8, 127.0.0.1"));
    });
}

/// A service that allows requests by their path at the simulated origin.
fn asking(copy: &[&str]) -> Guard {
    let auth = Auth {
        upstream: "first".to_owned(),
        path: "/check?size=3".to_owned(),
        fields: vec!["Cookie".to_owned(), "X-Answer".to_owned()],
        copy: copy.iter().map(|name| (*name).to_owned()).collect(),
        timeout: Duration::from_secs(2),
        ..Auth::default()
    };
    Guard { auth: Some(auth), ..Guard::default() }
}

/// The origin's `X-Answer` has the query by which it answers, so a test chooses the status of the
/// service by the field that is passed on to it.
#[test]
fn a_service_is_asked_before_the_store_and_its_failure_lets_nothing_through() {
    let config =
        || with(vec![guarded("/admin", asking(&[])), guarded("/", Guard::default())], vec![]);
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let target = "/admin/a?size=9&cc=max-age=60";
        for round in 0..2 {
            let got = get(&mut client, target, "").await;
            assert_eq!((got.status, is_hit(&got)), (200, round > 0));
            assert_eq!(world.origin.count("/check?size=3"), round + 1, "each request is judged");
        }
        for (answer, expected) in [
            ("status=401", 401),
            ("status=403", 403),
            ("status=302&see=login", 302),
            ("status=500", 502),
            ("status=204", 200),
            ("gone=1", 502),
            ("delay=5000", 504),
        ] {
            let got = get(&mut client, target, &format!("X-Answer: {answer}\r\n")).await;
            assert_eq!(got.status, expected, "{answer}");
            let location = got.field("location").is_some();
            assert_eq!(location, expected == 302, "{answer}");
        }
        for target in ODD {
            let got = get(&mut client, target, "X-Answer: status=403\r\n").await;
            assert_eq!(got.status, 403, "{target}");
        }
        let seen = world.origin.seen.borrow();
        let asked = seen.iter().find(|one| one.target.starts_with("/check")).unwrap();
        assert_eq!(asked.field("x-forwarded-uri"), Some(target));
        assert_eq!(asked.field("x-forwarded-method"), Some("GET"));
        assert_eq!(asked.field("x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!(asked.field("x-forwarded-host"), Some("site"));
    });
}

#[test]
fn what_a_service_writes_comes_from_no_client_and_is_in_the_key() {
    let config = || {
        let mut route = guarded("/", asking(&["ETag"]));
        route.key.fields = vec!["ETag".to_owned()];
        with(vec![route], Vec::new())
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let target = "/a?size=9&cc=max-age=60";
        // The service's response has the entity tag that is asked for: two users.
        for (tag, hit) in [("one", false), ("two", false), ("one", true), ("two", true)] {
            let fields = format!("X-Answer: etag={tag}&size=9&cc=max-age=60\r\nETag: forged\r\n");
            let got = get(&mut client, target, &fields).await;
            assert_eq!((got.status, is_hit(&got)), (200, hit), "{tag}");
        }
        let seen = world.origin.seen.borrow();
        let of = |one: &&crate::origin::Seen| one.target == target;
        let tags: Vec<_> = seen.iter().filter(of).map(|one| one.field("etag")).collect();
        assert_eq!(tags.len(), 2);
        assert!(tags.iter().all(|tag| tag.is_some_and(|tag| tag != "forged")), "{tags:?}");
        assert_ne!(tags[0], tags[1]);
        // Its permission may be remembered.
        let asked = seen.iter().filter(|one| one.target.starts_with("/check")).count();
        assert_eq!(asked, 2);
    });
}

#[test]
fn a_field_that_the_service_does_not_write_is_absent() {
    let config = || {
        let mut route = guarded("/", asking(&["X-User"]));
        route.store = false;
        with(vec![route], Vec::new())
    };
    each_way(config, async |world: Rc<World>| {
        let fields = "X-User: root\r\n";
        assert_eq!(get(&mut Client::new().await, "/a?size=3", fields).await.status, 200);
        let seen = world.origin.seen.borrow();
        let last = seen.last().unwrap();
        assert_eq!((&*last.target, last.field("x-user")), ("/a?size=3", None));
    });
}

fn only_if(when: &str, route: Route) -> Route {
    Route { when: Some(when.parse().unwrap()), ..route }
}

/// The guard was judged by one number, and the request was routed by another one.
#[test]
fn one_number_is_drawn_for_a_request() {
    let config = || {
        let half = Rule { action: answer(410), ..rule("half", "random < 0.5") };
        with(vec![guarded("/", networks(&["192.0.2.0/24"]))], vec![half])
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let mut answered = 0;
        for _ in 0..40 {
            let got = get(&mut client, "/a?size=3", "").await;
            assert!(matches!(got.status, 403 | 410), "{}", got.status);
            answered += u32::from(got.status == 410);
        }
        assert!((1..40).contains(&answered), "{answered}");
        assert_eq!(world.origin.seen.borrow().len(), 0);
    });
}

/// A field that the service writes, or the login that is removed, led to a route that was not
/// judged.
#[test]
fn what_a_guard_changes_leads_to_no_route_that_was_not_judged() {
    let config = || {
        let admin = guarded("/s", networks(&["192.0.2.0/24"]));
        let admin = only_if("fields['cache-tag'] == 'admin'", admin);
        let partner = only_if("'authorization' in fields", guarded("/l", logins()));
        let mut routes = vec![
            admin,
            guarded("/s", asking(&["Cache-Tag"])),
            partner,
            guarded("/l", networks(&["192.0.2.0/24"])),
        ];
        routes.iter_mut().for_each(|route| route.store = false);
        with(routes, Vec::new())
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for (target, fields, status) in [
            ("/s?size=3", "X-Answer: tag=admin\r\n", 400),
            ("/s?size=3", "X-Answer: tag=user\r\n", 200),
            ("/l?size=3", LOGIN, 400),
            ("/l?size=3", "", 403),
        ] {
            let got = get(&mut client, target, fields).await;
            assert_eq!(got.status, status, "{target} {fields}");
        }
        assert_eq!((world.origin.count("/s?size=3"), world.origin.count("/l?size=3")), (1, 0));
    });
}

/// The login, and a field that only the service may write, came to the upstream.
#[test]
fn a_route_that_is_found_by_the_user_gets_neither_login_nor_forged_fields() {
    let config = || {
        let of_user = only_if("user == 'a'", guarded("/", networks(&["127.0.0.0/8"])));
        let merged = Guard { users: logins().users, ..asking(&["Cache-Tag"]) };
        let mut first = guarded("/", merged);
        first.key.fields = vec!["Cache-Tag".to_owned()];
        with(vec![of_user, first], Vec::new())
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let fields = format!("{LOGIN}Cache-Tag: forged\r\nX-Answer: tag=real&size=3\r\n");
        assert_eq!(get(&mut client, "/a?size=3", &fields).await.status, 200);
        assert_eq!(get(&mut client, "/a?size=3", "").await.status, 401);
        let seen = world.origin.seen.borrow();
        let last = seen.last().unwrap();
        assert_eq!(&*last.target, "/a?size=3");
        assert_eq!((last.field("authorization"), last.field("cache-tag")), (None, None));
    });
}

/// A remembered permission of one route gave another route the wrong fields.
#[test]
fn a_permission_is_remembered_for_what_is_read_of_it() {
    let config = || {
        let route = |prefix: &str, copy: &str| {
            let mut guard = asking(&[copy]);
            guard.auth.as_mut().unwrap().with_url = false;
            Route { store: false, ..guarded(prefix, guard) }
        };
        with(vec![route("/one", "ETag"), route("/two", "Cache-Tag")], Vec::new())
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let fields = "X-Answer: etag=x&tag=y&size=3&cc=max-age=60\r\n";
        for target in ["/one?a", "/two?a", "/one?b", "/two?b"] {
            assert_eq!(get(&mut client, target, fields).await.status, 200);
        }
        let seen = world.origin.seen.borrow();
        let of = |target: &str| {
            let one = seen.iter().find(|one| one.target == target).unwrap();
            (one.field("etag").is_some(), one.field("cache-tag"))
        };
        assert_eq!((of("/one?a"), of("/one?b")), ((true, None), (true, None)));
        assert_eq!((of("/two?a"), of("/two?b")), ((false, Some("y")), (false, Some("y"))));
        assert_eq!(world.origin.count("/check?size=3"), 2);
    });
}

/// A rule led to an upstream, and the key of the route lacked what the service had written.
#[test]
fn a_rule_that_leads_to_an_upstream_stores_nothing_of_one_user() {
    let config = || {
        let location = "https://login/".to_owned();
        let action = config::Action::Redirect { status: 302, location, with_path: false };
        let route = Route { action, ..guarded("/", asking(&["Cache-Tag"])) };
        let app = Some(config::Action::Group("first".to_owned()));
        let app = Rule { action: app, ..rule("app", "path.startsWith('/app')") };
        with(vec![route], vec![app])
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let target = "/app/me?size=9&cc=max-age=60";
        for user in ["alice", "bob"] {
            let fields = format!("X-Answer: tag={user}&size=9&cc=max-age=60\r\n");
            let got = get(&mut client, target, &fields).await;
            assert_eq!((got.status, is_hit(&got)), (200, false), "{user}");
            let seen = world.origin.seen.borrow();
            assert_eq!(seen.last().unwrap().field("cache-tag"), Some(user));
        }
        assert_eq!(get(&mut client, "/other", "").await.status, 302);
    });
}

/// A server may take a trailer for a field that only the service may write.
#[test]
fn trailers_are_not_passed_on_around_what_a_service_writes() {
    let config = || {
        let asked = Route { store: false, ..guarded("/asked", asking(&["X-User"])) };
        with(vec![asked, guarded("/", Guard::default())], Vec::new())
    };
    crate::world::each_way_http1(config, async |world: Rc<World>| {
        for (target, passed) in [("/asked?size=3", 0), ("/open?size=3", 1)] {
            let request = format!(
                "POST {target} HTTP/1.1\r\nHost: site\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3\r\nabc\r\n0\r\nX-User: admin\r\n\r\n"
            );
            let got = Client::new().await.ask(request.as_bytes()).await;
            assert_eq!(got.status, 200, "{target}");
            let seen = world.origin.seen.borrow();
            assert_eq!(seen.last().unwrap().trailers.len(), passed, "{target}");
        }
    });
}

/// The service took the first of two addresses, which was that of the stranger.
#[test]
fn a_stranger_names_no_client_to_a_service() {
    let config = || {
        let mut guard = asking(&[]);
        guard.auth.as_mut().unwrap().fields.push("X-Real-IP".to_owned());
        for_strangers(trusting(with(vec![guarded("/", guard)], Vec::new()), "X-Real-IP"))
    };
    each_way(config, async |world: Rc<World>| {
        let fields = "X-Real-IP: 10.0.0.1\r\n";
        assert_eq!(get(&mut Client::new().await, "/a?size=3", fields).await.status, 200);
        let seen = world.origin.seen.borrow();
        assert_eq!((seen[0].field("x-real-ip"), seen[0].target.as_str()), (None, "/check?size=3"));
    });
}

/// The body had come with the head, and the server waited for it until the time-out.
#[test]
fn an_answer_of_a_service_in_one_piece_delays_nothing() {
    let config = || with(vec![guarded("/", asking(&[]))], Vec::new());
    each_way(config, async |_: Rc<World>| {
        let mut client = Client::new().await;
        for (answer, expected) in
            [("status=200&size=9", 200), ("status=204", 204), ("status=403&size=0", 403)]
        {
            let began = now();
            let got = get(&mut client, "/a?size=9", &format!("X-Answer: {answer}\r\n")).await;
            assert_eq!(got.status, expected, "{answer}");
            assert!(began.elapsed() < Duration::from_secs(1), "{answer}: {:?}", began.elapsed());
        }
    });
}

/// The question went on without the client, and its body had a whole time-out for itself.
#[test]
fn a_question_ends_with_its_client_and_has_one_deadline() {
    let config = || with(vec![guarded("/", asking(&[]))], Vec::new());
    each_way(config, async |world: Rc<World>| {
        let client = Client::new().await;
        let waits = b"GET /a HTTP/1.1\r\nHost: site\r\nX-Answer: silent=1\r\n\r\n";
        client.send(waits).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.origin.seen.borrow().len(), 1);
        drop(client);
        sleep(Duration::from_millis(700)).await;
        assert_eq!(world.origin.abandoned.get(), 1);
        let mut client = Client::new().await;
        let began = now();
        let fields = "X-Answer: status=403&delay=1000&pause=3000&size=9\r\n";
        assert_eq!(get(&mut client, "/a", fields).await.status, 403);
        assert!(began.elapsed() < Duration::from_millis(2900), "{:?}", began.elapsed());
    });
}
