//! Arbitrary bytes from one client, or from one origin: they never panic the proxy, never reach
//! into another connection, and are always answered or cut.

use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;
use runtime::net::{ListenOptions, TcpListener};
use runtime::sim;
use runtime::time::timeout;

use crate::origin::expected;
use crate::some;
use crate::world::{Client, ORIGIN, World, forward, reverse, run};

/// What heads are made of.
const LETTERS: &[u8] = b"GET /:\r\n \t0a;,HTP1.\0\xff";

/// Parts of requests, whole, cut short and wrong, and noise between them.
fn part() -> impl Strategy<Value = Vec<u8>> {
    let text = |text: &'static str| Just(text.replace('⏎', "\r\n").into_bytes());
    prop_oneof![
        4 => text("GET /h?size=40&cc=max-age=600 HTTP/1.1⏎Host: site⏎⏎"),
        4 => text("GET /n?size=40&cc=no-store HTTP/1.1⏎Host: site⏎⏎"),
        2 => text("HEAD /h?size=40&cc=max-age=600 HTTP/1.1⏎Host: site⏎⏎"),
        2 => text("GET /old?size=9 HTTP/1.0⏎⏎"),
        2 => text("POST /p HTTP/1.1⏎Host: site⏎Content-Length: 4⏎⏎"),
        2 => text("POST /p HTTP/1.1⏎Host: site⏎Transfer-Encoding: chunked⏎⏎"),
        2 => text("POST /p?early=1 HTTP/1.1⏎Host: site⏎Content-Length: 40⏎⏎"),
        1 => text("PURGE /p HTTP/1.1⏎Host: site⏎Content-Length: 4⏎Expect: 100-continue⏎⏎"),
        1 => text("GET /p HTTP/1.1⏎Host: site⏎Content-Length: 4⏎Transfer-Encoding: chunked⏎⏎"),
        1 => text("OPTIONS * HTTP/1.1⏎Host: site⏎Connection: close⏎⏎"),
        1 => text("GET http://other/x?size=3 HTTP/1.1⏎Host: site⏎Range: bytes=0-⏎⏎"),
        2 => text("4⏎abcd⏎"),
        2 => text("0⏎⏎"),
        1 => text("0⏎X: y⏎⏎"),
        1 => text("GET / HT"),
        1 => text("⏎"),
        1 => text("Host: site⏎"),
        2 => prop::collection::vec(any::<u8>(), 0..40),
        1 => prop::collection::vec(prop::sample::select(LETTERS), 0..60),
    ]
}

fn attacks(seed: u64, parts: &[Vec<u8>]) {
    run(sim::Options::rough(seed), reverse(), async |world: Rc<World>| {
        let innocent = runtime::spawn(async {
            let mut client = Client::new().await;
            for round in 0..6 {
                for cc in ["max-age=600", "no-store"] {
                    let target = format!("/mine{}?size=60&cc={cc}", round % 2);
                    let got = client.get(&target, "").await;
                    assert_eq!((got.status, got.body), (200, expected(&target, None)));
                }
            }
        });
        let attacker = Client::new().await;
        let bytes = parts.concat();
        let stream = Rc::clone(attacker.stream());
        let reading = runtime::spawn(async move {
            let mut buf = [0; 4096];
            while stream.read(&mut buf).await.is_ok_and(|read| read > 0) {}
        });
        let _ = attacker.send(&bytes).await;
        let _ = attacker.stream().shutdown(std::net::Shutdown::Write);
        innocent.await;
        // Whatever it was, the connection comes to an end by itself.
        let ended = timeout(Duration::from_secs(200), reading).await;
        assert!(ended.is_ok(), "{}", bytes.escape_ascii());
        assert!(world.counter("connections_open") <= 1);
    });
}

