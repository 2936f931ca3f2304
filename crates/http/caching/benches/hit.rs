//! What the rules cost on a hit and on a miss: `cargo bench -p caching`.

use std::hint::black_box;
use std::time::Instant;

use caching::{
    CacheControl, Exchange, Policy, Request, RequestHints, Response, StoredMeta, Vary, VaryNames,
    date, decide_reuse, may_store, vary,
};

const ROUNDS: u32 = 5;
const OPERATIONS: u32 = 200_000;
const NOW_MS: u64 = 784_111_777_000;

const REQUEST: [(&str, &str); 8] = [
    ("Host", "www.example.com"),
    ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    ("Accept-Language", "en-US,en;q=0.5"),
    ("Accept-Encoding", "gzip, deflate, br, zstd"),
    ("Connection", "keep-alive"),
    ("Referer", "http://www.example.com/"),
    ("Cookie", "session=0123456789abcdef"),
];
const RESPONSE: [(&str, &str); 8] = [
    ("Date", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ("Server", "origin"),
    ("Content-Type", "text/html"),
    ("Content-Length", "1024"),
    ("Last-Modified", "Sat, 05 Nov 1994 08:49:37 GMT"),
    ("ETag", "\"0123456789abcdef\""),
    ("Cache-Control", "public, max-age=3600, stale-while-revalidate=60"),
    ("Vary", "Accept-Encoding"),
];

fn main() {
    let request = Request { method: b"GET", fields: &REQUEST };
    let response = Response { status: 200, fields: &RESPONSE };
    let exchange = Exchange { request_ms: NOW_MS, response_ms: NOW_MS };
    let meta = StoredMeta::of(&response, exchange, &Policy::SHARED);
    print("hints of a browser's request", || {
        black_box(RequestHints::of(black_box(&REQUEST)));
    });
    print("is_fresh", || {
        black_box(meta.is_fresh(black_box(NOW_MS)));
    });
    print("decide_reuse, nothing prepared", || {
        black_box(decide_reuse(black_box(&request), &meta, NOW_MS));
    });
    let names = names();
    let key = names.key(&REQUEST);
    print("Vary: Accept-Encoding, match", || {
        black_box(names.matches(&key, black_box(&REQUEST)));
    });
    print("may_store", || {
        drop(black_box(may_store(&request, black_box(&response), exchange, &Policy::SHARED)));
    });
    print("Cache-Control of three directives", || {
        black_box(CacheControl::of(black_box(&RESPONSE)));
    });
    print("date in", || {
        black_box(date::parse(black_box(b"Sun, 06 Nov 1994 08:49:37 GMT"), NOW_MS));
    });
    print("date out", || {
        black_box(date::format(black_box(NOW_MS)));
    });
}

fn names() -> VaryNames {
    match vary(&RESPONSE) {
        Vary::Names(names) => names,
        other => unreachable!("{other:?}"),
    }
}

/// The best round counts: the others were disturbed.
fn print(what: &str, mut operation: impl FnMut()) {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..OPERATIONS {
            operation();
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{what:40} {:7.1} ns", best / f64::from(OPERATIONS) * 1e9);
}
