//! An import costs as much as its file is long: twice the file, twice the memory. Counted by the
//! allocator, which belongs to the whole process, so this is the only test in its file.

use import::{Options, Source, import};

#[global_allocator]
static COUNTING: runtime::CountingAllocator = runtime::CountingAllocator;

/// Entries of the shorter file.
const ENTRIES: usize = 100;

/// How much more the file of twice the length may cost, in percent. Lists that double their room
/// make it more than 200.
const PERCENT_MAX: u64 = 260;

/// A file with an entry for each number: what comes before, an entry, and what comes after.
type Kind = (&'static str, Source, &'static str, fn(usize) -> String, &'static str);

const KINDS: &[Kind] = &[
    ("servers", Source::Nginx, "http {", server, "}"),
    ("locations", Source::Nginx, "http { upstream a { server b; } server {", location, "} }"),
    ("expressions", Source::Nginx, "http { upstream a { server b; } server {", expression, "} }"),
    ("files", Source::Nginx, "http { server { root /srv;", files, "} }"),
    (
        "limits",
        Source::Nginx,
        "http { limit_req_zone $uri zone=z:1m rate=1r/s; server {",
        limit,
        "} }",
    ),
    (
        "cookies",
        Source::Nginx,
        "http { map $http_cookie $s {",
        cookie,
        "} server { location / { proxy_cache z; proxy_no_cache $s; proxy_pass http://a; } } }",
    ),
    ("turns", Source::Squid, "http_port 3128\n", turn, "http_access deny all\n"),
    ("rules", Source::Squid, "http_port 3128\n", rule, "http_access deny all\n"),
    ("handles", Source::Caddy, ":80 {\n", handle, "}\n"),
    ("sites", Source::Caddy, "(a) {\nheader X-A {args[0]}\n}\n", site, ""),
    ("statements", Source::Vcl, "backend a { .host = \"b\"; } sub vcl_recv {", statement, "}"),
];

fn server(at: usize) -> String {
    format!(
        "upstream u{at} {{ server 127.0.0.1:1; }}\n\
         server {{ listen 127.0.0.1:80; server_name h{at}.example; add_header X-A a;\n\
         location / {{ proxy_cache z; proxy_cache_valid 1m; proxy_pass http://u{at}; }} }}\n"
    )
}

fn handle(at: usize) -> String {
    format!("@m{at} path /p{at}/* /q{at}\nhandle @m{at} {{\nreverse_proxy 127.0.0.1:{at}\n}}\n")
}

fn site(at: usize) -> String {
    format!("http://h{at}.example {{\nimport a {at}\nroot * /srv\nfile_server\n}}\n")
}

fn location(at: usize) -> String {
    format!(
        "location /p{at}/ {{ proxy_set_header Host h{at}.example; proxy_pass http://a; }}\n\
         location /q{at} {{ deny all; }}\n"
    )
}

fn expression(at: usize) -> String {
    format!(
        "location ~ ^/p{at}/[0-9] {{ proxy_pass http://a; }}\n\
         location /p{at}/ {{ proxy_pass http://a; }}\n"
    )
}

fn files(at: usize) -> String {
    format!("location /p{at}/ {{ try_files $uri $uri/ =404; }}\nlocation /q{at} {{ deny all; }}\n")
}

fn limit(at: usize) -> String {
    format!("location /p{at}/ {{ limit_req zone=z; proxy_pass http://127.0.0.1:1; }}\n")
}

fn cookie(at: usize) -> String {
    format!("\"~(^|; )c{at}=\" 1;\n")
}

fn turn(at: usize) -> String {
    format!("acl n{at} src 10.0.{at}.1\nhttp_access deny n{at}\nhttp_access allow localhost\n")
}

fn rule(at: usize) -> String {
    format!(
        "acl n{at} src 10.0.{at}.0/24\nacl d{at} dstdomain .d{at}.example\n\
         http_access deny d{at}\nhttp_access deny n{at}\n"
    )
}

fn statement(at: usize) -> String {
    format!("set req.http.X-{at} = \"{at}\";\n")
}

/// Allocated bytes, and blocks, of an import.
fn cost((name, source, before, entry, after): &Kind, entries: usize) -> (u64, u64) {
    let inner: String = (0..entries).map(entry).collect();
    let text = format!("{before}\n{inner}{after}\n");
    let mut read = |_: &str| Err("there are no other files".to_owned());
    let start = runtime::allocations();
    let imported = import(*source, name, &text, Options::default(), &mut read);
    let end = runtime::allocations();
    assert!(imported.is_ok(), "{name}: {imported:?}");
    (end.bytes - start.bytes, end.count - start.count)
}

#[test]
fn twice_the_file_costs_twice_the_memory() {
    for kind in KINDS {
        let (once, twice) = (cost(kind, ENTRIES), cost(kind, 2 * ENTRIES));
        for (what, once, twice) in [("bytes", once.0, twice.0), ("blocks", once.1, twice.1)] {
            let percent = twice * 100 / once;
            assert!(percent <= PERCENT_MAX, "{}: {percent} % of {once} {what}", kind.0);
        }
    }
}
