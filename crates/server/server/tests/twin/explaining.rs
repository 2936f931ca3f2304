//! What the admin address says of a request is what then happens to it, and asking changes nothing.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use runtime::time::sleep;
use server::explain::Explained;

use runtime::sim;

use crate::some;
use crate::storm::Draw;
use crate::world::{
    ADMIN, Client, World, each_version, each_way, each_way_tcp, forward, reverse, run, with,
};

async fn get(target: &str, fields: &str) {
    Client::new().await.get(target, fields).await;
}

/// A call to the admin address, and its JSON.
async fn call(request: &str) -> (u16, Vec<u8>) {
    let mut client = Client::to(ADMIN).await.unwrap();
    let got = client.ask(format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await;
    (got.status, got.body)
}

async fn explain(query: &str) -> Explained {
    let (status, body) = call(&format!("GET /explain?{query}")).await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).unwrap()
}

fn rule(explained: &Explained) -> (&str, &str) {
    (&explained.decision.does, &explained.decision.rule)
}

#[test]
fn each_decision_names_its_rule_and_its_numbers() {
    each_way_tcp(reverse, async |world: Rc<World>| {
        let (target, url) = (
            "/e?size=90&cc=max-age=60&etag=x&key=b+a",
            "/e%3fsize=90%26cc=max-age\
            =60%26etag=x%26key=b%2Ba",
        );
        let about = format!("url=http://SITE:80{url}");
        let before = explain(&about).await;
        assert_eq!((rule(&before), before.selected.is_none()), (("fetch", "uri-miss"), true));
        let refused = explain(&format!("{about}&header=Cache-Control:only-if-cached")).await;
        assert_eq!(rule(&refused), ("refuse", "only-if-cached"));
        get(target, "").await;
        sleep(Duration::from_secs(10)).await;

        let fresh = explain(&about).await;
        assert_eq!(rule(&fresh), ("serve", "fresh"));
        assert_eq!(fresh.key, before.key);
        let selected = fresh.selected.unwrap();
        assert_eq!((selected.status, selected.body_bytes, selected.tags.join(" ")), {
            (200, 90, "a b".to_owned())
        });
        assert_eq!(selected.etag.as_deref(), Some("\"x.0\""));
        let numbers = &selected.freshness;
        assert_eq!((numbers.lifetime_ms, numbers.fresh), (60_000, true));
        assert_eq!(numbers.current_age_ms, numbers.corrected_initial_age_ms + numbers.resident_ms);
        let corrected = numbers.age_value_ms + numbers.response_delay_ms;
        assert_eq!(numbers.corrected_age_value_ms, corrected);
        let initial = corrected.max(numbers.apparent_age_ms);
        assert_eq!(numbers.corrected_initial_age_ms, initial);
        assert_eq!(numbers.response_ms - numbers.request_ms, numbers.response_delay_ms);
        assert!((10_000..11_000).contains(&numbers.resident_ms), "{numbers:?}");
        let reload = explain(&format!("{about}&header=Cache-Control:%20no-cache")).await;
        assert_eq!(rule(&reload), ("validate", "request-no-cache"));
        let request = reload.request.unwrap();
        assert_eq!(request.lines[0], format!("GET {target} HTTP/1.1"));
        assert!(request.lines.contains(&"If-None-Match: \"x.0\"".to_owned()), "{request:?}");
        assert_eq!(request.server.as_deref(), Some("origin"));

        call("POST /purge?tag=a&soft").await;
        let stale = explain(&about).await;
        assert_eq!(rule(&stale), ("validate", "stale"));
        assert!(stale.selected.unwrap().freshness.softly_purged_ms.is_some());
        call("POST /purge?prefix=site/").await;
        assert_eq!(explain(&about).await.decision.does, "fetch");
        assert_eq!((world.origin.count(target), world.counter("hits")), (1, 0));
    });
}

