//! Keys and lifetimes as settings of a route: what is answered from the store, what the origin is
//! asked for, and what a purge or a change removes.

use std::rc::Rc;
use std::time::Duration;

use config::{
    Action, CookiesSent, FieldNames, FieldRule, Group, Host, KeySettings, Lifetime, Path, Pattern,
    Query, Route,
};
use exchange::explain::Explained;
use runtime::time::sleep;
use server::{Config, Origin as OriginUrl};

use crate::common::Response;
use crate::origin::expected;
use crate::world::{
    ADMIN, Client, ORIGIN, World, address, each_way, each_way_http1, each_way_tcp, reverse, scheme,
};

fn with(change: impl FnOnce(&mut Route)) -> Config {
    let mut route = Route::to("site");
    change(&mut route);
    let groups = vec![Group::of("site", [OriginUrl::at(address(ORIGIN))])];
    let config = Config { groups, routes: vec![route], ..reverse() };
    config.check_routes().unwrap();
    config
}

fn patterns(list: &[&str]) -> Vec<Pattern> {
    list.iter().map(|one| one.parse().unwrap()).collect()
}

/// The parameters of the scenarios are sorted by name already.
fn sorted_without_utm() -> Config {
    with(|route| {
        route.key.query = Query::Sort;
        route.key.query_drop = patterns(&["utm_*"]);
    })
}

async fn get(target: &str, fields: &str) -> Response {
    Client::new().await.get(target, fields).await
}

