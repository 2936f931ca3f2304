//! What is refused: with which status, closed, and without a byte of it reaching the origin.

use std::rc::Rc;

use config::{Action, Group, Path, Route, Via};
use runtime::sim;
use server::{Config, Origin as OriginUrl};

use crate::origin::expected;
use crate::world::{
    Client, ORIGIN, World, address, each_way, each_way_http1, forward, reverse, run,
};

/// Heads and bodies that must not get through. `⏎` is CR LF, `␊` a bare LF, `␍` a bare CR.
const REFUSED: &[(u16, &str)] = &[
    (400, "GET /⏎⏎"),
    (400, "GET  / HTTP/1.1⏎Host: a⏎⏎"),
    (400, "GET / HTTP/1.1⏎⏎"),
    (400, "GET / HTTP/1.1⏎Host: a⏎Host: a⏎⏎"),
    (400, "GET / HTTP/1.1⏎Host: a⏎X : b⏎⏎"),
    (400, "GET / HTTP/1.1⏎Host: a⏎X: b⏎ c⏎⏎"),
    (400, "GET / HTTP/1.1␊Host: a␊␊"),
    (400, "GET / HTTP/1.1⏎Host: a⏎X: b␍c⏎⏎"),
    (400, "GET / HTTP/1.1⏎Host: a⏎X: \0⏎⏎"),
    (505, "GET / HTTP/2.0⏎Host: a⏎⏎"),
    (505, "PRI * HTTP/2.0⏎X: a⏎⏎SM⏎⏎"),
    (501, "CONNECT a:443 HTTP/1.1⏎Host: a:443⏎⏎"),
    (417, "POST / HTTP/1.1⏎Host: a⏎Content-Length: 1⏎Expect: the-unexpected⏎⏎x"),
    // Two ways to tell the end of a body, or one that others read otherwise: smuggling.
    (
        400,
        "POST / HTTP/1.1⏎Host: a⏎Content-Length: 6⏎Transfer-Encoding: chunked⏎⏎0⏎⏎GET /evil \
         HTTP/1.1⏎Host: a⏎⏎",
    ),
    (400, "POST / HTTP/1.1⏎Host: a⏎Transfer-Encoding: chunked⏎Content-Length: 0⏎⏎0⏎⏎"),
    (400, "POST / HTTP/1.1⏎Host: a⏎Content-Length: 5⏎Content-Length: 6⏎⏎12345"),
    (400, "POST / HTTP/1.1⏎Host: a⏎Content-Length: 5, 5⏎⏎12345"),
    (400, "POST / HTTP/1.1⏎Host: a⏎Content-Length: +5⏎⏎12345"),
    (400, "POST / HTTP/1.1⏎Host: a⏎Transfer-Encoding: xchunked⏎⏎0⏎⏎"),
    (400, "POST / HTTP/1.1⏎Host: a⏎Transfer-Encoding: chunked, identity⏎⏎0⏎⏎"),
    (501, "POST / HTTP/1.1⏎Host: a⏎Transfer-Encoding: gzip, chunked⏎⏎0⏎⏎"),
    (400, "POST / HTTP/1.1⏎Host: a⏎Transfer-Encoding : chunked⏎⏎0⏎⏎"),
    (400, "POST / HTTP/1.1⏎Host: a⏎Transfer-Encoding:\u{b}chunked⏎⏎0⏎⏎"),
    (400, "POST / HTTP/1.0⏎Host: a⏎Transfer-Encoding: chunked⏎⏎0⏎⏎"),
    (400, "GET / HTTP/1.1⏎Host: a⏎Content-Length: 5⏎Transfer-Encoding: chunked⏎⏎"),
    // Bodies that are wrong inside.
    (400, "POST /b HTTP/1.1⏎Host: a⏎Transfer-Encoding: chunked⏎⏎zz⏎"),
    (400, "POST /b HTTP/1.1⏎Host: a⏎Transfer-Encoding: chunked⏎⏎-1⏎"),
    (400, "POST /b HTTP/1.1⏎Host: a⏎Transfer-Encoding: chunked⏎⏎10000000000000000⏎"),
    (400, "POST /b HTTP/1.1⏎Host: a⏎Transfer-Encoding: chunked⏎⏎3⏎abcd⏎0⏎⏎"),
    (400, "POST /b HTTP/1.1⏎Host: a⏎Transfer-Encoding: chunked⏎⏎3␊abc␊0␊␊"),
];

