//! Files of nginx with what operators write every day.

use super::{imported, one};
use crate::tests::{fate, has, lacks, why};
use crate::{Fate, Imported, Options, Source};

#[test]
fn files_are_served_as_nginx_finds_them() {
    for (inside, lines) in [
        ("root /srv/www;", &["files = \"/srv/www\"", "dot_files = true"][..]),
        (
            "root /srv/www; index a.html index.php; location / { expires 1h; \
             add_header Cache-Control public; }",
            &["index = [\"a.html\"]", "cache_control = \"max-age=3600, public\""],
        ),
        (
            "root /srv; location / { try_files $uri $uri.html $uri/ =404; }",
            &["try_files = [\"{path}.html\"]"],
        ),
        (
            "root /srv; location / { try_files $uri /index.html; }",
            &["index = []", "try_files = [\"/index.html\"]"],
        ),
        (
            "root /srv/www; location /img/ { alias /srv/pics/; }",
            &["prefix = \"/img/\"  # nginx.conf:2\nfiles = \"/srv/pics\"", "alias = true"],
        ),
        (
            "root /srv/www; location = /robots.txt { alias /srv/www/robots.txt; }",
            &["path = \"/robots.txt\"  # nginx.conf:2\nfiles = \"/srv/www\""],
        ),
        (
            "root /srv; location / { try_files $uri @app; }\n\
             location @app { proxy_set_header X-A b; proxy_pass http://app; }",
            &["files = \"/srv\"", "upstream = \"app\"", "set = \"X-A\"", "index = []"],
        ),
        (
            "location / { proxy_pass http://app; } location ~* \\.(css|js)$ { root /srv; \
             expires max; }",
            &["when = \"path.matches(", "cache_control = \"max-age=315360000\""],
        ),
    ] {
        let imported = imported(&one(inside), false);
        lines.iter().for_each(|line| has(&imported, line));
        lacks(&imported, "status = 501");
        assert!(!imported.has_left(), "{inside}: {:#?}", imported.notes);
    }
}

/// The files of a site with PHP would be its programs.
#[test]
fn what_another_program_answers_is_never_sent_as_a_file() {
    let php = "location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; }";
    let with = imported(&one(&format!("root /srv; location / {{ index i.html; }} {php}")), false);
    let (before, after) = with.configuration.split_once("path.matches(").unwrap();
    assert!(!before.contains("files = "), "the expression comes first: {before}");
    has(&with, "status = 501");
    assert!(after.contains("files = \"/srv\""));
    for inside in [
        "root /srv; location / { try_files $uri $uri/ /index.php?$args; }",
        "location / { root html; }",
        "location / { root /srv/$host; }",
        "root /srv; location / { try_files /down.html $uri; }",
        "location ~ ^/(a|b)/ { alias /srv/; }",
    ] {
        let imported = imported(&one(inside), false);
        lacks(&imported, "files = ");
        assert!(imported.has_left(), "{inside}");
    }
    // An expression that our file cannot have.
    let php = "location ~ (?=x)\\.php$ { fastcgi_pass 127.0.0.1:9000; }";
    let with = imported(&one(&format!("root /srv; {php}")), false);
    has(&with, "# files = \"/srv\"");
    lacks(&with, "\nfiles = ");
}

/// The usual pair: one server for certificates and a redirect, and the other one for the site.
#[test]
fn servers_of_both_schemes_are_carried_together() {
    let text = "http { server { listen 80; server_name a.example;\n\
                location /.well-known/acme-challenge/ { root /srv/certbot; }\n\
                location / { return 301 https://$host$request_uri; } }\n\
                server { listen 443 ssl; server_name a.example; ssl_certificate c; \
                ssl_certificate_key k;\n\
                location / { proxy_pass http://127.0.0.1:1; } location /api/ { return 404; } } }";
    let options = Options::default();
    let mut read = |_: &str| Err(String::new());
    let imported = crate::import(Source::Nginx, "f", text, options, &mut read).unwrap();
    for line in
        ["address = \"0.0.0.0:443\"", "address = \"0.0.0.0:80\"", "files = \"/srv/certbot\""]
    {
        has(&imported, line);
    }
    assert!(!imported.has_left(), "{:#?}", imported.notes);
    let routes = imported.configuration.split("[[route]]").skip(1);
    for route in routes {
        let is_of_plain = route.contains("certbot") || route.contains("redirect = ");
        let scheme = if is_of_plain { "scheme == 'http'" } else { "scheme == 'https'" };
        assert!(route.contains(&format!("when = \"{scheme}\"")), "{route}");
    }
}

