//! Coded forms of stored responses: who gets which, with which validators.

use std::rc::Rc;
use std::time::Duration;

use coding::rules::Pattern;
use coding::{Coding, Level, Rules, TagRule};
use config::{Config, Path, Route};
use runtime::sim::{self, Disk};
use runtime::time::{now, sleep};
use server::explain::Explained;

use crate::common::Response;
use crate::origin::expected;
use crate::world::{
    ADMIN, Client, World, each_way, each_way_tcp, forward, in_memory, on_disk, reverse, run, scheme,
};

fn rules() -> Rules {
    let level = |coding| Level { coding, level: 3 };
    Rules {
        codings: [Coding::Zstd, Coding::Brotli, Coding::Gzip].map(level).to_vec(),
        types: ["text/*".parse::<Pattern>().unwrap()].into_iter().collect(),
        bytes_min: 200,
        bytes_max: 5000,
        tag: TagRule::Weak,
        jobs_max: 1,
        queue_max: 8,
        passed: false,
        passed_max: 2,
    }
}

pub(crate) fn coded() -> Config {
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
pub(crate) fn decoded(got: &Response) -> (&str, Vec<u8>) {
    match got.field("content-encoding") {
        None => ("identity", got.body.clone()),
        Some(name) => {
            let coding = Coding::of(name.as_bytes()).unwrap();
            (name, coding::decode(coding, &[&got.body], 1 << 20).unwrap())
        }
    }
}

async fn metric(world: &World, name: &str) -> u64 {
    let metrics = world.metrics().await;
    metrics.iter().find(|(there, _)| there == name).unwrap_or_else(|| panic!("no {name}")).1
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
            "/n?size=6000&text=1&cc=max-age=600",
        ] {
            for _ in 0..3 {
                let got = accepting(target, "gzip").await;
                assert_eq!((decoded(&got), got.field("vary")), {
                    (("identity", expected(target, None)), None)
                });
                sleep(Duration::from_millis(500)).await;
            }
        }
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
fn a_form_that_is_made_during_a_validation_is_kept() {
    in_memory(coded, async |world: Rc<World>| {
        let target = "/k?size=3000&text=1&etag=e&delay=1000&cc=max-age=5,stale-while-revalidate=60";
        get(target, "").await;
        sleep(Duration::from_secs(10)).await;
        // Both get the stale response; the first one has it validated.
        for accept in ["identity", "gzip"] {
            assert_eq!(decoded(&accepting(target, accept).await).0, "identity");
        }
        sleep(Duration::from_secs(2)).await;
        assert_eq!(world.counter("revalidated"), 1);
        let got = accepting(target, "gzip").await;
        assert_eq!((decoded(&got).0, got.field("cache-status")), ("gzip", Some("plimsoll; hit")));
        assert_eq!(metric(&world, "plimsoll_forms_made_total").await, 1);
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
fn without_a_queue_one_form_at_a_time_is_made() {
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

const CODED: &str = "size=3000&text=1&etag=e&coded=gzip";

#[test]
fn a_coded_response_is_kept_from_those_who_cannot_read_it_when_nothing_is_decoded() {
    let forbids = "Accept-Encoding: identity\r\nCache-Control: no-transform\r\n";
    each_way(coded, async |world: Rc<World>| {
        let target = &format!("/w?{CODED}&cc=max-age=600");
        accepting(target, "gzip").await;
        for count in 2..4 {
            let got = get(target, forbids).await;
            let status = got.field("cache-status").unwrap();
            assert!(status.contains("fwd=vary-miss"), "{status}");
            assert_eq!(world.origin.count(target), count);
        }
    });
    // The next process has no `[compression]`.
    let target = &format!("/w?{CODED}&cc=max-age=600");
    for (config, is_decoded) in [(reverse(), false), (coded(), true)] {
        let disk = Disk::new(1);
        let delay = Duration::from_micros(20)..Duration::from_micros(200);
        let options = sim::Options::new(1).with_disk(disk.clone(), delay);
        run(options.clone(), on_disk(coded()), async |_| drop(accepting(target, "gzip").await));
        run(options, on_disk(config), async |world: Rc<World>| {
            for _ in 0..2 {
                let got = accepting(target, "gzip").await;
                assert_eq!((decoded(&got).0, got.field("cache-status")), {
                    ("gzip", Some("plimsoll; hit"))
                });
            }
            let got = accepting(target, "identity").await;
            let status = got.field("cache-status").unwrap();
            assert_eq!(status.contains("hit"), is_decoded, "{status}");
            assert_eq!(world.origin.count(target), usize::from(!is_decoded));
        });
    }
}

/// It sets a cookie, so that no form would be made of a new response like it.
#[test]
fn a_304_with_a_cookie_does_not_hide_that_the_body_is_coded() {
    in_memory(coded, async |world: Rc<World>| {
        let target = &format!("/ck?{CODED}&cc=max-age=5&cookie=304");
        let content = expected(target, None);
        accepting(target, "gzip").await;
        for round in 0..2 {
            sleep(Duration::from_secs(10)).await;
            let confirmed = accepting(target, "identity").await;
            assert_eq!(decoded(&confirmed), ("identity", content.clone()), "{round}");
            assert!(confirmed.field("set-cookie").is_some(), "{round}");
            for accept in ["identity", "gzip"] {
                let got = accepting(target, accept).await;
                assert_eq!(decoded(&got), (accept, content.clone()), "{round}");
                assert_eq!(got.field("cache-status"), Some("plimsoll; hit"), "{accept} {round}");
            }
        }
        assert_eq!((world.counter("revalidated"), world.origin.count(target)), (2, 3));
    });
}

/// Stores a response of which there may be forms, and starts again without `[compression]`.
fn after_compression(target: &str, run_it: impl AsyncFn(Rc<World>)) {
    let delay = Duration::from_micros(20)..Duration::from_micros(200);
    let options = sim::Options::new(1).with_disk(Disk::new(1), delay);
    run(options.clone(), on_disk(coded()), async |_| drop(accepting(target, "gzip").await));
    run(options, on_disk(reverse()), async |world| run_it(world).await);
}

#[test]
fn a_304_without_rules_does_not_hide_that_the_body_is_coded() {
    let target = &format!("/cn?{CODED}&cc=max-age=5");
    after_compression(target, async |world: Rc<World>| {
        for round in 0..2 {
            sleep(Duration::from_secs(10)).await;
            // The first is confirmed, and passed on: the client cannot read it.
            for _ in 0..2 {
                let got = accepting(target, "identity").await;
                let status = got.field("cache-status").unwrap();
                assert!(status.contains("fwd=vary-miss"), "{round}: {status}");
            }
            let got = accepting(target, "gzip").await;
            assert_eq!(decoded(&got).0, "gzip");
            assert_eq!(got.field("cache-status"), Some("plimsoll; hit"), "{round}");
        }
        assert_eq!((world.counter("revalidated"), world.origin.count(target)), (2, 6));
    });
}

#[test]
fn what_was_stored_with_compression_is_not_divided_by_coding_without_it() {
    let target = "/dv?size=3000&text=1&etag=e&cc=max-age=5";
    after_compression(target, async |world: Rc<World>| {
        for count in 1..3 {
            sleep(Duration::from_secs(10)).await;
            for accept in ["gzip", "br", "identity"] {
                let got = accepting(target, accept).await;
                assert_eq!(decoded(&got), ("identity", expected(target, None)), "{accept}");
                assert_eq!(world.origin.count(target), count, "{accept}");
            }
        }
    });
}

#[test]
fn who_waits_for_the_decoded_form_asks_the_origin_once() {
    each_way(coded, async |world: Rc<World>| {
        for (at, more) in [
            "cc=max-age=600&cookie=1&own=no-cache",
            "cc=max-age=600&cookie=1&own=no-cache&pause=300",
            "cc=no-cache",
            "cc=no-cache&pause=300&frame=chunked",
        ]
        .into_iter()
        .enumerate()
        {
            let target = &format!("/o{at}?{CODED}&{more}");
            let got = accepting(target, "identity").await;
            assert_eq!(decoded(&got), ("identity", expected(target, None)), "{target}");
            assert_eq!(got.field("set-cookie").is_some(), more.contains("cookie"), "{target}");
            let status = got.field("cache-status").unwrap();
            assert!(status.contains("fwd=uri-miss") && !status.contains("hit"), "{status}");
            assert_eq!(world.origin.count(target), 1, "{target}");
            // A form that was made is used after a 304, and confirms what the client has.
            let again =
                get(target, "Accept-Encoding: identity\r\nCache-Control: no-cache\r\n").await;
            assert_eq!(decoded(&again), ("identity", expected(target, None)), "{target}");
            assert_eq!(world.origin.count(target), 2, "{target}");
        }
        assert_eq!(metric(&world, "plimsoll_forms_made_total").await, 4);
        // A body that breaks off is not asked for again and again.
        let target = "/b?size=3000&text=1&coded=gzip&cc=max-age=600&breaks=20";
        assert_eq!(accepting(target, "identity").await.status, 502);
        assert_eq!(world.origin.count(target), 1);
        let got = accepting(target, "identity").await;
        assert_eq!(decoded(&got), ("identity", expected(target, None)));
    });
}

#[test]
fn who_cannot_read_a_body_that_leaves_memory_does_not_wait_for_all_of_it() {
    let small = || {
        let mut config = coded();
        config.limits.object_share = 2000;
        config
    };
    in_memory(small, async |world: Rc<World>| {
        let query = "?size=60000&coded=gzip&cc=max-age=600&drip=500&frame=chunked";
        let start = now();
        assert!(accepting(&format!("/v{query}"), "gzip").await.body.len() > 15_000);
        let whole = start.elapsed();
        let (start, target) = (now(), &format!("/w{query}"));
        let got = accepting(target, "identity").await;
        assert_eq!((got.status, decoded(&got).1), (200, expected(target, None)));
        let took = start.elapsed();
        assert!(took < whole * 3 / 2, "{took:?} instead of {whole:?}");
        assert_eq!(world.origin.count(target), 2);
    });
}

#[test]
fn those_who_wait_for_one_decoded_form_share_the_fetch_and_the_job() {
    in_memory(coded, async |world: Rc<World>| {
        for more in ["delay=300", "pause=300"] {
            let target = format!("/j?{CODED}&cc=max-age=600&{more}");
            let herd: Vec<_> = (0..6)
                .map(|at| {
                    let target = target.clone();
                    runtime::spawn(async move {
                        sleep(Duration::from_millis(20 * at)).await;
                        accepting(&target, "identity").await
                    })
                })
                .collect();
            for one in herd {
                assert_eq!(decoded(&one.await), ("identity", expected(&target, None)));
            }
            assert_eq!(world.origin.count(&target), 1);
        }
        assert_eq!(metric(&world, "plimsoll_forms_made_total").await, 2);
        assert_eq!(metric(&world, "plimsoll_forms_waiting").await, 0);
    });
}

#[test]
fn what_cannot_be_decoded_is_passed_on_and_not_tried_again() {
    each_way(coded, async |world: Rc<World>| {
        let target = &format!("/t?{CODED}&cc=max-age=600&torn=1");
        for count in 1..4 {
            // The first one has it stored, and the origin answers the same to each.
            let got = accepting(target, "identity").await;
            let status = got.field("cache-status").unwrap();
            assert!(got.status == 200 && !status.contains("hit"), "{status}");
            assert_eq!(world.origin.count(target), count + 1);
        }
        assert_eq!(metric(&world, "plimsoll_forms_declined_total").await, 1);
        assert_eq!(accepting(target, "gzip").await.field("cache-status"), Some("plimsoll; hit"));
        let stored = "Accept-Encoding: identity\r\nCache-Control: only-if-cached\r\n";
        assert_eq!(get(target, stored).await.status, 504);
        if scheme() != "http" {
            return; // An explanation is asked for without TLS.
        }
        let said = explain(target, &["Accept-Encoding: identity"]).await;
        assert_eq!((&*said.decision.does, &*said.decision.rule), ("pass", "coding"));
        let fields = ["Accept-Encoding: identity", "Cache-Control: only-if-cached"];
        assert_eq!(explain(target, &fields).await.answer.status, Some(504));
    });
}

#[test]
fn a_form_that_is_no_shorter_is_dropped_and_not_made_again() {
    let all_sizes = || Config { compression: Some(Rules { bytes_min: 1, ..rules() }), ..reverse() };
    in_memory(all_sizes, async |world: Rc<World>| {
        let target = "/x?size=10&text=1&cc=max-age=600";
        for _ in 0..4 {
            let got = accepting(target, "gzip").await;
            assert_eq!(decoded(&got), ("identity", expected(target, None)));
            sleep(Duration::from_millis(500)).await;
        }
        let figures = ["declined", "made"].map(|name| format!("plimsoll_forms_{name}_total"));
        assert_eq!(metric(&world, &figures[0]).await, 1);
        assert_eq!(metric(&world, &figures[1]).await, 0);
    });
}

#[test]
fn a_304_without_a_named_tag_has_the_strong_tag_of_no_form() {
    each_way(suffixed, async |_world: Rc<World>| {
        let target = "/i?size=3000&text=1&cc=max-age=600&etag=e";
        let date = get(target, "").await.field("date").unwrap().to_owned();
        for condition in [format!("If-Modified-Since: {date}"), "If-None-Match: *".to_owned()] {
            for accept in ["gzip, br, zstd", "identity"] {
                let fields = format!("Accept-Encoding: {accept}\r\n{condition}\r\n");
                let got = get(target, &fields).await;
                assert_eq!((got.status, got.field("etag")), (304, Some("W/\"e.0\"")), "{fields}");
            }
        }
    });
}

/// What the admin address says of a request with these fields.
async fn explain(target: &str, fields: &[&str]) -> Explained {
    let escaped = |text: &str| {
        let bytes = text.bytes().map(|byte| match byte {
            byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            byte => format!("%{byte:02x}"),
        });
        bytes.collect::<String>()
    };
    let fields: String = fields.iter().map(|line| format!("&header={}", escaped(line))).collect();
    let url = escaped(&format!("http://site{target}"));
    let request = format!("GET /explain?url={url}{fields} HTTP/1.1\r\nHost: a\r\n\r\n");
    let got = Client::to(ADMIN).await.unwrap().ask(request.as_bytes()).await;
    assert_eq!(got.status, 200, "{}", String::from_utf8_lossy(&got.body));
    serde_json::from_slice(&got.body).unwrap()
}

#[test]
fn an_explanation_names_the_form_that_is_then_sent() {
    each_way_tcp(suffixed, async |_world: Rc<World>| {
        let target = "/e?size=3000&text=1&cc=max-age=600&etag=e";
        let form = async |accept: &str| {
            let said = explain(target, &[&format!("Accept-Encoding: {accept}")]).await;
            assert_eq!((said.answer.status, said.answer.exact), (Some(200), true), "{accept}");
            said.answer.form.unwrap()
        };
        get(target, "").await;
        assert_eq!(form("gzip").await, "identity; gzip has not been made yet");
        assert_eq!(form("identity").await, "identity, as the origin sent it");
        accepting(target, "gzip").await;
        sleep(Duration::from_millis(500)).await;
        let bytes = accepting(target, "gzip").await.body.len();
        let gzip = format!("gzip, {bytes} bytes instead of 3000");
        assert_eq!(form("gzip").await, gzip);
        assert_eq!(form("gzip, br").await, format!("{gzip}; br has not been made yet"));
        let known = "If-None-Match: \"e.0-gzip\"";
        for (accept, status) in [("gzip", 304), ("identity", 200)] {
            let accept = format!("Accept-Encoding: {accept}");
            let said = explain(target, &[&accept, known]).await.answer;
            assert_eq!((said.status, said.exact), (Some(status), true), "{accept}");
            let got = get(target, &format!("{accept}\r\n{known}\r\n")).await;
            assert_eq!(got.status, status, "{accept}");
        }
        let target = &format!("/ed?{CODED}&cc=max-age=600");
        accepting(target, "gzip").await;
        let said = explain(target, &["Accept-Encoding: identity"]).await.answer;
        assert_eq!(said.form.as_deref(), Some("identity, which has to be decoded first"));
        assert!(!said.exact);
    });
}
