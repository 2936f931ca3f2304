//! Conditions: rules that redirect, answer, choose an upstream, change fields and lifetimes, and
//! keep requests and responses out of the store; and routes for some requests only.

use std::rc::Rc;
use std::time::Duration;

use config::{Action, FieldRule, Group, Lifetime, Path, Rewrite, Route, Rule};
use runtime::time::sleep;
use server::{Config, Origin as OriginUrl};

use crate::common::Response;
use crate::origin::{Origin, expected};
use crate::world::{Client, ORIGIN, World, address, each_way, reverse, scheme};

const OTHER: &str = "10.0.0.3:80";

pub(crate) fn rule(name: &str, when: &str) -> Rule {
    Rule {
        name: name.to_owned(),
        when: when.parse().unwrap(),
        action: None,
        mirror: None,
        rewrite: None,
        request: Vec::new(),
        response: Vec::new(),
        store: true,
        compression: true,
        lifetime: None,
    }
}

pub(crate) fn answer(status: u16) -> Option<Action> {
    Some(Action::Answer { status, body: "by a rule".to_owned() })
}

fn set(name: &str, value: &str) -> Vec<FieldRule> {
    vec![FieldRule::Set(name.to_owned(), value.to_owned())]
}

pub(crate) fn with(routes: Vec<Route>, rules: Vec<Rule>) -> Config {
    let group = |name, at| Group::of(name, [OriginUrl::at(address(at))]);
    let groups = vec![group("first", ORIGIN), group("other", OTHER)];
    Config { groups, routes, rules, ..reverse() }
}

async fn get(client: &mut Client, target: &str, fields: &str) -> Response {
    client.ask(format!("GET {target} HTTP/1.1\r\nHost: site\r\n{fields}\r\n").as_bytes()).await
}

fn is_hit(got: &Response) -> bool {
    got.field("cache-status").is_some_and(|status| status.starts_with("plimsoll; hit"))
}

/// Requests for one stored response can differ in their URLs.
#[test]
fn a_response_is_judged_by_the_url_as_it_is_stored() {
    let config = || {
        let mut route = Route::to("first");
        route.key.query_drop = vec!["utm".parse().unwrap()];
        let rule = Rule {
            response: set("X-Judged", "yes"),
            ..rule("url", "status == 200 && url.endsWith('://site/a?size=9&cc=max-age=60')")
        };
        with(vec![route], vec![rule])
    };
    each_way(config, async |_world: Rc<World>| {
        let mut client = Client::new().await;
        for (round, utm) in ["utm=1&", "", "utm&"].iter().enumerate() {
            let target = format!("/a?{utm}size=9&cc=max-age=60");
            let got = get(&mut client, &target, "").await;
            assert_eq!((got.field("x-judged"), is_hit(&got)), (Some("yes"), round > 0), "{target}");
        }
    });
}

/// `Cache-Control: immutable`, set for assets, made a missing asset a 404 for a year.
#[test]
fn a_change_of_fields_can_ask_for_the_status() {
    let config = || {
        let assets = Rule {
            response: set("Cache-Control", "max-age=31536000, immutable"),
            ..rule("assets", "path.startsWith('/assets/') && status == 200")
        };
        let missing = Rule {
            lifetime: Some(Lifetime { ttl: Some(Duration::from_secs(5)), ..Lifetime::default() }),
            ..rule("missing", "status == 404")
        };
        with(Vec::new(), vec![assets, missing])
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let (there, gone) = ("/assets/a?size=9", "/assets/b?size=9&status=404");
        for round in 0..2 {
            let got = get(&mut client, there, "").await;
            assert_eq!(got.field("cache-control"), Some("max-age=31536000, immutable"));
            assert_eq!(is_hit(&got), round > 0);
            let got = get(&mut client, gone, "").await;
            assert_eq!((got.status, got.field("cache-control")), (404, None));
            assert_eq!(is_hit(&got), round > 0);
        }
        sleep(Duration::from_secs(6)).await;
        assert!(!is_hit(&get(&mut client, gone, "").await), "a rule gave it five seconds");
        assert_eq!((world.origin.count(there), world.origin.count(gone)), (1, 2));
    });
}