#[test]
fn another_path_is_sent_to_the_upstream() {
    for (location, pass, lines) in [
        (
            "/api/",
            "/",
            &["prefix = \"/api/\"", "upstream_path = \"/\"", "from = \"http://app/\""][..],
        ),
        ("/api/", "/v2/", &["upstream_path = \"/v2/\"", "to = \"/api/\""]),
        (
            "/api",
            "/",
            &[
                "prefix = \"/api/\"",
                "upstream_path = \"/\"",
                "path = \"/api*\"  # nginx.conf:2\nanswer = \"not imported",
            ],
        ),
        ("= /one", "/two", &["path = \"/one\"", "upstream_path = \"/two\""]),
    ] {
        let text = format!("location {location} {{ proxy_pass http://app{pass}; }}");
        let imported = imported(&one(&text), false);
        lines.iter().for_each(|line| has(&imported, line));
        assert!(!imported.has_left(), "{text}");
        assert_eq!(fate(&imported, "proxy_pass"), Fate::Different);
    }
}

#[test]
fn a_rewrite_of_the_prefix_is_another_path() {
    for (location, rewrite, path) in [
        ("/api/", "^/api/(.*)$ /$1", "/"),
        ("/api/", "/api/(.*) /v2/$1", "/v2/"),
        ("/api", "^/api(.*)$ $1", "/"),
        ("/api", "^/api(/.*)$ $1", "/"),
    ] {
        let text =
            format!("location {location} {{ rewrite {rewrite} break; proxy_pass http://app; }}");
        let imported = imported(&one(&text), false);
        has(&imported, &format!("upstream_path = \"{path}\""));
        has(&imported, "prefix = \"/api/\"");
        assert!(!imported.has_left(), "{text}: {:#?}", imported.notes);
    }
    for (location, rewrite) in [
        ("/api/", "^/other/(.*)$ /$1 break"),
        ("/api/", "^/api/(.*)$ /$1 last"),
        ("/api/", "^/api/(.*)$ /x$1 break"),
        ("/api/", "^/api/([a-z]*)$ /$1 break"),
        ("= /api/", "^/api/(.*)$ /$1 break"),
    ] {
        let text = format!("location {location} {{ rewrite {rewrite}; proxy_pass http://app; }}");
        lacks(&imported(&one(&text), false), "upstream_path");
    }
}

#[test]
fn a_sign_may_stand_at_its_path_and_times_have_long_units() {
    let text = one("location ^~/a { proxy_pass http://app; } location =/b { return 200 x; }\n\
                    location ~*\\.png$ { root /srv; expires 1y; } location / { root /srv; }");
    let imported = imported(&text, false);
    has(&imported, "path = \"/a*\"");
    has(&imported, "path = \"/b\"");
    has(&imported, "cache_control = \"max-age=31536000\"");
    assert!(!imported.has_left(), "{:#?}", imported.notes);
}

#[test]
fn a_known_file_that_is_missing_closes_nothing() {
    let app = "location / { proxy_pass http://app; }";
    let known =
        imported(&one(&format!("include /etc/letsencrypt/options-ssl-nginx.conf; {app}")), false);
    has(&known, "\nupstream = \"app\"");
    assert_eq!(fate(&known, "include"), Fate::NotCarried);
    let other = imported(&one(&format!("include /etc/nginx/rules.conf; {app}")), false);
    lacks(&other, "\nupstream = \"app\"");
}

#[test]
fn upstreams_are_at_unix_sockets() {
    let text = "http { upstream app { server unix:/run/app.sock; }\n\
                server { listen 80; location / { proxy_pass http://app; }\n\
                location /b/ { proxy_pass http://unix:/run/b.sock:/c/; } } }";
    let imported = imported(text, false);
    has(&imported, "url = \"unix:/run/app.sock\"");
    has(&imported, "url = \"unix:/run/b.sock\"");
    has(&imported, "upstream_path = \"/c/\"");
    assert!(!imported.has_left(), "{:#?}", imported.notes);
}

