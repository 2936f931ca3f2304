//! Debian's nginx, in front of two applications.

use super::{Allowed, Answer, Pair, REQUESTS, Request, origin, pushing};
use crate::support::{Home, free_port, nginx};

fn hit(answer: &Answer) -> bool {
    matches!(answer.field("x-cache").as_str(), "HIT" | "REVALIDATED")
}

/// The smallest store on disk.
const SMALL: &[(&str, &str)] = &[("bytes = \"64MiB\"", "bytes = \"32MiB\"")];

const ALLOWED: &[Allowed] = &[Allowed {
    why: "the type of what `return` sends is default_type in nginx; ours has its charset",
    applies: |request, theirs, ours| {
        request.target == "/status" && theirs.body == ours.body && theirs.status == ours.status
    },
}];

#[test]
fn nginx_and_its_imported_file_answer_alike() {
    let home = Home::new();
    let (app, files) = (origin("app"), origin("files"));
    let theirs = free_port();
    let at = home.path().display();
    let http = format!(
        "proxy_cache_path {at}/cache keys_zone=pages:1m max_size=64m inactive=1h;
proxy_cache_key $scheme$proxy_host$request_uri;
proxy_cache_lock on;
proxy_http_version 1.1;
proxy_connect_timeout 5s;
proxy_read_timeout 1m;
keepalive_timeout 65;
server_tokens off;
upstream app {{ server {} weight=2; keepalive 8; }}
server {{
  listen 127.0.0.1:{theirs} default_server;
  server_name _;
  return 404;
}}
server {{
  listen 127.0.0.1:{theirs};
  server_name old.example;
  return 301 http://www.example$request_uri;
}}
server {{
  listen 127.0.0.1:{theirs};
  server_name www.example;
  proxy_set_header Host $http_host;
  proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
  proxy_set_header Connection \"\";
  proxy_hide_header X-Powered-By;
  add_header X-Cache $upstream_cache_status always;
  location / {{ proxy_pass http://app; }}
  location /fresh/ {{
    proxy_cache pages;
    proxy_ignore_headers Set-Cookie;
    proxy_pass http://app;
  }}
  location = /status {{ return 200 \"well\\n\"; }}
  location /internal/ {{ deny all; }}
  location /gone/ {{ return 410; }}
  location /files/ {{ proxy_set_header Host files.example; proxy_pass http://{}; }}
}}
",
        app.address, files.address
    );
    let dir = home.path().join("nginx");
    std::fs::create_dir(&dir).unwrap();
    let _nginx = nginx(&dir, theirs, &http);
    let pair = Pair {
        fields: &["x-seen-host", "x-seen-for", "x-powered-by"],
        allowed: ALLOWED,
        ..Pair::start(&home, ("nginx/nginx.conf", theirs), Some(&[]), SMALL, hit)
    };
    pair.compare(&requests());
}

/// Keys, lifetimes, a bypass, gzip, rates, and redirects with captures.
#[test]
fn nginx_and_its_imported_file_store_code_and_limit_alike() {
    let home = Home::new();
    let app = origin("app");
    let theirs = free_port();
    let at = home.path().display();
    let http = format!(
        "proxy_cache_path {at}/cache keys_zone=pages:1m max_size=64m inactive=1h;
proxy_cache_key $scheme$host$request_uri$cookie_currency$http_x_country;
proxy_cache_valid 200 10m;
proxy_cache_valid 404 5m;
proxy_ignore_headers Set-Cookie;
map $http_cookie $bypass {{ default 0; \"~(^|; )session=\" 1; }}
limit_req_zone $http_x_client zone=calls:1m rate=1r/m;
limit_req_status 429;
gzip on;
gzip_types text/plain;
gzip_min_length 20;
gzip_proxied any;
upstream app {{ server {}; }}
server {{
  listen 127.0.0.1:{theirs} default_server;
  server_name www.example;
  proxy_set_header Host $http_host;
  proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
  add_header X-Cache $upstream_cache_status always;
  rewrite ^/old/(.*)$ /new/$1? permanent;
  location / {{
    proxy_cache pages;
    proxy_cache_bypass $bypass;
    proxy_no_cache $bypass;
    proxy_pass http://app;
  }}
  location /calls/ {{ limit_req zone=calls burst=4 nodelay; proxy_pass http://app; }}
  location ~ ^/(?<lang>[^/]+)/shop/(?<rest>.*)$ {{
    return 301 http://www.example/$rest?l=$lang;
  }}
}}
",
        app.address
    );
    let dir = home.path().join("nginx");
    std::fs::create_dir(&dir).unwrap();
    let _nginx = nginx(&dir, theirs, &http);
    let pair = Pair {
        fields: &["x-seen-cookie", "x-origin"],
        allowed: super::CODED,
        ..Pair::start(&home, ("nginx/nginx.conf", theirs), Some(&[]), SMALL, hit)
    };
    let to = |path: String| Request::get(path, "www.example");
    let country = ["X-Country: fr\r\n", "X-Country: de\r\n"];
    let currency = ["Cookie: currency=eur\r\n", "Cookie: currency=usd\r\n"];
    let mut all = Vec::new();
    for at in 0..REQUESTS {
        let of = |few: usize, kind: &str| to(format!("/{kind}/{}", at / 10 % few));
        all.push(match at % 10 {
            0 => of(4, "plain").with(country[at / 10 % 2]),
            1 => of(4, "plain").with(currency[at / 10 % 2]),
            2 => of(3, "gone"),
            3 => of(2, "fresh").with("Cookie: a=b; session=1\r\n"),
            4 | 5 => of(2, "fresh").with("Accept-Encoding: gzip\r\n"),
            6 => to(format!("/en/shop/a/{at}.html")),
            7 => to(format!("/old/x/{at}")),
            8 => to(format!("/calls/{at}")).with("X-Client: a\r\n"),
            _ => of(2, "fresh"),
        });
    }
    pair.compare(&all);
}

/// Conditions, expressions, clients, and what does not use the store.
#[test]
fn nginx_and_its_imported_file_decide_alike() {
    let home = Home::new();
    let (app, files) = (origin("app"), origin("files"));
    let theirs = free_port();
    let at = home.path().display();
    let http = format!(
        "proxy_cache_path {at}/cache keys_zone=pages:1m max_size=64m;
map $http_user_agent $robot {{ default 0; ~*(bot|crawl) 1; }}
geo $far {{ default 0; 192.0.2.0/24 1; }}
upstream app {{ server {}; }}
upstream files {{ server {}; }}
server {{
  listen 127.0.0.1:{theirs} default_server;
  server_name www.example;
  if ($http_x_forwarded_proto = http) {{ return 301 https://$host$request_uri; }}
  if ($robot) {{ return 403; }}
  if ($far) {{ return 404; }}
  if ($request_method !~ ^(GET|HEAD|POST)$) {{ return 405; }}
  set $skip 0;
  if ($query_string ~ preview=) {{ set $skip 1; }}
  if ($http_cookie ~* \"(^|; )session=\") {{ set $skip 1; }}
  proxy_set_header Host $http_host;
  proxy_set_header X-Remote-User $remote_addr;
  proxy_set_header X-Forwarded-For $remote_addr;
  add_header X-Cache $upstream_cache_status always;
  proxy_cache pages;
  proxy_cache_key $host$request_uri;
  proxy_ignore_headers Set-Cookie;
  proxy_cache_bypass $skip $http_x_skip;
  proxy_no_cache $skip $http_x_skip;
  location / {{ proxy_pass http://app; }}
  location ^~ /static/ {{ proxy_pass http://app; }}
  location = /fresh/open.php {{ proxy_pass http://app; }}
  location ~ /\\.(ht|git) {{ deny all; }}
  location ~* \\.php$ {{ return 410; }}
  location ~ ^/fresh/v[0-9]+/ {{ proxy_pass http://files; }}
  location /near/ {{ allow 127.0.0.0/8; deny all; proxy_pass http://app; }}
  location /away/ {{ deny 127.0.0.1; allow all; proxy_pass http://app; }}
  location /old/ {{
    if ($query_string = gone=1) {{ return 410; }}
    if ($request_uri ~ \"[?&]to=\") {{ return 302 /fresh/1; }}
    proxy_pass http://app;
  }}
}}
",
        app.address, files.address
    );
    let dir = home.path().join("nginx");
    std::fs::create_dir(&dir).unwrap();
    let _nginx = nginx(&dir, theirs, &http);
    let pair = Pair {
        fields: &["x-seen-user", "x-seen-for", "x-origin"],
        ..Pair::start(&home, ("nginx/nginx.conf", theirs), Some(&[]), SMALL, hit)
    };
    let to = |path: String| Request::get(path, "www.example");
    let mut all = Vec::new();
    for at in 0..REQUESTS {
        let page = to(format!("/fresh/{}", at / 20 % 3));
        all.push(match at % 20 {
            0..4 => page,
            4 => page.with("Cookie: a=b; session=1\r\n"),
            5 => page.with("X-Skip: 1\r\n"),
            6 => page.with("X-Skip: 0\r\n"),
            7 => page.with("User-Agent: ROBOT\r\n"),
            8 => page.with("X-Forwarded-Proto: http\r\n"),
            9 => page.method("DELETE", ""),
            10 => to("/fresh/1?a=b&preview=1".to_owned()),
            11 => to(["/fresh/.git/x", "/static/.git/x"][at / 20 % 2].to_owned()),
            12 => to(["/fresh/x.PHP", "/fresh/open.php"][at / 20 % 2].to_owned()),
            13 => to(format!("/fresh/v{}/x", at / 20 % 2)),
            14 => to("/near/1".to_owned()),
            15 => to("/away/1".to_owned()),
            16 => to("/old/1?gone=1".to_owned()),
            17 => to("/old/1?x=y&to=z".to_owned()),
            18 => to(format!("/static/{}.php", at / 20 % 2)),
            _ => page.with("X-Remote-User: forged\r\nX-Forwarded-For: forged\r\n"),
        });
    }
    pair.compare(&all);
}

/// Files, other paths, pages of errors, logins, proxies in front, and sizes.
#[test]
fn nginx_and_its_imported_file_serve_every_day_alike() {
    let home = Home::new();
    let app = origin("app");
    let theirs = free_port();
    let at = home.path().display();
    for dir in ["www", "www/docs", "www/docs/deep", "images"] {
        std::fs::create_dir(home.path().join(dir)).unwrap();
    }
    for (file, text) in [
        ("www/index.html", "home"),
        ("www/about.html", "about"),
        ("www/.dot", "dot"),
        ("www/sorry.html", "sorry"),
        ("www/docs/a.txt", "a"),
        ("www/docs/deep/index.html", "deep"),
        ("images/1.png", "picture"),
    ] {
        home.write(file, text);
    }
    // Of the password `secret`.
    let users =
        home.write("users", "jo:$2y$04$Eoj8yU1OeQpN5XYtx0VtNeKMZ9tpE7bXu38BZbhPEMxcosd6e2VAS\n");
    let http = format!(
        "set_real_ip_from 127.0.0.0/8;
real_ip_header X-Forwarded-For;
real_ip_recursive on;
client_max_body_size 8;
proxy_cache_path {at}/cache keys_zone=pages:1m max_size=64m;
upstream app {{ server {}; }}
server {{
  listen 127.0.0.1:{theirs} default_server;
  server_name www.example;
  root {at}/www;
  error_page 404 /sorry.html;
  error_page 502 =200 /sorry.html;
  proxy_set_header Host $http_host;
  proxy_set_header X-Remote-User $remote_addr;
  add_header X-Cache $upstream_cache_status always;
  location / {{ try_files $uri $uri.html $uri/ @app; }}
  location @app {{ proxy_pass http://app; }}
  location /docs/ {{ try_files $uri $uri/ =404; }}
  location /pics/ {{ alias {at}/images/; expires 1h; }}
  location ~* \\.(png|gif)x$ {{ root {at}/www; }}
  location /v1/ {{ proxy_pass http://app/fresh/; }}
  location = /one {{ proxy_pass http://app/fresh/two; }}
  location /dead/ {{ proxy_pass http://127.0.0.1:1; }}
  location /inside/ {{ internal; }}
  location /large/ {{ client_max_body_size 32; proxy_pass http://app; }}
  location /near/ {{ allow 192.0.2.0/24; deny all; proxy_pass http://app; }}
  location /login/ {{
    auth_basic Inside; auth_basic_user_file {users}; proxy_pass http://app/fresh/;
  }}
  location /fresh/ {{
    proxy_cache pages; proxy_ignore_headers Set-Cookie; proxy_pass http://app;
  }}
}}
",
        app.address
    );
    let dir = home.path().join("nginx");
    std::fs::create_dir(&dir).unwrap();
    let _nginx = nginx(&dir, theirs, &http);
    const OF_FILES: &[Allowed] = &[Allowed {
        why: "tags and content types of files are ours, and no cache keeps a page of an error",
        applies: |request, theirs, ours| {
            let same_cached = ours.field("cache-control") == theirs.field("cache-control");
            theirs.status == 200
                && theirs.status == ours.status
                && theirs.body == ours.body
                && (same_cached || request.target == "/dead/1")
        },
    }];
    // Responses with files have no field of add_header.
    let pair = Pair {
        fields: &["x-seen-user", "x-origin"],
        allowed: OF_FILES,
        ..Pair::start(&home, ("nginx/nginx.conf", theirs), Some(&[21]), SMALL, hit)
    };
    let to = |path: &str| Request::get(path, "www.example");
    let named = ["X-Forwarded-For: 192.0.2.7\r\n", "X-Forwarded-For: 192.0.2.7, 198.51.100.1\r\n"];
    let login = "Authorization: Basic am86c2VjcmV0\r\n";
    let mut all = Vec::new();
    for at in 0..REQUESTS {
        all.push(match at % 25 {
            0..7 => to(&format!("/fresh/{}", at / 25 % 3)),
            7 => to("/"),
            8 => to("/about"),
            9 => to(["/.dot", "/other/1"][at / 25 % 2]),
            10 => to(["/docs/a.txt", "/docs/deep/"][at / 25 % 2]),
            11 => to("/docs/missing"),
            12 => to(["/pics/1.png", "/pics/2.png"][at / 25 % 2]),
            13 => to(["/v1/a", "/v1/a?b=c"][at / 25 % 2]),
            14 => to("/one"),
            15 => to("/dead/1"),
            16 => to("/inside/1"),
            17 => to("/large/1").method("POST", "more than eight bytes"),
            18 => to("/other/1").method("POST", "more than eight bytes"),
            19 => to("/near/1"),
            20 => to("/near/1").with(named[at / 25 % 2]),
            21 => to("/login/a"),
            22 => to("/login/a").with(login),
            23 => to("/v1"),
            _ => to("/none/1").with(named[at / 25 % 2]),
        });
    }
    pair.compare(&all);
}

/// Rules that are not carried. Where they are, ours is closed or stores nothing.
#[test]
fn what_nginx_keeps_is_kept() {
    let home = Home::new();
    let (app, files) = (origin("app"), origin("files"));
    let theirs = free_port();
    let at = home.path().display();
    // Hashes of another kind, so the location is closed.
    let users = home.write("users", "jo:{PLAIN}x\n");
    let http = format!(
        "proxy_cache_path {at}/cache keys_zone=pages:1m max_size=64m;
upstream app {{ server {}; }}
upstream files {{ server {}; }}
add_header X-Cache $upstream_cache_status always;
server {{
  listen 127.0.0.1:{theirs} default_server;
  server_name a.example;
  proxy_set_header X-Remote-User $remote_user;
  proxy_set_header X-Forwarded-For $remote_addr;
  location / {{ proxy_pass http://app; }}
  location /session/ {{ proxy_cache pages; proxy_pass http://app; }}
  location /shop/ {{
    proxy_cache pages; proxy_ignore_headers Set-Cookie; proxy_pass http://app;
  }}
  location ~ ^/shop/(account|cart) {{ proxy_pass http://app; }}
  location /fresh/ {{ proxy_cache pages; proxy_no_cache $cookie_session; proxy_pass http://app; }}
  location /files/ {{ limit_except GET {{ deny all; }} proxy_pass http://files; }}
  location /secret/ {{
    auth_basic x; auth_basic_user_file {users}; proxy_pass http://app;
  }}
}}
server {{
  listen 127.0.0.1:{theirs};
  server_name ~^internal\\.;
  return 403;
}}
server {{
  listen 127.0.0.1:{theirs};
  server_name b.example;
  location / {{ proxy_pass http://app; }}
  location ~ \\.php$ {{ proxy_pass http://files; }}
}}
server {{
  listen 127.0.0.1:{theirs};
  server_name c.example;
  if ($http_x_key != k) {{ rewrite ^ /denied last; }}
  location / {{ proxy_pass http://app; }}
  location = /denied {{ return 403; }}
}}
server {{
  listen 127.0.0.1:{theirs};
  server_name d.example;
  location / {{ proxy_pass http://app; }}
  location ~ ^/public/ {{ location ~ secret {{ deny all; }} proxy_pass http://app; }}
}}
",
        app.address, files.address
    );
    let dir = home.path().join("nginx");
    std::fs::create_dir(&dir).unwrap();
    let _nginx = nginx(&dir, theirs, &http);
    let pair = Pair::start(&home, ("nginx/nginx.conf", theirs), None, SMALL, hit);
    let of_first = ["/", "/session/1", "/shop/account", "/fresh/1", "/files/1", "/secret/1"];
    let mut requests = pushing(&["a.example"], &of_first);
    requests.truncate(120);
    let hosts = ["internal.a.example", "b.example", "c.example", "d.example"];
    requests.extend(pushing(&hosts, &["/public/secret", "/x.php", "/"]));
    requests.truncate(REQUESTS);
    pair.is_no_opener(&requests);
}

/// What nginx denies inside a segment, hides from clients alone, or does not store by a switch.
#[test]
fn what_nginx_does_not_store_is_not_shared() {
    let home = Home::new();
    let app = origin("app");
    let theirs = free_port();
    let at = home.path().display();
    let http = format!(
        "proxy_cache_path {at}/cache keys_zone=pages:1m max_size=64m;
add_header X-Cache $upstream_cache_status always;
map $uri $zone {{ ~^/max/ off; default pages; }}
server {{
  listen 127.0.0.1:{theirs} default_server;
  server_name a.example;
  proxy_cache_valid 200 10m;
  proxy_ignore_headers Set-Cookie;
  location / {{ proxy_cache pages; proxy_pass http://{app}; }}
  location /fresh/b {{ proxy_pass http://{app}; }}
  location /adm {{ deny all; }}
  location /private/ {{
    proxy_cache pages; proxy_hide_header Cache-Control; proxy_pass http://{app};
  }}
  location /fresh/stream/ {{ proxy_cache pages; proxy_buffering off; proxy_pass http://{app}; }}
  location /fresh/case/ {{
    proxy_cache pages; proxy_no_cache $cookie_SESSION; proxy_cache_bypass $cookie_Session;
    proxy_pass http://{app};
  }}
  location /max/ {{ proxy_cache $zone; proxy_pass http://{app}; }}
  location /login/ {{
    if ($cookie_session = '') {{ return 403 C:\\\\; }}
    if ($cookie_session != 1) {{ return 302 /; }}
    proxy_pass http://{app};
  }}
}}
",
        app = app.address
    );
    let dir = home.path().join("nginx");
    std::fs::create_dir(&dir).unwrap();
    let _nginx = nginx(&dir, theirs, &http);
    let pair = Pair::start(&home, ("nginx/nginx.conf", theirs), None, SMALL, hit);
    let paths = [
        "/fresh/buy",
        "/admin.php",
        "/private/1",
        "/fresh/stream/1",
        "/fresh/case/1",
        "/max/1",
        "/login/x",
        "/fresh/1",
    ];
    pair.is_no_opener(&pushing(&["a.example"], &paths));
}

fn requests() -> Vec<Request> {
    let to = |path: String| Request::get(path, "www.example");
    let mut all: Vec<Request> = (0..30).map(|at| to(format!("/fresh/{at}"))).collect();
    for at in 0.. {
        let stored = to(format!("/fresh/{}", at % 30));
        all.push(match at % 17 {
            0..5 => stored,
            5 => stored.with("Range: bytes=5-20\r\n"),
            6 => stored.with("If-None-Match: \"8\"\r\n"),
            7 => to(format!("/private/{}", at % 3)),
            8 => to(format!("/other/{}", at % 3)),
            9 => to(format!("/missing/{}", at % 3)),
            10 => to(format!("/form/{at}")).method("POST", "name=value"),
            11 => stored.method("HEAD", ""),
            12 => to("/internal/x".to_owned()),
            13 => to("/status".to_owned()),
            14 => to(format!("/gone/{at}")),
            15 => Request::get(format!("/a/{at}?q=1"), "old.example"),
            _ => match at % 3 {
                0 => Request::get("/fresh/1", "unknown.example"),
                1 => to("/files".to_owned()),
                _ => to(format!("/files/{at}")),
            },
        });
        if all.len() == REQUESTS {
            break;
        }
    }
    all
}
