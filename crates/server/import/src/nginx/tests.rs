//! Files of nginx, and what becomes of them. Each imported file is read by the server's own reader.

mod everyday;
mod refused;

use crate::tests::{fate, has, lacks, why};
use crate::{Fate, Imported, Options, Source};

fn imported(text: &str, open: bool) -> Imported {
    crate::tests::imported(Source::Nginx, "nginx.conf", text, open)
}

fn fates(imported: &Imported) -> Vec<(usize, Fate)> {
    let notes = imported.notes.iter().filter(|note| note.fate >= Fate::Different);
    notes.map(|note| (note.line, note.fate)).collect()
}

/// A server with this inside, on one address, with an upstream `app`.
fn one(inside: &str) -> String {
    format!(
        "http {{ upstream app {{ server 127.0.0.1:8001; server 127.0.0.1:8002 backup; }}\n\
         server {{ listen 127.0.0.1:80; server_name a.example; {inside} }} }}\n"
    )
}

#[test]
fn hosts_paths_and_upstreams() {
    let text = one("location / { proxy_pass http://app; }\n\
                    location = /x { return 200 hello; }\n\
                    location /api/ { proxy_cache z; proxy_ignore_headers Set-Cookie;\n\
                    proxy_pass http://app/api/; }");
    let imported = imported(&text, false);
    assert_eq!(fates(&imported), [3, 4].map(|line| (line, Fate::Different))); // the type
    for line in [
        "hosts = [\"a.example\"]",
        "url = \"http://127.0.0.1:8002\"",
        "backup = true",
        "host = \"app\"",
        "http2 = false",
        "answer = \"hello\"",
        "path = \"/api\"  # nginx.conf:4\nredirect = \"/api/\"",
        "store = false  # without proxy_cache",
    ] {
        has(&imported, line);
    }
}

#[test]
fn a_url_that_would_be_rewritten_is_not_passed_on() {
    let imported = imported(&one("location /api/ { proxy_pass http://app/v2; }"), false);
    has(&imported, "prefix = \"/api/\"  # nginx.conf:2\nanswer = \"not imported\\n\"");
    lacks(&imported, "upstream = ");
    assert!(imported.has_left());
}

#[test]
fn what_keeps_requests_out_stays_closed() {
    for rule in [
        "allow unix:; deny all;",
        "allow 10.0.0.0/8; deny all; set_real_ip_from 10.0.0.0/8;",
        "auth_basic x; auth_basic_user_file f;",
        "if ($remote_user = '') { return 403; }",
        "include missing.conf;",
    ] {
        let text = one(&format!("location / {{ {rule} proxy_pass http://app; }}"));
        let closed = imported(&text, false);
        lacks(&closed, "\nupstream = ");
        has(&closed, "# upstream = \"app\"");
        assert!(fates(&closed).iter().any(|(_, fate)| *fate == Fate::Unprotected), "{rule}");
        has(&imported(&text, true), "\nupstream = \"app\"");
    }
    // Its requests would find the other location.
    let text = one("location ~ /(?=\\.ht) { deny all; } location / { proxy_pass http://app; }");
    lacks(&imported(&text, false), "\nupstream = ");
    // These are routes.
    let text = one("location /adm { deny all; } location / { proxy_pass http://app; }");
    has(&imported(&text, false), "path = \"/adm*\"  # nginx.conf:2\nanswer = \"denied\\n\"");
    let text = one("location /adm/ { deny all; } location / { proxy_pass http://app; }");
    let carried = imported(&text, false);
    has(&carried, "answer = \"denied\\n\"");
    has(&carried, "\nupstream = \"app\"");
    assert!(!carried.has_left());
}

#[test]
fn a_store_that_requests_divide_is_off() {
    let one = |more: &str| {
        one(&format!(
            "location / {{ proxy_cache z; proxy_ignore_headers Set-Cookie; \
                                   {more} proxy_pass http://app; }}"
        ))
    };
    lacks(&imported(&one("proxy_cache_key $host$uri$is_args$args;"), false), "store = false");
    for rule in ["proxy_cache_bypass $http_a;", "proxy_no_cache $arg_a;", "proxy_cache_key $uri$a;"]
    {
        has(&imported(&one(rule), false), "store = false");
        // `--open` is about access, not about who shares responses.
        has(&imported(&one(rule), true), "store = false");
    }
}

#[test]
fn fields_are_inherited_only_by_levels_without_any() {
    let text = one("proxy_set_header Host $http_host; proxy_set_header X-A a;\n\
                    location / { proxy_pass http://app; }\n\
                    location /b/ { proxy_set_header X-B b; proxy_pass http://app; }");
    let imported = imported(&text, false);
    let (_, second) = imported.configuration.split_once("prefix = \"/b/\"").unwrap();
    assert!(second.contains("X-B") && !second.contains("X-A"), "{second}");
    // Without Host at its level, the second has the default, the name in the URL.
    has(&imported, "name = \"app-2\"");
    assert_eq!(imported.configuration.matches("host = \"app\"").count(), 1);
}

#[test]
fn servers_on_other_addresses_are_not_opened() {
    let text = "http { server { listen 81; server_name a.example; location / { root /x; } }\n\
                server { listen 82; server_name a.example; location / { root /y; } }\n\
                server { listen 443 ssl; server_name a.example; \
                ssl_certificate c; ssl_certificate_key k; return 404; } }";
    let options = Options::default();
    let mut read = |_: &str| Err(String::new());
    let imported = crate::import(Source::Nginx, "f", text, options, &mut read).unwrap();
    has(&imported, "address = \"0.0.0.0:443\"");
    lacks(&imported, "0.0.0.0:82\"");
    assert!(imported.has_left());
}