#[test]
fn proxies_in_front_name_the_client() {
    let http = "real_ip_recursive on; real_ip_header X-Forwarded-For; set_real_ip_from 10.0.0.0/8;";
    let server = one("allow 192.0.2.0/24; deny all; location / { proxy_pass http://app; }");
    let carried = imported(&server.replacen("http {", &format!("http {{ {http}"), 1), false);
    has(&carried, "trusted_proxies = [\"10.0.0.0/8\"]");
    has(&carried, "\nupstream = \"app\"");
    // nginx would take the last address, which may be a trusted one.
    let last = http.replace("real_ip_recursive on;", "");
    let last = imported(&server.replacen("http {", &format!("http {{ {last}"), 1), false);
    lacks(&last, "\nupstream = \"app\"");
    let own = "real_ip_header CF-Connecting-IP; set_real_ip_from 10.0.0.0/8; \
               location / { proxy_pass http://app; }";
    has(&imported(&one(own), false), "trusted_field = \"CF-Connecting-IP\"");
    // The address would be another one in one of the servers.
    let two = format!("{} {}", one(own), "server { server_name b; location / { return 200 x; } }");
    let two = two.replacen("} }\n ", "} ", 1) + "}";
    let two = imported(&two, false);
    lacks(&two, "trusted_proxies");
    assert_eq!(fate(&two, "real_ip_header"), Fate::NotCarried);
}

#[test]
fn logins_and_services_are_guards() {
    let app = "location / { proxy_pass http://app; }";
    let login = "auth_basic Inside; auth_basic_user_file /users;";
    let carried = imported(&one(&format!("{login} {app}")), false);
    has(&carried, "users = \"/users\"");
    has(&carried, "realm = \"Inside\"");
    has(&carried, "forward_login = true");
    let any = format!("satisfy any; allow 10.0.0.0/8; deny all; {login} {app}");
    let any = imported(&one(&any), false);
    has(&any, "allow_from = [\"10.0.0.0/8\"]");
    has(&any, "satisfy = \"any\"");
    lacks(&any, "denied");
    let none = imported(&one(&format!("satisfy any; {login} auth_request /x; {app}")), false);
    has(&none, "# upstream = \"app\"");
    let asks = "location = /auth { internal; proxy_pass http://127.0.0.1:4180/oauth2/auth; }\n\
                location / { auth_request /auth; proxy_pass http://app; }";
    let asks = imported(&one(asks), false);
    has(&asks, "[route.auth]\nupstream = \"127.0.0.1:4180\"");
    has(&asks, "path = \"/oauth2/auth\"");
    // No client reaches an internal location.
    has(&asks, "path = \"/auth\"  # nginx.conf:2\nanswer = \"404\\n\"");
}

#[test]
fn errors_have_pages() {
    let app = "location / { proxy_pass http://app; }";
    let pages = format!(
        "error_page 502 503 /page.html; location = /page.html {{ root /; internal; }} \
         error_page 404 =200 https://a.example/; proxy_intercept_errors on; {app}"
    );
    let carried = imported(&one(&pages), false);
    has(&carried, "statuses = [502, 503]");
    has(&carried, "answer_file = \"/page.html\"");
    has(&carried, "redirect = \"https://a.example/\"");
    has(&carried, "intercept = true");
    for other in ["404 /missing.html", "404 = @app", "497 =301 /x", "500 $x"] {
        let text = format!("root /srv; error_page {other}; {app}");
        let imported = imported(&one(&text), false);
        lacks(&imported, "error_page]]");
        assert_eq!(fate(&imported, "error_page"), Fate::NotCarried, "{other}");
    }
}

#[test]
fn cookies_get_other_attributes() {
    let app = "location / { proxy_pass http://app; }";
    let text = format!(
        "proxy_cookie_path / \"/; HttpOnly\"; proxy_cookie_flags ~ secure samesite=lax; \
         proxy_cookie_domain app.local a.example; {app}"
    );
    let carried = imported(&one(&text), false);
    for line in
        ["http_only = true", "secure = true", "same_site = \"lax\"", "domain = \"a.example\""]
    {
        has(&carried, line);
    }
    assert!(!carried.has_left());
    let left = imported(&one(&format!("proxy_cookie_flags a secure; {app}")), false);
    assert_eq!(fate(&left, "proxy_cookie_flags"), Fate::NotCarried);
    assert!(!why(&left, "proxy_cookie_flags").is_empty());
}

