//! Responses that are not stored, coded while they pass.

use std::rc::Rc;
use std::time::Duration;

use coding::Rules;
use config::{Config, Path, Route};
use runtime::time::sleep;

use crate::cluster::{ALL, Node, owner, path_of};
use crate::coding_forms::{coded, decoded};
use crate::common::Response;
use crate::origin::{MODIFIED, expected};
use crate::world::{Client, World, each_way, in_memory};

fn passing() -> Config {
    limited_to(8)
}

fn limited_to(passed_max: usize) -> Config {
    let config = coded();
    let rules = config.compression.clone().unwrap();
    Config { compression: Some(Rules { passed: true, passed_max, ..rules }), ..config }
}

async fn accepting(target: &str, accept: &str, fields: &str) -> Response {
    let fields = format!("Accept-Encoding: {accept}\r\n{fields}");
    Client::new().await.get(target, &fields).await
}

#[test]
fn what_passes_is_coded_for_those_who_accept_it() {
    each_way(passing, async |_world: Rc<World>| {
        for frame in ["", "&frame=chunked", "&frame=close"] {
            let target = &format!("/p?size=30000&text=1&cc=no-store&etag=e{frame}");
            let content = expected(target, None);
            for (accept, coding) in [
                ("gzip", "gzip"),
                ("br", "br"),
                ("zstd, gzip;q=0.1", "zstd"),
                ("gzip;q=0", "identity"),
                ("identity", "identity"),
            ] {
                let got = accepting(target, accept, "").await;
                assert_eq!(decoded(&got), (coding, content.clone()), "{target} {accept}");
                assert_eq!(got.all("vary"), ["Accept-Encoding"], "{target} {accept}");
                let tag = if coding == "identity" { "\"e.0\"" } else { "W/\"e.0\"" };
                assert_eq!(got.all("etag"), [tag], "{target} {accept}");
                assert_eq!(got.field("cache-status").map(|of| of.contains("hit")), Some(false));
                assert!(coding == "identity" || got.field("content-length").is_none());
            }
        }
        let target = "/h?size=3000&text=1&cc=no-store&etag=e";
        let head = Client::new().await.head(target, "Accept-Encoding: gzip\r\n").await;
        assert_eq!((head.field("content-encoding"), head.field("etag"), head.body.len()), {
            (Some("gzip"), Some("W/\"e.0\""), 0)
        });
        assert_eq!(head.field("content-length"), None);
        let plain = Client::new().await.head(target, "").await;
        assert_eq!((plain.field("content-length"), plain.field("vary")), {
            (Some("3000"), Some("Accept-Encoding"))
        });
        let mut client = Client::new().await;
        let body = "abc".repeat(1000);
        let request = format!(
            "POST /f?text=1 HTTP/1.1\r\nHost: site\r\nAccept-Encoding: gzip\r\n\
             Content-Length: 3000\r\n\r\n{body}"
        );
        let got = client.ask(request.as_bytes()).await;
        assert_eq!(decoded(&got), ("gzip", body.into_bytes()));
    });
}

#[test]
fn what_must_not_be_changed_passes_as_it_came() {
    let config = || {
        let mut route = Route::to("origin");
        (route.path, route.compress_passed) = (Path::Prefix("/plain".into()), Some(false));
        Config { routes: vec![Route::to("origin"), route], ..passing() }
    };
    each_way(config, async |_world: Rc<World>| {
        for (target, fields) in [
            ("/n?size=3000&cc=no-store", ""),
            ("/n?size=100&text=1&cc=no-store", ""),
            ("/n?size=3000&text=1&cc=no-store,no-transform", ""),
            ("/plain?size=3000&text=1&cc=no-store", ""),
            ("/n?size=3000&text=1&cc=no-store", "Cache-Control: no-transform\r\n"),
        ] {
            let got = accepting(target, "gzip", fields).await;
            assert_eq!((decoded(&got), got.field("vary")), {
                (("identity", expected(target, None)), None)
            });
        }
        let target = "/r?size=3000&text=1&cc=no-store&ranges=1&etag=e";
        let got = accepting(target, "gzip", "Range: bytes=10-19\r\n").await;
        assert_eq!((got.status, &got.body[..]), (206, &expected(target, None)[10..20]));
        assert_eq!((got.field("content-encoding"), got.field("etag")), (None, Some("\"e.0\"")));
        // What the origin has coded.
        let target = "/c?size=3000&text=1&cc=no-store&coded=gzip";
        let got = accepting(target, "br, gzip", "").await;
        assert_eq!(decoded(&got), ("gzip", expected(target, None)));
    });
}

