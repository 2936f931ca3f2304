//! Files of HAProxy.

use super::{fate, has, imported, lacks, why};
use crate::{Fate, Imported, Source};

const BASE: &str = "defaults\n mode http\n timeout connect 2s\n timeout client 30s\n \
                    timeout server 20s\n";

/// A file with one frontend, whose lines are given, and the backends `app` and `api`.
fn site(lines: &str) -> String {
    format!(
        "{BASE}frontend web\n bind 127.0.0.1:80\n{lines}\n default_backend app\n\
         backend app\n server a1 10.0.0.1:8000\nbackend api\n server b1 10.0.0.2:8000\n"
    )
}

fn of(lines: &str) -> Imported {
    imported(Source::Haproxy, "haproxy.cfg", &site(lines), false)
}

fn is_equal(imported: &Imported) -> bool {
    !imported.differs()
}

#[test]
fn the_first_backend_whose_condition_holds_is_used() {
    let found =
        of(" acl a path_beg /api /v1\n acl a path_end -i .JSON\n acl h hdr(host) -i x.example\n\
                    use_backend api if a !h or { method PUT }");
    assert!(is_equal(&found), "{:#?}", found.notes);
    has(
        &found,
        "prefix = \"/\"  # haproxy.cfg:11\nwhen = \"((path.startsWith('/api') || \
         path.startsWith('/v1') || path.lowerAscii().endsWith('.json')) && host != 'x.example') \
         || method == 'PUT'\"  # haproxy.cfg:11\nupstream = \"api\"",
    );
    has(&found, "prefix = \"/\"  # haproxy.cfg:12\nupstream = \"app\"");
    has(&found, "store = false  # HAProxy stores nothing here");
    has(&found, "url = \"http://10.0.0.2:8000\"");
    has(&found, "connect = \"2s\"");
    has(&found, "first_byte = \"20s\"");
}

#[test]
fn several_frontends_have_conditions_for_their_listeners() {
    let text = format!(
        "{BASE}frontend plain\n bind :80\n redirect scheme https code 301\n\
         frontend tls\n bind 127.0.0.1:443 ssl crt /certs alpn h2,http/1.1\n default_backend app\n\
         backend app\n http-request deny if {{ path /x }}\n server a1 10.0.0.1:8000\n"
    );
    // The certificates are not there, so the server's reader is not asked.
    let mut read = |name: &str| match name {
        "/certs/*" => Ok(["a.pem", "a.pem.key"]
            .map(|name| crate::Included { name: format!("/certs/{name}"), text: String::new() })
            .to_vec()),
        _ => Err("no".to_owned()),
    };
    let options = crate::Options::default();
    let found = crate::import(Source::Haproxy, "haproxy.cfg", &text, options, &mut read).unwrap();
    has(&found, "address = \"0.0.0.0:80\"  # haproxy.cfg:7\nname = \"plain\"");
    has(&found, "when = \"listener == 'plain'\"  # haproxy.cfg:8\nredirect = \"https://{host}\"");
    has(&found, "when = \"listener == 'tls' && path == '/x'\"");
    has(&found, "when = \"listener == 'tls'\"  # haproxy.cfg:11\nupstream = \"app\"");
    has(&found, "answer = \"no backend\\n\"");
    has(&found, "chain = \"/certs/a.pem\"");
    lacks(&found, "a.pem.key");
    has(&found, "http2 = true");
    assert_eq!(fate(&found, "redirect scheme"), Fate::Different);
}

/// The server refuses a rule that never decides, and so an imported file.
#[test]
fn rules_that_nothing_reaches_are_left_out() {
    let found =
        of(" http-request deny if { path_beg /a }\n http-request deny if { path_beg /ab }\n\
                    redirect location /y code 303 if { path_beg /a }");
    assert!(is_equal(&found), "{:#?}", found.notes);
    assert_eq!(found.configuration.matches("[[rule]]").count(), 1);
}

