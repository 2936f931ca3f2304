//! Requests that nginx refuses, or answers otherwise, by a detail of its rules.

use super::{fate, has, imported, lacks, one, why};
use crate::Fate;

/// The imported file of a server with this inside.
fn of(inside: &str) -> crate::Imported {
    imported(&one(inside), false)
}

const PASS: &str = "location / { proxy_pass http://app; }";

#[test]
fn the_field_host_has_its_port_and_its_case() {
    let all = of(&format!("if ($http_host != a.example) {{ return 403; }} {PASS}"));
    has(&all, "when = \"fields['host'] != 'a.example'\"");
    // nginx compares the host in lower case, so this never holds.
    let never = of(&format!("if ($host != A.example) {{ return 403; }} {PASS}"));
    lacks(&never, "\nupstream = ");
    let of_case = of(&format!("if ($host ~ ^A) {{ return 403; }} {PASS}"));
    lacks(&of_case, "(?i)");
}

#[test]
fn a_line_break_at_the_end_of_a_path_is_refused_as_in_nginx() {
    for location in ["location ~ \\.php$ { deny all; }", "if ($uri ~ \\.php$) { return 403; }"] {
        has(&of(&format!("{location} {PASS}")), r"path.matches(r'\\.php\\n?\\z')");
    }
    // The path of a route has no line break.
    has(&of(&format!("location ~ ^/a$ {{ deny all; }} {PASS}")), r"path.matches(r'^/a\\n?\\z')");
    let inside = format!(
        "location /a/ {{ proxy_pass http://app; location ~ ^/a/x$ {{ deny all; }} }} {PASS}"
    );
    lacks(&of(&inside), "\nupstream = ");
    let open = of(&format!("location ~ ^/([^/]+)/x$ {{ return 301 /y/$1; }} {PASS}"));
    has(&open, "path = \"/{c1}/x\"");
    assert_eq!(fate(&open, "location ~"), Fate::Different);
}

#[test]
fn a_percent_sign_in_a_location_is_a_percent_sign() {
    has(&of(&format!("location /a%20b {{ deny all; }} {PASS}")), "path = \"/a%2520b*\"");
    has(&of(&format!("location = /a%20b {{ deny all; }} {PASS}")), "path = \"/a%2520b\"");
    has(&of(&format!("if ($uri = /a%b) {{ return 403; }} {PASS}")), "path == '/a%25b'");
    let any = of(&format!("location ~ ^/.$ {{ deny all; }} {PASS}"));
    has(&any, r"path.matches(r'^/(?:[^%\\n]|%[0-9A-F]{2})\\n?\\z')");
    let start =
        of(&format!("location ~ ^/a%b {{ deny all; }} location /a%b/c {{ return 200; }} {PASS}"));
    has(&start, "path = \"/a%25b/c*\"  # nginx.conf:2\nwhen = ");
    assert_eq!(
        fate(&of(&format!("location //a {{ deny all; }} {PASS}")), "location //a"),
        Fate::Nothing
    );
}

#[test]
fn the_location_of_an_index_is_asked_again() {
    for (inside, index) in [
        ("location = /index.html { deny all; }", "index = []"),
        ("location = /sub/index.html { auth_basic x; auth_basic_user_file /f; }", "index = []"),
        ("index page.html; location /page { return 403; }", "index = []"),
        ("location ~ ^/index\\.html$ { return 403; }", "index = []"),
        ("location ~ index { return 403; }", "index = []"),
        ("location ~ \\.html$ { auth_basic x; auth_basic_user_file /f; }", "index = []"),
        ("if ($uri ~ ^/index) { return 403; }", "index = []"),
        ("if ($uri = /sub/index.html) { return 403; }", "index = []"),
        ("index a.html index.html; location = /index.html { deny all; }", "index = [\"a.html\"]"),
        ("index a.php index.html; location ~ \\.php$ { deny all; }", "index = []"),
    ] {
        let all = of(&format!("root /srv; {inside} location / {{ }}"));
        has(&all, index);
        assert!(all.has_left(), "{inside}");
    }
    for inside in [
        "location = /sub/page.html { deny all; }",
        "location ~ ^/user/[0-9]+/ { proxy_pass http://app; }",
        "location ~ \\.php$ { return 403; }",
        "if ($http_x = bad) { return 403; }",
        "if ($uri ~ ^/admin/) { return 403; }",
        "rewrite ^/old/(.*)$ /new/$1 permanent;",
        "location = /index.html { expires 1h; }",
    ] {
        lacks(&of(&format!("root /srv; {inside} location / {{ }}")), "index = []");
    }
}

#[test]
fn the_path_of_an_internal_location_without_its_slash_is_internal() {
    let all = of(&format!("location /int/ {{ internal; proxy_pass http://app; }} {PASS}"));
    has(&all, "path = \"/int\"  # nginx.conf:2\nanswer = \"404\\n\"");
}