#[test]
fn redirects() {
    let text = one("return 301 https://$host$request_uri;");
    // The only server is the default one, for any host.
    has(&imported(&text, false), "redirect = \"https://{host}\"");
    let two = "http { server { listen 127.0.0.1:80 default_server; return 444; }\n\
               server { listen 127.0.0.1:80; server_name a.example; \
               return 301 https://$host$request_uri; }\n\
               server { listen 127.0.0.1:80; server_name b.example; \
               rewrite ^/(.*)$ https://c.example/$1 permanent; }\n\
               upstream u { server 127.0.0.1:1; }\n\
               server { listen 127.0.0.1:80; server_name d.example; \
               location / { proxy_pass http://u; } } }";
    let imported = imported(two, false);
    for part in [
        "redirect = \"https://a.example\"  # nginx.conf:2\nwith_path = true",
        "redirect = \"https://c.example\"  # nginx.conf:3\nwith_path = true",
        "status = 403  # nginx.conf:1",
    ] {
        has(&imported, part);
    }
    assert_eq!(fates(&imported), [1, 3].map(|line| (line, Fate::Different)));
}

#[test]
fn settings() {
    let text = "worker_processes 2;\n".to_owned()
        + &one("keepalive_timeout 30s; proxy_connect_timeout 2s; proxy_read_timeout 1m;\n\
                add_header X-Frame-Options DENY always; proxy_hide_header X-Powered-By;\n\
                gzip on;\nno_such 1;\n\
                location / { proxy_pass http://app; proxy_next_upstream off; }");
    let imported = imported(&text, false);
    for line in [
        "workers = 2",
        "idle_keep_alive = \"30s\"",
        "connect = \"2s\"",
        "first_byte = \"1m\"",
        "add = \"X-Frame-Options\"",
        "remove = \"X-Powered-By\"",
        "max = 0",
        "codings = [\"gzip\"]",
    ] {
        has(&imported, line);
    }
    let left = [(5, Fate::Different), (6, Fate::Unprotected)];
    assert!(left.iter().all(|one| fates(&imported).contains(one)), "{:?}", imported.notes);
}

/// A file of the fuzz target's corpus.
macro_rules! corpus {
    ($name:literal) => {
        include_str!(concat!("../../../../../tools/fuzz/corpus/import_nginx/", $name))
    };
}

/// The text of the route of this path, up to the next route.
fn route<'t>(imported: &'t Imported, path: &str) -> &'t str {
    let text = &imported.configuration;
    let (_, rest) = text.split_once(path).unwrap_or_else(|| panic!("no {path} in {text}"));
    rest.split("[[route]]").next().unwrap_or(rest)
}

#[test]
fn a_field_that_is_replaced_is_not_the_clients() {
    let text = corpus!("replaced_fields").replace("auth_ldap", "#").replace("access_by", "#");
    let imported = imported(&text, false);
    let root = route(&imported, "prefix = \"/\"");
    assert!(root.contains("remove = \"X-Remote-User\""), "{root}");
    for (name, value) in [
        ("X-Real-IP", "{client}"),
        ("X-SSL-Client-S-DN", "{tls.client_subject}"),
        ("X-Forwarded-For", "{client}"),
    ] {
        let from = |part: &str| part.contains(&format!("value = \"{value}\""));
        let set = format!("set = \"{name}\"");
        assert!(root.split("[[route.request]]").any(|p| p.contains(&set) && from(p)), "{root}");
    }
    // Our field would be appended to the client's.
    lacks(&imported, "forwarded = ");
    assert_eq!(fate(&imported, "proxy_set_header X-Remote-User"), Fate::NotCarried);
    let own = one("location / { proxy_set_header X-A $http_x_a; proxy_pass http://app; }");
    lacks(&self::imported(&own, false), "remove = ");
    let rewritten = self::imported(corpus!("rewrites"), false);
    lacks(&rewritten, "forwarded = ");
    assert!(route(&rewritten, "prefix = \"/\"").contains("value = \"{scheme}\""));
}

#[test]
fn a_directive_that_is_not_known_closes() {
    for unknown in [
        "auth_ldap x;",
        "auth_digest x;",
        "modsecurity on;",
        "access_by_lua_block { ngx.exit(403) }",
        "if ($http_x_key != k) { rewrite ^ /denied last; }",
        "if ($http_x) { set $denied 1; }",
        "if ($remote_user = x) { return 403; }",
        "what_is_this { deny all; }",
    ] {
        for text in [
            one(&format!("location / {{ {unknown} proxy_pass http://app; }}")),
            one(&format!("{unknown} location / {{ proxy_pass http://app; }}")),
        ] {
            lacks(&imported(&text, false), "\nupstream = ");
            has(&imported(&text, true), "\nupstream = ");
        }
    }
    let known = one("location / { proxy_not_yet_known 1; proxy_pass http://app; }");
    has(&imported(&known, false), "\nupstream = ");
}