#[test]
fn variants_are_listed_and_the_selected_one_is_named() {
    each_way_tcp(reverse, async |world: Rc<World>| {
        let target = "/v?size=9&cc=max-age=60&vary=x-v";
        let about = "url=http://site/v%3fsize=9%26cc=max-age=60%26vary=x-v";
        for variant in ["x-v: 1\r\n", "x-v: 2\r\n", "x-v: 1\r\n"] {
            get(target, variant).await;
        }
        let explained = explain(&format!("{about}&header=x-v:%202")).await;
        assert_eq!((rule(&explained), explained.variants.len()), (("serve", "fresh"), 2));
        assert_eq!(explained.varies_by, ["x-v"]);
        let selected = explained.selected.unwrap();
        assert_eq!(selected.key, explained.variants[1].key);
        assert_ne!(Some(selected.key), explained.key);
        let other = explain(&format!("{about}&header=x-v:%203")).await;
        assert_eq!(rule(&other), ("fetch", "vary-miss"));
        assert_eq!(world.origin.count(target), 2);
    });
}

#[test]
fn a_forward_proxy_explains_and_an_invalid_question_is_refused() {
    each_way(forward, async |_world: Rc<World>| {
        get("http://10.0.0.2/f?cc=max-age=60", "").await;
        let explained = explain("url=http://10.0.0.2/f%3fcc=max-age=60").await;
        assert_eq!((rule(&explained), explained.role.as_str()), (("serve", "fresh"), "forward"));
        for wrong in ["", "url=h", "url=http://h/&url=http://h/", "url=http://h/&x=1"] {
            assert_eq!(call(&format!("GET /explain?{wrong}")).await.0, 400, "{wrong}");
        }
        for wrong in [
            "header=a%0d%0ab:c",
            "header=%20a",
            "header=a%20b:c",
            "role=both",
            "method=a%20b",
            "from=x",
            "listener=1",
        ] {
            let (status, _) = call(&format!("GET /explain?url=http://h/&{wrong}")).await;
            assert_eq!(status, 400, "{wrong}");
        }
    });
}

/// Percent-encoding, of all that a query might take for its own.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/".contains(&byte);
    let one = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02x}"),
    };
    text.bytes().map(one).collect()
}

const TARGETS: &[&str] = &[
    "/a?size=900&cc=max-age=60&etag=x&ranges=1",
    "/b?size=50&cc=max-age=5,stale-while-revalidate=20&etag=y",
    "/c?size=50&cc=no-store",
    "/d?size=20&cc=max-age=30&vary=x-v",
    "/e?size=300&cc=max-age=10,stale-if-error=60&etag=z&sick=3",
    "/f?size=10&cc=no-cache&etag=q",
    "/g?size=5000&cc=max-age=20&etag=p&ranges=1&frame=chunked",
    "/h?size=70",
    "/i?size=800&cc=max-age=40,must-revalidate&etag=r&ranges=1&breaks=300",
    "/j?size=7&cc=max-age=15&status=404",
    "/k?size=9&cc=max-age=8&etag=k&vary=x-v&key=t",
];

const FIELDS: &[&str] = &[
    "Cache-Control: no-cache",
    "Cache-Control: only-if-cached",
    "Cache-Control: max-age=3",
    "Cache-Control: max-stale=30",
    "Cache-Control: min-fresh=10",
    "Cache-Control: no-store",
    "Cache-Control: max-age=0, only-if-cached",
    "Pragma: no-cache",
    "Range: bytes=0-9",
    "Range: bytes=5-",
    "Range: bytes=-7",
    "Range: bytes=100-200",
    "Range: bytes=0-4,20-30",
    "Range: bytes=90000-",
    "If-Range: \"x.0\"",
    "If-None-Match: \"x.0\"",
    "If-None-Match: \"p.0\", \"r.0\"",
    "If-Match: \"x.0\"",
    "If-Modified-Since: Thu, 01 Jan 2099 00:00:00 GMT",
    "x-v: 1",
    "x-v: 2",
    "Authorization: Basic YTpi",
    "Expect: magic",
    "Accept-Language: de",
    "Max-Forwards: 0",
];