/// `/%61` is `/a` here, and nginx compares the text that was sent.
#[test]
fn a_path_that_must_not_differ_as_it_was_sent_is_not_compared_decoded() {
    let all = of(&format!("if ($request_uri !~ ^/a) {{ return 403; }} {PASS}"));
    lacks(&all, "\nupstream = ");
}

#[test]
fn the_last_path_of_try_files_is_asked_again() {
    for inside in [
        "location = /page.html { return 403; }",
        "if ($uri ~ ^/page) { return 403; }",
        "location ~ page { return 403; }",
    ] {
        let all = of(&format!("root /srv; {inside} location / {{ try_files $uri /page.html; }}"));
        lacks(&all, "try_files = ");
        assert_eq!(fate(&all, "try_files"), Fate::NotCarried, "{inside}");
    }
    let ending = "location ~ \\.html$ { deny all; } location / { try_files $uri $uri.html; }";
    lacks(&of(&format!("root /srv; {ending}")), "try_files = ");
    let page = "error_page 404 /page.html; if ($uri ~ ^/page) { return 403; } location / { }";
    lacks(&of(&format!("root /srv; {page}")), "answer_file = ");
}

#[test]
fn an_expression_inside_a_location_comes_before_those_of_the_server() {
    for (server, inside) in [
        ("location ~ \\.txt$ { proxy_pass http://app; }", "location ~ q { internal; }"),
        ("location ~ ^/v/x/ { proxy_pass http://app; }", "location ~ q { internal; }"),
        ("location ~ \\.txt$ { proxy_pass http://app; }", "location ~ q { return 302 /y; }"),
        ("location ~ \\.txt$ { return 200 x; }", "location ~ q { return 302 /y; }"),
    ] {
        let text = format!("{server} location /v/ {{ proxy_pass http://app; {inside} }} {PASS}");
        let all = of(&text);
        assert_eq!(fate(&all, "location ~ q"), Fate::Unprotected, "{text}");
        let of_prefix = all.configuration.split("[[route]]").filter(|one| one.contains("/v/"));
        for route in of_prefix {
            assert!(
                !route.contains("\nupstream = ") && !route.contains("\nanswer = \"x"),
                "{route}"
            );
        }
    }
}

#[test]
fn an_expression_inside_a_location_that_is_a_path_comes_first() {
    let all = of("location ~ [0-9] { proxy_pass http://app; }\n\
                  location / { deny all; proxy_pass http://app;\n\
                  location ~ ^/v/ { proxy_pass http://app; } }");
    let of_path = all.configuration.split("[[route]]").filter(|one| one.contains("\"/v/\""));
    assert!(of_path.clone().count() > 0);
    assert!(of_path.clone().all(|one| one.contains("denied")), "{}", all.configuration);
}

#[test]
fn an_expression_inside_a_location_takes_no_path_beside_the_location() {
    let all = of("location ~ ^/v/ { return 403; }\n\
                  location /v/z/ { return 404; location ~ ^/v/x/ { proxy_pass http://app; } }");
    lacks(&all, "\nupstream = ");
}

/// The server refuses a file with a route that is never taken.
#[test]
fn a_condition_that_is_asked_before_is_not_asked_again() {
    let all = of("location ~ % { if ($uri ~ %) { return 403; } proxy_pass http://app; }\n\
                  location /q/ { if ($uri ~ %) { return 404; } proxy_pass http://app; }");
    assert_eq!(all.configuration.matches("when = ").count(), 4, "{}", all.configuration);
    lacks(&all, "status = 404  # nginx.conf:3");
}

#[test]
fn requests_without_a_host_find_the_server_without_a_name() {
    let with = |inside: &str| {
        let text = format!(
            "http {{ upstream app {{ server 127.0.0.1:1; }} \
             server {{ listen 80; server_name a.example; {PASS} }}\n\
             server {{ listen 80; server_name \"\"; {inside} }} }}"
        );
        imported(&text, false)
    };
    let answer = with("return 403;");
    has(&answer, "when = \"host == ''\"  # nginx.conf:2\nanswer = \"403\\n\"");
    assert!(!answer.has_left(), "{:#?}", answer.notes);
    let refused = with("location / { proxy_pass http://app; }");
    has(&refused, "when = \"host == ''\"");
    assert!(refused.notes.iter().any(|note| note.fate == Fate::Unprotected));
}

#[test]
fn a_request_without_a_host_has_the_first_name_of_its_server() {
    for (condition, when) in [
        ("$host = a.example", "host == 'a.example' || host == ''"),
        ("$host != a.example", "!(host == 'a.example' || host == '')"),
        ("$host = b.example", "host == 'b.example'"),
        ("$host = ''", "host == '' && host != ''"),
        ("$host ~ ^a", "host.matches('^a') || host == ''"),
        ("$host !~ ^b", "!(host.matches('^b') && host != '')"),
    ] {
        let text = format!("if ({condition}) {{ return 403; }} {PASS}");
        has(&of(&text), &format!("when = \"{when}\""));
    }
}