#[test]
fn answers_and_redirects_are_rules() {
    let found = of(
        " http-request return status 200 content-type text/html string \"<p>\" if { path /a }\n\
                    http-request deny deny_status 429 if { hdr(X-Bad) -m found }\n\
                    http-request redirect prefix https://b.example code 308 if { hdr_beg(host) -i m. }\n\
                    http-request redirect location https://c.example/x if { src 10.0.0.0/8 192.0.2.1 }\n\
                    redirect location /n code 303 unless { ssl_fc }\n monitor-uri /up",
    );
    assert!(is_equal(&found), "{:#?}", found.notes);
    has(&found, "when = \"path == '/up' && query == ''\"");
    has(&found, "set = \"Content-Type\"  # haproxy.cfg:8\nvalue = \"text/html\"");
    has(&found, "when = \"'x-bad' in fields\"  # haproxy.cfg:9\nanswer = \"access denied\\n\"");
    has(
        &found,
        "when = \"host.startsWith('m.')\"  # haproxy.cfg:10\nredirect = \"https://b.example\"",
    );
    has(&found, "when = \"client.within(acl_1)\"");
    has(&found, "values = [\"10.0.0.0/8\", \"192.0.2.1\"]");
    has(&found, "value = \"no-cache\"  # as HAProxy does");
    has(&found, "when = \"scheme != 'https'\"  # haproxy.cfg:12\nredirect = \"/n\"");
}

/// Two changes that set one field were sent as two fields.
#[test]
fn a_later_change_of_a_field_replaces_an_earlier_one() {
    let found =
        of(" http-request set-header X-A one\n http-request set-header X-A two if { path /b }\n\
                    http-request del-header X-B\n http-request add-header X-C %[src]");
    assert!(is_equal(&found), "{:#?}", found.notes);
    has(&found, "when = \"path != '/b'\"  # haproxy.cfg:8\n\n[[rule.request]]\nset = \"X-A\"");
    has(&found, "when = \"path == '/b'\"  # haproxy.cfg:9\n\n[[rule.request]]\nset = \"X-A\"");
    has(&found, "value = \"{client}\"");
}

#[test]
fn a_condition_on_what_a_rule_has_changed_is_not_known() {
    let found =
        of(" http-request set-header X-A one\n http-request deny if { hdr(X-A) two } { path /d }");
    assert_eq!(fate(&found, "http-request deny"), Fate::Unprotected);
    has(
        &found,
        "when = \"path == '/d'\"  # haproxy.cfg:9\nanswer = \"closed by plimsoll import\\n\"",
    );
}

#[test]
fn what_may_keep_requests_out_is_closed() {
    for (lines, when) in [
        ("http-request deny if { path /d } { ssl_c_used }", "when = \"path == '/d'\""),
        ("http-request deny unless { path /d } { ssl_c_used }", "when = \"path.size() > 0\""),
        ("http-request lua.check if { path /d }", "when = \"path == '/d'\""),
        ("http-request auth unless { path /d }", "when = \"path != '/d'\""),
        (
            "http-request redirect location /l if { path /d } { ssl_c_used }",
            "when = \"path == '/d'\"",
        ),
        ("reqdeny ^X:", "when = \"path.size() > 0\""),
    ] {
        let found = of(lines);
        assert_eq!(fate(&found, lines.split(" if").next().unwrap()), Fate::Unprotected, "{lines}");
        has(&found, &format!("{when}  # haproxy.cfg:8\nanswer = \"closed by plimsoll import\\n\""));
        let open = imported(Source::Haproxy, "haproxy.cfg", &site(lines), true);
        lacks(&open, "closed by plimsoll");
    }
    for lines in ["frobnicate yes", "filter spoe engine x", "http-response deny"] {
        let found = of(lines);
        assert_eq!(fate(&found, lines), Fate::Unprotected, "{lines}");
        lacks(&found, "\nupstream = ");
    }
    let doubtful = of(".if defined(X)\n http-request deny if { path /d }\n .endif");
    has(&doubtful, "answer = \"closed by plimsoll import\\n\"");
}

