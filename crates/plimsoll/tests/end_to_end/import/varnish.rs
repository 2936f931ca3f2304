//! Debian's Varnish, in front of two applications.

use std::net::TcpStream;
use std::process::{Command, Stdio};

use super::{Allowed, Answer, Pair, REQUESTS, Request, origin, pushing};
use crate::support::{Home, Running, SOON, free_port, output_file, program, wait_for};

/// A hit has the number of the request that it was fetched for, besides its own.
fn hit(answer: &Answer) -> bool {
    answer.field("x-varnish").split(' ').count() == 2
}

const ALLOWED: &[Allowed] = &[
    Allowed {
        why: "the answer of `synth` is a page of Varnish that contains the reason; ours is the \
              reason",
        applies: |request, theirs, ours| {
            let reason = String::from_utf8_lossy(&ours.body).trim().to_owned();
            let page = String::from_utf8_lossy(&theirs.body).into_owned();
            request.target == "/status" && page.contains(&reason) && !reason.is_empty()
        },
    },
    Allowed {
        why: "the answer to a PURGE is a page of Varnish; ours is JSON that has the URL",
        applies: |request, theirs, ours| {
            let own = String::from_utf8_lossy(&ours.body).into_owned();
            request.method == "PURGE" && theirs.status == ours.status && own.contains("purged")
        },
    },
];

const CODED: &[Allowed] = &[
    super::CODED[0],
    super::CODED[1],
    Allowed {
        why: "Varnish stores the coded form and weakens its tag for all clients; ours is the \
              origin's, and the content has its length",
        applies: |request, theirs, ours| {
            let weak = theirs.field("etag") == format!("W/{}", ours.field("etag"));
            let same = theirs.body == ours.body && super::both_hit(theirs, ours);
            let names = ["x-seen-cookie", "x-seen-language", "x-origin", "content-type"];
            let fields = names.iter().all(|name| theirs.field(name) == ours.field(name));
            !request.fields.contains("gzip") && weak && same && fields
        },
    },
];

