//! Routes by host and path, in every spelling.

use super::*;

/// Answers with a number, so that a test sees which route it was.
fn route(hosts: &[&str], path: Path, number: u16) -> config::Route {
    let hosts = hosts.iter().map(|host| Host::parse(host).unwrap()).collect();
    let action = Action::Answer { status: number, body: String::new() };
    config::Route { hosts, path, action, ..config::Route::to("") }
}

fn found(routes: &Routes, authority: &str, path: &str) -> Option<u16> {
    let chosen = routes.find(reading(authority, path), None).ok()?;
    match routes.get(chosen.at?)?.config.action {
        Action::Answer { status, .. } => Some(status),
        _ => None,
    }
}

fn reading<'r>(authority: &'r str, path: &'r str) -> Reading<'r> {
    Reading::of(authority.as_bytes(), path.as_bytes())
}

fn bars(routes: &Routes, path: &str) -> bool {
    matches!(routes.choose(reading("a", path), || None), Choice::Barred)
}

#[test]
fn a_pattern_is_as_specific_as_it_has_segments() {
    let path = |text: &str| Path::parse(text).unwrap();
    let prefix = |text: &str| Path::Prefix(text.to_owned());
    let routes = Routes::new(
        &[
            route(&[], prefix("/"), 1),
            route(&[], path("/{lang}/shop/*"), 2),
            route(&[], prefix("/en"), 3),
            route(&[], prefix("/en/shop"), 4),
            route(&[], path("/{lang}/{what}"), 5),
            route(&[], path("/{lang}/about"), 6),
            route(&[], path("/de/about"), 7),
            route(&["{t}.example.org"], prefix("/"), 8),
            route(&["*.example.org"], prefix("/"), 9),
            route(&["a.example.org"], prefix("/"), 10),
            route(&[], path("/acc*"), 11),
            route(&[], path("/account*"), 12),
            route(&[], prefix("/account/x"), 13),
            route(&[], path("/account"), 14),
        ],
        &[],
    );
    for (authority, path, number) in [
        ("h", "/", 1),
        ("h", "/fr/shop/x/y", 2),
        ("h", "/fr/shop", 2),
        ("h", "/en", 3),
        ("h", "/en/x/y", 3),
        ("h", "/en/shop/x", 4),
        ("h", "/en/x", 5),
        ("h", "/fr/about", 6),
        ("h", "/x/../fr/%61bout", 6),
        ("h", "/de/about", 7),
        ("h", "/fr", 1),
        ("h", "/accept", 11),
        ("h", "/accept/x", 5),
        ("h", "/account.php", 12),
        ("h", "/%61ccount/", 12),
        ("h", "/account/x/y", 13),
        ("h", "/account/xy", 5),
        ("h", "/account", 14),
        ("h", "/ac", 1),
        ("b.example.org:81", "/x", 8),
        ("c.b.example.org", "/x", 9),
        ("a.example.org", "/x", 10),
        ("example.org", "/x", 1),
    ] {
        assert_eq!(found(&routes, authority, path), Some(number), "{authority}{path}");
    }
}

#[test]
fn settings_choose_how_a_request_is_looked_up() {
    let groups = [Group::of("g", [])];
    let mut keyed = config::Route::to("g");
    keyed.key.query = config::Query::None;
    let one = Routes::new(&[keyed.clone()], &groups);
    assert!(matches!(one.choose(reading("a", "/x"), || None), Choice::By(_)));
    assert_eq!(&*one.stored_paths(reading("a", "/x?y"))[0], b"/x");
    keyed.path = Path::Prefix("/k".to_owned());
    let some = Routes::new(&[keyed, config::Route::to("g")], &groups);
    assert!(matches!(some.choose(reading("a", "/k?x"), || None), Choice::By(_)));
    assert!(matches!(some.choose(reading("a", "/x"), || None), Choice::Plain));
    assert_eq!(&*some.stored_paths(reading("a", "/x?y"))[0], b"/x?y");
}