#[test]
fn what_an_expression_has_does_not_find_another_route() {
    // The file without what closes the whole server.
    let text: String = corpus!("expressions")
        .lines()
        .filter(|line| !line.contains("http_x_key") && !line.contains("secret"))
        .map(|line| line.to_owned() + "\n")
        .collect();
    let text = text.replace("proxy_cache z;", "proxy_cache z; proxy_ignore_headers Set-Cookie;");
    // An expression with a location inside is no condition.
    let inner = "cart) { location ~ y { proxy_pass http://127.0.0.1:8081; } ";
    let text = text.replace("cart) { ", inner);
    let cached = imported(&text, false);
    let root = route(&cached, "prefix = \"/\"");
    assert!(root.contains("store = false") && root.contains("\nupstream = "), "{root}");
    assert_eq!(fate(&cached, "location ~ ^/(account|cart)"), Fate::NotCarried);
    let other = text.replace("} proxy_pass http://127.0.0.1:8081", "} root /x");
    let closed = imported(&other, false);
    lacks(&closed, "prefix = \"/\"  # expressions:5\nupstream = ");
    assert!(!route(&closed, "prefix = \"/\"").contains("\nupstream = "));
    // Requests of these paths are none of the expression's.
    assert!(route(&closed, "prefix = \"/up/\"").contains("\nupstream = "));
    assert_eq!(fate(&closed, "location ~ ^/(account|cart)"), Fate::Unprotected);
}

#[test]
fn what_refuses_inside_a_location_that_is_not_written_closes() {
    for inside in ["location ~ secret { deny all; }", "limit_except GET { deny all; }"] {
        let text = one(&format!(
            "location / {{ proxy_pass http://app; }}\n\
             location ~ ^/(?=x) {{ {inside} proxy_pass http://app; }}"
        ));
        let closed = imported(&text, false);
        lacks(&closed, "\nupstream = ");
        assert_eq!(fate(&closed, "deny all"), Fate::NotCarried);
    }
}

#[test]
fn hosts_of_an_expression_do_not_find_the_default_server() {
    for text in [corpus!("server_names"), corpus!("replaced_fields")] {
        let closed = imported(text, false);
        assert_eq!(fate(&closed, "server_name ~^"), Fate::Unprotected);
        // The last route is that of the default server for any host.
        let default = closed.configuration.split("[[route]]").filter(|r| !r.contains("hosts ="));
        for route in default.skip(1) {
            assert!(!route.contains("\nupstream = "), "{route}");
        }
    }
    has(&imported(corpus!("server_names"), false), "hosts = [\"a\"]");
}

#[test]
fn of_two_servers_with_one_name_the_first_has_it() {
    let imported = imported(corpus!("same_names"), false);
    assert_eq!(imported.configuration.matches("hosts = [\"a\"]").count(), 1);
    lacks(&imported, "\nupstream = ");
}

#[test]
fn several_authorities_for_clients_close() {
    let mut read = |_: &str| Err(String::new());
    let text = corpus!("authorities");
    let closed = crate::import(Source::Nginx, "f", text, Options::default(), &mut read).unwrap();
    lacks(&closed, "\nupstream = ");
    assert_eq!(fate(&closed, "ssl_client_certificate"), Fate::Unprotected);
    // Both senders of PROXY headers are there, once.
    has(&closed, "proxy_from = [\"10.0.0.0/8\", \"192.168.0.1\"]");
    has(&closed, "hosts = [\"b.example\", \"example.org\", \"*.example.org\"]");
    let one = text.replace("ca2.pem", "ca1.pem");
    let open = crate::import(Source::Nginx, "f", &one, Options::default(), &mut read).unwrap();
    has(&open, "\nupstream = ");
}

#[test]
fn a_file_of_a_site_alone_is_read() {
    let imported = imported(corpus!("site_alone"), false);
    has(&imported, "answer = \"denied\\n\"");
    has(&imported, "hosts = [\"a.example\"]");
    assert_eq!(fates(&imported), []);
    let mut read = |_: &str| Err(String::new());
    let text = "location /x { deny all; }";
    let part = crate::import(Source::Nginx, "f", text, Options::default(), &mut read).unwrap();
    assert_eq!(fate(&part, "deny all"), Fate::NotCarried);
}

#[test]
fn a_response_with_a_cookie_is_not_shared() {
    let text = one("location / { proxy_cache z; proxy_pass http://app; }");
    let private = imported(&text, false);
    assert!(!private.has_left(), "{:#?}", private.notes);
    lacks(&private, "store = false");
    lacks(&private, "set_cookie");
    let shared = text.replace("cache z;", "cache z; proxy_ignore_headers Set-Cookie;");
    has(&imported(&shared, false), "set_cookie = \"share\"");
    // Without the field, the rule for it would not apply.
    let hidden = text.replace("cache z;", "cache z; proxy_hide_header Set-Cookie;");
    has(&imported(&hidden, false), "store = false");
    assert_eq!(fate(&imported(&hidden, false), "proxy_hide_header"), Fate::NotCarried);
    lacks(
        &imported(&hidden.replace("z;", "z; proxy_ignore_headers Set-Cookie;"), false),
        "= false  # see",
    );
    has(&imported(corpus!("divided_store"), true), "key_cookies = [\"session\"]");
    has(&imported(&corpus!("divided_store").replace("z;", "off;"), true), "store = false");
}

#[test]
fn each_line_has_its_own_note() {
    let imported = imported(corpus!("replaced_fields"), false);
    for directive in [
        "access_log off",
        "client_body_timeout",
        "resolver",
        "rewrite ^ /y",
        "proxy_pass http://127.0.0.1:8083",
    ] {
        assert_eq!(fate(&imported, directive), Fate::NotCarried);
    }
    let rewrites = self::imported(corpus!("rewrites"), false);
    assert_eq!(fate(&rewrites, "rewrite ^ https://y"), Fate::NotCarried);
    // A rewrite of a server that is not carried hides nothing.
    let text = one("rewrite ^/old/ /new/ last; location /a/ { deny all; }");
    assert_eq!(fate(&self::imported(&text, false), "location /a/"), Fate::NotCarried);
}

