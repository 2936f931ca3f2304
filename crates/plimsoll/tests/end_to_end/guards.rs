//! Clients behind a proxy, guards, limits on bodies, error pages, maintenance and logs of names,
//! from the file to curl, with nginx beside us where nginx has the same.

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{
    Accepting, CommandOutput, Home, OurServer, Running, SOON, free_port, nginx, plimsoll, program,
    run, wait_for,
};

/// The answer of curl: the status and the body.
fn curl(address: &str, path: &str, flags: &[&str]) -> (u16, String) {
    let mut curl = Command::new(program("curl", "curl"));
    curl.args(["-s", "--path-as-is", "-w", "\n%{http_code}"]).args(flags);
    let CommandOutput { stdout, .. } = run(
        {
            curl.arg(format!("http://{address}{path}"));
            curl
        },
        SOON,
    );
    let (body, status) = stdout.rsplit_once('\n').unwrap_or_else(|| panic!("{stdout}"));
    (status.parse().unwrap(), body.to_owned())
}

/// nginx as an origin, which says what it got, and as our peer with the same guards.
fn peer(home: &Home, origin: u16, port: u16) -> Running {
    let at = home.path().display();
    let http = format!(
        "map $http_x_forwarded_for $got {{ default $http_x_forwarded_for; }}
         server {{
           listen 127.0.0.1:{origin};
           location = /who {{ add_header Cache-Control no-store;
             return 200 '$got $http_x_forwarded_proto $http_x_request_id'; }}
           location = /failing {{ return 500 'the application'; }}
           location / {{ add_header Cache-Control max-age=60;
             return 200 'got $http_authorization'; }}
         }}
         server {{
           listen 127.0.0.1:{port};
           set_real_ip_from 127.0.0.0/8; set_real_ip_from 10.0.0.0/8;
           real_ip_header X-Forwarded-For; real_ip_recursive on;
           location = /who {{ return 200 '$remote_addr'; }}
           # Ours has stored what it got without a login.
           location /inside {{ allow 192.0.2.0/24; deny all;
             proxy_set_header Authorization ''; proxy_pass http://127.0.0.1:{origin}; }}
           location /admin {{ auth_basic plimsoll; auth_basic_user_file {at}/htpasswd;
             proxy_set_header Authorization ''; proxy_pass http://127.0.0.1:{origin}; }}
           location /either {{ satisfy any; allow 192.0.2.0/24; deny all;
             auth_basic plimsoll; auth_basic_user_file {at}/htpasswd;
             proxy_set_header Authorization ''; proxy_pass http://127.0.0.1:{origin}; }}
           location /small {{ client_max_body_size 10; proxy_pass http://127.0.0.1:{origin}; }}
           location = /failing {{ error_page 500 /sorry.html; proxy_intercept_errors on;
             proxy_pass http://127.0.0.1:{origin}; }}
           location = /sorry.html {{ internal; root {at}; }}
           location / {{ proxy_pass http://127.0.0.1:{origin}; }}
         }}"
    );
    nginx(Path::new(&home.at("")), port, &http)
}

fn ours(home: &Home, origin: u16, more: &str) -> OurServer {
    let text = format!(
        r#"
[server]
admin = "127.0.0.1:0"
[[listen]]
address = "127.0.0.1:0"
trusted_proxies = ["127.0.0.0/8", "10.0.0.0/8"]
[[upstream]]
name = "app"
forwarded = "x_forwarded"
server = [{{ url = "http://127.0.0.1:{origin}" }}]
[[list]]
name = "office"
values = ["192.0.2.0/24"]
[[route]]
prefix = "/inside"
upstream = "app"
allow_from = ["office"]
[[route]]
prefix = "/admin"
upstream = "app"
users = "htpasswd"
[[route]]
prefix = "/either"
upstream = "app"
users = "htpasswd"
allow_from = ["office"]
satisfy = "any"
[[route]]
prefix = "/small"
upstream = "app"
body_bytes_max = 10
[[route]]
path = "/failing"
upstream = "app"
[[route.error_page]]
statuses = [500]
answer_file = "sorry.html"
intercept = true
[[route]]
prefix = "/"
upstream = "app"
[maintenance]
file = "maintenance.on"
when = "path != '/health'"
answer = "closed"
retry_after = "2m"
[request_id]
take = "all"
{more}
"#
    );
    OurServer::configured(&home.write("plimsoll.toml", text))
}

fn users(home: &Home) {
    let mut htpasswd = Command::new(program("htpasswd", "apache2-utils"));
    htpasswd.args(["-bcB", "-C", "4", &home.at("htpasswd"), "ann", "secret"]);
    run(htpasswd, SOON).succeeded();
    home.write("sorry.html", "<h1>sorry</h1>\n");
}

#[test]
fn guards_and_trusted_proxies_are_as_those_of_nginx() {
    let (home, origin, port) = (Home::new(), free_port(), free_port());
    users(&home);
    let _nginx = peer(&home, origin, port);
    let server = ours(&home, origin, "");
    let (us, them) = (server.address().to_string(), format!("127.0.0.1:{port}"));
    for list in [
        "192.0.2.7",
        "8.8.8.8, 192.0.2.7",
        "8.8.8.8, 192.0.2.7, 10.9.9.9",
        "10.3.3.3, 10.2.2.2",
        "192.0.2.7, 2001:db8::7",
    ] {
        let field = format!("X-Forwarded-For: {list}");
        let theirs = curl(&them, "/who", &["-H", &field]).1;
        let flags = ["-H", &field, "-H", "X-Forwarded-Proto: https", "-H", "X-Request-Id: abc"];
        assert_eq!(curl(&us, "/who", &flags).1, format!("{theirs} https abc"), "{list}");
    }
    let office = ["-H", "X-Forwarded-For: 192.0.2.7"];
    let login = ["-u", "ann:secret"];
    let wrong = ["-u", "ann:guess"];
    for path in ["/inside/a", "/admin/a", "/either/a", "/%61dmin/a", "//admin/a", "/x/../admin/a"] {
        for flags in [&office[..], &login, &wrong, &[], &[office, login].concat()] {
            for _ in 0..2 {
                let (ours, theirs) = (curl(&us, path, flags), curl(&them, path, flags));
                assert_eq!(ours.0, theirs.0, "{path} {flags:?}: {ours:?}, {theirs:?}");
                if ours.0 == 200 {
                    assert_eq!(ours, theirs, "{path} {flags:?}");
                }
            }
        }
    }
    // nginx compares one reading of a path, and passes this one on.
    assert_eq!(curl(&us, "/public/..%2fadmin/a", &[]).0, 401);
    for (path, body) in [("/small", "0123456789"), ("/small", "0123456789a"), ("/", "0123456789a")]
    {
        for chunked in [&["-H", "Transfer-Encoding: chunked"][..], &[]] {
            let flags = [&["-d", body][..], chunked].concat();
            let (ours, theirs) = (curl(&us, path, &flags).0, curl(&them, path, &flags).0);
            assert_eq!(ours, theirs, "{path} {body} {chunked:?}");
        }
    }
    assert_eq!(curl(&us, "/failing", &[]), curl(&them, "/failing", &[]));
    let file = home.at("plimsoll.toml");
    let asked = ["check", &file, "--request", "GET http://a/inside", "--from", "127.0.0.1"];
    let field = "X-Forwarded-For: 192.0.2.7";
    for (more, words) in [(&["--field", field][..], "upstream app"), (&[], "403 (route-client)")] {
        let said = plimsoll(&[&asked[..], more].concat()).succeeded().stdout;
        assert!(said.contains(words), "{said}");
    }
    let url = format!("http://{us}/inside");
    let admin = server.admin().to_string();
    let explain = ["explain", &url, "--admin", &admin, "--from", "127.0.0.1"];
    let said = plimsoll(&[&explain[..], &["--header", field]].concat()).succeeded().stdout;
    assert!(
        said.contains("the client is 192.0.2.7, as 127.0.0.1 says in X-Forwarded-For"),
        "{said}"
    );
}

#[test]
fn maintenance_is_switched_by_a_file_and_at_the_admin_address() {
    let (home, origin, port) = (Home::new(), free_port(), free_port());
    users(&home);
    let _nginx = peer(&home, origin, port);
    let server = ours(&home, origin, "");
    let (us, admin) = (server.address().to_string(), server.admin().to_string());
    let status = |expected: u16| {
        wait_for("maintenance", SOON, || (curl(&us, "/a", &[]).0 == expected).then_some(()));
    };
    status(200);
    home.write("maintenance.on", "");
    status(503);
    let head = curl(&us, "/a", &["-i"]).1;
    assert!(head.contains("Retry-After: 120\r\n") && head.ends_with("closed"), "{head}");
    assert_eq!(curl(&us, "/health", &[]).0, 200);
    std::fs::remove_file(home.at("maintenance.on")).unwrap();
    status(200);
    let switched = curl(&admin, "/maintenance?switch=on", &["-X", "POST"]);
    assert_eq!(switched, (200, "on, by the admin address\n".to_owned()));
    status(503);
    plimsoll(&["reload", "--admin", &admin]).succeeded();
    status(503);
    assert_eq!(curl(&admin, "/maintenance?switch=off", &["-X", "POST"]).0, 200);
    status(200);
}

#[test]
fn a_log_of_names_goes_to_syslog() {
    let (home, origin, port) = (Home::new(), free_port(), free_port());
    users(&home);
    let _nginx = peer(&home, origin, port);
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(SOON)).unwrap();
    let to = receiver.local_addr().unwrap();
    let more = format!(
        "[log]\nsyslog = 'udp://{to}'\nfacility = 'local0'\nformat = '{{client}} \"{{request}}\" \
         {{status}} {{upstream}} {{upstream_header_time}} {{request_id}} {{trace_id}} {{{{x}}'\n"
    );
    let server = ours(&home, origin, &more);
    let us = server.address().to_string();
    let message = || {
        let mut buffer = [0; 2048];
        let bytes = receiver.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..bytes]).into_owned()
    };
    let trace = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let flags = ["-H", "X-Forwarded-For: 192.0.2.7", "-H", "X-Request-Id: r-1", "-H", trace];
    for hit in [false, true] {
        assert_eq!(curl(&us, "/a", &flags).0, 200);
        let line = message();
        let (head, line) = line.split_once(" access - ").unwrap_or_else(|| panic!("{line}"));
        assert!(head.starts_with("<134>1 "), "{head}");
        let upstream = if hit { "-".to_owned() } else { format!("127.0.0.1:{origin}") };
        let begins = format!("192.0.2.7 \"GET /a HTTP/1.1\" 200 {upstream} ");
        assert!(line.starts_with(&begins), "{line}");
        assert!(line.ends_with(" r-1 0af7651916cd43dd8448eb211c80319c {x}"), "{line}");
    }
    // Without a number that was given, each request has a new one.
    let ids: Vec<String> = (0..2)
        .map(|_| {
            curl(&us, "/a", &[]);
            message().rsplit(' ').nth(2).unwrap().to_owned()
        })
        .collect();
    assert!(ids[0] != ids[1] && ids.iter().all(|id| id.len() == 32), "{ids:?}");
}

/// A service that decides by a cookie, redirects to its own address, and cookies with its path.
#[test]
fn services_that_authorise_and_redirects_are_as_those_of_nginx() {
    let (home, origin, port) = (Home::new(), free_port(), free_port());
    let http = format!(
        "server {{
           listen 127.0.0.1:{origin};
           location = /auth {{ add_header X-User $cookie_who always;
             add_header WWW-Authenticate 'Bearer' always;
             if ($cookie_who = ann) {{ return 204; }}
             if ($cookie_who = bob) {{ return 403; }}
             if ($cookie_who = eve) {{ return 500; }}
             return 401; }}
           location = /moved {{ add_header Set-Cookie 'sid=1; Path=/; Domain=app.test';
             return 302 http://127.0.0.1:{origin}/new?a; }}
           location / {{ add_header Cache-Control max-age=60; return 200 'for $http_x_user'; }}
         }}
         server {{
           listen 127.0.0.1:{port};
           proxy_set_header X-User $user;
           proxy_cookie_path / /shop; proxy_cookie_domain app.test example.org;
           proxy_redirect http://127.0.0.1:{origin}/ /shop/;
           location = /auth {{ internal; proxy_pass http://127.0.0.1:{origin}; }}
           location / {{ auth_request /auth; auth_request_set $user $upstream_http_x_user;
             proxy_pass http://127.0.0.1:{origin}; }}
           location = /moved {{ proxy_pass http://127.0.0.1:{origin}; }}
         }}"
    );
    let _nginx = nginx(Path::new(&home.at("")), port, &http);
    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\n[[upstream]]\nname = 'app'\n\
         server = [{{ url = 'http://127.0.0.1:{origin}' }}]\n\
         [[route]]\nprefix = '/'\nupstream = 'app'\nkey_fields = ['X-User']\n\
         auth = {{ upstream = 'app', path = '/auth', copy = ['X-User'] }}\n\
         [[route]]\npath = '/moved'\nupstream = 'app'\n\
         location = [{{ from = 'http://127.0.0.1:{origin}/', to = '/shop/' }}]\n\
         cookie = [{{ path = '/shop', domain = 'example.org' }}]\n"
    );
    let server = OurServer::configured(&home.write("plimsoll.toml", text));
    let (us, them) = (server.address().to_string(), format!("127.0.0.1:{port}"));
    for round in 0..2 {
        for who in ["ann", "bob", "zoe"] {
            let cookie = format!("Cookie: who={who}");
            // What the service writes comes from no client.
            let flags = ["-H", &cookie, "-H", "X-User: root"];
            let (ours, theirs) = (curl(&us, "/a", &flags), curl(&them, "/a", &flags));
            assert_eq!(ours.0, theirs.0, "{who}, round {round}");
            if ours.0 == 200 {
                assert_eq!(ours, theirs, "{who}, round {round}");
            }
        }
    }
    // nginx answers with 500 if its service fails.
    assert_eq!(curl(&us, "/a", &["-H", "Cookie: who=eve"]).0, 502);
    let asks = curl(&us, "/a", &["-i"]).1;
    assert!(asks.contains("WWW-Authenticate: Bearer\r\n"), "{asks}");
    let lines = |of: &str| -> Vec<String> {
        let head = curl(of, "/moved", &["-i"]).1;
        let ends = |line: &&str| line.starts_with("Location") || line.starts_with("Set-Cookie");
        let sorted = |line: &str| {
            // The order of attributes means nothing.
            let mut parts: Vec<&str> = line.split("; ").collect();
            parts.sort_unstable();
            let line = parts.join("; ");
            // nginx makes a location absolute.
            line.replace(&format!("http://{of}"), "")
        };
        let mut lines: Vec<String> = head.lines().filter(ends).map(sorted).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(lines(&us), lines(&them));
    assert!(lines(&us).contains(&"Location: /shop/new?a".to_owned()), "{:?}", lines(&us));
}

/// A permission is remembered as long as the service says, and not beyond a reload.
#[test]
fn permissions_are_forgotten_at_a_reload() {
    let home = Home::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let service = Accepting::start(move |mut stream| {
        let mut request = [0; 4096];
        if !matches!(stream.read(&mut request), Ok(1..)) {
            return;
        }
        count.fetch_add(1, Ordering::SeqCst);
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nCache-Control: max-age=600\r\n\
              Connection: close\r\n\r\n",
        );
    });
    let server = OurServer::configured(&home.write(
        "plimsoll.toml",
        format!(
            "[server]\nworkers = 1\nadmin = \"127.0.0.1:0\"\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"login\"\nserver = [{{ url = \"http://{}\" }}]\n\
             [[route]]\nanswer = \"inside\"\nauth = {{ upstream = \"login\" }}\n",
            service.address
        ),
    ));
    let at = server.address().to_string();
    let ask = || assert_eq!(curl(&at, "/", &[]), (200, "inside".to_owned()));
    (0..3).for_each(|_| ask());
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    server.child.signal("HUP");
    wait_for("the reload", SOON, || {
        let metrics = crate::support::get(server.admin(), "/metrics");
        metrics.contains("plimsoll_config_generation 2").then_some(())
    });
    (0..3).for_each(|_| ask());
    assert_eq!(asked.load(Ordering::SeqCst), 2, "it is asked once more");
}

/// Pages name the error and the request, for HTML and JSON, and a part of a site has another one.
#[test]
fn an_error_page_says_which_request_failed() {
    let home = Home::new();
    home.write("sorry.html", "<style>p { margin: 0 }</style><p>{status} {reason}, {request_id}\n");
    home.write("sorry.json", "{\"status\":{status},\"request\":\"{request_id}\"}\n");
    let dead = free_port();
    let server = OurServer::configured(&home.write(
        "plimsoll.toml",
        format!(
            "[server]\nworkers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
             [request_id]\ntake = \"all\"\n[[upstream]]\nname = \"app\"\n\
             server = [{{ url = \"http://127.0.0.1:{dead}\" }}]\n\
             [[error_page]]\nstatuses = [502, 503]\nanswer_file = \"sorry.html\"\nfill = true\n\
             [[route]]\nupstream = \"app\"\n[[route.part]]\nprefix = \"/api\"\n\
             [[route.part.error_page]]\nstatuses = [502, 503]\nanswer_file = \"sorry.json\"\n\
             fill = true\n"
        ),
    ));
    let at = server.address().to_string();
    let known = ["-H", "X-Request-Id: abc-1"];
    let (status, page) = curl(&at, "/", &known);
    let name = if status == 502 { "Bad Gateway" } else { "Service Unavailable" };
    let style = "<style>p { margin: 0 }</style>";
    assert_eq!(page, format!("{style}<p>{status} {name}, abc-1\n"));
    let (status, json) = curl(&at, "/api/x", &known);
    assert_eq!(json, format!("{{\"status\":{status},\"request\":\"abc-1\"}}\n"));
    let (_, own) = curl(&at, "/api/x", &["-H", "X-Request-Id: \"<b>"]);
    let id = own.split("request\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{own}");
}