#[test]
fn the_most_specific_host_is_taken_then_the_most_specific_path() {
    let prefix = |path: &str| Path::Prefix(path.to_owned());
    let exact = |path: &str| Path::Exact(path.to_owned());
    let routes = Routes::new(
        &[
            route(&[], prefix("/"), 1),
            route(&[], prefix("/api"), 2),
            route(&["*.example.org"], prefix("/"), 3),
            route(&["*.b.example.org"], prefix("/"), 4),
            route(&["www.example.org", "example.org"], prefix("/"), 5),
            route(&["www.example.org"], prefix("/api/"), 6),
            route(&["www.example.org"], exact("/api/x"), 7),
            route(&["only.example.net"], prefix("/api"), 8),
            route(&["[::1]"], prefix("/"), 9),
            route(&[], prefix("/api"), 10),
        ],
        &[],
    );
    for (authority, path, number) in [
        ("other", "/", 1),
        ("other", "*", 1),
        ("only.example.net", "x", 0),
        ("", "/api", 2),
        ("other:81", "/api/x?y", 2),
        ("other", "/apix", 1),
        ("a.example.org", "/api", 3),
        ("A.Example.ORG:8080", "/", 3),
        ("b.example.org", "/", 3),
        ("x.y.b.example.org", "/", 4),
        ("example.org.", "/", 5),
        ("www.example.org", "/api", 5),
        ("www.example.org", "/api/", 6),
        ("www.example.org", "/api/x", 7),
        ("www.example.org", "/api/x?y", 7),
        ("www.example.org", "/api/x/y", 6),
        ("only.example.net", "/", 1),
        ("only.example.net", "/api", 8),
        ("[::1]:80", "/", 9),
        ("[::1]", "/", 9),
    ] {
        let expected = (number != 0).then_some(number);
        assert_eq!(found(&routes, authority, path), expected, "{authority} {path}");
    }
}

/// One group; `/admin` is denied, `/account` is not stored, `/files` has a lifetime, `/keyed` a
/// key, `/signed` a field, and `/other` goes to another group.
fn usual() -> Routes {
    let to = |prefix: &str| config::Route {
        path: Path::Prefix(prefix.to_owned()),
        ..config::Route::to("g")
    };
    let denied = Action::Answer { status: 403, body: String::new() };
    let ttl = Some(std::time::Duration::from_secs(60));
    let lifetimes = vec![config::Lifetime { ttl, ..config::Lifetime::default() }];
    let mut keyed = to("/keyed");
    keyed.key.query = config::Query::None;
    let signed = vec![FieldRule::Set("X-Signed".into(), "1".into())];
    let routes = [
        to("/"),
        to("/static"),
        config::Route { action: denied, ..to("/admin") },
        config::Route { store: false, ..to("/account") },
        config::Route { lifetimes, ..to("/files") },
        keyed,
        config::Route { request: signed, ..to("/signed") },
        config::Route { action: Action::Group("h".into()), ..to("/other") },
    ];
    let groups = ["g", "h"].map(|name| Group::of(name, []));
    Routes::new(&routes, &groups)
}

/// The status of the refusal or answer, or the index of the route and whether it is the only.
fn judged(routes: &Routes, path: &str) -> Result<(usize, bool), u16> {
    let chosen = routes.find(reading("a", path), None).map_err(Refusal::status)?;
    match routes.all()[chosen.at.unwrap()].config.action {
        Action::Answer { status, .. } => Err(status),
        _ => Ok((chosen.at.unwrap(), chosen.is_sole)),
    }
}

/// Node's `URL` reads `/app/y` in `//x/app/y`, and trusted the client's own field.
#[test]
fn a_doubled_slash_leads_around_no_rule_on_a_field() {
    let with = |path: &str, request: Vec<FieldRule>| config::Route {
        path: Path::Prefix(path.to_owned()),
        request,
        ..config::Route::to("a")
    };
    let remove = |name: &str| vec![FieldRule::Remove(name.to_owned())];
    let routes =
        [with("/", Vec::new()), with("/app", remove("X-User")), with("/own", remove("x-user"))];
    let groups = [Group::of("a", [])];
    let routes = Routes::new(&routes, &groups);
    let evades = |path: &str, lines: &str| {
        let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
        let mut scratch = http1::Scratch::new();
        let head = http1::parse_request(bytes.as_bytes(), &mut scratch, &http1::Limits::DEFAULT);
        let chosen = routes.find(reading("a", path), None).unwrap();
        routes.evades(reading("a", path), &chosen, None, &head.unwrap().unwrap().fields)
    };
    for path in ["//x/app/y", "///x/app/y", "/\\\\x/app"] {
        assert!(evades(path, "X-User: root\r\n"), "{path}");
        assert!(evades(path, "x_user: root\r\n"), "{path}");
        assert!(!evades(path, "X-Other: root\r\n"), "{path}");
    }
    for path in ["//app/y", "//own/app/y", "/app//y"] {
        assert!(!evades(path, "X-User: root\r\n"), "{path}: its own route removes the field");
    }
}

