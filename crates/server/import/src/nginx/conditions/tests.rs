//! Files of nginx with conditions, and what becomes of them.

use crate::tests::{fate, has, lacks};
use crate::{Fate, Imported, Source};

fn imported(text: &str) -> Imported {
    crate::tests::imported(Source::Nginx, "nginx.conf", text, false)
}

/// A server with this inside.
fn one(inside: &str) -> String {
    format!(
        "http {{ upstream app {{ server 127.0.0.1:8001; }}\n\
         server {{ listen 127.0.0.1:80; {inside} }} }}\n"
    )
}

/// The parts of the file between routes and rules.
fn parts(imported: &Imported) -> Vec<&str> {
    let all = imported
        .configuration
        .split("\n[[r")
        .filter(|part| part.starts_with("oute]]") || part.starts_with("ule]]"));
    all.collect()
}

/// The conditions of the file, in their order.
fn whens(imported: &Imported) -> Vec<String> {
    let lines = imported.configuration.lines().filter_map(|line| line.strip_prefix("when = \""));
    let when = |line: &str| line.split("\"  #").next().unwrap_or_default().replace("\\\\", "\\");
    lines.map(when).collect()
}

#[test]
fn what_an_if_asks() {
    for (condition, when) in [
        ("($scheme = http)", "scheme == 'http'"),
        ("($https = on)", "scheme == 'https'"),
        ("($server_port != 443)", "port != 443"),
        ("($request_method !~ ^(GET|HEAD)$)", "!method.matches('^(GET|HEAD)$')"),
        ("($http_user_agent ~* \"bot|a b\")", "fields['user-agent'].matches('(?i)bot|a b')"),
        ("( $http_x_key != 'k' )", "fields['x-key'] != 'k'"),
        ("($http_x)", "fields['x'] != '' && fields['x'] != '0'"),
        ("($cookie_a = '')", "cookies['a'] == ''"),
        ("($arg_id = 7)", "args['id'] == '7'"),
        ("($host = www.example)", "host == 'www.example'"),
        ("($uri ~ ^/a/)", "path.matches('^/a/')"),
        (
            "($request_uri ~* [?&]debug=)",
            "query.matches('(?i)(^|[?&])debug=') || path.matches('(?i)&debug=')",
        ),
        ("($args ~ x)", "query.matches('x')"),
        ("($remote_addr = 192.0.2.1)", "client == '192.0.2.1'"),
    ] {
        let rule = imported(&one(&format!(
            "if {condition} {{ return 403; }} location / {{ proxy_pass http://app; }}"
        )));
        assert_eq!(whens(&rule), [when], "{condition}");
        has(&rule, "\nupstream = \"app\"");
        let is_rule = |part: &&str| part.starts_with("ule]]") && part.contains("status = 403");
        assert!(parts(&rule).iter().any(is_rule), "{condition}");
        let route = imported(&one(&format!(
            "location / {{ if {condition} {{ return 403; }} proxy_pass http://app; }}"
        )));
        assert_eq!(whens(&route), [when], "{condition}");
        lacks(&route, "[[rule]]");
        // nginx compares these names without case.
        let differs = condition.contains("$cookie") || condition.contains("$arg_");
        assert_eq!(route.has_left(), differs, "{condition}: {:#?}", route.notes);
    }
    for condition in [
        "($remote_user = x)",
        "(-f $request_filename)",
        "($http_x = $http_y)",
        "($http_x ~ (?!a)b)",
        "($http_x_forwarded_for ~ ^10)",
        "($request_uri ~ ^/a.*b)",
    ] {
        let closed = imported(&one(&format!(
            "if {condition} {{ return 403; }} location / {{ proxy_pass http://app; }}"
        )));
        lacks(&closed, "\nupstream = ");
        assert_eq!(fate(&closed, "if ("), Fate::Unprotected, "{condition}");
    }
}