#[test]
fn ports_and_families() {
    let text = "http { upstream u { server 10.0.0.1; }\nserver { listen [::]:81;\n\
                location / { proxy_pass https://u; } } }";
    let imported = imported(text, false);
    has(&imported, "url = \"https://10.0.0.1:80\"");
    assert_eq!(fate(&imported, "listen"), Fate::Different);
}

#[test]
fn keys_lifetimes_and_bypasses() {
    let text = "http { map $http_cookie $skip { default 0; \"~(^|; )session[^=]*=\" 1; }\n\
                proxy_cache_key $scheme$host$uri$arg_page|$cookie_cur|$http_x_country;\n\
                proxy_ignore_headers Set-Cookie Cache-Control Expires;\n\
                proxy_cache_valid 200 301 10m; proxy_cache_valid any 1m;\n\
                proxy_cache_use_stale error updating; proxy_cache_background_update on;\n\
                upstream app { server 127.0.0.1:1; } server { listen 127.0.0.1:80;\n\
                location / { proxy_cache z; proxy_cache_bypass $skip $cookie_a; \
                proxy_no_cache $skip $cookie_a; proxy_pass http://app; } } }";
    let imported = imported(text, false);
    for part in [
        "query_keep = [\"page\"]",
        "key_cookies = [\"cur\"]",
        "key_fields = [\"x-country\"]",
        "bypass_cookies = [\"session*\", \"a\"]",
        "set_cookie = \"share\"",
        "status = [\"200\", \"301\"]  # proxy_cache\nttl = \"10m\"  # proxy_cache\ngrace = \"24h\"",
        "status = [\"2xx\", \"3xx\", \"4xx\", \"5xx\"]  # proxy_cache\nttl = \"1m\"",
        "overrule = true",
    ] {
        has(&imported, part);
    }
    assert!(!imported.has_left(), "{:#?}", imported.notes);
    // Responses for one class of devices are not those of another.
    let other = self::imported(&text.replace("x_country;", "x_country|$device;"), false);
    has(&other, "store = false");
}

#[test]
fn codings_are_for_all_routes() {
    let text = "http { gzip on; gzip_types text/css; gzip_comp_level 5; proxy_cache z;\n\
                proxy_ignore_headers Set-Cookie; upstream app { server 127.0.0.1:1; }\n\
                server { location / { proxy_pass http://app; }\n\
                location /a/ { gzip off; proxy_pass http://app; } } }";
    let imported = imported(text, false);
    has(&imported, "codings = [\"gzip\"]");
    has(&imported, "passed = true");
    has(&imported, "types = [\"text/html\", \"text/css\"]");
    has(&imported, "gzip_level = 5");
    has(&imported, "bytes_min = \"20\"");
    assert!(route(&imported, "prefix = \"/a/\"").contains("compression = false"));
    assert!(!route(&imported, "prefix = \"/\"").contains("compression"));
}

#[test]
fn limits_are_quotas_of_the_same_requests() {
    let text = "http { limit_req_zone $binary_remote_addr zone=a:1m rate=90r/m;\n\
                limit_conn_zone $http_x_key zone=b:1m;\n\
                upstream app { server 127.0.0.1:1; } server { listen 127.0.0.1:80;\n\
                location / { proxy_pass http://app; }\n\
                location /api/ { limit_req zone=a burst=3; limit_conn b 5; limit_rate 100k;\n\
                proxy_pass http://app; } } }";
    let quotas = imported(text, false);
    for part in [
        "name = \"a\"  # nginx.conf:1\nby = \"network\"  # nginx.conf:1\nv6_prefix = 128",
        "requests = \"90/m\"  # nginx.conf:1\nburst = 1  # nginx.conf:5\nover = \"delay\"",
        "delay_max = \"2s\"",
        "by = \"field:x-key\"",
        "concurrency = 5",
        "bytes = \"102400/s\"",
        "prefix = \"/api/\"  # nginx.conf:5",
    ] {
        has(&quotas, part);
    }
    assert!(!quotas.has_left(), "{:#?}", quotas.notes);
    // A quota would be for /api/x/, too, and here that has none.
    let more =
        text.replace("location / {", "location /api/x/ { proxy_pass http://app; } location / {");
    lacks(&imported(&more, false), "[[quota]]");
    assert_eq!(fate(&imported(&more, false), "limit_req zone"), Fate::NotCarried);
}