#[test]
fn varnish_and_its_imported_file_answer_alike() {
    let home = Home::new();
    let (app, files) = (origin("app"), origin("files"));
    let theirs = free_port();
    let text = format!(
        "vcl 4.1;
import std;
backend default {{ .host = \"127.0.0.1\"; .port = \"{}\"; .connect_timeout = 5s; }}
backend files {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}
acl purgers {{ \"localhost\"; }}
sub vcl_recv {{
  if (req.method == \"PURGE\") {{
    if (!client.ip ~ purgers) {{ return (synth(405, \"not allowed\")); }}
    return (purge);
  }}
  if (req.http.host == \"old.example\") {{
    return (synth(301, \"http://www.example\" + req.url));
  }}
  if (req.http.host != \"www.example\") {{ return (synth(404, \"no such host\")); }}
  if (req.url == \"/status\") {{ return (synth(200, \"well\")); }}
  if (req.url ~ \"^/internal/\") {{ return (synth(403, \"no\")); }}
  if (req.url ~ \"^/files/\") {{ set req.backend_hint = files; }}
  unset req.http.Cookie;
  unset req.http.Authorization;
  if (req.method != \"GET\" && req.method != \"HEAD\") {{ return (pass); }}
  if (req.url ~ \"^/(private|account)/\") {{ return (pass); }}
}}
sub vcl_backend_response {{
  if (bereq.url ~ \"^/files/\") {{ set beresp.http.X-Files = \"yes\"; }}
  unset beresp.http.Set-Cookie;
  unset beresp.http.X-Powered-By;
}}
sub vcl_deliver {{
  if (obj.hits > 0) {{ set resp.http.X-Cache = \"HIT\"; }}
  else {{ set resp.http.X-Cache = \"MISS\"; }}
  set resp.http.X-Frame-Options = \"DENY\";
  unset resp.http.Via;
}}
sub vcl_synth {{
  if (resp.status == 301) {{
    set resp.http.Location = resp.reason;
    set resp.reason = \"Moved\";
    return (deliver);
  }}
}}
",
        app.address.port(),
        files.address.port()
    );
    let vcl = home.write("default.vcl", text);
    let _server = varnish(&home, theirs, &vcl);
    let pair = Pair {
        fields: &[
            "x-seen-host",
            "x-seen-for",
            "x-seen-cookie",
            "x-powered-by",
            "x-frame-options",
            "via",
        ],
        allowed: ALLOWED,
        ..Pair::start(&home, ("default.vcl", theirs), Some(&[]), &[], hit)
    };
    pair.compare(&requests());
}

/// Debian's Varnish on this program.
pub(crate) fn varnish(home: &Home, port: u16, vcl: &str) -> Running {
    let varnishd = program("varnishd", "varnish");
    let mut server = Running::start(
        Command::new(varnishd)
            .args(["-F", "-n", &home.at("varnish"), "-f", vcl, "-s", "default,32m"])
            .args(["-a", &format!("127.0.0.1:{port}"), "-j", "none"])
            .stdout(Stdio::null())
            .stderr(output_file(home, "varnish.err")),
    );
    wait_for("varnish", SOON * 2, || {
        assert!(!server.has_ended(), "{}", home.read("varnish.err"));
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
    server
}

/// Keys, lifetimes, a bypass, gzip, fields and redirects with captures.
#[test]
fn varnish_and_its_imported_file_store_and_code_alike() {
    let home = Home::new();
    let app = origin("app");
    let theirs = free_port();
    let text = format!(
        "vcl 4.1;
import std;
backend default {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}
sub vcl_recv {{
  if (req.http.host == \"none.example\") {{ return (synth(404, \"no such host\")); }}
  if (req.url ~ \"^/([^/]+)/shop/\") {{
    return (synth(751, \"http://www.example/\" + regsub(req.url, \"^/[^/]+/shop/\", \"\")
      + \"?l=\" + regsub(req.url, \"^/([^/]+)/.*\", \"\\1\")));
  }}
  if (req.url ~ \"^/([^/]+)/api/\") {{
    set req.http.X-Language = regsub(req.url, \"^/([^/]+)/.*\", \"\\1\");
  }}
  set req.url = regsuball(req.url, \"([?&])(utm_[^=&]*|fbclid)(=[^&]*)?\", \"\\1\");
  set req.url = regsuball(req.url, \"&&+\", \"&\");
  set req.url = regsub(req.url, \"\\?&\", \"?\");
  set req.url = regsub(req.url, \"[?&]+$\", \"\");
  set req.url = std.querysort(req.url);
  unset req.http.Authorization;
  if (req.method != \"GET\" && req.method != \"HEAD\") {{ return (pass); }}
  if (req.http.Cookie ~ \"(^|; )session=\") {{ return (pass); }}
  unset req.http.Cookie;
}}
sub vcl_hash {{ hash_data(req.http.X-Country); }}
sub vcl_backend_response {{
  unset beresp.http.Set-Cookie;
  set beresp.do_gzip = true;
  set beresp.grace = 1h;
  if (beresp.status == 404) {{ set beresp.ttl = 5m; }}
  elsif (beresp.status >= 500) {{ set beresp.uncacheable = true; }}
  elsif (beresp.http.Content-Type ~ \"^text/\") {{ set beresp.ttl = 10m; }}
}}
sub vcl_synth {{
  if (resp.status == 751) {{
    set resp.http.Location = resp.reason;
    set resp.status = 301;
    return (deliver);
  }}
}}
",
        app.address.port()
    );
    let vcl = home.write("default.vcl", text);
    let _server = varnish(&home, theirs, &vcl);
    let pair = Pair {
        fields: &["x-seen-cookie", "x-seen-language", "x-origin"],
        allowed: CODED,
        ..Pair::start(&home, ("default.vcl", theirs), Some(&[]), &[], hit)
    };
    let to = |path: String| Request::get(path, "www.example");
    let country = ["X-Country: fr\r\n", "X-Country: de\r\n"];
    let mut all = Vec::new();
    for at in 0..REQUESTS {
        let of = |few: usize, kind: &str| to(format!("/{kind}/{}", at / 10 % few));
        all.push(match at % 10 {
            0 => of(4, "plain").with(country[at / 10 % 2]),
            1 => to(format!("/plain/q?b=1&utm_source={at}&a=2")),
            2 => of(3, "gone"),
            3 => of(2, "fresh").with("Cookie: a=b; session=1\r\n"),
            // Neither stores it, though others have a grace.
            5 if at % 20 == 5 => of(2, "fails"),
            4 | 5 => of(2, "fresh").with("Accept-Encoding: gzip\r\n"),
            6 => to(format!("/en/shop/a/{at}.html")),
            7 => to(format!("/fr/api/{}", at / 10 % 3)),
            8 => Request::get("/fresh/1", "none.example"),
            _ => of(2, "fresh").with("Cookie: a=b\r\n"),
        });
    }
    pair.compare(&all);
}

/// Conditions, methods, and the built-in rules about clients that identify themselves.
#[test]
fn varnish_and_its_imported_file_decide_alike() {
    let home = Home::new();
    let (app, files) = (origin("app"), origin("files"));
    let theirs = free_port();
    let text = format!(
        "vcl 4.1;
backend default {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}
backend files {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}
acl near {{ \"localhost\"; }}
acl far {{ \"192.0.2.0\"/24; }}
sub vcl_recv {{
  if (req.http.User-Agent ~ \"(?i)bot\") {{ return (synth(403, \"no robots\")); }}
  if (client.ip !~ far && req.url ~ \"(?i)^/admin\") {{ return (synth(403, \"not here\")); }}
  if (client.ip !~ near) {{ return (synth(404, \"nowhere\")); }}
  if (req.url ~ \"\\.(bak|sql)(\\?.*)?$\") {{ return (synth(404, \"no such file\")); }}
  if (req.method == \"DELETE\") {{ return (synth(405, \"no\")); }}
  if (req.http.X-Forwarded-Proto == \"http\") {{
    return (synth(750, \"https://\" + req.http.host + req.url));
  }}
  if (req.url ~ \"[?&]preview=\") {{ return (pass); }}
  if (req.http.X-Side == \"files\") {{ set req.backend_hint = files; return (pass); }}
  if (req.url ~ \"^/static/\") {{ unset req.http.Cookie; }}
}}
sub vcl_synth {{
  if (resp.status == 750) {{
    set resp.http.Location = resp.reason;
    set resp.status = 301;
    return (deliver);
  }}
}}
",
        app.address.port(),
        files.address.port()
    );
    let vcl = home.write("default.vcl", text);
    let _server = varnish(&home, theirs, &vcl);
    let pair = Pair {
        fields: &["x-seen-cookie", "x-origin"],
        ..Pair::start(&home, ("default.vcl", theirs), Some(&[]), &[], hit)
    };
    let to = |path: String| Request::get(path, "www.example");
    let mut all = Vec::new();
    for at in 0..REQUESTS {
        let page = to(format!("/fresh/{}", at / 20 % 3));
        let file = to(format!("/static/{}", at / 20 % 3));
        all.push(match at % 20 {
            0..4 => page,
            4 => page.with("Cookie: a=b\r\n"),
            5 => page.with("Authorization: Basic QQ==\r\n"),
            6..8 => file.with("Cookie: a=b\r\n"),
            8 => file.with("Authorization: Basic QQ==\r\n"),
            9 => page.with("User-Agent: ROBOT\r\n"),
            10 => to("/Admin/x".to_owned()),
            11 => to("/fresh/dump.sql?a=b".to_owned()),
            12 => page.method("DELETE", ""),
            13 => page.with("X-Forwarded-Proto: http\r\n"),
            14 => to("/fresh/1?a=b&preview=1".to_owned()),
            15 => page.with("X-Side: files\r\n"),
            16 => to(format!("/form/{at}")).method("POST", "a=b").with("Cookie: a=b\r\n"),
            17 => page.method("HEAD", ""),
            18 => to(format!("/session/{}", at / 20 % 2)),
            _ => file,
        });
    }
    pair.compare(&all);
}

/// Rules that are not carried. Where they are, ours is closed or stores nothing.
#[test]
fn what_varnish_keeps_is_kept() {
    let home = Home::new();
    let (app, files) = (origin("app"), origin("files"));
    let theirs = free_port();
    let text = format!(
        "vcl 4.1;
backend default none;
backend app {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}
backend files {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}
sub vcl_recv {{
  if (req.method == \"PURGE\") {{
    if (req.http.X-Key != \"k\") {{ return (synth(403, \"no\")); }}
    return (purge);
  }}
  if (req.http.host ~ \"^(a|b|c)\\.example$\") {{ set req.backend_hint = app; }}
  set req.http.X-Remote-User = client.identity;
  set req.http.X-Forwarded-For = client.ip;
  if (req.http.host == \"b.example\" && req.method == \"POST\") {{
    set req.backend_hint = files;
  }}
  if (req.method != \"GET\" && req.method != \"HEAD\") {{ return (pass); }}
  if (req.http.host == \"c.example\" && req.http.Authorization) {{ return (pass); }}
  if (req.http.Cookie ~ \"session=\") {{ return (pass); }}
  unset req.http.Cookie;
}}
sub vcl_hash {{ hash_data(req.url + req.http.X-Device); }}
sub vcl_deliver {{
  if (req.url ~ \"^/private/\") {{ return (synth(403, \"private\")); }}
}}
",
        app.address.port(),
        files.address.port()
    );
    let vcl = home.write("default.vcl", text);
    let _server = varnish(&home, theirs, &vcl);
    let pair = Pair::start(&home, ("default.vcl", theirs), None, &[], hit);
    let paths = ["/public/1", "/session/1", "/private/1", "/fresh/1"];
    let mut requests = pushing(&["a.example", "b.example", "c.example", "d.example"], &paths);
    requests.truncate(REQUESTS);
    pair.is_no_opener(&requests);
}

fn requests() -> Vec<Request> {
    let to = |path: String| Request::get(path, "www.example");
    let mut all: Vec<Request> = (0..30).map(|at| to(format!("/fresh/{at}"))).collect();
    for at in 0.. {
        let stored = to(format!("/fresh/{}", at % 30));
        all.push(match at % 17 {
            0..4 => stored,
            4 => stored.with("Cookie: a=b\r\n"),
            5 => stored.with("Range: bytes=5-20\r\n"),
            6 => stored.with("If-None-Match: \"8\"\r\n"),
            7 => to(format!("/private/{}", at % 3)).with("Cookie: a=b\r\n"),
            8 => to(format!("/files/{}", at % 9)),
            9 => to(format!("/missing/{}", at % 3)),
            10 => to(format!("/form/{at}")).method("POST", "name=value"),
            11 => stored.method("HEAD", ""),
            12 => to("/internal/x".to_owned()),
            13 => to("/status".to_owned()),
            14 => to(format!("/fresh/{}", at % 60)).method("PURGE", ""),
            15 => Request::get(format!("/a/{at}?q=1"), "old.example"),
            _ => Request::get("/fresh/1", "unknown.example"),
        });
        if all.len() == REQUESTS {
            break;
        }
    }
    all
}