/// A request, and the question about it.
struct Asked {
    request: String,
    about: String,
    method: &'static str,
    target: &'static str,
}

impl Asked {
    fn of(draw: &mut Draw) -> Asked {
        let target = draw.of(TARGETS);
        let methods =
            ["GET", "GET", "GET", "GET", "GET", "GET", "HEAD", "HEAD", "DELETE", "OPTIONS"];
        let method = draw.of(&methods);
        let mut request = format!("{method} {target} HTTP/1.1\r\nHost: site\r\n");
        let mut about = format!("url={}&method={method}", encoded(&format!("http://site{target}")));
        for _ in 0..draw.below(4).saturating_sub(1) {
            let field = draw.of(FIELDS);
            request += &format!("{field}\r\n");
            about += &format!("&header={}", encoded(field));
        }
        Asked { request: request + "\r\n", about, method, target }
    }
}

/// What is said, against what happens then. Gives what and by which rule.
async fn explained_and_sent(world: &World, asked: &Asked) -> (String, String) {
    let explained = explain(&asked.about).await;
    let seen_before = world.origin.seen.borrow().len();
    let mut client = Client::new().await;
    client.send(asked.request.as_bytes()).await.unwrap();
    let got = match client.response_to(asked.method).await {
        Err(_) if asked.target.contains("breaks") => {
            return (explained.decision.does, explained.decision.rule);
        }
        got => got.unwrap(),
    };
    let context = format!("{}\n{explained:#?}\n{got:?}", asked.request);
    // What a failing origin makes of it was said too.
    let failed = explained.on_failure.as_ref().filter(|_| asked.target.contains("sick"));
    let serves_stale = failed.is_some_and(|rule| {
        got.field("cache-status").is_some_and(|value| value.ends_with(&rule.rule))
    });
    if !serves_stale {
        let status = got.field("cache-status").map(str::to_owned);
        match (&explained.answer.cache_status, explained.answer.exact) {
            (expected, true) => assert_eq!(&status, expected, "{context}"),
            (Some(begins), false) => {
                let status = status.unwrap_or_default();
                assert!(status.starts_with(begins.as_str()), "{status}: {context}");
            }
            (None, false) => {}
        }
        if let Some(status) = explained.answer.status {
            assert_eq!(got.status, status, "{context}");
        }
    }
    if explained.answer.exact {
        let refusal = got.field("proxy-status").map(str::to_owned);
        assert_eq!(refusal, explained.answer.proxy_status, "{context}");
        let age = explained.answer.age_seconds.map(|age| age.to_string());
        assert_eq!(got.field("age").map(str::to_owned), age, "{context}");
    }
    if let [range] = &explained.answer.ranges[..] {
        let expected = format!("bytes {}-{}/", range.first, range.last);
        assert!(got.field("content-range").unwrap().starts_with(&expected), "{context}");
    }
    let seen = world.origin.seen.borrow();
    match explained.request.as_ref().filter(|request| !request.background) {
        None => {
            let behind = usize::from(explained.request.is_some());
            assert!(seen.len() <= seen_before + behind, "{context}");
        }
        Some(request) => {
            let came = &seen[seen_before];
            let mut lines = vec![format!("{} {} HTTP/1.1", came.method, came.target)];
            lines.extend(came.fields.iter().map(|(name, value)| format!("{name}: {value}")));
            let lower = |line: &String| match line.split_once(": ") {
                Some((name, value)) => format!("{}: {value}", name.to_ascii_lowercase()),
                None => line.clone(),
            };
            let said: Vec<String> = request.lines.iter().map(lower).collect();
            assert_eq!(lines, said, "{context}");
        }
    }
    (explained.decision.does, explained.decision.rule)
}