#[test]
fn captures_of_hosts_and_paths() {
    let text = "http { upstream app { server 127.0.0.1:1; }\n\
                server { listen 127.0.0.1:80 default_server; return 404; }\n\
                server { listen 127.0.0.1:80; server_name ~^(?<tenant>[^.]+)\\.old\\.example$;\n\
                location ~ ^/(?<lang>[^/]+)/shop/(?<rest>.*)$ {\n\
                return 301 https://$tenant.example/$rest?lang=$lang; }\n\
                location / { proxy_pass http://app; } }\n\
                server { listen 127.0.0.1:80; server_name b.example;\n\
                rewrite ^/old/(.*)$ /new/$1? permanent;\n\
                location ~ ^/([^/]+)/api/ { proxy_set_header X-L $1; proxy_pass http://app; }\n\
                location / { proxy_pass http://app; } } }";
    let imported = imported(text, false);
    for part in [
        "path = \"/{lang}/shop/*\"  # nginx.conf:4\n\
         redirect = \"https://{tenant}.example/{*}?lang={lang}\"",
        "hosts = [\"{tenant}.old.example\"]",
        "path = \"/old/*\"  # nginx.conf:8\nredirect = \"/new/{*}\"",
        "path = \"/{c1}/api/*\"  # nginx.conf:9\nupstream = \"app\"",
        "set = \"X-L\"  # nginx.conf:9\nvalue = \"{c1}\"",
    ] {
        has(&imported, part);
    }
    assert!(!imported.has_left(), "{:#?}", imported.notes);
    // A client must not choose the host.
    let host = text.replace("https://$tenant.example/", "https://$lang.example/");
    assert_eq!(fate(&self::imported(&host, false), "return 301"), Fate::NotCarried);
    // A longer prefix comes first there, and second in nginx.
    let longer = text.replace("location / {", "location /a/shop/c/ { return 403; } location / {");
    let closed = self::imported(&longer, false);
    assert_eq!(fate(&closed, "location ~ ^/(?<lang>"), Fate::Carried);
    assert_eq!(fate(&closed, "return 301"), Fate::NotCarried);
    has(&closed, "when = \"path.matches(r'^/(?<lang>[^/]+)/shop/(?<rest>[^\\\\n]*)\\\\n?\\\\z')\"");
}

#[test]
fn what_is_never_fresh_is_never_served_stale() {
    let text = one("proxy_cache z; proxy_ignore_headers Set-Cookie;\n\
                    proxy_cache_use_stale error updating; proxy_cache_background_update on;\n\
                    location / { proxy_cache_valid 200 0; proxy_cache_valid 404 1m; \
                    proxy_pass http://app; }");
    let imported = imported(&text, false);
    let times = |ttl, grace| {
        format!(
            "ttl = \"{ttl}\"  # proxy_cache\ngrace = \"{grace}\"  # proxy_cache\n\
             error_grace = \"{grace}\""
        )
    };
    has(&imported, &times("0s", "0s"));
    has(&imported, &times("1m", "24h"));
}

#[test]
fn an_expression_finds_no_route_that_hides_or_keeps_less() {
    let cached = "proxy_cache z; proxy_ignore_headers Set-Cookie; proxy_pass http://app;";
    let of = |inside: &str| {
        imported(
            &one(&format!("location / {{ {cached} }} location ~ liv(?=e) {{ {inside} }}")),
            false,
        )
    };
    lacks(&of(cached), "store = false");
    let hides = of(&format!("proxy_hide_header X-Secret; {cached}"));
    lacks(&hides, "\nupstream = ");
    assert_eq!(fate(&hides, "location ~ liv"), Fate::Unprotected);
    for more in
        ["valid 200 1s;", "use_stale off;", "use_stale updating; proxy_cache_background_update on;"]
    {
        has(&of(&format!("proxy_cache_{more} {cached}")), "store = false");
    }
}

#[test]
fn servers_on_the_same_line_of_two_files_are_two() {
    let mut read = |name: &str| {
        let host = name.to_owned();
        let text = format!(
            "server {{ listen 127.0.0.1:80; server_name {host}.example; \
             location / {{ proxy_pass http://127.0.0.1:1; }} \
             location /login/ {{ limit_req zone=a; proxy_pass http://127.0.0.1:1; }} }}"
        );
        Ok(vec![crate::Included { name: host, text }])
    };
    let text = "http { limit_req_zone $binary_remote_addr zone=a:1m rate=5r/s;\n\
                include first; include a; include b; }";
    let imported = crate::import(Source::Nginx, "f", text, Options::default(), &mut read).unwrap();
    for host in ["a", "b"] {
        has(&imported, &format!("hosts = [\"{host}.example\"]  # {host}:1\nprefix = \"/login/\""));
    }
}

#[test]
fn limits_that_share_a_zone_say_that_they_count_apart() {
    let limited =
        |path: &str| format!("location {path} {{ limit_req zone=a; proxy_pass http://app; }}\n");
    let text = |inside: &str| {
        one(inside).replace("http {", "http { limit_req_zone $remote_addr zone=a:1m rate=5r/s;")
    };
    let rest = "location / { proxy_pass http://app; }";
    let shared = imported(&text(&(limited("/x/") + &limited("/y/") + rest)), false);
    assert!(why(&shared, "limit_req zone").contains("each place counts by itself"));
    let alone = imported(&text(&(limited("/x/") + rest)), false);
    assert!(!why(&alone, "limit_req zone").contains("each place"));
}

#[test]
fn an_exact_path_of_other_length_meets_no_expression() {
    let text = one("location = /favicon.ico { return 200 x; }\n\
                    location ~ ^/([^/]+)/shop/(.*)$ { return 301 /s/$1/$2; }\n\
                    location / { proxy_pass http://app; }");
    let imported = imported(&text, false);
    assert!(!imported.has_left(), "{:#?}", imported.notes);
    has(&imported, "path = \"/{c1}/shop/*\"");
}