#[test]
fn a_log_format_is_translated() {
    let text = "http { log_format m '$remote_addr [$time_local] \"$request\" $status';\n\
                access_log /var/log/x.log m;\nupstream u { server 127.0.0.1:1; }\n\
                server { location / { proxy_pass http://u; } } }";
    has(&imported(text, false), "format = \"{client} [{time}] \\\"{request}\\\" {status}\"");
}

/// `$request_length` was logged as `$request` and a text.
#[test]
fn a_longer_name_in_a_log_format_is_another_variable() {
    let format = |format: &str| {
        let text = format!("http {{ log_format f '{format}'; access_log /l f;");
        imported(&one("location / { proxy_pass http://app; }").replacen("http {", &text, 1), false)
    };
    has(&format("[$time_local] $request"), "format = \"[{time}] {request}\"");
    has(
        &format("$request_length $http_x_a ${status}x"),
        "{bytes_received} {request.x-a} {status}x",
    );
    let json = format("{\\\"s\\\":$status}");
    has(&json, "format = \"{{\\\"s\\\":{status}}\"");
    for text in ["$request_lengths", "$hostname", "$request_time_2"] {
        let imported = format(text);
        assert_eq!(fate(&imported, "log_format"), Fate::NotCarried, "{text}");
        assert!(why(&imported, "log_format").contains(text), "{text}");
    }
}

/// What an import opened at first.
#[test]
fn nothing_is_opened_beside_files_and_other_paths() {
    let login = "auth_basic X; auth_basic_user_file /users;";
    for inside in [
        // The guard is that of the files, and the location with a name has none.
        format!(
            "location / {{ {login} root /srv; try_files $uri @a; }} location @a {{ return 404; }}"
        ),
        // An expression that our file cannot have.
        format!(
            "location ~ (?=x)a {{ {login} root /srv; }} location / {{ proxy_pass http://app; }}"
        ),
        // A service that may decide by a field.
        "location = /auth { proxy_set_header X-Role a; proxy_pass http://app/auth; } \
         location / { auth_request /auth; proxy_pass http://app; }"
            .to_owned(),
        // What nginx finds for the last path and for the page.
        "root /srv; location / { try_files $uri /i.html; } location = /i.html { deny all; }"
            .to_owned(),
        "root /srv; location / { try_files $uri /app/; } location /app/ { return 200 x; }"
            .to_owned(),
        "root /srv; location / { index a.phtml; try_files $uri /a.cgi; }".to_owned(),
    ] {
        let imported = imported(&one(&inside), false);
        let routes = imported.configuration.split("[[route]]").skip(1);
        for route in routes.filter(|route| route.contains("prefix = \"/\"")) {
            let is_open = route.contains("\nfiles = ") || route.contains("\nupstream = ");
            assert!(!is_open, "{inside}: {route}");
        }
        assert!(imported.has_left(), "{inside}");
    }
    // The rest of a location whose prefix is replaced.
    let rest = "location /adm { proxy_pass http://app/; } location / { proxy_pass http://app; }";
    has(&imported(&one(rest), false), "path = \"/adm*\"  # nginx.conf:2\nanswer = \"not imported");
    // The page of an error.
    let app = "location / { proxy_pass http://app; }";
    let page = format!("root /; error_page 404 /page.html; {app}");
    has(
        &imported(&one(&format!("{page} location = /page.html {{ internal; }}")), false),
        "answer_file",
    );
    // The directory is that of the location that nginx finds for the page.
    let own = format!("root /srv; error_page 404 /page.html; {app} location /p {{ root /; }}");
    has(&imported(&one(&own), false), "answer_file = \"/page.html\"");
    for other in ["", "location = /page.html { deny all; }", "location ~ html { deny all; }"] {
        lacks(&imported(&one(&format!("{page} {other}")), false), "answer_file");
    }
    lacks(&imported(&one(&page.replace("page.html", "users")), false), "answer_file");
}

