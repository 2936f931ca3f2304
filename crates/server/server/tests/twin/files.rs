//! Files in front of an upstream: over each version of HTTP, with ranges and conditions, while the
//! files change, and by all spellings of their paths.

use std::rc::Rc;
use std::time::Duration;

use config::{Action, Files, Group, Path, Route, Rule};
use runtime::fs::{File, OpenOptions};
use runtime::time::sleep;
use server::{Config, Origin as OriginUrl};

use crate::common::Response;
use crate::conditions::rule;
use crate::origin::{Origin, expected};
use crate::world::{Client, ORIGIN, World, address, each_way, reverse};

const BYTES: usize = 200_000;

async fn put(name: &str, bytes: Vec<u8>) {
    let file = File::open_with(format!("/www/{name}"), OpenOptions::CREATE).await.unwrap();
    file.write_all_at(bytes, 0).await.0.unwrap();
}

fn body(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// Files below `/www`, with an upstream for what is no file.
fn config() -> Config {
    let files = Files {
        root: "/www".into(),
        try_files: vec!["{path}.html".to_owned()],
        cache_control: Some("max-age=60".to_owned()),
        precompressed: true,
        ..Files::default()
    };
    let alone = Files { root: "/www/alone".into(), alias: true, ..Files::default() };
    let closed = Action::Answer { status: 403, body: "closed".to_owned() };
    let missing = Action::Answer { status: 404, body: "missing".to_owned() };
    let below = |prefix: &str| Path::Prefix(prefix.to_owned());
    let routes = vec![
        Route { files: Some(Box::new(files)), ..Route::to("site") },
        Route { path: below("/closed"), action: closed, ..Route::to("site") },
        Route {
            path: below("/a"),
            files: Some(Box::new(alone)),
            action: missing,
            ..Route::to("site")
        },
    ];
    let groups = vec![Group::of("site", [OriginUrl::at(address(ORIGIN))])];
    Config { groups, routes, ..reverse() }
}

async fn ask(client: &mut Client, method: &str, target: &str, fields: &str) -> Response {
    let text = format!("{method} {target} HTTP/1.1\r\nHost: site\r\n{fields}\r\n");
    client.ask(text.as_bytes()).await
}

async fn get(client: &mut Client, target: &str, fields: &str) -> Response {
    ask(client, "GET", target, fields).await
}

#[test]
fn files_come_first_and_the_upstream_has_the_rest() {
    each_way(config, async |world: Rc<World>| {
        for (name, bytes) in [("big.bin", BYTES), ("page.html", 10), ("d/index.html", 20)] {
            put(name, body(bytes)).await;
        }
        put("alone/x.txt", body(5)).await;
        put("page.html.gz", body(4)).await;
        put("closed/secret", body(6)).await;
        put(".env", body(7)).await;
        let mut client = Client::new().await;
        let big = get(&mut client, "/big.bin", "").await;
        assert_eq!((big.status, big.body == body(BYTES)), (200, true));
        assert_eq!(big.field("cache-control"), Some("max-age=60"));
        let tag = big.field("etag").unwrap().to_owned();
        let same = get(&mut client, "/big.bin", &format!("If-None-Match: {tag}\r\n")).await;
        assert_eq!((same.status, same.body.len()), (304, 0));
        let part = get(&mut client, "/big.bin", "Range: bytes=100000-150000\r\n").await;
        assert_eq!((part.status, part.body == body(BYTES)[100_000..=150_000]), (206, true));
        let parts = get(&mut client, "/big.bin", "Range: bytes=0-9,90000-90009\r\n").await;
        let has = |bytes: &[u8]| parts.body.windows(bytes.len()).any(|window| window == bytes);
        assert!(parts.status == 206 && has(&body(BYTES)[90_000..=90_009]));
        for (target, length) in [("/page.html", 10), ("/page", 10), ("/d/", 20), ("/a/x.txt", 5)] {
            assert_eq!(get(&mut client, target, "").await.body, body(length), "{target}");
        }
        // It passed a guard of `/page.html` itself.
        for target in ["/page.html/", "/page/"] {
            assert_ne!(get(&mut client, target, "").await.body, body(10), "{target}");
        }
        let coded = get(&mut client, "/page", "Accept-Encoding: gzip\r\n").await;
        assert_eq!((coded.body.clone(), coded.field("content-encoding")), (body(4), Some("gzip")));
        assert_eq!(coded.field("content-type"), Some("text/html; charset=utf-8"));
        let moved = get(&mut client, "/d?x=1", "").await;
        assert_eq!((moved.status, moved.field("location")), (308, Some("/d/?x=1")));
        let head = client.head("/big.bin", "").await;
        assert_eq!(head.field("content-length"), Some("200000"));

        // The store answers only for the upstream.
        for round in 0..2 {
            let other = get(&mut client, "/other?size=9&cc=max-age=60", "").await;
            assert_eq!(other.body, expected("/other?size=9&cc=max-age=60", None));
            let is_hit = other.field("cache-status").unwrap().starts_with("plimsoll; hit");
            assert_eq!(is_hit, round > 0);
        }
        put("other", body(3)).await;
        assert_eq!(get(&mut client, "/other?size=9&cc=max-age=60", "").await.body, body(3));
        assert_eq!(get(&mut client, "/a/none", "").await.status, 404);
        let posted = ask(&mut client, "POST", "/big.bin?size=7", "Content-Length: 0\r\n").await;
        let seen = world.origin.seen.borrow().last().map(|seen| seen.method.clone());
        assert_eq!((posted.status, seen.as_deref()), (200, Some("POST")));
        for target in ["/closed/secret", "/x/../closed/secret", "/%63losed/secret", "/.env"] {
            assert_ne!(get(&mut client, target, "").await.body, body(6), "{target}");
        }
        for target in ["/closed%2fsecret", "//closed/secret", "/a/..%2fclosed/secret", "/%2eenv"] {
            let got = get(&mut client, target, "").await;
            assert!(got.body != body(6) && got.body != body(7), "{target}: {got:?}");
        }
        assert!(world.counter("from_files") >= 10);
    });
}

/// A copy was sent of a request that a file answers.
#[test]
fn what_a_file_answers_is_not_mirrored() {
    const OTHER: &str = "10.0.0.3:80";
    let config = || {
        let mut config = config();
        config.groups.push(Group::of("other", [OriginUrl::at(address(OTHER))]));
        config.rules =
            vec![Rule { mirror: Some("other".to_owned()), ..rule("all", "path != '/x'") }];
        config
    };
    each_way(config, async |world: Rc<World>| {
        let other = Origin::start(address(OTHER));
        put("there", body(5)).await;
        let mut client = Client::new().await;
        assert_eq!(get(&mut client, "/there", "").await.body, body(5));
        assert_eq!(get(&mut client, "/gone?size=9", "").await.status, 200);
        sleep(Duration::from_secs(1)).await;
        assert_eq!((other.count("/there"), other.count("/gone?size=9")), (0, 1));
        assert_eq!(world.origin.count("/gone?size=9"), 1);
    });
}