#[test]
fn limits_of_the_default_server_are_for_its_names() {
    let server = |host: &str, inside: &str| {
        format!(
            "server {{ listen 127.0.0.1:80; server_name {host}; {inside} \
             location / {{ proxy_pass http://app; }} }}\n"
        )
    };
    let file = |zone: &str, servers: &str| {
        let zones = format!("limit_req_zone {zone} zone=a:1m rate=5r/s;");
        format!("http {{ {zones} upstream app {{ server 127.0.0.1:1; }}\n{servers} }}")
    };
    let limit = "limit_req zone=a;";
    let two = server("a.example", limit) + &server("b.example", "");
    let quotas = imported(&file("$binary_remote_addr", &two), false);
    has(&quotas, "hosts = [\"a.example\"]  # nginx.conf:2");
    assert!(why(&quotas, "limit_req zone").contains("hosts of no server have no limit"));
    // Of the only server, a limit by its name is one for all.
    let alone = file("$server_name", &server("a.example", limit));
    has(&imported(&alone, false), "by = \"all\"");
    let several = format!("{limit} {}{}", server("a.example", ""), server("b.example", ""));
    let several = imported(&file("$server_name", &several), false);
    assert_eq!(fate(&several, "limit_req zone"), Fate::NotCarried);
    // In a dry run nothing is refused.
    let dry = alone.replace(limit, "limit_req zone=a; limit_req_dry_run on;");
    lacks(&imported(&dry, false), "[[quota]]");
}

/// Files that say in other ways what is not stored: each was stored for all.
#[test]
fn what_nginx_does_not_store_is_not_stored() {
    let cached = "proxy_cache z; proxy_cache_valid 10m; proxy_pass http://app;";
    for (rule, left) in [
        ("proxy_buffering off;", false),
        ("proxy_no_cache $a; proxy_cache_bypass $a;", true),
        ("set $a 1; proxy_no_cache $a;", true),
        ("proxy_cache_key $uri$is_mobile;", true),
        ("proxy_hide_header Set-Cookie;", true),
    ] {
        let imported = imported(&one(&format!("location / {{ {rule} {cached} }}")), false);
        let root = route(&imported, "prefix = \"/\"");
        assert!(root.contains("store = false"), "{rule}: {root}");
        assert_eq!(imported.has_left(), left, "{rule}: {:#?}", imported.notes);
    }
    let by_variable = one(&format!("location / {{ {} }}", cached.replace("cache z;", "cache $z;")));
    has(&imported(&by_variable, false), "store = false");
    assert_eq!(fate(&imported(&by_variable, false), "proxy_cache $z"), Fate::NotCarried);
}

/// A location without a slash at its end has paths in the middle of a segment.
#[test]
fn a_location_inside_a_segment_is_a_route() {
    let text = one("location / { proxy_cache z; proxy_pass http://app; }\n\
                    location /account { proxy_pass http://app; }\n\
                    location ^~ /adm { deny all; }\n\
                    location /account/x/ { return 404; }");
    let imported = imported(&text, false);
    assert!(!imported.has_left(), "{:#?}", imported.notes);
    assert!(route(&imported, "path = \"/account*\"").contains("store = false"));
    assert!(route(&imported, "path = \"/adm*\"").contains("status = 403"));
    // A location of that path itself is asked before the redirect to the one with a slash.
    for own in ["location /api { deny all; }", "location = /api { deny all; }"] {
        let text = one(&format!("location /api/ {{ proxy_pass http://app; }} {own}"));
        lacks(&self::imported(&text, false), "redirect = ");
    }
    // No route has such a path, so what it would find is closed.
    for path in ["/.", "/a?b", "'/a{b'", "'/a*'"] {
        let text = one(&format!(
            "location {path} {{ deny all; }} location / {{ proxy_pass http://app; }}"
        ));
        lacks(&self::imported(&text, false), "\nupstream = ");
    }
}

/// What stays in the store as the upstream said it is not changed for clients.
#[test]
fn a_field_that_is_hidden_from_clients_still_decides() {
    let of = |store: &str| {
        imported(
            &one(&format!(
                "location / {{ {store} proxy_hide_header Cache-Control; proxy_hide_header Vary; \
                 proxy_hide_header X-A; proxy_pass http://app; }}"
            )),
            false,
        )
    };
    let stored = of("proxy_cache z;");
    for name in ["Cache-Control", "Vary"] {
        lacks(&stored, &format!("remove = \"{name}\""));
        assert_eq!(fate(&stored, &format!("proxy_hide_header {name}")), Fate::NotCarried);
        has(&of(""), &format!("remove = \"{name}\""));
    }
    has(&stored, "remove = \"X-A\"");
}

/// Of `allow` and `deny`, the first that matches decides, and a level with one inherits none.
#[test]
fn the_first_rule_about_a_client_decides() {
    for (outer, rules, wanted) in [
        ("", "deny all; allow 10.0.0.1;", "denied"),
        ("", "deny 10.0.0.1; deny all;", "denied"),
        ("", "allow all; deny all;", "open"),
        ("deny all;", "allow all;", "open"),
        ("deny all;", "", "denied"),
        ("allow 10.0.0.1; deny all;", "allow all;", "open"),
        ("allow 10.0.0.1; deny all;", "", "!client.within('10.0.0.1')"),
        ("allow all;", "deny 10.0.0.1; deny 10.0.0.2;", "client.within('10.0.0.1', '10.0.0.2')"),
        (
            "",
            "deny 10.0.0.1; allow 10.0.0.0/8; deny 11.0.0.0/8; allow all;",
            "client.within('10.0.0.1') || !client.within('10.0.0.0/8') && \
             client.within('11.0.0.0/8')",
        ),
        (
            "",
            "deny 10.0.0.1; allow 10.0.0.0/8; deny all;",
            "client.within('10.0.0.1') || !client.within('10.0.0.0/8')",
        ),
        ("allow unix:; deny all;", "", "closed"),
        ("", "allow 10.0.0.1;", "open"),
    ] {
        let text = one(&format!("{outer} location / {{ {rules} proxy_pass http://app; }}"));
        let imported = imported(&text, false);
        let root = route(&imported, "prefix = \"/\"");
        let when = root.split_once("\nwhen = \"").and_then(|(_, when)| when.split_once('"'));
        let found = match () {
            () if root.contains("answer = \"denied") && when.is_some() => {
                when.unwrap_or_default().0
            }
            () if root.contains("answer = \"denied") => "denied",
            () if root.contains("answer = \"closed") => "closed",
            () => "open",
        };
        assert_eq!(found.replace(['(', ')'], ""), wanted.replace(['(', ')'], ""), "{root}");
        assert!(imported.has_left() || wanted != "closed", "{outer} {rules}");
    }
}