/// A hit is judged as any other request.
#[test]
fn a_stored_response_is_refused_to_whom_a_rule_refuses_it() {
    let config = || {
        let secret = Rule {
            action: answer(403),
            ..rule("secret", "path.startsWith('/secret') && cookies['role'] != 'staff'")
        };
        with(Vec::new(), vec![secret])
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let target = "/secret/a?size=9&cc=max-age=60";
        let staff = "Cookie: role=staff\r\n";
        for round in 0..2 {
            let got = get(&mut client, target, staff).await;
            assert_eq!((got.status, is_hit(&got)), (200, round > 0));
        }
        for spelled in [target, "/x/..//%73ecret/a?size=9&cc=max-age=60"] {
            let got = get(&mut client, spelled, "").await;
            assert_eq!((got.status, &got.body[..]), (403, &b"by a rule"[..]), "{spelled}");
        }
        assert_eq!(world.origin.seen.borrow().len(), 1);
    });
}

/// A rule that led to an upstream was as strict as the route that it replaced.
#[test]
fn a_rule_that_passes_on_is_not_stricter_than_one_that_denies() {
    let config = || {
        let admin = Rule { action: answer(403), ..rule("admin", "path.startsWith('/admin')") };
        let public = Rule {
            action: Some(Action::Group("first".to_owned())),
            ..rule("public", "path.startsWith('/public')")
        };
        let closed = Action::Answer { status: 403, body: "closed".to_owned() };
        with(vec![Route { action: closed, ..Route::to("") }], vec![admin, public])
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for path in ["/public/..%2fadmin", "/public/..;/admin", "/public/..%2fother", "/admin"] {
            assert_eq!(get(&mut client, path, "").await.status, 403, "{path}");
        }
        assert_eq!(world.origin.seen.borrow().len(), 0);
        assert_eq!(get(&mut client, "/public/a?size=3", "").await.status, 200);
    });
}

/// A lifetime by a rule had stored refusals and failures, which one odd request could draw.
#[test]
fn a_lifetime_by_a_rule_is_for_errors_only_if_it_names_them() {
    let config = || {
        let lifetime =
            || Some(Lifetime { ttl: Some(Duration::from_secs(60)), ..Lifetime::default() });
        let all = Rule { lifetime: lifetime(), ..rule("all", "path.startsWith('/all')") };
        let named = Rule { lifetime: lifetime(), ..rule("named", "status in [403, 429]") };
        with(Vec::new(), vec![all, named])
    };
    each_way(config, async |_: Rc<World>| {
        let mut client = Client::new().await;
        for (target, is_stored) in [
            ("/all?size=3", true),
            ("/all?size=3&status=400", false),
            ("/all?size=3&status=403", true),
            ("/all?size=3&status=401", false),
            ("/all?size=3&status=429", false),
            ("/all?size=3&status=503", false),
        ] {
            get(&mut client, target, "").await;
            assert_eq!(is_hit(&get(&mut client, target, "").await), is_stored, "{target}");
        }
    });
}

/// A 304 has a part of the fields. Rules that read the others had been left out.
#[test]
fn a_rule_that_reads_the_response_is_not_judged_by_a_304() {
    let config = || {
        let remove = vec![FieldRule::Remove("X-Secret".to_owned())];
        let text = Rule {
            response: [remove, set("Cache-Control", "max-age=2")].concat(),
            ..rule("text", "response['etag'] != ''")
        };
        let mut route = Route::to("first");
        route.response = set("X-Secret", "1");
        with(vec![route], vec![text])
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let target = "/a?size=9&etag=x&cc=max-age=1";
        for _ in 0..3 {
            let got = get(&mut client, target, "").await;
            assert_eq!((got.status, got.field("cache-control")), (200, Some("max-age=2")));
            assert_eq!(got.body, expected(target, None));
            sleep(Duration::from_secs(3)).await;
        }
        let seen = world.origin.seen.borrow();
        assert!(seen.iter().all(|one| one.field("if-none-match").is_none()), "no 304 is drawn");
    });
}

