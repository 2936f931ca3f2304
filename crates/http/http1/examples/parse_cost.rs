//! What parsing a head costs: nanoseconds per head, the best of several short rounds.
//!
//! `cargo run --release -p http1 --example parse_cost`

use std::hint::black_box;
use std::time::Instant;

use http1::{Limits, Scratch, parse_request, parse_response};

const ROUNDS: usize = 20;
const HEADS_PER_ROUND: u32 = 50_000;

const SMALL: &[u8] = b"GET /obj/123?size=1024 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";
const USUAL: &[u8] = b"GET /obj/123 HTTP/1.1\r\nHost: example.org\r\nUser-Agent: wrk/4.1.0\r\n\
    Accept: */*\r\nConnection: keep-alive\r\n\r\n";
const BROWSER: &[u8] = b"GET /wiki/Load_line HTTP/1.1\r\nHost: en.example.org\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-GB,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
    Referer: https://en.example.org/wiki/Plimsoll\r\nConnection: keep-alive\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\
    Upgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-Site: same-origin\r\nPriority: u=0, i\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nDate: Fri, 02 Jan 2026 03:04:05 GMT\r\n\
    Content-Type: text/plain\r\nContent-Length: 1024\r\nCache-Control: max-age=60\r\n\
    ETag: \"abc\"\r\n\r\n";

fn main() {
    let limits = Limits::default();
    let mut scratch = Scratch::new();
    for (name, head) in [("small", SMALL), ("usual", USUAL), ("browser", BROWSER)] {
        let cost = best(|| {
            let head = parse_request(black_box(head), &mut scratch, &limits);
            black_box(&head).as_ref().is_ok_and(Option::is_some)
        });
        println!("request, {name:8} {:4} bytes  {cost:6.1} ns", head.len());
    }
    let cost = best(|| {
        let head = parse_response(black_box(RESPONSE), &mut scratch, &limits);
        black_box(&head).as_ref().is_ok_and(Option::is_some)
    });
    println!("response          {:4} bytes  {cost:6.1} ns", RESPONSE.len());
}

fn best(mut parse: impl FnMut() -> bool) -> f64 {
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..HEADS_PER_ROUND {
                assert!(parse());
            }
            start.elapsed().as_nanos() as f64 / f64::from(HEADS_PER_ROUND)
        })
        .fold(f64::INFINITY, f64::min)
}