fn bytes(text: &str) -> Vec<u8> {
    text.replace('⏎', "\r\n").replace('␊', "\n").replace('␍', "\r").into_bytes()
}

#[test]
fn a_malformed_request_is_refused_and_reaches_no_origin() {
    each_way_http1(reverse, async |world: Rc<World>| {
        for (status, text) in REFUSED {
            let mut client = Client::new().await;
            let got = client.ask(&bytes(text)).await;
            assert_eq!((got.status, got.field("connection")), (*status, Some("close")), "{text}");
            assert!(client.ends().await, "{text}");
        }
        let whole = world.origin.seen.borrow();
        assert!(whole.is_empty(), "{whole:?}");
        assert_eq!(world.counter("client_errors"), 29);
    });
}

/// The refusal comes behind the answers to what was asked before it, and nothing comes behind it.
#[test]
fn a_refusal_keeps_its_place_among_pipelined_responses() {
    each_way_http1(reverse, async |world: Rc<World>| {
        let hit = "/hit?size=20&cc=max-age=600";
        Client::new().await.get(hit, "").await;
        for (status, text) in REFUSED {
            let mut client = Client::new().await;
            let mut all =
                format!("GET {hit} HTTP/1.1\r\nHost: site\r\n\r\n").repeat(2).into_bytes();
            let slow = "/slow?size=30&cc=no-store";
            all.extend(format!("GET {slow} HTTP/1.1\r\nHost: site\r\n\r\n").into_bytes());
            all.extend(bytes(text));
            let got = client.pipeline(&all, 4).await;
            assert_eq!(got[0].body, expected(hit, None));
            assert_eq!(got[1].body, expected(hit, None));
            assert_eq!(got[2].body, expected(slow, None));
            assert_eq!(got[3].status, *status, "{text}");
            assert!(client.ends().await);
        }
        assert_eq!(world.origin.seen.borrow().iter().filter(|s| s.method != "GET").count(), 0);
    });
}

#[test]
fn heads_over_the_limits_are_refused() {
    let rows: [(u16, String); 4] = [
        (431, format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(70_000))),
        (431, format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(200))),
        (414, format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(10_000))),
        (431, format!("GET / HTTP/1.1\r\nHost: a\r\n{}", "A: b\r\n".repeat(50_000))),
    ];
    sim::check(0..3, |seed| {
        run(sim::Options::new(seed), reverse(), async |world: Rc<World>| {
            for (status, text) in &rows {
                let mut client = Client::new().await;
                let stream = Rc::clone(client.stream());
                let text = text.clone();
                // It goes on sending whatever comes back: the refusal must not be lost to that.
                let sending = runtime::spawn(async move {
                    let _ = stream.write_all(text.as_bytes()).await;
                });
                assert_eq!(client.response().await.unwrap().status, *status);
                sending.await;
            }
            assert!(world.origin.seen.borrow().is_empty());
        });
    });
}

/// What one hop says to the next does not go further, and what names a field takes it along.
#[test]
fn hop_by_hop_fields_are_not_forwarded() {
    each_way_http1(reverse, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let fields = "Connection: keep-alive, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nTE: x\r\n\
                      Upgrade: h2c\r\nProxy-Connection: close\r\nX-Yours: 2\r\n";
        for target in ["/hop?size=3&cc=no-store", "/hop?size=3&cc=max-age=600"] {
            let got = client.get(target, fields).await;
            assert_eq!(got.status, 200);
            for hop in ["keep-alive", "x-hop", "connection"] {
                assert_eq!(got.field(hop), None, "{got:?}");
            }
            let seen = world.origin.last();
            assert_eq!((seen.field("x-mine"), seen.field("x-yours")), (None, Some("2")));
        }
    });
}