/// A client has the beginning of the coded response, and asks for the rest by its date. The rest of
/// the response as the origin has it does not continue what the client has.
#[test]
fn the_rest_of_a_coded_response_is_not_of_another_coding() {
    each_way(passing, async |world: Rc<World>| {
        let date = format!("Range: bytes=100-\r\nIf-Range: {MODIFIED}\r\n");
        for (query, is_stored) in [
            ("size=3000&cc=no-store", false),
            ("size=3000&cc=max-age=600", true),
            // It is stored, and too large to be coded by the store.
            ("size=30000&cc=max-age=600", true),
        ] {
            let target = &format!("/d?{query}&text=1&ranges=1&modified=1");
            let content = expected(target, None);
            let is_large = content.len() > 5000;
            if is_stored && !is_large {
                // The second one asks for the form to be made.
                accepting(target, "gzip", "").await;
                accepting(target, "gzip", "").await;
                sleep(Duration::from_millis(500)).await;
            }
            let no_store = if is_large { "Cache-Control: no-store\r\n" } else { "" };
            let first = accepting(target, "gzip", no_store).await;
            assert_eq!(decoded(&first), ("gzip", content.clone()), "{query}");
            assert_eq!(first.field("last-modified"), Some(MODIFIED));
            if is_large {
                accepting(target, "identity", "").await;
            }
            let got = accepting(target, "gzip", &date).await;
            assert_eq!((got.status, decoded(&got)), (200, ("identity", content)), "{query}");
            let is_hit = got.field("cache-status").is_some_and(|of| of.ends_with("; hit"));
            assert_eq!(is_hit, is_stored, "{query}");
        }
        // A response that is never coded, and a client that has got no coding.
        for (target, accept) in [
            ("/e?size=3000&text=1&cc=no-store,no-transform&ranges=1&modified=1", "gzip"),
            ("/f?size=3000&text=1&cc=no-store&ranges=1&modified=1", "identity"),
        ] {
            let before = world.origin.count(target);
            let got = accepting(target, accept, &date).await;
            assert_eq!((got.status, &got.body[..]), (206, &expected(target, None)[100..]));
            assert_eq!(world.origin.count(target), before + 1);
        }
        // Whatever an origin makes of its range, a method that changes something is not repeated.
        let target = "/g?size=3000&text=1&cc=no-store&ranges=1&modified=1";
        let delete = format!(
            "DELETE {target} HTTP/1.1\r\nHost: site\r\nAccept-Encoding: gzip\r\n{date}\r\n"
        );
        let got = Client::new().await.ask(delete.as_bytes()).await;
        assert_eq!((got.status, world.origin.count(target)), (206, 1));
        // The content of a request is gone when its response comes.
        let target = "/h?size=3000&text=1&cc=no-store&ranges=1&modified=1";
        let with_content = format!(
            "GET {target} HTTP/1.1\r\nHost: site\r\nAccept-Encoding: gzip\r\n{date}\
             Content-Length: 5\r\n\r\nquery"
        );
        let got = Client::new().await.ask(with_content.as_bytes()).await;
        assert_eq!((got.status, world.origin.count(target)), (206, 1));
    });
}

/// Each resume by date of a response that is neither stored nor coded was sent twice.
#[test]
fn the_rest_of_what_is_never_coded_is_a_part() {
    let never = || {
        let config = coded();
        let rules = config.compression.clone().unwrap();
        Config { compression: Some(Rules { passed: false, ..rules }), ..config }
    };
    each_way(never, async |world: Rc<World>| {
        let date = format!("Range: bytes=100-\r\nIf-Range: {MODIFIED}\r\n");
        for cc in ["no-store", "max-age=600,private"] {
            let target = &format!("/n?size=3000&text=1&cc={cc}&ranges=1&modified=1");
            let got = accepting(target, "gzip", &date).await;
            assert_eq!((got.status, &got.body[..]), (206, &expected(target, None)[100..]), "{cc}");
            assert_eq!(world.origin.count(target), 1, "{cc}");
        }
    });
}