/// A `map` whose variable has another value later is not what decides.
#[test]
fn a_variable_that_is_set_twice_is_not_known() {
    let text = "http { map $http_cookie $s { default 0; \"~(^|; )a=\" 1; } upstream app \
                { server 127.0.0.1:1; } server { listen 127.0.0.1:80; location / { \
                proxy_cache z; proxy_no_cache $S; proxy_cache_bypass $s; proxy_pass http://app; } } }";
    has(&imported(text, false), "bypass_cookies = [\"a\"]");
    for more in ["set $s 0;", "set $S 0;"] {
        let text = text.replace("location / {", &format!("location / {{ {more}"));
        has(&imported(&text, false), "store = false");
    }
    let text = text.replace("upstream app", "map $uri $s { default 0; } upstream app");
    has(&imported(&text, false), "store = false");
}

/// nginx asks a server with a wildcard before any with an expression.
#[test]
fn an_expression_for_hosts_takes_none_from_a_wildcard() {
    let text = |other: &str| {
        format!(
            "http {{ upstream app {{ server 127.0.0.1:1; }}\n\
             server {{ listen 127.0.0.1:80 default_server; return 404; }}\n\
             server {{ listen 127.0.0.1:80; server_name ~^(?<t>[^.]+)\\.a\\.example$;\n\
             location / {{ proxy_pass http://app; }} }}\n\
             server {{ listen 127.0.0.1:80; server_name {other}; location / {{ deny all; }} }} }}"
        )
    };
    has(&imported(&text("b.example"), false), "hosts = [\"{t}.a.example\"]");
    for other in ["*.a.example", ".example", "*.Example"] {
        lacks(&imported(&text(other), false), "{t}");
    }
    let twice = text("~^([^.]+)\\.a\\.example$");
    assert_eq!(imported(&twice, false).configuration.matches(".a.example\"]").count(), 1);
}

/// What nginx does without a line: a limit on bodies, and its own URL of an upstream taken out of
/// Location.
#[test]
fn the_limit_on_bodies_and_redirects_are_those_of_nginx() {
    let app = "location / { proxy_pass http://app; }";
    let cut = "cut = \"Location\"  # proxy_redirect default\nvalue = \"http://app\"";
    for (rules, limit, cuts) in [
        ("", "body_bytes_max = \"1MiB\"  # nginx's own limit", true),
        ("client_max_body_size 8m;", "body_bytes_max = \"8MiB\"  # nginx.conf:2", true),
        ("proxy_redirect default;", "1MiB", true),
        ("proxy_redirect off;", "1MiB", false),
        ("proxy_set_header Host $http_host;", "1MiB", true),
    ] {
        let imported = imported(&one(&format!("{rules} {app}")), false);
        has(&imported, limit);
        assert_eq!(imported.configuration.contains(cut), cuts, "{rules}");
        assert!(!imported.has_left(), "{rules}: {:#?}", imported.notes);
    }
    let without = format!("client_max_body_size 0; {}", one(app));
    lacks(&imported(&without, false), "body_bytes_max");
    let other = imported(&one(&format!("proxy_redirect http://a/ /b/; {app}")), false);
    has(&other, "from = \"http://a/\"  # proxy_redirect\nto = \"/b/\"");
    let other = imported(&one(&format!("proxy_redirect http://a/ $scheme://b/; {app}")), false);
    assert_eq!(fate(&other, "proxy_redirect"), Fate::NotCarried);
    let several =
        format!("{app} location /up/ {{ client_max_body_size 1g; proxy_pass http://app; }}");
    let several = imported(&one(&several), false);
    has(&several, "[limits]\nbody_bytes_max = \"1MiB\"");
    has(&several, "body_bytes_max = \"1GiB\"  # nginx.conf:2");
    assert_eq!(fate(&several, "client_max_body_size"), Fate::Carried);
}

/// `${cookie_u}x` became the cookie `ux`, and pages of one user went to all.
#[test]
fn a_variable_in_braces_ends_at_its_brace_in_a_key() {
    let key = |key: &str| {
        let text = format!(
            "location / {{ proxy_cache z; proxy_ignore_headers Set-Cookie;\n\
             proxy_cache_key \"{key}\"; proxy_pass http://app; }}"
        );
        imported(&one(&text), false)
    };
    has(&key("${host}${request_uri}${cookie_u}x"), "key_cookies = [\"u\"]");
    has(&key("${host}${request_uri}${cookie_u}_s"), "key_cookies = [\"u\"]");
    has(&key("$host$request_uri$cookie_u_s"), "key_cookies = [\"u_s\"]");
    has(&key("${request_uri}${http_x_user}_1"), "key_fields = [\"x-user\"]");
    let kept = key("${uri}${arg_u}v");
    has(&kept, "query_keep = [\"u\"]");
    // nginx finds the parameter `U` too.
    assert!(why(&kept, "proxy_cache_key").contains("have a case"));
}