/// The captures of one rule had taken the place of another's, and of values.
#[test]
fn a_rule_repeats_what_it_has_captured_itself() {
    let config = || {
        let one = Rule {
            request: set("X-One", "{rest}"),
            ..rule("one", "path.matches('^/(?P<rest>.*)$')")
        };
        let two = Rule {
            action: Some(Action::Redirect {
                status: 302,
                location: "https://{host}/{rest}".to_owned(),
                with_path: false,
            }),
            ..rule("two", "path.matches('^/evil.example/(?P<rest>.*)$')")
        };
        let mut route = Route::to("first");
        route.path = Path::parse("/{host}/*").unwrap();
        with(vec![route, Route::to("first")], vec![one, two])
    };
    each_way(config, async |_: Rc<World>| {
        let mut client = Client::new().await;
        let got = get(&mut client, "/evil.example/go", "").await;
        assert_eq!(got.field("location"), Some("https://site/go"));
    });
}

#[test]
fn rules_redirect_and_rewrite_by_what_they_capture() {
    let config = || {
        let old = Rule {
            action: Some(Action::Redirect {
                status: 301,
                location: "https://{host}/new/{rest}?was={path}".to_owned(),
                with_path: false,
            }),
            ..rule("old", "path.matches('^/old/(?P<rest>.*)$')")
        };
        let api = Rule {
            rewrite: Some(Rewrite::Strip("/api".to_owned())),
            ..rule("api", "path.startsWith('/api/')")
        };
        let shop = Rule {
            rewrite: Some(Rewrite::To("/s/{name}{path}".to_owned())),
            ..rule("shop", "path.matches('^/shop-(?P<name>[a-z]+)')")
        };
        let image = Rule {
            rewrite: Some(Rewrite::To("/static/{rest}".to_owned())),
            ..rule("image", "path.matches('^/img(?P<rest>.*)$')")
        };
        with(Vec::new(), vec![old, api, shop, image])
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let got = get(&mut client, "/old/a/b%20c", "").await;
        let location = "https://site/new/a/b%20c?was=/old/a/b%20c";
        assert_eq!((got.status, got.field("location")), (301, Some(location)));
        for (asked, sent) in [
            ("/api/v1?size=3&cc=max-age=60", "/v1?size=3&cc=max-age=60"),
            ("/shop-de?size=3", "/s/de/shop-de?size=3"),
        ] {
            let got = get(&mut client, asked, "").await;
            assert_eq!((got.status, got.body), (200, expected(sent, None)), "{asked}");
        }
        // It is stored by the path that was requested.
        assert!(is_hit(&get(&mut client, "/api/v1?size=3&cc=max-age=60", "").await));
        // What was captured does not lead out of its directory.
        assert_eq!(get(&mut client, "/img../secret?size=3", "").await.status, 400);
        // Two readings are two paths to rewrite.
        assert_eq!(get(&mut client, "/api/%2fv1?size=3", "").await.status, 400);
        assert_eq!(world.origin.seen.borrow().len(), 2);
    });
}