/// A proxy in front names the scheme, and nginx takes the server of the listener.
#[test]
fn servers_of_both_schemes_need_the_scheme_of_the_listener() {
    let text = "http { set_real_ip_from 10.0.0.0/8; server { listen 80; root /srv; }\n\
                server { listen 443 ssl; ssl_certificate c; ssl_certificate_key k; root /s; } }";
    let options = Options::default();
    let mut read = |_: &str| Err(String::new());
    let imported = crate::import(Source::Nginx, "f", text, options, &mut read).unwrap();
    lacks(&imported, "scheme ==");
    assert!(imported.has_left());
}

/// The routes of the file, from the first to the last.
fn routes(imported: &Imported) -> Vec<&str> {
    imported.configuration.split("[[route]]").skip(1).collect()
}

/// Without a location for them, the other requests get files. Those of an expression do not.
#[test]
fn an_expression_comes_before_the_files_of_its_server() {
    for inside in [
        r"root /srv; location ~ /\.(ht|git) { deny all; } location ~ \.php$ { fastcgi_pass x; }",
        r"root /srv; location ~ \.md$ { return 403; } location /a/ { proxy_pass http://app; }",
        r"root /srv; location ~* \.php$ { proxy_pass http://app; }",
    ] {
        let imported = imported(&one(inside), false);
        let all = routes(&imported);
        let at = |what: &str| all.iter().position(|one| one.contains(what));
        let before = at("path.matches").unwrap_or_else(|| panic!("{}", imported.configuration));
        let files = all.iter().position(|one| {
            one.contains("prefix = \"/\"") && one.contains("files = ") && !one.contains("when = ")
        });
        assert!(files.is_some_and(|files| before < files), "{}", imported.configuration);
    }
}

#[test]
fn an_expression_inside_a_location_takes_only_its_requests() {
    let text = "location /uploads { alias /srv/up; location ~* \\.mp4$ { expires 1d; } }\n\
                location /up/ { root /srv; location ~ ^/up/x { deny all; } }\n\
                location / { root /srv; try_files $uri /index.html; \
                location ~* \\.js$ { expires 1y; } }\n\
                location /api/ { proxy_pass http://app; }\n\
                location /own/ { proxy_pass http://app; location ~ \\.png$ { expires 1d; } }";
    let imported = imported(&one(text), false);
    let of = |start: &str| {
        let found = routes(&imported).into_iter().find(|one| one.contains(start));
        found.unwrap_or_else(|| panic!("no {start} in {}", imported.configuration)).to_owned()
    };
    // An expression that refuses and has no route closes its server.
    let is_closed = |start: &str| of(start).contains("closed by plimsoll import");
    assert!(is_closed("prefix = \"/api/\""), "{}", imported.configuration);
    let open = self::imported(&one(&text.replace("location ~ ^/up/x { deny all; }", "")), false);
    let of = |start: &str| routes(&open).into_iter().find(|one| one.contains(start)).unwrap();
    assert!(of("prefix = \"/api/\"").contains("upstream = "), "{}", open.configuration);
    assert!(of("prefix = \"/\"  #").contains("files = "), "{}", open.configuration);
    let internal = "location / { root /srv; location ~ \\.bak$ { internal; } }";
    has(&self::imported(&one(internal), false), "closed by plimsoll import");
    // Images of /own/ are files in nginx, and would be passed on.
    assert!(of("prefix = \"/own/\"").contains("closed by"), "{}", open.configuration);
}

#[test]
fn an_upstream_in_a_variable_with_one_value_is_an_upstream() {
    for (set, pass, is_carried) in [
        ("set $b http://127.0.0.1:3000;", "$b", true),
        ("set $h app;", "http://$h", true),
        ("set $h 127.0.0.1;", "http://${h}:8080$request_uri", true),
        ("set $h app;", "http://$h/x", false),
        ("if ($arg_a) { set $h app; }", "http://$h", false),
        ("set $h $host;", "http://$h", false),
        ("", "http://$host$request_uri", false),
    ] {
        let text = one(&format!("{set} location / {{ proxy_pass {pass}; }}"));
        let imported = imported(&text, false);
        let is_open = imported.configuration.contains("\nupstream = ");
        assert_eq!(is_open, is_carried, "{set} {pass}: {}", imported.configuration);
    }
}

