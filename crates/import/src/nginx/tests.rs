//! Files of nginx, and what becomes of them. Each imported file is read by the server's own reader.

use super::*;
use crate::{Fate, Imported, Source};

fn imported(text: &str, open: bool) -> Imported {
    let options = Options { open };
    let mut read = |name: &str| Err(format!("{name} cannot be read"));
    let imported = crate::import(Source::Nginx, "nginx.conf", text, options, &mut read);
    let imported = imported.unwrap_or_else(|error| panic!("{error}"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plimsoll.toml");
    std::fs::write(&file, &imported.configuration).unwrap();
    if let Err(unusable) = config::Settings::read(&file) {
        panic!("{unusable}\n{}", imported.configuration);
    }
    imported
}

fn fates(imported: &Imported) -> Vec<(usize, Fate)> {
    let notes = imported.notes.iter().filter(|note| note.fate >= Fate::Different);
    notes.map(|note| (note.line, note.fate)).collect()
}

fn has(imported: &Imported, line: &str) {
    assert!(imported.configuration.contains(line), "no {line} in {}", imported.configuration);
}

fn lacks(imported: &Imported, line: &str) {
    assert!(!imported.configuration.contains(line), "{line} in {}", imported.configuration);
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
                    location /api/ { proxy_cache z; proxy_pass http://app/api/; }");
    let imported = imported(&text, false);
    assert_eq!(fates(&imported), []);
    for line in [
        "hosts = [\"a.example\"]",
        "url = \"http://127.0.0.1:8002\"",
        "backup = true",
        "host = \"app\"",
        "http2 = false",
        "answer = \"hello\"",
        "path = \"/api\"  # nginx.conf:4\nredirect = \"/api/\"",
        "store = false  # without proxy_cache",
        "value = \"private=\\\"set-cookie\\\"\"",
    ] {
        has(&imported, line);
    }
}

#[test]
fn a_url_that_would_be_rewritten_is_not_passed_on() {
    let imported = imported(&one("location /api/ { proxy_pass http://app/; }"), false);
    has(&imported, "prefix = \"/api/\"  # nginx.conf:2\nanswer = \"not imported\\n\"");
    lacks(&imported, "upstream = ");
    has(&imported, "name = \"none\"");
    assert!(imported.has_left());
}

#[test]
fn what_keeps_requests_out_stays_closed() {
    for rule in [
        "allow 10.0.0.0/8; deny all;",
        "auth_basic x; auth_basic_user_file f;",
        "if ($arg_x) { return 403; }",
        "internal;",
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
    let text = one("location ~ /\\.ht { deny all; } location / { proxy_pass http://app; }");
    lacks(&imported(&text, false), "\nupstream = ");
    let text = one("location /adm { deny all; } location / { proxy_pass http://app; }");
    lacks(&imported(&text, false), "\nupstream = ");
    // This one is a route.
    let text = one("location /adm/ { deny all; } location / { proxy_pass http://app; }");
    let carried = imported(&text, false);
    has(&carried, "answer = \"denied\\n\"");
    has(&carried, "\nupstream = \"app\"");
    assert!(!carried.has_left());
}

#[test]
fn a_store_that_requests_divide_is_off() {
    let one =
        |more: &str| one(&format!("location / {{ proxy_cache z; {more} proxy_pass http://app; }}"));
    lacks(&imported(&one("proxy_cache_key $host$uri$is_args$args;"), false), "store = false");
    for rule in [
        "proxy_cache_bypass $cookie_a;",
        "proxy_no_cache $cookie_a;",
        "proxy_cache_key $uri$cookie_a;",
    ] {
        has(&imported(&one(rule), false), "store = false");
        lacks(&imported(&one(rule), true), "store = false");
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
    let text = "http { server { listen 80; server_name a.example; return 301 \
                https://$host$request_uri; }\nserver { listen 443 ssl; server_name a.example; \
                ssl_certificate c; ssl_certificate_key k; return 404; } }";
    let options = Options::default();
    let mut read = |_: &str| Err(String::new());
    let imported = crate::import(Source::Nginx, "f", text, options, &mut read).unwrap();
    has(&imported, "address = \"0.0.0.0:443\"");
    lacks(&imported, "0.0.0.0:80\"");
    assert!(imported.has_left());
}

#[test]
fn redirects() {
    let text = one("return 301 https://$host$request_uri;");
    // The only server is the default one, for any host.
    assert!(imported(&text, false).has_left());
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
    assert_eq!(fates(&imported), [(1, Fate::Different)]);
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
    ] {
        has(&imported, line);
    }
    let left = [(5, Fate::NotCarried), (6, Fate::NotCarried)];
    assert!(left.iter().all(|one| fates(&imported).contains(one)), "{:?}", imported.notes);
}

#[test]
fn a_log_format_is_translated() {
    let text = "http { log_format m '$remote_addr [$time_local] \"$request\" $status';\n\
                access_log /var/log/x.log m;\nupstream u { server 127.0.0.1:1; }\n\
                server { location / { proxy_pass http://u; } } }";
    has(&imported(text, false), "format = \"apache:%h %t \\\"%r\\\" %>s\"");
}