/// Parts of responses, whole, cut short and wrong, and noise between them.
fn answer_part() -> impl Strategy<Value = Vec<u8>> {
    let text = |text: &'static str| Just(text.replace('⏎', "\r\n").into_bytes());
    prop_oneof![
        4 => text("HTTP/1.1 200 OK⏎Content-Length: 4⏎⏎"),
        4 => text("HTTP/1.1 200 OK⏎Content-Length: 4⏎Cache-Control: max-age=60⏎⏎"),
        3 => text("HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎Cache-Control: max-age=60⏎⏎"),
        2 => text("HTTP/1.0 200 OK⏎Cache-Control: max-age=60⏎⏎"),
        2 => text("HTTP/1.1 304 Not Modified⏎ETag: \"a\"⏎⏎"),
        2 => text("HTTP/1.1 204 No Content⏎⏎"),
        2 => text("HTTP/1.1 103 Early Hints⏎⏎"),
        1 => text("HTTP/1.1 101 Switching Protocols⏎Upgrade: x⏎⏎"),
        1 => text("HTTP/1.1 200 OK⏎Content-Length: 4⏎Content-Length: 5⏎⏎"),
        1 => text("HTTP/1.1 200 OK⏎Content-Length: 4⏎Transfer-Encoding: chunked⏎⏎"),
        1 => text("HTTP/1.1 200 OK⏎Vary: *⏎Content-Length: 99999999999⏎⏎"),
        1 => text("HTTP/1.1 999 What⏎⏎"),
        3 => text("abcd"),
        2 => text("4⏎abcd⏎"),
        2 => text("0⏎⏎"),
        1 => text("⏎"),
        2 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

/// An origin that says `bytes` on each of its connections, whatever it is asked.
pub(crate) async fn origin_of(bytes: Vec<u8>, closes: bool) {
    let at = crate::world::address(HOSTILE);
    let listener = TcpListener::bind(at, &ListenOptions::default()).unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        let bytes = bytes.clone();
        runtime::spawn(async move {
            let mut buf = [0; 4096];
            while stream.read(&mut buf).await.is_ok_and(|read| read > 0) {
                if stream.write_all(&bytes).await.is_err() || closes {
                    return;
                }
            }
        })
        .detach();
    }
}

pub(crate) const HOSTILE: &str = "10.0.0.7:80";

fn answers(seed: u64, parts: &[Vec<u8>], closes: bool) {
    run(sim::Options::rough(seed), forward(), async |world: Rc<World>| {
        runtime::spawn(origin_of(parts.concat(), closes)).detach();
        let good = "/mine?size=60&cc=no-store";
        for method in ["GET", "HEAD", "GET"] {
            let mut client = Client::new().await;
            let request = format!("{method} http://{HOSTILE}/x HTTP/1.1\r\nHost: x\r\n\r\n");
            client.send(request.as_bytes()).await.unwrap();
            // Whole or broken, it ends; what is asked of another origin then is right.
            let got = timeout(Duration::from_secs(200), client.response_to(method)).await;
            let goes_on = got.expect("an end").is_ok_and(|got| got.field("connection").is_none());
            let mut client = if goes_on { client } else { Client::new().await };
            let got = client.get(&format!("http://{ORIGIN}{good}"), "").await;
            assert_eq!((got.status, got.body), (200, expected(good, None)));
        }
        assert!(world.counter("connections_open") <= 3);
    });
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: some(0..150).end as u32,
        ..ProptestConfig::default()
    })]

    #[test]
    fn arbitrary_requests_do_no_harm(
        seed in any::<u64>(),
        parts in prop::collection::vec(part(), 1..7),
    ) {
        sim::check([seed], |seed| attacks(seed, &parts));
    }

    #[test]
    fn arbitrary_responses_do_no_harm(
        seed in any::<u64>(),
        parts in prop::collection::vec(answer_part(), 0..6),
        closes in any::<bool>(),
    ) {
        sim::check([seed], |seed| answers(seed, &parts, closes));
    }
}