#[test]
fn the_server_in_front_is_carried_and_tls_is_opened_beside_the_clear() {
    let text = "http { upstream web { server 127.0.0.1:8000; }\n\
                server { listen 8000; location / { proxy_pass http://192.0.2.1; } }\n\
                server { listen 80; location / { proxy_pass http://web; } } }";
    has(&imported(text, false), "address = \"0.0.0.0:80\"");
    let text = "http { server { listen 80; listen 443 ssl; server_name a.example;\n\
                ssl_certificate c; ssl_certificate_key k; location / { proxy_pass http://192.0.2.1; } }\n\
                server { listen 80; server_name b.example;\n\
                location / { proxy_pass http://192.0.2.2; } } }";
    let imported = |text: &str| {
        let mut read = |_: &str| Err(String::new());
        crate::import(Source::Nginx, "f", text, Options::default(), &mut read).unwrap()
    };
    let both = imported(text);
    has(&both, "address = \"0.0.0.0:443\"");
    for route in routes(&both) {
        let is_second = route.contains("b.example");
        assert_eq!(route.contains("when = \"scheme == 'http'\""), is_second, "{route}");
    }
    // Another server is the default server of the other address.
    let (first, second) =
        (text.find("server { listen 80; listen").unwrap(), text.rfind("server {"));
    let second = second.unwrap();
    let other =
        format!("{}{} {}", &text[..first], &text[second..text.len() - 2], &text[first..second])
            + "}";
    lacks(&imported(&other), "0.0.0.0:443");
}

#[test]
fn the_rules_of_the_default_server_hold_by_tls_for_hosts_without_tls() {
    let text = "http { server { listen 80; listen 443 ssl; server_name a.example;\n\
                ssl_certificate c; ssl_certificate_key k; if ($http_x) { return 403; }\n\
                location / { proxy_pass http://192.0.2.1; } }\n\
                server { listen 80; server_name b.example;\n\
                location / { proxy_pass http://192.0.2.2; } } }";
    let mut read = |_: &str| Err(String::new());
    let found = crate::import(Source::Nginx, "f", text, Options::default(), &mut read).unwrap();
    has(&found, "address = \"0.0.0.0:443\"");
    has(&found, "when = \"!(scheme == 'http' && host == 'b.example') && ");
}

#[test]
fn a_key_with_the_login_stores_nothing() {
    let text = "location / { proxy_pass http://app; proxy_cache z;\n\
                proxy_cache_key $uri$http_authorization; }";
    let found = imported(&one(text), false);
    has(&found, "store = false");
    assert_eq!(fate(&found, "proxy_cache_key"), Fate::NotCarried);
}

#[test]
fn an_upstream_in_a_variable_is_the_one_that_its_own_location_sets() {
    let of = |inside: &str| imported(&one(inside), false);
    for inside in [
        "set $up http://app; location / { proxy_pass $up; }",
        "location / { set $up http://app; proxy_pass $up; }",
        "location / { set $up http://app; proxy_pass $up; } location /b { set $up http://c; }",
    ] {
        has(&of(inside), "\nupstream = \"app\"");
    }
    for inside in [
        "location / { proxy_pass $up; } location /b { set $up http://app; return 200 b; }",
        "set $up http://app; location / { proxy_pass $up; } location /b { set $up http://c; }",
        "set $up http://app; if ($arg_a) { set $up http://c; } location / { proxy_pass $up; }",
        "set $up http://app; rewrite ^/(?<up>b.*) /$up last; location / { proxy_pass $up; }",
        "location / { rewrite ^/b /c break; set $up http://app; proxy_pass $up; }",
        "if ($arg_a) { break; } set $up http://app; location / { proxy_pass $up; }",
    ] {
        lacks(&of(inside), "\nupstream = \"app\"");
    }
    let by_map = "http { map $arg_a $up { default http://c; } upstream app { server 192.0.2.1; }\n\
                  server { listen 80; set $up http://app; location / { proxy_pass $up; } } }";
    lacks(&imported(by_map, false), "\nupstream = \"app\"");
}