#[test]
fn no_spelling_of_a_path_bypasses_a_route_that_denies() {
    let routes = usual();
    for path in [
        "/admin",
        "/admin/",
        "/admin?x",
        "/%61dmin",
        "/%61%64min/x",
        "//admin",
        "/./admin",
        "/x/../admin",
        "/x/%2e%2E/admin",
        "/admin/.",
        "/../admin",
        "/x//..//admin/y",
        "/admin%2Fusers",
        "/admin%2f",
        "/%2fadmin",
        "/.%2fadmin",
        "/x/..%2fadmin/users",
        "/x%2F..%2Fadmin",
        "/x/%2e%2e%2fadmin",
        "/admin;a=b/users",
        "/admin%3Ba=b/users",
        "/x/..;/admin",
        "/x/..;a=b/admin",
        "/;x/admin",
        "/x/%2e%2e;/admin",
        "/x\\..\\admin",
        "/admin%5Cusers",
        "/x%5c..%5cadmin",
        "/admin%00.html",
        "//h/admin",
        "///h/admin",
        "/%2fh/admin",
        "/\\\\h/admin",
        "/static//../admin",
        "/admin/..",
        "/admin/../static",
    ] {
        assert_eq!(judged(&routes, path), Err(403), "{path}");
    }
    for path in ["/administrator", "/x/admin", "/static/admin;v=1", "/%252Fadmin", "/.admin"] {
        assert!(judged(&routes, path).is_ok(), "{path}");
    }
}

#[test]
fn what_a_reading_must_not_store_is_not_stored() {
    let routes = usual();
    for path in ["/account%2Fme", "/static/..%2faccount", "/account;a=b/me", "/files%2f..%2fx"] {
        assert!(matches!(judged(&routes, path), Ok((_, false))), "{path}");
        assert!(bars(&routes, path), "{path}");
    }
    assert_eq!(&*routes.stored_paths(reading("a", "/keyed%2Fx?y"))[0], b"/keyed%2Fx?y");
    assert!(bars(&routes, "/keyed%2Fx"), "the key of one reading is not that of the other");
}

#[test]
fn a_request_whose_readings_have_different_upstreams_or_fields_is_refused() {
    let routes = usual();
    for path in ["/other%2Fx", "/x/..%2Fother", "/other;v=1", "/signed%2Fx", "/signed/..;/x"] {
        assert_eq!(routes.find(reading("a", path), None), Err(Refusal::Ambiguous), "{path}");
        assert!(bars(&routes, path), "{path}");
    }
    // Too many readings to look at.
    let many: String = (0..20).map(|at| format!("/{at};x%2f{at}a%5c..//b{at}%2f")).collect();
    assert_eq!(routes.find(reading("a", &many), None), Err(Refusal::Ambiguous));
}

#[test]
fn ordinary_spellings_in_one_route_pass_as_before() {
    let routes = usual();
    for (path, at) in [
        ("/projects/group%2Fname/x", 0),
        ("/@scope%2Fname", 0),
        ("/static;v=1.2/a.css", 0),
        ("/static/a.css;v=1", 1),
        ("/static/%C3%A9%20.css", 1),
        ("/static/https:%2F%2Fexample.org%2Fa.png", 1),
        ("/static/https://example.org/a.png", 1),
        ("/static//a.css", 1),
        ("/.well-known/x", 0),
        ("/other//x", 7),
        ("/other/x;jsessionid=1", 7),
        ("/account/a%2Fb", 3),
    ] {
        assert_eq!(judged(&routes, path), Ok((at, true)), "{path}");
    }
    // A client that joins two parts with a slash each is not refused, but nothing is stored.
    assert_eq!(judged(&routes, "//other/x"), Ok((7, false)));
}

