//! What a condition costs a request: `cargo bench -p conditions`, or `-- WORD` for the lines with a
//! word.

use std::hint::black_box;
use std::net::IpAddr;
use std::time::Instant;

use conditions::{Builder, Conditions, Facts, Id, Lists, ResponseFacts, Scope, Sent};
use http1::{Limits, Scratch, parse_request, parse_response};

/// Many short rounds, so that some rounds are not interrupted.
const ROUNDS: u32 = 500;
const OPERATIONS: u32 = 1_000;

const REQUEST: &[u8] = b"GET /shop/items/4711.html?page=2&sort=price HTTP/1.1\r\n\
    Host: www.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Connection: keep-alive\r\n\
    Referer: http://www.example.com/\r\n\
    Cookie: theme=dark; session=0123456789abcdef; lang=en\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    Content-Type: text/html\r\n\
    Content-Length: 1024\r\n\r\n";

/// One condition of each kind.
const ONE: &[&str] = &[
    "path.startsWith('/shop/')",
    "path == '/shop/items/4711.html'",
    "path.endsWith('.html')",
    "path.contains('items')",
    "path.glob('/shop/*/*.html')",
    "path.matches('^/shop/[a-z]+/[0-9]+[.]html$')",
    "host == 'www.example.com'",
    "host in ['a.example', 'www.example.com', 'b.example']",
    "host in hosts",
    "method in ['GET', 'HEAD']",
    "fields['user-agent'].contains('Firefox')",
    "fields['user-agent'].lowerAscii().contains('firefox')",
    "fields['x-absent'] == ''",
    "'authorization' in fields",
    "cookies['session'] != ''",
    "args['sort'] == 'price'",
    "client.within('10.0.0.0/8', '192.0.2.0/24')",
    "client.within(office)",
    "share(cookies['session']) < 0.1",
    "random < 0.05",
    "hour >= 8 && hour < 18",
    "status in [404, 410]",
    "status >= 500",
    "host == 'www.example.com' && path.startsWith('/shop/') && method == 'GET'",
];

fn main() {
    let mut space = (Scratch::new(), Scratch::new());
    let limits = Limits::DEFAULT;
    let request = parse_request(REQUEST, &mut space.0, &limits).expect("valid").expect("whole");
    let response = parse_response(RESPONSE, &mut space.1, &limits);
    let response = response.expect("valid").expect("whole");
    let facts = Facts {
        host: b"www.example.com",
        path: b"/shop/items/4711.html",
        query: b"page=2&sort=price",
        sent: Sent {
            authority: b"www.example.com",
            path_and_query: b"/shop/items/4711.html?page=2&sort=price",
            tunnel_port: None,
        },
        method: b"GET",
        scheme: "https",
        listener: "main",
        port: 443,
        client: IpAddr::from([192, 0, 2, 7]),
        user: None,
        fields: request.fields,
        tls: None,
        now_s: 1_700_000_000,
        random: 0.25,
        response: Some(ResponseFacts { status: 200, fields: response.fields, size: Some(1024) }),
    };
    for text in ONE.iter().filter(|text| is_wanted(text)) {
        let (conditions, ids) = compiled([(*text).to_owned()]);
        print(text, || {
            black_box(conditions.judge(black_box(facts)).holds(ids[0]));
        });
    }
    hundred("100 rules of one kind: prefixes", &facts, |at| format!("path.startsWith('/p{at}/')"));
    hundred("100 rules of one kind: hosts", &facts, |at| format!("host == 'h{at}.example'"));
    hundred("100 rules of one kind: suffixes", &facts, |at| format!("path.endsWith('.x{at}')"));
    hundred("100 rules of one kind: patterns", &facts, |at| {
        format!("path.matches('^/[a-z]+{at}/[0-9]+$')")
    });
    hundred("100 rules of one kind: agents", &facts, |at| {
        format!("fields['user-agent'].contains('Bot{at}')")
    });
    hundred("100 rules of one kind: networks", &facts, |at| {
        format!("client.within('10.{at}.0.0/16')")
    });
    hundred("100 rules of one kind: statuses", &facts, |at| format!("status == {}", 400 + at));
    hundred("100 rules of one kind: cookies", &facts, |at| format!("cookies['c{at}'] == 'x'"));
    hundred("100 rules, mixed", &facts, mixed);
    hundred("100 rules, mixed, each for one host", &facts, |at| {
        format!("host == 'h{}.example' && {}", at % 20, mixed(at))
    });
    hundred("100 rules, mixed, each for this host", &facts, |at| {
        format!("host == 'www.example.com' && {}", mixed(at))
    });
}

fn mixed(at: usize) -> String {
    match at % 10 {
        0..=2 => format!("path.startsWith('/p{at}/')"),
        3 => format!("path.endsWith('.x{at}')"),
        4 => format!("path.matches('^/[a-z]+/{at}/[0-9]+$')"),
        5 => format!("path.glob('/shop/*/p{at}')"),
        6 => format!("fields['user-agent'].contains('Bot{at}')"),
        7 => format!("cookies['session'] == '{at}'"),
        8 => format!("client.within('10.{at}.0.0/16') && method == 'POST'"),
        _ => format!("args['page'] == '{at}' || status == {}", 400 + at),
    }
}

fn hundred(name: &str, facts: &Facts<'_>, text: impl Fn(usize) -> String) {
    if !is_wanted(name) {
        return;
    }
    let (conditions, ids) = compiled((0..100).map(text));
    print(name, || {
        conditions.judge(black_box(*facts)).matching(&ids, |at| {
            black_box(at);
        });
    });
}

fn compiled(texts: impl IntoIterator<Item = String>) -> (Conditions, Vec<Id>) {
    let mut lists = Lists::new();
    let hosts = (0..1000).map(|at| format!("h{at}.example")).collect();
    lists.add_list("hosts", hosts).expect("a list");
    let office = (0..100).map(|at| format!("198.51.{at}.0/25")).collect();
    lists.add_list("office", office).expect("a list");
    let mut builder = Builder::new(lists);
    let add = |text: String| {
        builder.add(&text, Scope::Response).unwrap_or_else(|why| panic!("{why}: {text}"))
    };
    let ids = texts.into_iter().map(add).collect();
    (builder.build(), ids)
}

/// Whether the arguments ask for this line.
fn is_wanted(name: &str) -> bool {
    let mut words = std::env::args().skip(1).filter(|argument| argument != "--bench");
    words.next().is_none_or(|word| name.contains(&word))
}

fn print(name: &str, mut operation: impl FnMut()) {
    let mut best_ns = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        (0..OPERATIONS).for_each(|_| operation());
        best_ns = best_ns.min(start.elapsed().as_nanos() as f64 / f64::from(OPERATIONS));
    }
    println!("{best_ns:8.1} ns  {name}");
}