/// The server on port 80 was left out.
#[test]
fn a_server_that_only_redirects_is_a_rule_for_its_port() {
    let https = "server { listen 8443; server_name a.example b.example; \
                 location / { proxy_pass http://127.0.0.1:1; } }";
    let of = |server: &str| imported(&format!("http {{ {server}\n{https} }}"));
    let plain = of("server { listen 80; listen [::]:80; server_name a.example b.example; \
                    return 301 https://$host$request_uri; }");
    has(
        &plain,
        "when = \"port == 80\"  # nginx.conf:1\nredirect = \"https://{host}\"  # nginx.conf:1\n\
         with_path = true",
    );
    has(&plain, "address = \"[::]:80\"");
    has(&plain, "address = \"0.0.0.0:8443\"");
    assert!(!plain.has_left(), "{:#?}", plain.notes);
    // The form of certbot, a place for its challenge, and another server on the port.
    let several =
        of("server { listen 80; server_name a.example; if ($host = a.example) { return 301 \
         https://$host$request_uri; } return 404; }\n\
         server { listen 80 default_server; location /.well-known/ { root /x; } \
         location = /up { return 200 well; } location / { return 308 https://b.example/; } }");
    let own = "port == 80 && host == 'a.example'";
    assert_eq!(
        whens(&several),
        [
            own,
            // Without a second condition it would be the first rule again.
            "port == 80 && path == '/up'",
            "port == 80 && path.startsWith('/.well-known/')",
            "port == 80",
        ]
    );
    // A site on both ports is not one that only answers.
    let site = of("server { listen 80; server_name a.example; \
                   location / { proxy_pass http://127.0.0.1:2; } }");
    lacks(&site, "[[rule]]");
    let unknown = of("server { listen 80; return 301 https://$host$uri_of_map; what_is_this; }");
    lacks(&unknown, "port == 80");
}

#[test]
fn a_rule_of_a_server_names_its_hosts() {
    let text = "http { upstream app { server 127.0.0.1:1; }\n\
                server { listen 127.0.0.1:80; server_name a.example *.b.example; \
                if ($http_x = a) { return 403; } location / { proxy_pass http://app; } }\n\
                server { listen 127.0.0.1:80 default_server; server_name d.example; \
                if ($http_x = d) { return 403; } location / { proxy_pass http://app; } }\n\
                server { listen 127.0.0.1:80; server_name *.c.example; \
                if ($http_x = c) { return 403; } location / { proxy_pass http://app; } }\n\
                server { listen 127.0.0.1:80; server_name x.c.example; \
                location / { proxy_pass http://app; } } }";
    let all = imported(text);
    assert_eq!(
        whens(&all),
        [
            "(host == 'a.example' || host.endsWith('.b.example')) && fields['x'] == 'a'",
            "!(host in ['a.example', 'x.c.example'] || host.endsWith('.b.example') || \
             host.endsWith('.c.example')) && fields['x'] == 'd'",
        ]
    );
    // nginx prefers the name of another server, and the condition would not.
    assert_eq!(fate(&all, "if ($http_x = c)"), Fate::Unprotected);
}

/// Each closed the routes that its requests would have found.
#[test]
fn expressions_come_before_prefixes_in_their_order() {
    let text = one("location / { proxy_pass http://app; }\n\
                    location ~ /\\.ht { deny all; }\n\
                    location ~* \\.PHP$ { return 410; }\n\
                    location ^~ /static/ { proxy_pass http://app; }\n\
                    location = /x.php { proxy_pass http://app; }\n\
                    location /api/ { proxy_pass http://app; }\n\
                    location ~ ^/api/v[0-9]+/ { proxy_set_header X-Api yes; proxy_pass http://app; }");
    let all = imported(&text);
    assert!(!all.has_left(), "{:#?}", all.notes);
    let routes = parts(&all);
    let of = |path: &str| -> Vec<String> {
        let mut found = Vec::new();
        for part in routes.iter().filter(|part| part.contains(&format!("\n{path}  #"))) {
            let when = part.split("when = \"").nth(1).and_then(|when| when.split('"').next());
            found.push(when.unwrap_or_default().to_owned());
        }
        found
    };
    let (denied, gone) = ("path.matches(r'/\\\\.ht')", "path.matches(r'(?i)\\\\.PHP\\\\n?\\\\z')");
    let api = "path.matches('^/api/v[0-9]+/')";
    assert_eq!(of("prefix = \"/\""), [denied, gone, api, ""]);
    assert_eq!(of("prefix = \"/api/\""), [denied, gone, api, ""]);
    assert_eq!(of("prefix = \"/static/\""), [""]);
    assert_eq!(of("path = \"/x.php\""), [""]);
    let (_, api) = all.configuration.split_once(&format!("when = \"{api}\"")).unwrap();
    let api = api.split("[[route]]").next().unwrap();
    assert!(api.contains("set = \"X-Api\"") && api.contains("upstream = \"app\""), "{api}");
}