/// Where `use_backend` may lead elsewhere, the requests do not go to the next backend.
#[test]
fn a_choice_that_is_not_known_is_answered_with_501() {
    let found =
        of(" use_backend api if { path /p } { ssl_c_used }\n use_backend %[hdr(x)] if { path /q }");
    has(&found, "when = \"path == '/p'\"  # haproxy.cfg:8\nanswer = \"not imported\\n\"");
    has(&found, "when = \"path == '/q'\"  # haproxy.cfg:9\nanswer = \"not imported\\n\"");
    let same = of(" use_backend app if { ssl_c_used }");
    lacks(&same, "501");
}

/// The server refused the imported files.
#[test]
fn conditions_that_cannot_hold_are_left_out() {
    let found = of(" acl unused hdr(host) -i b.example\n http-request deny if { status 404 }\n\
                    http-request set-header X-A 1 if { res.hdr(X-B) c }");
    assert!(is_equal(&found), "{:#?}", found.notes);
    lacks(&found, "[[rule]]");
    let two = format!(
        "{}frontend more\n bind :81\n http-after-response set-header X-A 1 if {{ status 404 }}\n \
         default_backend app\n",
        site("")
    );
    let found = imported(Source::Haproxy, "haproxy.cfg", &two, false);
    assert_eq!(fate(&found, "http-after-response"), Fate::NotCarried);
}

#[test]
fn the_congestion_control_of_a_listener_is_carried() {
    let with = site("").replace("127.0.0.1:80", "127.0.0.1:80 cc bbr");
    let found = imported(Source::Haproxy, "haproxy.cfg", &with, false);
    has(&found, "congestion_control = \"bbr\"");
    assert_eq!(fate(&found, "bind"), Fate::Carried);
    // A listener may be called so.
    let with = site("").replace("127.0.0.1:80", "127.0.0.1:80 name cc tfo");
    let found = imported(Source::Haproxy, "haproxy.cfg", &with, false);
    lacks(&found, "congestion_control");
    assert_eq!(fate(&found, "bind"), Fate::Carried);
    // A Unix socket has none.
    let with = site("").replace("127.0.0.1:80", "/run/x.sock cc bbr");
    let found = imported(Source::Haproxy, "haproxy.cfg", &with, false);
    lacks(&found, "congestion_control");
    assert_eq!(fate(&found, "bind"), Fate::NotCarried);
}

/// Each was carried as if it meant the same, with the exit code 0.
#[test]
fn what_means_something_else_is_noted_or_closed() {
    // The port is that of the PROXY header.
    let proxied =
        site("http-request deny if { dst_port 81 }\n http-request set-header X-P %[dst_port]")
            .replace("127.0.0.1:80", "127.0.0.1:80 accept-proxy");
    let found = imported(Source::Haproxy, "haproxy.cfg", &proxied, false);
    assert_eq!(fate(&found, "http-request deny"), Fate::Unprotected);
    assert_eq!(fate(&found, "http-request set-header"), Fate::Different);
    // Browsers send hosts in lower case, which HAProxy does not match.
    let found = of(" use_backend api if { hdr(host) A.example }");
    assert_eq!(fate(&found, "use_backend"), Fate::NotCarried);
    // `accept` of connections says nothing about their content.
    let found = of(" tcp-request connection accept if { src 10.0.0.0/8 }\n\
                    tcp-request content reject if { src 10.9.0.0/16 }");
    has(&found, "when = \"client.within('10.9.0.0/16')\"");
    // The rules of a `listen` would not run.
    let two = site("use_backend other if { path /x }")
        + "listen other\n bind :81\n http-request deny\n server a 10.0.0.3:80\n";
    let found = imported(Source::Haproxy, "haproxy.cfg", &two, false);
    assert_eq!(fate(&found, "use_backend"), Fate::NotCarried);
    // A section that is not started.
    let two = site("disabled") + "listen other\n bind :81\n server a 10.0.0.3:80\n";
    lacks(&imported(Source::Haproxy, "haproxy.cfg", &two, false), "127.0.0.1:80");
    // It is never true, and the line is left out.
    let found = of(" http-response set-header X-A 1 if { nbsrv(app) lt 1 }");
    assert_eq!(fate(&found, "http-response"), Fate::NotCarried);
    // Both set the field, and the second replaces it.
    let found = of(" http-response set-header X-A 1\n http-after-response set-header X-A 2");
    assert_eq!(fate(&found, "http-response"), Fate::NotCarried);
    has(&of(" http-request deny deny_status 200"), "Service ready.");
    // The server takes an empty text.
    has(&of(" http-request return status 200"), "answer = \"\"");
}

