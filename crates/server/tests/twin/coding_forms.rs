//! Coded forms of stored responses: who gets which, with which validators.

use std::rc::Rc;
use std::time::Duration;

use coding::rules::Pattern;
use coding::{Coding, Level, Rules, TagRule};
use config::{Config, Path, Route};
use runtime::time::sleep;

use crate::common::Response;
use crate::origin::expected;
use crate::world::{Client, World, each_way, forward, in_memory, reverse};

fn rules() -> Rules {
    let level = |coding| Level { coding, level: 3 };
    Rules {
        codings: [Coding::Zstd, Coding::Brotli, Coding::Gzip].map(level).to_vec(),
        types: ["text/*".parse::<Pattern>().unwrap()].into_iter().collect(),
        bytes_min: 200,
        tag: TagRule::Weak,
        jobs_max: 1,
        queue_max: 8,
    }
}

fn coded() -> Config {
    Config { compression: Some(rules()), ..reverse() }
}

fn suffixed() -> Config {
    let rules = Rules { tag: TagRule::Suffix, ..rules() };
    Config { compression: Some(rules), ..reverse() }
}

async fn get(target: &str, fields: &str) -> Response {
    Client::new().await.get(target, fields).await
}

async fn accepting(target: &str, accept: &str) -> Response {
    get(target, &format!("Accept-Encoding: {accept}\r\n")).await
}

/// The coding of a response, and its content without it.
fn decoded(got: &Response) -> (&str, Vec<u8>) {
    match got.field("content-encoding") {
        None => ("identity", got.body.clone()),
        Some(name) => {
            let coding = Coding::of(name.as_bytes()).unwrap();
            (name, coding::decode(coding, &[&got.body], 1 << 20).unwrap())
        }
    }
}

/// All lines of a field, for "exactly once".
fn lines(got: &Response, name: &str) -> Vec<String> {
    let of = got.fields.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
    of.map(|(_, value)| value.clone()).collect()
}

#[test]
fn each_client_gets_a_form_that_it_accepts() {
    each_way(coded, async |world: Rc<World>| {
        let target = "/a?size=3000&text=1&cc=max-age=600&etag=e";
        let content = expected(target, None);
        let first = accepting(target, "gzip").await;
        assert_eq!(decoded(&first), ("identity", content.clone()), "the body is arriving");
        assert_eq!(lines(&first, "vary"), ["Accept-Encoding"]);
        for accept in ["gzip", "br", "zstd"] {
            // It is being made, or was made for the first request.
            let asked = accepting(target, accept).await;
            let (name, body) = decoded(&asked);
            assert!(body == content && ["identity", accept].contains(&name), "{accept}: {name}");
            sleep(Duration::from_millis(500)).await;
        }
        for (accept, coding) in [
            ("gzip", "gzip"),
            ("x-gzip;q=0.5", "gzip"),
            ("gzip, br", "br"),
            ("gzip, br, zstd", "zstd"),
            ("gzip, br;q=0.9, zstd;q=0.8", "gzip"),
            ("*", "zstd"),
            ("zstd;q=0, *", "br"),
            ("gzip;q=0", "identity"),
            ("identity", "identity"),
            ("deflate", "identity"),
            ("gzip;q=0.5, identity", "identity"),
            ("", "identity"),
        ] {
            let got = accepting(target, accept).await;
            assert_eq!(decoded(&got), (coding, content.clone()), "{accept}");
            assert_eq!(lines(&got, "vary"), ["Accept-Encoding"], "{accept}");
            let tag = if coding == "identity" { "\"e.0\"" } else { "W/\"e.0\"" };
            assert_eq!(lines(&got, "etag"), [tag], "{accept}");
            assert_eq!(got.field("cache-status"), Some("plimsoll; hit"));
            assert_eq!(lines(&got, "content-length"), [got.body.len().to_string()]);
            assert!(coding == "identity" || got.body.len() < 1000, "{accept}");
        }
        assert_eq!(decoded(&get(target, "").await).0, "identity");
        let two = get(target, "Accept-Encoding: br;q=0\r\nAccept-Encoding: br, gzip\r\n").await;
        assert_eq!(decoded(&two), ("gzip", content.clone()));
        let head = Client::new().await.head(target, "Accept-Encoding: gzip\r\n").await;
        assert_eq!(head.field("content-length"), Some(&two.body.len().to_string()[..]));
        let plain = "Accept-Encoding: gzip\r\nCache-Control: no-transform\r\n";
        assert_eq!(decoded(&get(target, plain).await).0, "identity");
        assert_eq!(world.origin.count(target), 1);
        assert_eq!(world.origin.last().field("accept-encoding"), Some("identity"));
    });
}