#[test]
fn more_conditions_than_fit_are_not_written() {
    let expressions: String =
        (0..30).map(|at| format!("location ~ {at}$ {{ return 410; }}\n")).collect();
    let prefixes: String =
        (0..30).map(|at| format!("location /{at}/ {{ proxy_pass http://app; }}\n")).collect();
    let many = imported(&one(&format!("{expressions}{prefixes}")));
    lacks(&many, "when = ");
    assert_eq!(fate(&many, "location ~ 0$"), Fate::Unprotected);
    let lists: String = (0..450)
        .map(|at| {
            format!("location /{at}/ {{ allow 10.0.0.0/8; deny all; proxy_pass http://app; }}\n")
        })
        .collect();
    let full = imported(&one(&lists));
    // Where the conditions are too many, the route is closed.
    assert_eq!(whens(&full).len(), 100);
    assert_eq!(full.configuration.matches("\nupstream = ").count(), 100);
    assert!(full.notes.iter().any(|note| note.why.contains("too many conditions")));
}

#[test]
fn what_does_not_use_the_store_is_a_condition() {
    let of = |more: &str, inside: &str| {
        imported(&one(&format!(
            "{more} location / {{ proxy_cache z; proxy_ignore_headers Set-Cookie; {inside} \
             proxy_pass http://app; }}"
        )))
    };
    let twice =
        |variable: &str| format!("proxy_cache_bypass {variable}; proxy_no_cache {variable};");
    let field = of("", &twice("$http_authorization"));
    let is_there = "fields['authorization'] != '' && fields['authorization'] != '0'";
    assert_eq!(whens(&field), [is_there]);
    assert!(!field.has_left());
    let stored = parts(&field).into_iter().filter(|part| !part.contains("store = false")).count();
    assert_eq!(stored, 1);
    // A cookie bypasses the store as before.
    let cookie = of("", &twice("$cookie_a $http_x"));
    has(&cookie, "bypass_cookies = [\"a\"]");
    assert_eq!(whens(&cookie), ["fields['x'] != '' && fields['x'] != '0'"]);
    // The usual switches.
    let switched = of(
        "set $skip 0; if ($request_method = POST) { set $skip 1; }\n\
         if ($query_string != \"\") { set $skip 1; }\n\
         if ($http_cookie ~* \"wordpress_[a-f0-9]+|wp-postpass\") { set $skip 1; }\n\
         if ($request_uri ~* \"/wp-admin/|wp-.*.php\") { set $skip 1; }",
        &twice("$skip"),
    );
    assert_eq!(
        whens(&switched),
        ["method == 'POST' || query != '' || \
          fields['cookie'].matches('(?i)wordpress_[a-f0-9]+|wp-postpass') || \
          path.matches('(?i)/wp-admin/') || query.matches('(?i)/wp-admin/') || \
          path.matches('(?i)wp-.*.php') || query.matches('(?i)wp-.*.php')"]
    );
    // A dot of the last expression.
    assert_eq!(fate(&switched, "proxy_no_cache"), Fate::NotCarried);
    // Another value is not known.
    let other = of("if ($http_x) { set $skip $http_y; }", &twice("$skip"));
    assert!(parts(&other).iter().all(|part| part.contains("store = false")));
}