#[test]
fn options_and_trace_go_as_far_as_they_may() {
    each_way(reverse, async |world: Rc<World>| {
        let mut client = Client::new().await;
        for (method, status) in [("OPTIONS", 200), ("TRACE", 501)] {
            for target in ["/m?size=3", "*"] {
                if (method, target) == ("TRACE", "*") {
                    continue;
                }
                let ask = |forwards: &str| {
                    format!(
                        "{method} {target} HTTP/1.1\r\nHost: s\r\nMax-Forwards: {forwards}\r\n\r\n"
                    )
                };
                let before = world.origin.seen.borrow().len();
                assert_eq!(client.ask(ask("0").as_bytes()).await.status, status);
                assert_eq!(world.origin.seen.borrow().len(), before);
                assert_eq!(client.ask(ask("4").as_bytes()).await.status, 200);
                assert_eq!(world.origin.last().field("max-forwards"), Some("3"));
            }
        }
        client.get("/g?size=1&cc=no-store", "Max-Forwards: 0\r\n").await;
        assert_eq!(world.origin.last().field("max-forwards"), Some("0"));
    });
}

/// A request that comes back to us goes in a circle; one of another proxy of our kind does not.
#[test]
fn a_request_that_has_passed_this_proxy_is_a_loop() {
    each_way(reverse, async |world: Rc<World>| {
        let mut client = Client::new().await;
        let target = "/loop?size=3&cc=no-store";
        assert_eq!(client.get(target, "").await.status, 200);
        let via = world.origin.last().field("via").unwrap().to_owned();
        let ours = via.rsplit(' ').next().unwrap();
        assert!(ours.starts_with("plimsoll-"), "{via}");
        assert_eq!(
            client.get(target, &format!("Via: 1.0 other, 1.1 {ours}\r\n")).await.status,
            508
        );
        assert_eq!(world.origin.seen.borrow().len(), 1);
        let refused = world.metrics().await;
        let name = "plimsoll_refusals_total{rule=\"loop\"}";
        assert_eq!(refused.iter().find(|(n, _)| n == name).unwrap().1, 1);
        assert!(client.ends().await);
    });
}

/// A response neither from an origin nor from the store has no Cache-Status (RFC 9211, 2): a
/// refusal says in `Proxy-Status` why it is one (RFC 9209), and no other answer does.
#[test]
fn our_own_responses_have_no_cache_status_and_refusals_have_a_proxy_status() {
    let config = || {
        let site = Group::of("site", [OriginUrl::at(address(ORIGIN))]);
        let gone = Group::of("gone", [OriginUrl::at(address("10.0.0.9:80"))]);
        let prefix =
            |prefix: &str, to: &str| Route { path: Path::Prefix(prefix.into()), ..Route::to(to) };
        let said = Action::Answer { status: 200, body: "said\n".into() };
        let routes = vec![
            prefix("/s", "site"),
            prefix("/gone", "gone"),
            Route { action: said, ..prefix("/said", "") },
        ];
        Config { groups: vec![site, gone], routes, ..reverse() }
    };
    let refused = |error: &str, rule: &str| format!("plimsoll; error={error}; details=\"{rule}\"");
    let rows = [
        (
            "GET /s/none",
            "Cache-Control: only-if-cached\r\n",
            504,
            "proxy_internal_response",
            "only-if-cached",
        ),
        ("GET /s/g?garbage=1", "", 502, "http_protocol_error", "upstream-version"),
        ("GET /gone/a", "", 502, "connection_refused", "upstream-connect"),
        ("GET /nowhere", "", 404, "destination_not_found", "no-route"),
        ("GET /s/..%2Fgone", "", 400, "http_request_error", "ambiguous"),
        ("OPTIONS /s", "Max-Forwards: 0\r\n", 200, "proxy_internal_response", "options"),
        ("GET /s", "Expect: more\r\n", 417, "http_request_error", "expectation"),
        ("CONNECT a:443", "", 501, "http_request_error", "connect"),
    ];
    each_way(config, async |_: Rc<World>| {
        for (line, fields, status, error, rule) in rows {
            let mut client = match line.starts_with("CONNECT") {
                true => Client::http1().await,
                false => Client::new().await,
            };
            let ask = format!("{line} HTTP/1.1\r\nHost: s\r\n{fields}\r\n");
            let got = client.ask(ask.as_bytes()).await;
            assert_eq!((got.status, got.field("cache-status")), (status, None), "{line}");
            assert_eq!(got.field("proxy-status"), Some(&*refused(error, rule)), "{line}");
        }
        let mut client = Client::http1().await;
        client.send(b"BROKEN\r\n\r\n").await.unwrap();
        let got = client.response().await.unwrap();
        assert_eq!(got.field("cache-status"), None);
        assert!(
            got.field("proxy-status").unwrap().starts_with("plimsoll; error=http_request_error")
        );
        // Neither a refusal nor from elsewhere; then one from elsewhere.
        let mut client = Client::new().await;
        let purge = b"PURGE /s HTTP/1.1\r\nHost: s\r\n\r\n";
        let own = [client.ask(purge).await, client.get("/said", "").await];
        for got in own {
            assert_eq!(got.status, 200);
            assert_eq!((got.field("cache-status"), got.field("proxy-status")), (None, None));
        }
        let got = client.get("/s?status=404", "").await;
        assert!(got.field("cache-status").is_some() && got.field("proxy-status").is_none());
    });
    each_way(forward, async |_: Rc<World>| {
        for (target, error, rule) in [
            ("http://10.0.0.2:25/", "http_request_denied", "port"),
            ("http://192.168.7.7/", "destination_ip_prohibited", "address"),
        ] {
            let got = Client::new().await.get(target, "").await;
            assert_eq!((got.status, got.field("cache-status")), (403, None), "{target}");
            assert_eq!(got.field("proxy-status"), Some(&*refused(error, rule)), "{target}");
        }
    });
}