#[test]
fn an_explanation_matches_what_then_happens() {
    let rules = RefCell::new(BTreeSet::new());
    sim::check(some(0..40), |seed| {
        run(sim::Options::new(seed), reverse(), async |world: Rc<World>| {
            let mut draw = Draw::new(seed);
            for _ in 0..40 {
                let explained = explained_and_sent(&world, &Asked::of(&mut draw)).await;
                rules.borrow_mut().insert(explained);
                match draw.below(30) {
                    0 => drop(call("POST /purge?tag=t&soft").await),
                    1 => drop(call("POST /purge?url=http://site/a%3fsize%3d900%26cc%3dmax-age%3d60%26etag%3dx%26ranges%3d1").await),
                    2 => world.origin.version.set(world.origin.version.get() + 1),
                    _ => {}
                }
                // What is behind comes to its end, and no second ends between word and deed.
                sleep(Duration::from_millis(2_000 + 1_000 * draw.below(6))).await;
            }
        });
    });
    // So many ways to decide were tried that hardly one is missing.
    assert!(rules.borrow().len() >= RULES_MIN, "{:#?}", rules.borrow());
}

const RULES_MIN: usize = 25;

#[test]
fn explaining_changes_nothing() {
    each_version(&sim::Options::new(7), &reverse(), async |world: Rc<World>| {
        let mut draw = Draw::new(7);
        for _ in 0..60 {
            let asked = Asked::of(&mut draw);
            let mut client = Client::new().await;
            client.send(asked.request.as_bytes()).await.unwrap();
            let _ = client.response_to(asked.method).await;
            sleep(Duration::from_secs(2)).await;
        }
        call("POST /purge?tag=t").await;
        let of_the_asking = [
            "waits",
            "events",
            "turns",
            "polls",
            "wakes",
            "_calls",
            "cpu",
            "core_",
            "process_",
            "plimsoll_sent_bytes",
        ];
        let figures = async || {
            let mut figures = world.metrics().await;
            figures.retain(|(name, _)| !of_the_asking.iter().any(|part| name.contains(part)));
            figures
        };
        sleep(Duration::from_secs(100)).await;
        let before = figures().await;
        let seen = world.origin.seen.borrow().len();
        let said = async || {
            let mut all = Vec::new();
            for target in TARGETS {
                for field in FIELDS {
                    let about = encoded(&format!("http://site{target}"));
                    let explained =
                        explain(&format!("url={about}&header={}", encoded(field))).await;
                    all.push((
                        explained.decision,
                        explained.answer.cache_status,
                        explained.variants.len(),
                    ));
                }
            }
            all
        };
        assert_eq!(said().await.len(), TARGETS.len() * FIELDS.len());
        for (after, before) in figures().await.iter().zip(&before) {
            assert_eq!(after, before);
        }
        assert_eq!(world.origin.seen.borrow().len(), seen);
    });
}

#[test]
fn rules_of_a_forward_listener_are_named() {
    let config =
        with(forward, |config| config.forward.deny_domains = vec!["bad.example".parse().unwrap()]);
    each_way(config, async |_world: Rc<World>| {
        for (about, does, name) in [
            ("url=http://10.0.0.2/&from=203.0.113.9", "refuse", "client"),
            ("url=http://10.0.0.2:25/", "refuse", "port"),
            ("url=http://bad.example/", "refuse", "domain-denied"),
            ("url=http://127.0.0.1/", "refuse", "address"),
            ("url=https://10.0.0.2/", "refuse", "scheme"),
            ("url=https://10.0.0.2/&method=CONNECT", "tunnel", "connect"),
            ("url=https://10.0.0.2:25/&method=CONNECT", "refuse", "connect-port"),
            ("url=http://10.0.0.2/&method=PURGE&from=10.9.9.9", "refuse", "purge-from"),
            ("url=http://10.0.0.2/&method=PURGE", "purge", "purge"),
            ("url=http://10.0.0.2/&method=POST", "pass", "method"),
        ] {
            let explained = explain(about).await;
            assert_eq!(rule(&explained), (does, name), "{about}");
            let status = (does == "refuse").then_some(if name == "scheme" { 400 } else { 403 });
            assert!(status.is_none() || explained.answer.status == status, "{about}");
        }
    });
}