#[test]
fn a_rewrite_of_the_path_leaves_location_as_the_default_of_proxy_redirect() {
    let of = |inside: &str| imported(&one(inside), false);
    for location in ["/m/pub/", "/m/"] {
        let rewrite = "rewrite ^/m/(.*)$ /$1 break; proxy_pass http://app;";
        let found = of(&format!("location {location} {{ {rewrite} }}"));
        has(&found, "upstream_path = ");
        has(&found, "cut = \"Location\"");
        lacks(&found, "route.location");
    }
    let twice = "location /m/ { rewrite ^/m/(.*)$ /x//$1 break; proxy_pass http://app; }";
    lacks(&of(twice), "upstream_path");
}

#[test]
fn a_rewrite_that_changes_nothing_loses_no_route() {
    let of = |rewrite: &str| {
        let text = format!("location /metadata {{ rewrite {rewrite}; proxy_pass http://app; }}");
        imported(&one(&text), false)
    };
    for rewrite in ["^(/metadata.*) $1 break", "^(/metadata.*)$ $1 break", "^(.*)$ $1 break"] {
        let found = of(rewrite);
        has(&found, "\nupstream = \"app\"");
        assert_eq!(fate(&found, "rewrite"), Fate::Different, "{rewrite}");
    }
    for rewrite in ["^(/meta.*)data$ $1 break", "^(/metadata.*) /x$1 break", "^(/m.*) $1 last"] {
        lacks(&of(rewrite), "\nupstream = \"app\"");
    }
}

#[test]
fn a_condition_that_answers_may_also_say_fields() {
    let text = "location / { if ($request_method = DELETE) { add_header X-A b; return 403; }\n\
                proxy_pass http://app; }";
    let imported = imported(&one(text), false);
    has(&imported, "when = \"method == 'DELETE'\"");
    has(&imported, "\nupstream = ");
    assert_eq!(fate(&imported, "add_header"), Fate::NotCarried);
}

#[test]
fn an_answer_has_its_own_type_and_a_location_without_an_action_is_named() {
    for inside in ["default_type application/json; return 200 '{}';", "return 200;"] {
        let imported = imported(&one(inside), false);
        assert_eq!(fate(&imported, "return"), Fate::Different);
    }
    let empty = imported(&one("location /x { add_header A b; } location / { root /s; }"), false);
    assert_eq!(fate(&empty, "location"), Fate::Different);
    let denied = imported(&one("location /x { deny all; } location / { root /s; }"), false);
    assert_eq!(fate(&denied, "location"), Fate::Carried);
}

#[test]
fn other_spellings_of_what_is_carried() {
    let of = |inside: &str| imported(&one(inside), false);
    for (inside, wanted) in [
        ("location / { root /srv; try_files $uri /$uri /$uri/ /a.html; }", "files = \"/srv\""),
        (
            "location /c { proxy_pass http://app/a/b; }",
            "prefix = \"/c/\"  # nginx.conf:2\nupstream = \"app\"  # nginx.conf:2\nstore = false",
        ),
        ("location /c { proxy_pass http://app/a/b; }", "upstream_path = \"/a/b/\""),
        (
            "location /m/pub/ { rewrite ^/m/(.*)$ /$1 break; proxy_pass http://app; }",
            "upstream_path = \"/pub/\"",
        ),
        (
            "location / { proxy_pass http://app; proxy_cache z; proxy_ignore_headers Set-Cookie;\n\
             proxy_cache_key $request_uri$request_body; }",
            "\nupstream = \"app\"",
        ),
    ] {
        let found = of(inside);
        has(&found, wanted);
        if inside.contains("proxy_cache_key") {
            lacks(&found, "store = false");
            assert_eq!(fate(&found, "proxy_cache_key"), Fate::Carried);
        }
    }
    let text = "http { server { listen 443; ssl on; ssl_certificate c; ssl_certificate_key k;\n\
                location / { proxy_pass http://192.0.2.1; } } }";
    let mut read = |_: &str| Err(String::new());
    let old = crate::import(Source::Nginx, "f", text, Options::default(), &mut read).unwrap();
    has(&old, "[listen.tls]");
    has(&old, "\nupstream = ");
}