#[test]
fn what_is_not_to_be_coded_is_not() {
    each_way(coded, async |_world: Rc<World>| {
        for target in [
            "/n?size=3000&cc=max-age=600",
            "/n?size=100&text=1&cc=max-age=600",
            "/n?size=3000&text=1&cc=max-age=600,no-transform",
            "/n?size=3000&text=1&cc=max-age=600&cookie=1",
            "/n?size=3000&text=1&cc=max-age=600&status=404",
            "/n?size=3000&text=1&cc=no-store",
        ] {
            for _ in 0..3 {
                let got = accepting(target, "gzip").await;
                assert_eq!((decoded(&got), got.field("vary")), {
                    (("identity", expected(target, None)), None)
                });
                sleep(Duration::from_millis(500)).await;
            }
        }
        // Its form would be longer than it is.
        let target = "/r?size=400&cc=max-age=600&text=1&vary=x-a";
        let got = accepting(target, "gzip").await;
        assert_eq!(lines(&got, "vary"), ["x-a", "Accept-Encoding"]);
    });
}

#[test]
fn a_304_fits_the_form_that_the_client_has() {
    each_way(coded, async |world: Rc<World>| {
        let target = "/c?size=3000&text=1&cc=max-age=600&etag=e";
        get(target, "").await;
        for round in 0..2 {
            for (accept, has, tag) in [
                ("gzip", "W/\"e.0\"", "W/\"e.0\""),
                ("gzip", "\"e.0\"", "W/\"e.0\""),
                ("gzip", "*", "W/\"e.0\""),
                ("identity", "\"e.0\"", "\"e.0\""),
                ("identity", "W/\"e.0\"", "W/\"e.0\""),
            ] {
                let fields = format!("Accept-Encoding: {accept}\r\nIf-None-Match: {has}\r\n");
                let got = get(target, &fields).await;
                assert_eq!((got.status, got.field("etag")), (304, Some(tag)), "{fields}{round}");
                assert_eq!(lines(&got, "vary"), ["Accept-Encoding"]);
                assert_eq!(got.field("content-encoding"), None);
            }
            accepting(target, "gzip").await;
            sleep(Duration::from_millis(500)).await;
        }
        let other = get(target, "Accept-Encoding: gzip\r\nIf-None-Match: \"e.1\"\r\n").await;
        assert_eq!((other.status, decoded(&other).0), (200, "gzip"));
        assert_eq!(world.origin.count(target), 1);
    });
}

#[test]
fn suffixed_tags_are_known_again() {
    each_way(suffixed, async |world: Rc<World>| {
        let target = "/s?size=3000&text=1&cc=max-age=600&etag=e";
        get(target, "").await;
        for round in 0..2 {
            for (accept, has, status, tag) in [
                ("gzip", "\"e.0-gzip\"", 304, "\"e.0-gzip\""),
                ("gzip, br", "\"e.0-gzip\"", 304, "\"e.0-gzip\""),
                ("gzip", "\"e.0\"", 304, "\"e.0\""),
                ("gzip", "W/\"e.0\"", 304, "W/\"e.0\""),
                ("identity", "\"e.0-gzip\"", 200, "\"e.0\""),
            ] {
                let fields = format!("Accept-Encoding: {accept}\r\nIf-None-Match: {has}\r\n");
                let got = get(target, &fields).await;
                assert_eq!((got.status, got.field("etag")), (status, Some(tag)), "{fields}{round}");
            }
            accepting(target, "gzip").await;
            sleep(Duration::from_millis(500)).await;
        }
        let got = accepting(target, "gzip").await;
        assert_eq!((decoded(&got).0, got.field("etag")), ("gzip", Some("\"e.0-gzip\"")));
        assert_eq!(world.origin.count(target), 1);
    });
}

#[test]
fn ranges_are_of_the_response_as_the_origin_sent_it() {
    each_way(suffixed, async |world: Rc<World>| {
        let target = "/g?size=3000&text=1&cc=max-age=600&etag=e";
        let content = expected(target, None);
        for _ in 0..2 {
            accepting(target, "gzip").await;
            sleep(Duration::from_millis(500)).await;
        }
        for (fields, status) in [
            ("", 206),
            ("If-Range: \"e.0\"\r\n", 206),
            ("If-Range: \"e.0-gzip\"\r\n", 200),
            ("If-Range: W/\"e.0\"\r\n", 200),
        ] {
            let fields = format!("Accept-Encoding: gzip\r\nRange: bytes=10-19\r\n{fields}");
            let got = get(target, &fields).await;
            let wanted = if status == 206 { &content[10..20] } else { &content[..] };
            assert_eq!((got.status, &got.body[..]), (status, wanted), "{fields}");
            assert_eq!((got.field("etag"), got.field("content-encoding")), (Some("\"e.0\""), None));
            assert_eq!(lines(&got, "vary"), ["Accept-Encoding"]);
        }
        assert_eq!(world.origin.count(target), 1);
    });
}