#[test]
fn messages_name_us_as_configured() {
    let name = || Some("cache-1.example:80".parse().unwrap());
    for (via, of_request, of_response) in [
        (Via::default(), Some("1.1 plimsoll-"), Some("1.1 plimsoll")),
        (
            Via { name: name(), ..Via::default() },
            Some("1.1 cache-1.example:80"),
            Some("1.1 cache-1.example:80"),
        ),
        (Via { responses: false, ..Via::default() }, Some("1.1 plimsoll-"), None),
        (
            Via { requests: false, name: name(), ..Via::default() },
            None,
            Some("1.1 cache-1.example:80"),
        ),
    ] {
        let config = || Config { via: via.clone(), ..reverse() };
        each_way(config, async |world: Rc<World>| {
            let mut client = Client::new().await;
            let own = if via.requests { "" } else { "X-Via-Off: 1\r\n" };
            // Passed on, stored, from store, a 304 and a part of it.
            let stored = "/v?size=30&cc=max-age=60&etag=a";
            for (target, fields, status) in [
                ("/n?size=3&cc=no-store", "", 200),
                (stored, "", 200),
                (stored, "", 200),
                (stored, "If-None-Match: \"a.0\"\r\n", 304),
                (stored, "Range: bytes=3-5\r\n", 206),
                (stored, "Range: bytes=3-5, 9-10\r\n", 206),
                (stored, "Range: bytes=99-\r\n", 416),
                (stored, "Cache-Control: no-cache\r\n", 200),
                (stored, "", 200),
            ] {
                let got = client.get(target, &format!("{own}{fields}")).await;
                assert_eq!((got.status, got.field("via")), (status, of_response), "{fields}");
            }
            let seen = world.origin.last();
            assert_eq!(seen.field("via").is_some(), of_request.is_some());
            let of_request = of_request.unwrap_or_default();
            let begins = match client.is_http1() {
                _ if client.is_http3() => of_request.replace("1.1 ", "3.0 "),
                true => of_request.to_owned(),
                false => of_request.replace("1.1 ", "2.0 "),
            };
            assert!(seen.field("via").unwrap_or_default().starts_with(&begins), "{seen:?}");
            if via.name.is_some() {
                let circle = "Via: 1.1 other, 1.1 Cache-1.example:80\r\n";
                let got = Client::new().await.get("/c?size=3&cc=no-store", circle).await;
                assert_eq!(got.status, 508);
            }
        });
    }
}