#[test]
fn a_limit_applies_to_every_reading() {
    let route = config::Route { path: Path::Prefix("/api".into()), ..config::Route::to("") };
    let limit = Routes::new(&[route], &[]);
    for path in ["/api", "/x/..%2fapi", "//h/api", "/api;v=1", "/api/..", "/ap%69"] {
        assert!(limit.reach(reading("a", path), || None), "{path}");
    }
    assert!(
        !limit.reach(reading("a", "/x%2Fy"), || None)
            && !limit.reach(reading("a", "/apis"), || None)
    );
}

#[test]
fn a_capture_that_is_sent_is_the_same_in_every_reading() {
    let path = Path::parse("/{tenant}/*").unwrap();
    let sent = vec![FieldRule::Set("X-Tenant".into(), "{tenant}".into())];
    let rest = vec![FieldRule::Set("X-Rest".into(), "{*}".into())];
    let groups = [Group::of("g", [])];
    let with = |request| {
        let route = config::Route { path: path.clone(), request, ..config::Route::to("g") };
        Routes::new(&[route], &groups)
    };
    let find = |routes: &Routes, path| routes.find(reading("h", path), None).map(|it| it.is_sole);
    for path in ["/b/..%2fa/x", "/a;v=1/x", "/b%2Fc/x"] {
        assert_eq!(find(&with(sent.clone()), path), Err(Refusal::Ambiguous), "{path}");
        assert_eq!(find(&with(rest.clone()), path), Ok(true), "{path}");
    }
    assert_eq!(find(&with(sent), "/a/x%2Fy;z"), Ok(true), "the tenant is the same");
}

#[test]
fn no_spelling_of_a_host_bypasses_a_route() {
    let deny = |hosts: &[&str]| route(hosts, Path::Prefix("/".into()), 403);
    let hosts = ["admin.example.org", "10.0.0.1", "[2001:db8::1]"];
    let all = Path::Prefix("/".into());
    let routes = Routes::new(&[deny(&hosts), route(&[], all, 200)], &[]);
    for host in [
        "admin.example.org",
        "ADMIN.example.ORG",
        "admin.example.org.",
        "admin.example.org:",
        "admin.example.org:080",
        "admin.example.org.:80",
        // Refused where a request is parsed, and judged all the same.
        "admin.example.org..",
        "admin%2Eexample.org",
        "%61dmin.example.org%2e",
        "admin.example.org%3A80",
        "10.0.0.1",
        "10.0.0.1:8080",
        "10.0.0.1.",
        "10.1",
        "0xa.0.0.01",
        "167772161",
        "[::ffff:10.0.0.1]",
        "[::ffff:a00:1]:80",
        "[2001:db8::1]",
        "[2001:DB8:0:0::1]:443",
    ] {
        assert_eq!(found(&routes, host, "/"), Some(403), "{host}");
    }
    for host in ["example.org", "xadmin.example.org", "10.0.0.2", "[::1]", "", "1.2.3.4.5"] {
        assert_eq!(found(&routes, host, "/"), Some(200), "{host}");
    }
}

#[test]
fn a_route_may_have_an_encoded_slash() {
    let exact = |path: &str, status| route(&[], Path::Exact(path.into()), status);
    let spelled = Routes::new(
        &[exact("/a%2Fb", 200), exact("/a/b", 201), exact("/100%", 200), exact("/a", 202)],
        &[],
    );
    for path in ["/a%2fb", "/a%2Fb", "/%61%2Fb", "/100%", "/100%25"] {
        assert_eq!(found(&spelled, "a", path), Some(200), "{path}");
    }
    assert_eq!(found(&spelled, "a", "/a%252Fb"), None, "no origin decodes twice");
    assert_eq!(found(&spelled, "a", "/a%2Fc"), None, "as /a/c");
}

#[test]
fn the_simple_case_bars_nothing() {
    let groups = [Group::of("g", [])];
    let plain =
        |routes: &Routes| matches!(routes.choose(reading("a", "/"), || None), Choice::Plain);
    assert!(plain(&Routes::new(&[], &groups)));
    assert!(plain(&Routes::new(&[config::Route::to("g")], &groups)));
    let unstored = config::Route { store: false, ..config::Route::to("g") };
    assert!(bars(&Routes::new(&[unstored], &groups), "/"));
    let barred = Routes::new(&[route(&[], Path::Prefix("/x".into()), 200)], &[]);
    assert!(bars(&barred, "/x") && bars(&barred, "/y"));
}