#[test]
fn a_route_sends_another_path_than_the_requested_one() {
    let config = || {
        let route = |path, to: &str| Route {
            path,
            upstream_path: Some(to.to_owned()),
            ..Route::to("first")
        };
        let prefix = |text: &str| Path::Prefix(text.to_owned());
        let (api, shop) = (route(prefix("/api/"), "/"), route(prefix("/shop"), "/s/de/"));
        let one = route(Path::Exact("/one".to_owned()), "/two");
        with(vec![api, shop, one, Route::to("first")], Vec::new())
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for (asked, sent) in [
            ("/api/v1?size=3&cc=max-age=60", "/v1?size=3&cc=max-age=60"),
            ("/api/?size=3", "/?size=3"),
            ("/api?size=3", "/api?size=3"),
            ("/shop?size=3", "/s/de/?size=3"),
            ("/shop/a/b?size=3", "/s/de/a/b?size=3"),
            ("/shopping?size=3", "/shopping?size=3"),
            ("/one?size=3", "/two?size=3"),
        ] {
            let got = get(&mut client, asked, "").await;
            assert_eq!((got.status, got.body), (200, expected(sent, None)), "{asked}");
        }
        // It is stored by the path that was requested.
        assert!(is_hit(&get(&mut client, "/api/v1?size=3&cc=max-age=60", "").await));
        assert!(!is_hit(&get(&mut client, "/v1?size=3&cc=max-age=60", "").await));
        // Two readings are two paths to replace.
        let seen = world.origin.seen.borrow().len();
        for path in ["/api/%2fv1", "/api/..%2fadmin", "/shop/a%2f..%2f..%2fb"] {
            let got = get(&mut client, &format!("{path}?size=3"), "").await;
            assert_eq!(got.status, 400, "{path}");
        }
        assert_eq!(world.origin.seen.borrow().len(), seen);
    });
}

#[test]
fn rules_choose_the_upstream_and_what_it_gets() {
    let config = || {
        let canary = Rule {
            action: Some(Action::Group("other".to_owned())),
            request: set("X-Canary", "{cookie.id} to {upstream}"),
            store: false,
            ..rule("canary", "share(cookies['id']) < 0.5 && 'id' in cookies")
        };
        let all = Rule {
            request: set("X-Client", "{client}"),
            ..rule("all", "scheme in ['http', 'https']")
        };
        with(Vec::new(), vec![canary, all])
    };
    each_way(config, async |world: Rc<World>| {
        let other = Origin::start(address(OTHER));
        let mut client = Client::new().await;
        let mut to_other = 0;
        for id in 0..20 {
            let target = format!("/{id}?size=3&cc=max-age=60");
            let before = other.count(&target);
            let cookie = format!("Cookie: id={id}\r\n");
            for _ in 0..2 {
                assert_eq!(get(&mut client, &target, &cookie).await.status, 200);
            }
            match other.count(&target) - before {
                0 => assert_eq!(world.origin.count(&target), 1, "the second was a hit"),
                2 => to_other += 1,
                some => panic!("{some} of 2 requests of one client: a client keeps its side"),
            }
        }
        assert!((5..=15).contains(&to_other), "{to_other} of 20");
        let seen = other.seen.borrow();
        assert!(seen.iter().all(|one| one.field("x-canary").unwrap().ends_with(" to other")));
        let seen = world.origin.seen.borrow();
        assert!(seen.iter().all(|one| one.field("x-client").is_some_and(|is| is != "{client}")));
    });
}

/// A copy neither delays nor fails the request of a client, hit or miss.
#[test]
fn a_mirror_gets_a_copy_of_each_request_without_content() {
    let config = || {
        let mirror = Rule {
            mirror: Some("other".to_owned()),
            request: set("X-Copied", "1"),
            ..rule("mirror", "path.startsWith('/m')")
        };
        with(Vec::new(), vec![mirror])
    };
    each_way(config, async |world: Rc<World>| {
        let other = Origin::start(address(OTHER));
        let mut client = Client::new().await;
        let target = "/m?size=9&cc=max-age=60";
        for round in 0..3 {
            let got = get(&mut client, target, "").await;
            assert_eq!((got.status, is_hit(&got)), (200, round > 0));
        }
        assert_eq!(get(&mut client, "/a?size=9", "").await.status, 200);
        let post = "POST /m?size=9 HTTP/1.1\r\nHost: site\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(client.ask(post.as_bytes()).await.status, 200);
        sleep(Duration::from_secs(1)).await;
        assert_eq!((world.origin.count(target), other.count(target)), (1, 3));
        assert_eq!(other.seen.borrow().len(), 3);
        assert!(other.seen.borrow().iter().all(|one| one.field("x-copied") == Some("1")));
    });
}