#[test]
fn maps_and_networks_are_conditions() {
    let text = |condition: &str| {
        format!(
            "http {{ map $http_user_agent $bad {{ default 0; ~*(bot|crawl) 1; ~^curl 1; }}\n\
             geo $inside {{ default 0; 10.0.0.0/8 1; 192.0.2.1 1; }}\n\
             map $http_x $mixed {{ default 1; ~a 0; }}\n\
             upstream app {{ server 127.0.0.1:1; }}\n\
             server {{ listen 127.0.0.1:80; if ({condition}) {{ return 403; }}\n\
             location / {{ proxy_pass http://app; }} }} }}"
        )
    };
    let bad = "fields['user-agent'].matches('(?i)(bot|crawl)') || \
               fields['user-agent'].matches('^curl')";
    assert_eq!(whens(&imported(&text("$bad"))), [bad]);
    assert_eq!(whens(&imported(&text("$bad = 1"))), [bad]);
    let inside = "client.within('10.0.0.0/8', '192.0.2.1')";
    assert_eq!(whens(&imported(&text("$inside = 1"))), [inside]);
    for unknown in ["$mixed", "$bad = 2", "$bad ~ 1"] {
        lacks(&imported(&text(unknown)), "\nupstream = ");
    }
}

/// The client's address was taken away from upstreams.
#[test]
fn fields_have_values_of_the_request() {
    let with =
        |lines: &str| imported(&one(&format!("location / {{ {lines} proxy_pass http://app; }}")));
    for (line, value) in [
        ("X-Real-IP $remote_addr", "{client}"),
        ("X-Forwarded-Proto $scheme", "{scheme}"),
        ("X-Forwarded-For $remote_addr", "{client}"),
        ("X-Port ${server_port}", "{port}"),
        ("X-Request-ID $request_id", "{request_id}"),
        ("X-Origin $scheme://$host", "{scheme}://{host}"),
    ] {
        let (name, _) = line.split_once(' ').unwrap();
        let all = with(&format!("proxy_set_header {line};"));
        has(&all, &format!("set = \"{name}\"  # nginx.conf:2\nvalue = \"{value}\""));
        lacks(&all, "forwarded = ");
        assert_eq!(fate(&all, "proxy_set_header"), Fate::Carried, "{line}");
    }
    // Our server would replace such a text.
    let text = with("proxy_set_header X-A '{client}';");
    has(&text, "remove = \"X-A\"");
    assert!(text.has_left());
}

/// Conditions that keep a client from a page without an error.
#[test]
fn a_condition_that_sends_clients_away_closes() {
    for (condition, is_open) in [
        ("if ($scheme ~ (?=h)h) { return 301 https://$host$request_uri; }", true),
        ("if ($http_host ~ (?!a)b) { rewrite ^ https://a.example$request_uri permanent; }", true),
        ("if ($request_method = OPTIONS) { return 204; }", true),
        ("if ($http_cookie ~ x) { set $skip 1; } proxy_no_cache $skip; proxy_cache z;", true),
        ("if ($cookie_user ~ (?!a)) { return 302 /login; }", false),
        ("if ($cookie_user ~ (?!a)) { return 302 https://sso.example$request_uri; }", false),
        ("if ($http_user_agent ~ (?=b)) { return 200 no; }", false),
        ("if ($remote_addr ~ ^10) { rewrite ^ /away permanent; }", false),
        (
            "if ($http_cookie ~ x) { set $skip 1; } proxy_no_cache $skip; add_header X-A a; \
          if ($skip) { return 403; }",
            false,
        ),
        ("if ($http_cookie ~ x) { set $skip 1; }", false),
    ] {
        let text = one(&format!("location / {{ {condition} proxy_pass http://app; }}"));
        let imported = imported(&text);
        assert_eq!(imported.configuration.contains("\nupstream = "), is_open, "{condition}");
        assert!(imported.has_left(), "{condition}");
        let stores = condition.contains("$skip 1") && is_open;
        assert!(!stores || imported.configuration.contains("store = false"), "{condition}");
    }
}