#[test]
fn forms_survive_a_304_and_not_a_change() {
    in_memory(coded, async |world: Rc<World>| {
        let target = "/u?size=3000&text=1&cc=max-age=5&etag=e&bump=1";
        for _ in 0..2 {
            accepting(target, "gzip").await;
            sleep(Duration::from_millis(500)).await;
        }
        assert_eq!(decoded(&accepting(target, "gzip").await).0, "gzip");
        sleep(Duration::from_secs(10)).await;
        let confirmed = accepting(target, "gzip").await;
        assert!(confirmed.field("cache-status").unwrap().contains("fwd=stale"));
        assert_eq!(decoded(&confirmed), ("gzip", expected(target, None)));
        let hit = accepting(target, "gzip").await;
        assert_eq!((decoded(&hit).0, hit.field("date")), ("gzip", confirmed.field("date")));
        let made = async || {
            let metrics = world.metrics().await;
            metrics.iter().find(|(name, _)| name.contains("forms_made")).unwrap().1
        };
        assert_eq!((made().await, world.counter("revalidated")), (1, 1));
        let post = format!("POST {target} HTTP/1.1\r\nHost: site\r\nContent-Length: 0\r\n\r\n");
        Client::new().await.ask(post.as_bytes()).await;
        let new = accepting(target, "gzip").await;
        assert_eq!((decoded(&new).0, new.field("etag")), ("identity", Some("\"e.1\"")));
        sleep(Duration::from_millis(500)).await;
        accepting(target, "gzip").await;
        sleep(Duration::from_millis(500)).await;
        let coded = accepting(target, "gzip").await;
        assert_eq!((decoded(&coded).0, coded.field("etag")), ("gzip", Some("W/\"e.1\"")));
        assert_eq!(made().await, 2);
    });
}

#[test]
fn what_the_origin_has_coded_is_decoded_for_those_who_do_not_accept_it() {
    each_way(coded, async |world: Rc<World>| {
        for coding in ["gzip", "br", "zstd"] {
            let target = format!("/d?size=3000&text=1&cc=max-age=600&etag=e&coded={coding}");
            let content = expected(&target, None);
            for accept in ["identity", coding, "deflate", "identity;q=0.1", coding] {
                let got = accepting(&target, accept).await;
                let (name, tag) = match accept == coding {
                    true => (coding, "\"e.0\""),
                    false => ("identity", "W/\"e.0\""),
                };
                assert_eq!(decoded(&got), (name, content.clone()), "{accept}");
                assert_eq!(got.field("etag"), Some(tag), "{accept}");
                assert_eq!(lines(&got, "vary"), ["Accept-Encoding"]);
            }
            assert_eq!(world.origin.count(&target), 1);
            let got = get(&target, "Accept-Encoding: identity\r\nRange: bytes=0-9\r\n").await;
            assert_eq!((got.status, decoded(&got).1), (200, content));
        }
    });
}

#[test]
fn a_route_and_forward_listeners_code_nothing() {
    let uncoded = || {
        let mut route = Route::to("origin");
        (route.path, route.compression) = (Path::Prefix("/secret".into()), false);
        let routes = vec![Route::to("origin"), route];
        Config { routes, ..coded() }
    };
    each_way(uncoded, async |_world: Rc<World>| {
        for (target, coding) in [
            ("/secret?size=3000&text=1&cc=max-age=600", "identity"),
            ("/open?size=3000&text=1&cc=max-age=600", "gzip"),
        ] {
            for _ in 0..2 {
                accepting(target, "gzip").await;
                sleep(Duration::from_millis(500)).await;
            }
            let got = accepting(target, "gzip").await;
            assert_eq!(decoded(&got), (coding, expected(target, None)));
        }
    });
    let forwards = || Config { compression: Some(rules()), ..forward() };
    each_way(forwards, async |world: Rc<World>| {
        let target = "http://10.0.0.2:80/f?size=3000&text=1&cc=max-age=600";
        for _ in 0..3 {
            let got = accepting(target, "gzip").await;
            assert_eq!((decoded(&got).0, got.field("vary")), ("identity", None));
        }
        assert_eq!(world.origin.last().field("accept-encoding"), Some("gzip"));
    });
}

#[test]
fn a_full_queue_leaves_responses_as_they_are() {
    let full = || {
        let rules = Rules { jobs_max: 1, queue_max: 0, ..rules() };
        Config { compression: Some(rules), ..reverse() }
    };
    in_memory(full, async |world: Rc<World>| {
        let target = "/q?size=3000&text=1&cc=max-age=600";
        for _ in 0..3 {
            accepting(target, "gzip").await;
            sleep(Duration::from_millis(500)).await;
        }
        assert_eq!(decoded(&accepting(target, "gzip").await).0, "gzip", "one at a time is made");
        let metrics = world.metrics().await;
        assert!(metrics.iter().any(|(name, count)| name.contains("forms_made") && *count == 1));
    });
}