/// A 304 gives a coded body no strong tag.
#[test]
fn a_304_that_passes_has_the_tag_of_all_forms() {
    let unstored = || {
        let route = Route { store: false, ..Route::to("origin") };
        Config { routes: vec![route], ..passing() }
    };
    each_way(unstored, async |_world: Rc<World>| {
        let target = "/v?size=3000&text=1&cc=no-store&etag=e";
        for (accept, names, tag) in [
            ("gzip", "\"e.0\"", "\"e.0\""),
            ("gzip", "\"e.0\", W/\"e.0\"", "W/\"e.0\""),
            ("gzip", "W/\"x\", \"e.0\"", "W/\"e.0\""),
            ("identity", "W/\"x\", \"e.0\"", "\"e.0\""),
        ] {
            let got = accepting(target, accept, &format!("If-None-Match: {names}\r\n")).await;
            assert_eq!((got.status, got.all("etag")), (304, vec![tag]), "{accept} {names}");
        }
    });
}

/// The end of a coded body says that it is whole.
#[test]
fn a_body_that_breaks_off_has_no_end() {
    in_memory(passing, async |world: Rc<World>| {
        for frame in ["", "&frame=chunked"] {
            for ending in ["cut=20000", "reset=20000", "cut=300"] {
                let target = &format!("/b?size=90000&text=1&cc=no-store&{ending}{frame}");
                let mut client = Client::new().await;
                let request =
                    format!("GET {target} HTTP/1.1\r\nHost: site\r\nAccept-Encoding: gzip\r\n\r\n");
                client.send(request.as_bytes()).await.unwrap();
                match client.response().await {
                    // Nothing of the response had been sent.
                    Ok(got) => assert_eq!(got.status, 502, "{target}"),
                    Err(_broken) => {}
                }
            }
        }
        sleep(Duration::from_secs(1)).await;
        let metrics = world.metrics().await;
        let now = metrics.iter().find(|(name, _)| name.contains("passed_encoders")).unwrap().1;
        assert_eq!(now, 0, "no encoder outlives its response");
    });
}

#[test]
fn beyond_the_limit_responses_pass_uncoded() {
    in_memory(
        || limited_to(1),
        async |world: Rc<World>| {
            let slow = "/s?size=30000&text=1&cc=no-store&pause=3000";
            let first = runtime::spawn(async move { accepting(slow, "gzip", "").await });
            sleep(Duration::from_millis(1500)).await;
            let target = "/t?size=3000&text=1&cc=no-store";
            let second = accepting(target, "gzip", "").await;
            assert_eq!(decoded(&second), ("identity", expected(target, None)));
            assert_eq!(second.field("vary"), Some("Accept-Encoding"));
            assert_eq!(decoded(&first.await), ("gzip", expected(slow, None)));
            assert_eq!(decoded(&accepting(target, "gzip", "").await).0, "gzip");
            let metrics = world.metrics().await;
            let of = |name: &str| metrics.iter().find(|(n, _)| n.ends_with(name)).unwrap().1;
            assert_eq!((of("passed_coded_total"), of("passed_uncoded_total")), (2, 1));
        },
    );
}

/// The member to which the client is connected codes, and no other one. A purge is counted by all.
#[test]
fn of_a_cluster_one_member_codes_and_all_count_what_they_purge() {
    each_way(passing, async |_world: Rc<World>| {
        let nodes = ALL.map(|host| {
            let node = Node::deaf(host, &ALL, passing());
            node.listens();
            node
        });
        let of_second = |path: &str| owner(&ALL, path) == 2;
        let path = path_of("size=30000&text=1&cc=no-store", of_second);
        for node in &nodes {
            let got = node.get(&path, "Accept-Encoding: gzip\r\n").await;
            assert_eq!(decoded(&got), ("gzip", expected(&path, None)));
            assert_eq!(got.all("vary"), ["Accept-Encoding"]);
            assert_eq!(decoded(&node.get(&path, "").await).0, "identity");
        }
        let stored = path_of("size=300&cc=max-age=600", of_second);
        assert_eq!(nodes[0].get(&stored, "").await.body, expected(&stored, None));
        sleep(Duration::from_secs(1)).await;
        for count in [1, 0] {
            let (status, answer) = nodes[0].purge("prefix=http://site/").await;
            assert_eq!((status, &answer["responses"]), (200, &count.into()), "{answer}");
            assert_eq!(answer["cluster"]["responses"]["10.0.1.2:7000"], count, "{answer}");
        }
    });
}
