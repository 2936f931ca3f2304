//! Files of VCL, and what becomes of them. Each imported file is read by the server's own reader.

use super::*;
use crate::{Fate, Imported, Source};

fn imported(text: &str, open: bool) -> Imported {
    let options = Options { open };
    let mut read = |name: &str| Err(format!("{name} cannot be read"));
    let imported = crate::import(Source::Vcl, "default.vcl", text, options, &mut read);
    let imported = imported.unwrap_or_else(|error| panic!("{error}"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plimsoll.toml");
    std::fs::write(&file, &imported.configuration).unwrap();
    if let Err(unusable) = config::Settings::read(&file) {
        panic!("{unusable}\n{}", imported.configuration);
    }
    imported
}

fn has(imported: &Imported, line: &str) {
    assert!(imported.configuration.contains(line), "no {line} in {}", imported.configuration);
}

fn lacks(imported: &Imported, line: &str) {
    assert!(!imported.configuration.contains(line), "{line} in {}", imported.configuration);
}

fn left(imported: &Imported) -> Vec<(usize, Fate)> {
    let notes = imported.notes.iter().filter(|note| note.fate >= Fate::NotCarried);
    notes.map(|note| (note.line, note.fate)).collect()
}

/// Two backends, and this in `vcl_recv`, after its cookies are removed.
fn recv(inside: &str) -> String {
    format!(
        "vcl 4.1; backend default {{ .host = \"127.0.0.1\"; .port = \"8001\"; }}\n\
         backend api {{ .host = \"127.0.0.1\"; .port = \"8002\"; }}\n\
         sub vcl_recv {{ unset req.http.Cookie; {inside} }}\n"
    )
}

#[test]
fn hosts_and_paths_become_routes() {
    let text = recv(
        "if (req.http.host ~ \"^(www\\.)?a\\.example$\") { set req.backend_hint = api; }\n\
         elsif (req.url ~ \"^/api/\") { set req.backend_hint = api; }\n\
         if (req.url ~ \"^/(x|y)/\") { return (pass); }",
    );
    let imported = imported(&text, false);
    assert_eq!(left(&imported), [], "{:#?}", imported.notes);
    for part in [
        "prefix = \"/\"  # vcl_recv\nupstream = \"default\"",
        "prefix = \"/api/\"  # vcl_recv\nupstream = \"api\"",
        "prefix = \"/x/\"  # vcl_recv\nupstream = \"default\"  # vcl_recv\nstore = false",
        "hosts = [\"www.a.example\"]  # vcl_recv\nprefix = \"/\"  # vcl_recv\nupstream = \"api\"",
        "remove = \"cookie\"",
        "from = []",
    ] {
        has(&imported, part);
    }
}

#[test]
fn what_keeps_requests_out_stays_closed() {
    for rule in [
        "if (client.ip !~ inside) { return (synth(403, \"no\")); }",
        "if (req.http.User-Agent ~ \"bot\") { return (synth(403)); }",
        "if (req.method == \"POST\") { return (synth(405)); }",
        "call missing;",
        "if (req.method == \"PUT\") { return (synth(405)); }",
        "if (req.url ~ \"(?i)^/admin/\") { return (synth(403)); }",
        "if (!req.http.Authorization) { return (synth(401)); }",
        "return (vcl(other));",
    ] {
        let text = recv(rule) + "acl inside { \"10.0.0.0\"/8; }\n";
        let closed = imported(&text, false);
        lacks(&closed, "\nupstream = ");
        has(&closed, "# upstream = \"default\"");
        has(&imported(&text, true), "\nupstream = \"default\"");
    }
    // A redirect refuses nothing.
    let text = recv("if (req.http.X-Proto == \"http\") { return (synth(301, \"https://a\")); }");
    has(&imported(&text, false), "\nupstream = \"default\"");
    // A query makes another URL of this path.
    let text = recv("if (req.url != \"/open\") { return (synth(403)); }");
    lacks(&imported(&text, false), "\nupstream = ");
    // A path is a route.
    let text = recv("if (req.url ~ \"^/admin/\") { return (synth(403, \"no\")); }");
    has(&imported(&text, false), "answer = \"no\\n\"");
}

#[test]
fn what_is_not_known_to_be_shared_is_not_stored() {
    let stores = |text: &str, open| {
        let imported = imported(text, open);
        !imported.configuration.contains("store = false")
    };
    assert!(stores(&recv(""), false));
    for text in [
        recv("").replace("unset req.http.Cookie;", ""),
        recv("if (req.http.X-Key) { return (pass); }"),
        recv("") + "sub vcl_hash { hash_data(req.http.X-Key); }\n",
        recv("")
            + "sub vcl_backend_response { if (beresp.status == 200) { \
                    set beresp.uncacheable = true; } }\n",
        recv("set req.url = regsub(req.url, \"a\", \"b\");"),
    ] {
        assert!(!stores(&text, false), "{text}");
        assert!(stores(&text, true), "{text}");
    }
    assert!(!stores(&recv("return (pass);"), true));
}

#[test]
fn a_purge_needs_its_list() {
    let text = "if (req.method == \"PURGE\") { if (!client.ip ~ purgers) { \
                return (synth(405, \"no\")); } return (purge); }";
    let text = recv(text) + "acl purgers { \"localhost\"; \"192.0.2.0\"/24; }\n";
    let imported = imported(&text, false);
    has(&imported, "from = [\"127.0.0.0/8\", \"::1/128\", \"192.0.2.0/24\"]");
    has(&imported, "\nupstream = \"default\"");
    assert_eq!(left(&imported), [], "{:#?}", imported.notes);
}

#[test]
fn redirects_and_answers() {
    let text = recv(
        "if (req.http.host == \"old.example\") {\n\
         return (synth(301, \"https://new.example\" + req.url)); }\n\
         if (req.url == \"/health\") { return (synth(200, \"well\")); }",
    ) + "sub vcl_synth { if (resp.status == 301) { set resp.http.Location = resp.reason; \
         set resp.reason = \"Moved\"; return (deliver); } }\n";
    let imported = imported(&text, false);
    has(&imported, "redirect = \"https://new.example\"");
    has(&imported, "with_path = true");
    has(&imported, "path = \"/health\"  # vcl_recv\nanswer = \"well\\n\"");
    assert_eq!(left(&imported), [], "{:#?}", imported.notes);
}

#[test]
fn responses_and_lifetimes() {
    let text = recv("")
        + "sub vcl_backend_response {\nunset beresp.http.Set-Cookie;\nset beresp.ttl = 1h;\n\
           set beresp.http.X-A = \"a\";\nreturn (deliver); }\n\
           sub vcl_deliver { if (obj.hits > 0) { set resp.http.X-Cache = \"HIT\"; }\n\
           unset resp.http.Via; unset resp.http.X-Varnish; unset resp.http.Server; }\n";
    let imported = imported(&text, false);
    for part in
        ["remove = \"set-cookie\"", "set = \"x-a\"", "responses = false", "remove = \"server\""]
    {
        has(&imported, part);
    }
    lacks(&imported, "X-Cache");
    assert_eq!(left(&imported), [(6, Fate::NotCarried)], "{:#?}", imported.notes);
}

#[test]
fn directors_and_probes() {
    let text = "vcl 4.0;\nimport directors;\nprobe p { .url = \"/up\"; .interval = 5s; \
                .window = 5; .threshold = 3; }\n\
                backend a { .host = \"127.0.0.1\"; .port = \"1\"; .probe = p; \
                .connect_timeout = 1s; }\n\
                backend b { .host = \"127.0.0.1\"; .port = \"2\"; }\n\
                sub vcl_init { new d = directors.fallback(); d.add_backend(a); \
                d.add_backend(b); }\n\
                sub vcl_recv { unset req.http.Cookie; set req.backend_hint = d.backend(); }\n";
    let imported = imported(text, false);
    for part in
        ["backup = true", "path = \"/up\"", "rise = 3", "connect = \"1s\"", "upstream = \"d\""]
    {
        has(&imported, part);
    }
    assert_eq!(left(&imported), [], "{:#?}", imported.notes);
}

#[test]
fn the_program_of_debian_stores_nothing_without_a_word() {
    let text = "vcl 4.1;\nbackend default { .host = \"127.0.0.1\"; .port = \"8080\"; }\n\
                sub vcl_recv { }\nsub vcl_backend_response { }\nsub vcl_deliver { }\n";
    let closed = imported(text, false);
    has(&closed, "store = false");
    assert_eq!(left(&closed), [(1, Fate::NotCarried)]);
    lacks(&imported(text, true), "store = false");
}

#[test]
fn errors_have_lines() {
    let mut read = |_: &str| Err(String::new());
    for (text, line) in [
        ("vcl 4.1;\nsub a { if (x { } }", 2),
        ("backend a {\n.host = \"x\"", 2),
        ("sub a {\n\"x\" }", 2),
        ("# \n\"x", 2),
        ("nothing a;", 1),
    ] {
        let error = crate::import(Source::Vcl, "f", text, Options::default(), &mut read);
        assert_eq!(error.map_err(|error| error.line).unwrap_err(), line, "{text}");
    }
    let deep = format!("sub a {{ {}", "if (x) { ".repeat(99));
    let error = crate::import(Source::Vcl, "f", &deep, Options::default(), &mut read);
    assert!(error.unwrap_err().what.contains("nested"));
}