#[test]
fn rules_keep_requests_and_responses_out_of_the_store() {
    let config = || {
        let session = Rule { store: false, ..rule("session", "'session' in cookies") };
        let large = Rule { store: false, ..rule("large", "size > 1000 || 'x-none' in response") };
        with(Vec::new(), vec![session, large])
    };
    each_way(config, async |_: Rc<World>| {
        let mut client = Client::new().await;
        let small = "/small?size=9&cc=max-age=60";
        assert!(!is_hit(&get(&mut client, small, "Cookie: session=1\r\n").await));
        assert!(!is_hit(&get(&mut client, small, "").await), "nothing was stored");
        assert!(is_hit(&get(&mut client, small, "Cookie: sessions=1\r\n").await));
        assert!(!is_hit(&get(&mut client, small, "Cookie: a=b; session=\r\n").await));
        let large = "/large?size=1001&cc=max-age=60";
        for _ in 0..2 {
            let got = get(&mut client, large, "").await;
            assert!(!is_hit(&got) && got.body.len() == 1001);
        }
    });
}

/// Routes with the same hosts and path, and settings of keys of their own.
#[test]
fn a_purge_removes_what_each_route_for_a_url_has_stored() {
    let config = || {
        let mut keyed = Route::to("first");
        keyed.when = Some("args['lang'] == ''".parse().unwrap());
        keyed.key.query = config::Query::None;
        let mut config = with(vec![keyed, Route::to("first")], Vec::new());
        config.purge.from = vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()];
        config
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let answer = "X-Answer: cc=max-age=60&size=5\r\n";
        let (keyed, plain) = ("/a?x=1", "/a?x=1&lang=de");
        for target in [keyed, plain] {
            assert!(!is_hit(&get(&mut client, target, answer).await));
            assert!(is_hit(&get(&mut client, target, answer).await));
        }
        assert!(is_hit(&get(&mut client, "/a?y", answer).await), "its route drops the query");
        let purge = async |client: &mut Client, target: &str| {
            let purge = format!("PURGE {target} HTTP/1.1\r\nHost: site\r\n\r\n");
            assert_eq!(client.ask(purge.as_bytes()).await.status, 200);
        };
        purge(&mut client, keyed).await;
        assert!(!is_hit(&get(&mut client, keyed, answer).await));
        assert!(is_hit(&get(&mut client, plain, answer).await));
        purge(&mut client, plain).await;
        assert!(!is_hit(&get(&mut client, plain, answer).await));
        // A request for the URL of the second could have taken the first route, too.
        assert!(!is_hit(&get(&mut client, keyed, answer).await));
        assert_eq!(world.origin.seen.borrow().len(), 5);
    });
}

#[test]
fn a_route_with_a_condition_is_not_there_for_other_requests() {
    let config = || {
        let path = |path: &str| Path::Prefix(path.to_owned());
        let writes = Route {
            when: Some("!(method in ['GET', 'HEAD'])".parse().unwrap()),
            path: path("/api"),
            store: false,
            ..Route::to("other")
        };
        let closed = Route {
            when: Some("args['closed'] != ''".parse().unwrap()),
            action: Action::Answer { status: 503, body: String::new() },
            path: path("/api/x"),
            ..Route::to("")
        };
        with(vec![writes, closed, Route::to("first")], Vec::new())
    };
    each_way(config, async |world: Rc<World>| {
        let other = Origin::start(address(OTHER));
        let mut client = Client::new().await;
        let target = "/api/x?size=5";
        assert_eq!(get(&mut client, target, "").await.status, 200);
        let post = format!("POST {target} HTTP/1.1\r\nHost: site\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(client.ask(post.as_bytes()).await.status, 200);
        assert_eq!((world.origin.count(target), other.count(target)), (1, 1));
        assert!(matches!(scheme(), "http" | "https"));
    });
}