async fn post(target: &str) {
    let post = format!("POST {target} HTTP/1.1\r\nHost: site\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(Client::new().await.ask(post.as_bytes()).await.status, 200);
}

/// A call to the admin address.
async fn call(request: &str) -> Vec<u8> {
    let mut client = Client::to(ADMIN).await.unwrap();
    let got = client.ask(format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await;
    assert_eq!(got.status, 200, "{}", String::from_utf8_lossy(&got.body));
    got.body
}

/// `None` over HTTP/3: in the twin no listener that an explanation knows speaks TLS.
async fn explain(target: &str, more: &str) -> Option<Explained> {
    if scheme() == "https" {
        return None;
    }
    let target = target.replace('?', "%3f").replace('&', "%26").replace('+', "%2b");
    let body = call(&format!("GET /explain?url=http://site{target}{more}")).await;
    Some(serde_json::from_slice(&body).unwrap())
}

fn is_hit(got: &Response) -> bool {
    got.field("cache-status").unwrap().starts_with("plimsoll; hit")
}

const STORED: &str = "/a?cc=max-age=600&size=90";
const FORMS: [&str; 4] = [
    STORED,
    "/a?size=90&cc=max-age=600",
    "/a?utm_source=x&cc=max-age=600&size=90",
    "/a?size=90&utm_medium&cc=max-age=600&&utm_source=y",
];

#[test]
fn forms_of_a_url_share_a_response_and_the_origin_gets_the_stored_one() {
    each_way(sorted_without_utm, async |world: Rc<World>| {
        for (at, form) in FORMS.iter().rev().enumerate() {
            let got = get(form, "").await;
            assert_eq!((got.status, got.body.clone()), (200, expected(STORED, None)), "{form}");
            assert_eq!(is_hit(&got), at > 0, "{form}");
        }
        let targets: Vec<String> =
            world.origin.seen.borrow().iter().map(|seen| seen.target.clone()).collect();
        assert_eq!(targets, [STORED]);
        // What the store cannot answer is passed on as it came.
        post(FORMS[2]).await;
        assert_eq!(world.origin.last().target, FORMS[2]);
        let reload = get(FORMS[3], "Cache-Control: no-cache\r\n").await;
        assert_eq!((reload.status, world.origin.last().target), (200, STORED.to_owned()));
    });
}

#[test]
fn a_purge_removes_what_any_form_of_the_url_stored() {
    each_way(sorted_without_utm, async |world: Rc<World>| {
        let mut times = 0;
        for form in FORMS {
            let purge = format!("PURGE {form} HTTP/1.1\r\nHost: site\r\n\r\n");
            get(FORMS[3], "").await;
            assert_eq!(Client::new().await.ask(purge.as_bytes()).await.status, 200);
            get(FORMS[2], "").await;
            times += 2;
            assert_eq!(world.origin.count(STORED), times, "PURGE {form}");
            call(&format!("POST /purge?url=http://site{}", form.replace('&', "%26"))).await;
            get(FORMS[1], "").await;
            call("POST /purge?prefix=http://site/a").await;
            get(FORMS[1], "").await;
            times += 2;
            assert_eq!(world.origin.count(STORED), times, "POST /purge {form}");
            call("POST /purge?all=true").await;
        }
    });
}

#[test]
fn a_change_removes_what_any_form_of_the_url_stored() {
    each_way(sorted_without_utm, async |world: Rc<World>| {
        get(STORED, "").await;
        for (at, form) in FORMS.iter().enumerate() {
            post(form).await;
            get(FORMS[3], "").await;
            get(STORED, "").await;
            let seen = world.origin.seen.borrow();
            let asked = seen.iter().filter(|seen| seen.method == "GET").count();
            assert_eq!(asked, at + 2, "POST {form}");
        }
        // `Location` names a form of another stored URL.
        let seen = "/seen?cc=max-age=600&size=9";
        get(seen, "").await;
        post("/c?see=seen").await;
        get(seen, "").await;
        assert_eq!(world.origin.count(seen), 2);
    });
}

/// `Content-Location` says that the response to POST is that of a GET.
#[test]
fn a_post_stores_nothing_that_depends_on_what_is_not_in_the_key() {
    each_way(sorted_without_utm, async |world: Rc<World>| {
        let stored = "/b?cc=max-age=600&location=1&size=9";
        post(stored).await;
        assert_eq!(get(stored, "").await.body, b"hi");
        assert_eq!(world.origin.count(stored), 1);
        // The origin got a parameter that is not in the key.
        let located = "/b?utm_source=z&location=1&cc=max-age=600&size=9";
        post(located).await;
        assert_eq!(get(stored, "").await.body, expected(stored, None));
        assert_eq!(world.origin.count(stored), 2);
    });
    let with_cookies = || {
        with(|route| {
            route.key.cookies = patterns(&["lang"]);
            route.key.cookies_sent = CookiesSent::Key;
        })
    };
    let bypassing = || with(|route| route.key.bypass_cookies = patterns(&["session*"]));
    let unstored = || with(|route| route.store = false);
    for config in [&with_cookies as &dyn Fn() -> Config, &bypassing, &unstored] {
        each_way(config, async |_: Rc<World>| {
            let target = "/b?cc=max-age=600&location=1&size=9";
            let post = format!(
                "POST {target} HTTP/1.1\r\nHost: site\r\nCookie: session=1\r\n\
                 Content-Length: 2\r\n\r\nhi"
            );
            assert_eq!(Client::new().await.ask(post.as_bytes()).await.status, 200);
            let got = get(target, "").await;
            assert_eq!((is_hit(&got), got.body), (false, expected(target, None)));
        });
    }
}

fn by_parts() -> Config {
    with(|route| {
        route.key.cookies = patterns(&["lang"]);
        route.key.fields = vec!["X-Country".into()];
        route.key.device = true;
        // The origin's answer depends on the field, and does not say so.
        route.response = vec![FieldRule::Remove("Vary".into())];
    })
}

#[test]
fn cookies_fields_and_the_device_keep_responses_apart() {
    each_way(by_parts, async |world: Rc<World>| {
        let target = "/k?cc=max-age=600&size=90&vary=x-country";
        let requests = [
            ("", "none"),
            ("X-Country: FR\r\n", "FR"),
            ("X-Country: DE\r\n", "DE"),
            ("X-Country: DE\r\nCookie: lang=de\r\n", "DE"),
            ("X-Country: DE\r\nSec-CH-UA-Mobile: ?1\r\n", "DE"),
        ];
        for round in 0..2 {
            for (fields, country) in requests {
                let got = get(target, &format!("{fields}X-Other: {round}\r\n")).await;
                assert_eq!(got.body, expected(target, Some(country)), "{fields}");
                assert_eq!(is_hit(&got), round == 1, "{fields}");
            }
        }
        assert_eq!(world.origin.count(target), requests.len());
        assert_eq!(world.origin.last().field("x-device-class"), Some("mobile"));
        // A purge and a change remove them all.
        for purge in ["PURGE", "POST"] {
            let length = if purge == "POST" { "Content-Length: 2\r\n\r\nhi" } else { "\r\n" };
            let request = format!("{purge} {target} HTTP/1.1\r\nHost: site\r\n{length}");
            Client::new().await.ask(request.as_bytes()).await;
            for (fields, _) in requests {
                assert!(!is_hit(&get(target, fields).await), "{purge} {fields}");
                assert!(is_hit(&get(target, fields).await), "{purge} {fields}");
            }
        }
    });
}

/// The upstream never gets such a field, so the response belongs to requests without it.
#[test]
fn a_field_that_connection_names_is_in_no_key() {
    each_way_http1(by_parts, async |world: Rc<World>| {
        for (connection, fields, of) in [
            ("X-Country", "X-Country: FR\r\n", ""),
            ("close, x-country", "X-Country: FR\r\n", ""),
            ("cookie", "X-Country: FR\r\nCookie: lang=de\r\n", "X-Country: FR\r\n"),
        ] {
            let n = connection.len();
            let target = &*format!("/{n}?cc=max-age=600&size=90&vary=x-country");
            let got = get(target, &format!("Connection: {connection}\r\n{fields}")).await;
            assert!(!is_hit(&got), "{connection}");
            let got = get(target, fields).await;
            assert!(!is_hit(&got), "{connection}");
            assert_eq!(got.body, expected(target, Some("FR")), "{connection}");
            assert!(is_hit(&get(target, of).await), "{connection}");
            assert_eq!(world.origin.count(target), 2, "{connection}");
        }
    });
}

/// Reverse listeners drop the fields that an origin could take for others, unless they are kept.
fn with_all_fields(mut config: Config) -> Config {
    for listener in &mut config.listeners {
        listener.field_names = FieldNames::Any;
    }
    config
}

#[test]
fn a_reverse_listener_drops_fields_that_an_origin_takes_for_others() {
    let config = || {
        let mut config = with(|route| {
            route.request = vec![
                FieldRule::Remove("X-Admin".into()),
                FieldRule::Set("X-Remote-User".into(), "guest".into()),
            ];
        });
        config.groups[0].forwarded = config::ForwardedFields::XForwarded;
        config
    };
    let target = "/f?cc=no-store&size=9";
    let odd = "X_Admin: 1\r\nx.admin: 1\r\nX_Remote_User: root\r\nX_Forwarded_For: 10.9.9.9\r\n\
               X_Free: 1\r\n";
    let names = ["x_admin", "x.admin", "x-admin", "x_remote_user", "x_forwarded_for", "x_free"];
    each_way(config, async |world: Rc<World>| {
        assert_eq!(get(target, odd).await.status, 200);
        let sent = world.origin.last();
        assert_eq!(names.map(|name| sent.field(name)), [None; 6]);
        assert_eq!(sent.field("x-remote-user"), Some("guest"));
        assert!(!sent.field("x-forwarded-for").unwrap().contains("10.9.9.9"));
    });
    each_way(
        || with_all_fields(config()),
        async |world: Rc<World>| {
            assert_eq!(get(target, odd).await.status, 200);
            let sent = world.origin.last();
            assert_eq!(names[..5].iter().find_map(|name| sent.field(name)), None);
            assert_eq!(sent.field("x_free"), Some("1"), "no rule concerns it");
            assert_eq!(sent.field("x-remote-user"), Some("guest"));
        },
    );
}

/// An origin that makes variables of fields takes `X_Country` for `X-Country`. The first would not
/// be in the key, and so the answer to it would be everyone's.
#[test]
fn a_field_that_resembles_one_of_the_key_is_not_sent() {
    let target = "/u?cc=max-age=600&size=90";
    each_way(
        || with_all_fields(by_parts()),
        async |world: Rc<World>| {
            let fields = "X_Country: FR\r\nx_device-class: tablet\r\nX_Other: 1\r\n\
                      X.Country: FR\r\nX+Country: FR\r\nX!Country: FR\r\n";
            assert!(!is_hit(&get(target, fields).await));
            let sent = world.origin.last();
            let names = ["x_country", "x-country", "x.country", "x+country", "x!country"];
            assert_eq!(names.map(|name| sent.field(name)), [None; 5]);
            assert_eq!((sent.field("x_device-class"), sent.field("x_other")), (None, Some("1")));
            assert_eq!(sent.field("x-device-class"), Some("desktop"));
            assert!(is_hit(&get(target, "").await));
            // Not with what is passed on, either; and the field itself is sent.
            let post = format!(
                "POST {target} HTTP/1.1\r\nHost: site\r\nX_Country: FR\r\nX-Country: DE\r\n\
             Content-Length: 2\r\n\r\nhi"
            );
            Client::new().await.ask(post.as_bytes()).await;
            let sent = world.origin.last();
            assert_eq!((sent.field("x_country"), sent.field("x-country")), (None, Some("DE")));
            let Some(explained) = explain(target, "&header=X_Country:FR").await else { return };
            let effect = |setting: &str| {
                let of = explained.settings.iter().find(|of| of.key.ends_with(setting));
                of.map(|of| of.effect.clone())
            };
            let not_sent = "not sent: X_Country, which is not the field";
            assert_eq!(effect("key_fields").as_deref(), Some(not_sent));
        },
    );
}

#[test]
fn requests_with_different_keys_share_no_fetch() {
    each_way(by_parts, async |world: Rc<World>| {
        let target = "/c?cc=max-age=600&delay=2000&size=90&vary=x-country";
        let mut asking = Vec::new();
        for country in ["FR", "DE", "FR", "DE"] {
            asking.push(runtime::spawn(async move {
                let got = get(target, &format!("X-Country: {country}\r\n")).await;
                assert_eq!(got.body, expected(target, Some(country)), "{country}");
            }));
        }
        for one in asking {
            one.await;
        }
        assert_eq!(world.origin.count(target), 2, "two fetches, each for two requests");
    });
}

#[test]
fn responses_that_vary_are_kept_apart_within_a_key() {
    let config = || with(|route| route.key.cookies = patterns(&["lang"]));
    each_way(config, async |world: Rc<World>| {
        let target = "/v?cc=max-age=600&etag=x&size=90&vary=x-v";
        for round in 0..2 {
            for lang in ["de", "fr"] {
                for variant in ["1", "2"] {
                    let fields = format!("x-v: {variant}\r\nCookie: lang={lang}\r\n");
                    let got = get(target, &fields).await;
                    assert_eq!(got.body, expected(target, Some(variant)));
                    assert_eq!(is_hit(&got), round == 1, "{fields}");
                }
            }
        }
        assert_eq!(world.origin.count(target), 4);
        if let Some(explained) = explain(target, "&header=Cookie:lang%3dde&header=x-v:1").await {
            assert_eq!((explained.variants.len(), explained.selected.is_some()), (4, true));
        }
    });
}

#[test]
fn the_origin_gets_only_the_cookies_of_the_key() {
    let config = || {
        with(|route| {
            route.key.cookies = patterns(&["lang"]);
            route.key.cookies_sent = CookiesSent::Key;
            route.key.bypass_cookies = patterns(&["session*"]);
        })
    };
    each_way(config, async |world: Rc<World>| {
        let target = "/o?cc=max-age=600&size=9";
        get(target, "Cookie: a=1; lang=de; b=2\r\n").await;
        assert_eq!(world.origin.last().field("cookie"), Some("lang=de"));
        get(target, "Cookie: a=1\r\n").await;
        assert_eq!(world.origin.last().field("cookie"), None);
        let got = get(target, "Cookie: a=1; session_id=2\r\n").await;
        assert_eq!(world.origin.last().field("cookie"), Some("a=1; session_id=2"));
        assert!(got.field("cache-status").unwrap().contains("fwd=bypass"));
    });
}

#[test]
fn changes_to_a_request_come_before_the_fields_of_the_settings() {
    let names = ["Cookie", "X-Device-Class"];
    let asked = |rule: fn(String) -> FieldRule, expected: &[&str]| {
        let config = || {
            with(|route| {
                route.key.cookies = patterns(&["lang"]);
                route.key.cookies_sent = CookiesSent::Key;
                route.key.device = true;
                route.request = names.map(|name| rule(name.to_owned())).into();
            })
        };
        each_way_tcp(config, async |world: Rc<World>| {
            get("/o?cc=max-age=600&size=9", "Cookie: lang=de\r\n").await;
            let fields = world.origin.last().fields;
            for name in names.map(str::to_ascii_lowercase) {
                let values = fields.iter().filter(|(other, _)| *other == name);
                let values: Vec<&str> = values.map(|(_, value)| value.as_str()).collect();
                assert_eq!(values, expected, "{name}");
            }
        });
    };
    asked(FieldRule::Remove, &[]);
    asked(|name| FieldRule::Set(name, "ours".to_owned()), &["ours"]);
}

#[test]
fn a_cookie_bypasses_the_store() {
    let config = || {
        with(|route| {
            route.key.bypass_cookies = patterns(&["session*"]);
            route.key.fields = vec!["X-A".into()];
        })
    };
    each_way(config, async |world: Rc<World>| {
        let target = "/s?cc=max-age=600&delay=2000&size=9";
        let session = "Cookie: a=b; session=1\r\n";
        // It joins no fetch, stores nothing, and is not answered from the store.
        let other = runtime::spawn(get(target, ""));
        sleep(Duration::from_millis(500)).await;
        let got = get(target, session).await;
        assert!(got.field("cache-status").unwrap().contains("fwd=bypass"));
        other.await;
        assert_eq!(world.origin.count(target), 2);
        assert!(is_hit(&get(target, "").await));
        assert!(!is_hit(&get(target, session).await));
        assert_eq!(world.origin.count(target), 3);
        let alone = "/t?cc=max-age=600&size=9";
        get(alone, session).await;
        assert!(!is_hit(&get(alone, "").await), "its response is not stored");
        // Neither is one whose key would be too long.
        let long = format!("X-A: {}\r\n", "a".repeat(5000));
        for _ in 0..2 {
            let got = get(target, &long).await;
            assert!(got.field("cache-status").unwrap().contains("fwd=bypass"));
        }
        if let Some(explained) = explain(target, "&header=Cookie:session%3d1").await {
            let decision = &explained.decision;
            assert_eq!((&*decision.does, &*decision.rule), ("pass", "bypass-cookie"));
            assert_eq!(explained.settings.last().unwrap().key, "route[0].bypass_cookies");
        }
    });
}

fn lifetime(status: &[&str], types: &[&str], ttl: u64, overrule: bool) -> Lifetime {
    Lifetime {
        status: status.iter().map(|one| one.parse().unwrap()).collect(),
        content_type: types.iter().map(|one| one.parse().unwrap()).collect(),
        ttl: Some(Duration::from_secs(ttl)),
        overrule,
        ..Lifetime::default()
    }
}

fn lifetimes() -> Config {
    with(|route| {
        route.lifetimes = vec![
            lifetime(&["302"], &[], 60, false),
            Lifetime {
                grace: Some(Duration::from_secs(30)),
                error_grace: Some(Duration::from_secs(600)),
                ..lifetime(&["2xx"], &[], 60, false)
            },
            lifetime(&["5xx"], &[], 60, true),
        ];
        route.negative = Some(Duration::from_secs(10));
    })
}

#[test]
fn a_lifetime_applies_where_the_origin_says_nothing() {
    each_way(lifetimes, async |world: Rc<World>| {
        for (target, fresh_s) in [
            ("/1?size=9", 60),
            ("/2?cc=max-age=5&size=9", 5),
            ("/3?size=9&status=302", 60),
            ("/4?size=9&status=404", 10),
            ("/5?size=9&status=410", 10),
            ("/6?cc=max-age=5&size=9&status=503", 60),
            ("/7?expires=5&size=9", 5),
        ] {
            let first = get(target, "").await;
            sleep(Duration::from_secs(fresh_s - 2)).await;
            let second = get(target, "").await;
            assert!(is_hit(&second), "{target}");
            assert_eq!(second.status, first.status);
            assert_eq!(second.field("cache-control"), first.field("cache-control"), "{target}");
            assert_eq!(world.origin.count(target), 1, "{target}");
            sleep(Duration::from_secs(4)).await;
            get(target, "").await;
            sleep(Duration::from_secs(2)).await;
            assert_eq!(world.origin.count(target), 2, "{target}");
        }
        for target in [
            "/8?cc=no-store&size=9",
            "/9?cc=private&size=9",
            "/10?cc=no-cache&size=9",
            "/11?cookie=1&size=9",
            "/12?cc=private&size=9&status=503",
            "/13?cookie=1&size=9&status=503",
            "/14?size=9&status=403",
        ] {
            get(target, "").await;
            get(target, "").await;
            assert_eq!(world.origin.count(target), 2, "{target}");
        }
        let authorized = "/15?size=9";
        get(authorized, "Authorization: Basic x\r\n").await;
        get(authorized, "").await;
        assert_eq!(world.origin.count(authorized), 2);
    });
}

#[test]
fn a_class_of_statuses_stores_no_answer_to_one_client() {
    let config = || with(|route| route.lifetimes = vec![lifetime(&["4xx", "5xx"], &[], 60, true)]);
    each_way(config, async |world: Rc<World>| {
        for (status, asked) in
            [(403, 1), (503, 1), (400, 2), (406, 2), (429, 2), (431, 2), (511, 2)]
        {
            let target = &*format!("/{status}?size=9&status={status}");
            for _ in 0..2 {
                assert_eq!(get(target, "").await.status, status);
            }
            assert_eq!(world.origin.count(target), asked, "{status}");
        }
    });
}

#[test]
fn no_lifetime_applies_to_a_request_with_authorization() {
    for overrule in [false, true] {
        let config = || with(|route| route.lifetimes = vec![lifetime(&[], &[], 60, overrule)]);
        each_way(config, async |world: Rc<World>| {
            let authorized = "Authorization: Basic x\r\n";
            for target in [
                "/1?cc=no-cache,must-revalidate&etag=x&size=9",
                "/2?cc=max-age=0,must-revalidate&etag=x&size=9",
                "/3?cc=s-maxage=0&etag=x&size=9",
                "/4?cc=public,no-cache&etag=x&size=9",
                "/5?cc=must-revalidate&etag=x&size=9",
            ] {
                // The stored response was fetched, then confirmed, for a request with credentials.
                for round in 1..3 {
                    get(target, authorized).await;
                    assert_eq!(world.origin.count(target), round, "{target}");
                }
                get(target, "").await;
                assert_eq!(world.origin.count(target), 3, "{target}: the origin checks the user");
            }
        });
    }
}

#[test]
fn grace_is_granted_where_the_origin_says_nothing() {
    each_way(lifetimes, async |world: Rc<World>| {
        let target = "/g?etag=x&sick=3&size=9";
        get(target, "").await;
        sleep(Duration::from_secs(70)).await;
        let got = get(target, "").await;
        assert!(is_hit(&got) && got.field("cache-status").unwrap().contains("ttl=-"));
        sleep(Duration::from_secs(2)).await;
        assert_eq!((world.origin.count(target), world.counter("revalidated")), (2, 1));
        // The confirmed response has the same lifetime again.
        sleep(Duration::from_secs(50)).await;
        assert!(is_hit(&get(target, "").await));
        assert_eq!(world.origin.count(target), 2);
        // Past its grace, and the origin fails.
        sleep(Duration::from_secs(200)).await;
        let got = get(target, "").await;
        assert_eq!((got.status, got.body), (200, expected(target, None)));
        assert_eq!(world.origin.count(target), 3);
    });
}

#[test]
fn an_explanation_names_negative() {
    each_way_tcp(lifetimes, async |_: Rc<World>| {
        let target = "/n?size=9&status=404";
        get(target, "").await;
        let explained = explain(target, "").await.unwrap();
        let from = explained.selected.unwrap().freshness.lifetime_from;
        assert!(from.contains("route[0].negative"), "{from}");
    });
}

#[test]
fn a_lifetime_overrules_the_origin_and_an_update_keeps_it() {
    let config = || with(|route| route.lifetimes = vec![lifetime(&[], &[], 60, true)]);
    each_way(config, async |world: Rc<World>| {
        for target in [
            "/1?cc=no-cache&etag=x&size=9",
            "/2?cc=max-age=600&etag=x&size=9",
            "/3?cc=s-maxage=0&etag=x&size=9",
            "/4?etag=x&expires=1&size=9",
        ] {
            for round in 1..4 {
                let got = get(target, "").await;
                assert_eq!((got.status, got.body), (200, expected(target, None)), "{target}");
                sleep(Duration::from_secs(55)).await;
                assert!(is_hit(&get(target, "").await), "{target}");
                assert_eq!(world.origin.count(target), round, "{target}");
                sleep(Duration::from_secs(10)).await;
            }
        }
        assert_eq!(world.counter("revalidated"), 8);
        let target = "/5?cc=max-age=1&etag=x&ranges=1&size=900";
        get(target, "Range: bytes=0-99\r\n").await;
        sleep(Duration::from_secs(50)).await;
        let part = get(target, "Range: bytes=0-99\r\n").await;
        assert_eq!((part.status, is_hit(&part)), (206, true), "a part lives as the whole");
        if let Some(explained) = explain(target, "&header=Range:bytes%3d0-99").await {
            let freshness = explained.selected.unwrap().freshness;
            assert_eq!(freshness.lifetime_ms, 60_000);
            assert!(freshness.lifetime_from.contains("route[0].lifetime[0]"));
        }
    });
}

#[test]
fn an_explanation_names_the_settings() {
    let config = || {
        with(|route| {
            route.key = KeySettings {
                query_drop: patterns(&["utm_*"]),
                cookies: patterns(&["lang"]),
                fields: vec!["X-Country".into()],
                device: true,
                ..KeySettings::default()
            };
        })
    };
    each_way_tcp(config, async |_: Rc<World>| {
        let target = "/x?utm_a=1&cc=max-age=60&size=9";
        get(target, "X-Country: FR\r\nCookie: lang=de\r\n").await;
        let more = "&header=X-Country:FR&header=Cookie:lang%3dde";
        let explained = explain(target, more).await.unwrap();
        assert_eq!(explained.decision.does, "serve");
        let named: Vec<(&str, &str)> =
            explained.settings.iter().map(|one| (one.key.as_str(), one.effect.as_str())).collect();
        assert_eq!(
            named,
            [
                ("route[0].query_drop", "the URI is stored as /x?cc=max-age=60&size=9"),
                ("route[0].key_cookies", "in the key: lang=de"),
                ("route[0].key_fields", "in the key: X-Country: FR"),
                ("route[0].device", "in the key: desktop"),
            ]
        );
        let other = explain(target, "&header=X-Country:DE").await.unwrap();
        assert_eq!((other.decision.rule.as_str(), other.selected.is_none()), ("vary-miss", true));
        assert_eq!(other.key, explained.key, "the key of the URL is the same");
    });
}

#[test]
fn captures_are_repeated_in_redirects_and_fields() {
    let config = || {
        let mut config = with(|route| {
            route.hosts = vec![Host::parse("{tenant}.example.org").unwrap()];
            route.path = Path::parse("/{lang}/shop/*").unwrap();
            let set = |name: &str, value: &str| FieldRule::Set(name.into(), value.into());
            route.request = vec![set("X-Language", "{lang} of {tenant}")];
            route.response = vec![set("X-Rest", "{*}")];
        });
        let location = "https://new.example.org/{*}?l={lang}".to_owned();
        let redirect = Action::Redirect { status: 301, location, with_path: false };
        config.routes.push(Route {
            path: Path::parse("/{lang}/old/*").unwrap(),
            action: redirect,
            ..Route::to("")
        });
        config.routes.push(Route::to("site"));
        config.check_routes().unwrap();
        config
    };
    each_way(config, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let mut get = async |host: &str, target: &str| {
            let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            client.ask(request.as_bytes()).await
        };
        let target = "/en/shop/a/b?cc=max-age=60&size=9";
        for _ in 0..2 {
            let got = get("a.example.org", target).await;
            assert_eq!((got.status, got.field("x-rest")), (200, Some("a/b")));
        }
        assert_eq!(world.origin.last().field("x-language"), Some("en of a"));
        assert_eq!(world.origin.count(target), 1);
        let got = get("a.b.example.org", target).await;
        assert_eq!((got.status, got.field("x-rest")), (200, None), "it is one label");
        for (target, location) in [
            ("/de/old/x/y?z", "https://new.example.org/x/y?l=de"),
            ("/de/old", "https://new.example.org/?l=de"),
            (
                "/d%0d%0aX-A:%20b/old/%2e%2e/old/c%3f",
                "https://new.example.org/c%3F?l=d%0D%0AX-A%3A%20b",
            ),
        ] {
            let got = get("any", target).await;
            assert_eq!((got.status, got.field("location")), (301, Some(location)), "{target}");
            assert_eq!(got.field("x-a"), None);
        }
    });
}