/// Sections whose limits depend on load go on without them.
#[test]
fn rates_and_the_state_of_servers_are_left_out() {
    let found = of(" stick-table type ip size 1k expire 10s store http_req_rate(10s)\n\
                    http-request track-sc0 src\n\
                    http-request deny if { sc_http_req_rate(0) gt 20 }\n\
                    use_backend api if { nbsrv(app) lt 1 }");
    assert_eq!(fate(&found, "http-request deny"), Fate::NotCarried);
    assert_eq!(fate(&found, "use_backend"), Fate::NotCarried);
    lacks(&found, "[[rule]]");
}

#[test]
fn each_value_of_a_field_is_compared() {
    let found =
        of(" http-request deny if { hdr(X-A) -i b }\n http-request deny if { hdr_sub(X-B) c }");
    assert!(is_equal(&found), "{:#?}", found.notes);
    has(&found, "fields['x-a'].matches(r'(?i)(^|,)[ \\\\t]*b[ \\\\t]*(,|$)')");
    has(&found, "when = \"fields['x-b'].matches('c')\"");
    let doubtful = of(" http-request deny if { hdr_reg(User-Agent) bot.*x }");
    assert_eq!(fate(&doubtful, "http-request deny"), Fate::Unprotected);
}

#[test]
fn only_responses_of_upstreams_are_changed() {
    let found = of(" http-request deny if { path /d }\n http-response set-header X-A 1\n\
                    http-response set-header X-S 5 if { status 500 }\n\
                    http-response del-header X-P if { path /never }");
    assert!(is_equal(&found), "{:#?}", found.notes);
    has(&found, "when = \"status > 100\"  # haproxy.cfg:9\n\n[[rule.response]]\nset = \"X-A\"");
    has(&found, "when = \"status == 500 && status > 100\"");
    lacks(&found, "X-P");
}

#[test]
fn paths_are_rewritten() {
    let found = of(" http-request set-path %[path,regsub(^/a/,/)] if { path_beg /a/ }");
    has(&found, "strip_prefix = \"/a\"");
    let found = of(" http-request replace-path ^/b/(.*)$ /c/\\1");
    has(&found, "path.matches('^/b/(?P<c1>.*)$')");
    has(&found, "rewrite = \"/c/{c1}\"");
    let found = of(" reqrep ^([^\\ :]*)\\ /w/(.*) \\1\\ /\\2");
    has(&found, "rewrite = \"/{c1}\"");
    let found = of(" http-request set-query a=b if { path /q }");
    has(&found, "when = \"path == '/q'\"  # haproxy.cfg:8\nanswer = \"not imported\\n\"");
}

#[test]
fn x_forwarded_for_is_added_where_it_is_asked_for() {
    has(&of(" option forwardfor"), "forwarded = \"x_forwarded_for\"");
    let found = of(" option forwardfor except 127.0.0.0/8");
    assert!(is_equal(&found), "{:#?}", found.notes);
    has(&found, "when = \"!client.within('127.0.0.0/8')\"");
    has(&found, "add = \"X-Forwarded-For\"");
    // The client's own field would come with it.
    let found = of(" option forwardfor\n http-request set-header X-Forwarded-For %[src]");
    lacks(&found, "forwarded = ");
}