#[test]
fn a_variable_in_an_expression_inside_a_location_has_its_own_value() {
    let inside = "location /a/ { set $b app; proxy_pass http://$b;\n\
                  location ~ \\.png$ { set $b VALUE; proxy_pass http://$b; } }";
    let same = of(&inside.replace("VALUE", "app"));
    has(&same, "\nupstream = ");
    assert_eq!(fate(&same, "set $b app"), Fate::Carried);
    for other in ["two", "$arg_x"] {
        lacks(&of(&inside.replace("VALUE", other)), "\nupstream = ");
    }
}

#[test]
fn a_capture_outside_the_server_sets_a_variable() {
    for outside in ["map $uri $m { ~^/(?<b>two)/ 1; }", "auth_request_set $b $upstream_http_x;"] {
        let text = one("set $b app; location / { proxy_pass http://$b; }");
        let all = imported(&text.replacen("http {", &format!("http {{ {outside}"), 1), false);
        lacks(&all, "\nupstream = ");
    }
}

#[test]
fn the_client_is_the_last_address_without_recursion() {
    let with = |header: &str, recursive: &str| {
        let text = one("location / { allow 10.0.0.1; deny all; proxy_pass http://app; }");
        let own = format!(
            "http {{ set_real_ip_from 127.0.0.1; real_ip_header {header}; \
             real_ip_recursive {recursive};"
        );
        imported(&text.replacen("http {", &own, 1), false)
    };
    lacks(&with("X-Forwarded-For", "off"), "\nupstream = ");
    let list = with("X-Forwarded-For", "on");
    has(&list, "\nupstream = ");
    has(&list, "when = \"!fields['x-forwarded-for'].matches(r'(^|,)[ \\\\t]*[0-9A-Fa-f");
    let twice = with("X-Real-IP", "off");
    has(&twice, "when = \"!fields['x-real-ip'].matches(r'^[ \\\\t]*[0-9A-Fa-f");
    assert!(why(&twice, "real_ip_header").contains("the last counts"));
}

#[test]
fn location_is_changed_whatever_host_the_upstream_gets() {
    let text = "location / { proxy_pass http://127.0.0.1:8001; proxy_set_header Host $http_host; }";
    has(
        &of(text),
        "cut = \"Location\"  # proxy_redirect default\nvalue = \"http://127.0.0.1:8001\"",
    );
}

#[test]
fn a_smaller_limit_on_bodies_inside_a_location_holds_for_the_location() {
    let text = "location /a/ { client_max_body_size 8m; proxy_pass http://app;\n\
                location ~ \\.png$ { client_max_body_size 1k; proxy_pass http://app; } }";
    let all = of(text);
    has(&all, "body_bytes_max = \"1KiB\"");
    assert_eq!(fate(&all, "location ~"), Fate::NotCarried);
}

#[test]
fn notes_name_what_differs() {
    let cookie = of(&format!("if ($cookie_k != v) {{ return 403; }} {PASS}"));
    assert!(why(&cookie, "if").contains("decodes names and values"));
    let rewrite = of("rewrite ^/(.*)$ https://b/$1 permanent;");
    assert_eq!(fate(&rewrite, "rewrite"), Fate::Different);
    let query = of("set $args \"\"; location / { proxy_pass http://app; }");
    assert_eq!(fate(&query, "set $args"), Fate::NotCarried);
    let line = of("location /a/ { rewrite ^/a/(.*)$ /$1 break; proxy_pass http://app; }");
    assert!(why(&line, "rewrite").contains("line break"));
    for (pattern, differs) in [("session=", false), ("(^|; )session=", true)] {
        let all = of(&format!("if ($http_cookie ~ \"{pattern}\") {{ return 403; }} {PASS}"));
        assert_eq!(why(&all, "if").contains("several Cookie fields"), differs, "{pattern}");
    }
}

#[test]
fn an_expression_of_other_paths_is_not_closed_by_one_inside_a_location() {
    let text = "location ~ ^/(login|reset) { proxy_pass http://app; }\n\
                location / { proxy_pass http://app; }\n\
                location /images/ { location ~ \\.(png|jpg)$ { root /s; try_files $uri =404; }\n\
                return 403; }";
    let found = imported(&one(text), false);
    let routes = found.configuration.split("[[route]]");
    let of_login: Vec<&str> = routes.filter(|route| route.contains("login")).collect();
    assert!(!of_login.is_empty());
    assert!(of_login.iter().all(|route| route.contains("upstream = \"app\"")), "{of_login:?}");
    // The other way round, both meet.
    let text = "location ~ ^/im { proxy_pass http://app; } location / { proxy_pass http://app; }\n\
                location /images/ { location ~ \\.(png|jpg)$ { root /s; } return 403; }";
    assert!(imported(&one(text), false).configuration.contains("closed by plimsoll import"));
}