/// `$cookie_u-x` is the cookie `u` and a text. It was taken for a cookie of this name.
#[test]
fn a_variable_with_a_text_is_no_variable() {
    let rule = |rule: &str| {
        let text = format!("location / {{ proxy_cache z; {rule} proxy_pass http://app; }}");
        imported(&one(&text), false)
    };
    for list in ["proxy_no_cache", "proxy_cache_bypass"] {
        has(&rule(&format!("{list} $cookie_u;")), "bypass_cookies = [\"u\"]");
        has(&rule(&format!("{list} ${{cookie_u}};")), "bypass_cookies = [\"u\"]");
        for value in ["$cookie_u-x", "${cookie_u}x", "$cookie_u$cookie_v", "\"$cookie_u x\""] {
            let imported = rule(&format!("{list} {value};"));
            has(&imported, "store = false");
            assert!(imported.has_left());
        }
    }
    let map = |source: &str| {
        let map = format!("http {{ map {source} $s {{ default 1; \"\" 0; }}");
        let text = "location / { proxy_cache z; proxy_no_cache $s; proxy_pass http://app; }";
        imported(&one(text).replacen("http {", &map, 1), false)
    };
    has(&map("$cookie_u"), "bypass_cookies = [\"u\"]");
    has(&map("${cookie_u}"), "bypass_cookies = [\"u\"]");
    has(&map("$cookie_u-x"), "store = false");
    has(&map("${cookie_u}x"), "store = false");
    // The client's own field is not the field and a text.
    let field = rule("proxy_set_header X.a $http_x.a;");
    has(&field, "remove = \"X.a\"");
}

/// `proxy_hide_header X-Accel-Expires` took the field away before the store had read it, and
/// private pages were stored.
#[test]
fn a_field_for_the_store_is_hidden_from_clients_alone() {
    let names = ["Expires", "Buffering", "Redirect", "Charset", "Limit-Rate"];
    let names = names.map(|name| format!("X-Accel-{name}"));
    let others = ["x-aCCEL-expires", "Surrogate-Control", "surrogate-CONTROL"];
    for name in names.iter().map(String::as_str).chain(others) {
        let hide = format!("proxy_hide_header {name};");
        let stores = "proxy_cache z; proxy_pass http://app;";
        let inside = one(&format!("location / {{ {hide} {stores} }}"));
        let at_server = one(&format!("{hide} location / {{ {stores} }}"));
        let at_http = one(&format!("location / {{ {stores} }}"));
        let at_http = at_http.replacen("http {", &format!("http {{ {hide}"), 1);
        for text in [inside, at_server, at_http] {
            let imported = imported(&text, false);
            lacks(&imported, "remove = ");
            lacks(&imported, "store = false");
            assert_eq!(fate(&imported, "proxy_hide_header"), Fate::NotCarried, "{text}");
        }
        // Without a store nothing reads it.
        let text = one(&format!("location / {{ {hide} proxy_pass http://app; }}"));
        has(&imported(&text, false), &format!("remove = \"{name}\""));
    }
    // No client gets the tags.
    let text = "location / { proxy_hide_header Cache-Tag; proxy_cache z; proxy_pass http://app; }";
    let imported = imported(&one(text), false);
    lacks(&imported, "remove = ");
    assert_eq!(fate(&imported, "proxy_hide_header"), Fate::Carried);
}

/// `X-Forwarded-Proto https` beside `X-Forwarded-Host $host` sent `http` and `https`.
#[test]
fn a_forwarded_field_with_a_text_has_one_value() {
    let with = |lines: &str| {
        imported(&one(&format!("location / {{ {lines} proxy_pass http://app; }}")), false)
    };
    let host = "proxy_set_header X-Forwarded-Host $host;";
    let proto = "proxy_set_header X-FORWARDED-Proto https;";
    let added = "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;";
    let text = with(&format!("{proto} {host}"));
    lacks(&text, "forwarded = ");
    has(&text, "set = \"X-FORWARDED-Proto\"");
    has(&text, "value = \"https\"");
    has(&text, "value = \"{host}\"");
    // X-Forwarded-For is sent beside what the file says about the others.
    let address = with(&format!("{proto} {host} {added}"));
    has(&address, "forwarded = \"x_forwarded_for\"");
    has(&address, "value = \"https\"");
    assert!(!address.differs(), "{:?}", address.notes);
    let none = with(&format!("proxy_set_header X-Forwarded-Proto \"\"; {added}"));
    has(&none, "remove = \"X-Forwarded-Proto\"");
    // Our server has the client's Host with its port only together with the others.
    let scheme = "proxy_set_header X-Forwarded-Proto $scheme;";
    let whole = "proxy_set_header X-Forwarded-Host $http_host;";
    let together = with(&format!("{scheme} {whole} {added}"));
    has(&together, "forwarded = \"x_forwarded\"");
    lacks(&together, "set = ");
    let alone = with(proto);
    lacks(&alone, "forwarded = ");
    has(&alone, "value = \"https\"");
    assert!(!alone.has_left());
}

/// nginx names a server without the usual port of its scheme.
#[test]
fn the_host_of_a_server_has_no_usual_port() {
    for (url, host) in [
        ("http://app:80", "app"),
        ("http://app:8080/", "app:8080"),
        ("https://app:443", "app"),
        ("https://app:80", "app:80"),
        ("http://app", "app"),
    ] {
        let text = one(&format!("location / {{ proxy_pass {url}; }}"));
        has(&imported(&text, false), &format!("host = \"{host}\""));
    }
}