#[test]
fn servers_have_their_options() {
    let lines = "balance leastconn\n cookie SRV insert indirect nocache\n option httpchk GET /up\n \
                 default-server check inter 5s rise 3 fall 4\n \
                 server s1 a.example:443 ssl verify none cookie one weight 7 maxconn 9\n \
                 server s2 unix@/run/s2.sock backup send-proxy-v2\n \
                 server s3 10.0.0.9:80 disabled\n \
                 server-template t 3 b.example:80\n http-check expect status 204\n retries 4";
    let text = format!("{BASE}listen web\n bind 127.0.0.1:80\n {lines}\n");
    let found = imported(Source::Haproxy, "haproxy.cfg", &text, false);
    for line in [
        "balance = \"least_outstanding\"",
        "proxy_header = \"v2\"",
        "url = \"https://a.example:443\"",
        "id = \"one\"",
        "weight = 7",
        "outstanding_max = 9",
        "url = \"unix:/run/s2.sock\"",
        "backup = true",
        "url = \"http://b.example:80\"  # haproxy.cfg:15\naddresses = \"all\"",
        "verify = false",
        "cookie = \"SRV\"",
        "path = \"/up\"",
        "interval = \"5s\"",
        "rise = 3",
        "status_min = 204",
        "max = 4",
    ] {
        has(&found, line);
    }
    lacks(&found, "10.0.0.9");
    assert_eq!(fate(&found, "cookie"), Fate::Different);
    assert_eq!(fate(&found, "option httpchk"), Fate::Carried);
}

#[test]
fn sections_without_http_and_statistics_are_not_served() {
    let text = "listen mysql\n mode tcp\n bind :3306\n server a 10.0.0.1:3306\n\
                listen stats\n mode http\n bind :8404\n stats enable\n\
                listen web\n mode http\n bind :80\n stats uri /s\n server a 10.0.0.1:80\n";
    let found = imported(Source::Haproxy, "haproxy.cfg", text, false);
    assert_eq!(fate(&found, "listen mysql"), Fate::NotCarried);
    assert_eq!(fate(&found, "listen stats"), Fate::NotCarried);
    lacks(&found, "8404");
    has(&found, "when = \"path.startsWith('/s')\"");
    assert!(why(&found, "stats uri").contains("501"));
}

#[test]
fn sections_inherit_named_defaults() {
    let text = "defaults a\n mode http\n timeout server 1s\n\
                defaults b from a\n timeout connect 9s\n\
                listen one from b\n bind :80\n server a 10.0.0.1:80\n\
                listen two from a\n bind :81\n timeout server 3s\n server a 10.0.0.2:80\n";
    let found = imported(Source::Haproxy, "haproxy.cfg", text, false);
    has(&found, "connect = \"9s\"");
    has(&found, "first_byte = \"1s\"");
    has(&found, "first_byte = \"3s\"");
}

/// Each was refused, or took too long, or was carried in another way.
#[test]
fn odd_files_end_with_a_note_or_an_error() {
    let read = |text: &str| {
        let mut none = |_: &str| Err("no".to_owned());
        crate::import(Source::Haproxy, "f", text, crate::Options::default(), &mut none)
    };
    for (text, wanted) in [
        ("frontend a\n bind \"x\n", "f:2: a quote is not closed in this line"),
        ("frontend a\n bind \0\n", "f:2: a NUL is in this line"),
        ("bind :80\n", "f:1: a line outside sections: is this a file of HAProxy?"),
    ] {
        assert_eq!(read(text).unwrap_err().to_string(), wanted);
    }
    let chain: String = (1..99).map(|n| format!("defaults d{n} from d{}\n", n - 1)).collect();
    assert!(read(&format!("{chain}backend b from d98\n")).unwrap_err().what.contains("deeply"));
    let dos = read(&site("http-request deny if { path /x }").replace('\n', "\r\n")).unwrap();
    assert!(!dos.differs(), "{:#?}", dos.notes);
    let bom = read(&format!("\u{feff}{}", site(""))).unwrap();
    assert!(!bom.differs(), "{:#?}", bom.notes);
    let many = |line: &dyn Fn(usize) -> String| {
        read(&site(&(0..600).map(line).collect::<String>())).unwrap()
    };
    for full in [
        many(&|n| format!(" http-request deny if {{ path /{n} }}\n")),
        many(&|n| format!(" http-request set-header X-{n} 1\n")),
        many(&|n| format!(" use_backend api if {{ path /{n} }}\n")),
    ] {
        assert!(full.notes.iter().any(|note| note.why.contains("all are closed")));
        lacks(&full, "\nupstream = ");
    }
}
