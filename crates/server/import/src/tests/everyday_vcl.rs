//! What files of VCL do every day: cookies of statistics, assets, logins, lifetimes by response,
//! and the language of Varnish 3. Each imported file is read by the server's own reader.

use crate::tests::{fate, has, lacks, why};
use crate::{Fate, Imported, Source};

const BACKEND: &str = "vcl 4.1; backend default { .host = \"127.0.0.1\"; .port = \"8001\"; }\n";

fn imported(text: &str) -> Imported {
    crate::tests::imported(Source::Vcl, "default.vcl", text, false)
}

fn of(text: &str) -> Imported {
    imported(&format!("{BACKEND}{text}"))
}

/// The routes that use the store.
fn stored(imported: &Imported) -> Vec<&str> {
    let all = imported.configuration.split("\n[[route]]\n").skip(1);
    let of_store =
        |text: &&str| text.contains("\nupstream = ") && !text.contains("\nstore = false");
    all.filter(of_store).collect()
}

/// The last route, which has no condition, stores.
fn stores_the_rest(imported: &Imported) {
    let last = stored(imported).last().copied().unwrap_or_else(|| {
        panic!("nothing is stored: {}", imported.configuration);
    });
    assert!(!last.contains("\nwhen = "), "{last}");
    assert!(last.contains("remove = \"cookie\""), "{last}");
}

#[test]
fn a_site_with_logins_and_cookies_of_statistics_is_stored() {
    let site = of("sub vcl_recv {\n\
         if (req.restarts > 0) { set req.hash_always_miss = true; }\n\
         if (req.url ~ \"\\?$\") { set req.url = regsub(req.url, \"\\?$\", \"\"); }\n\
         if (req.http.Accept-Encoding) { if (req.url ~ \"\\.(jpg|gz)$\") { unset \
         req.http.Accept-Encoding; } else { set req.http.Accept-Encoding = \"gzip\"; } }\n\
         if (req.method != \"GET\" && req.method != \"HEAD\") { return (pass); }\n\
         if (req.url ~ \"^[^?]*\\.(css|js|png)(\\?.*)?$\") { unset \
         req.http.Cookie; return (hash); }\n\
         if (req.url ~ \"wp-(login|admin)\") { return (pass); }\n\
         if (req.http.Authorization) { return (pass); }\n\
         set req.http.Cookie = regsuball(req.http.Cookie, \
         \"(^|;\\s*)(_[_a-z]+|has_js)=[^;]*\", \"\");\n\
         set req.http.Cookie = regsub(req.http.Cookie, \"^;\\s*\", \"\");\n\
         if (req.http.Cookie ~ \"^\\s*$\") { unset req.http.Cookie; }\n}\n\
         sub vcl_hit { if (obj.ttl >= 0s) { return (deliver); }\n\
         if (std.healthy(req.backend_hint)) { if (obj.ttl + 10s > 0s) { return (deliver); } }\n\
         return (restart); }");
    stores_the_rest(&site);
    has(&site, "path.matches(r'\\\\.(css|js|png)$')");
    for statement in ["if (req.restarts > 0)", "if (req.method != \"GET\"", "if (req.http.Auth"] {
        assert_eq!(fate(&site, statement), Fate::Carried, "{statement}");
    }
    assert_eq!(fate(&site, "if (req.http.Accept-Encoding)"), Fate::Nothing);
    assert_eq!(fate(&site, "if (std.healthy"), Fate::Different);
}

#[test]
fn cookies_that_a_program_keeps_pass_a_request() {
    let site = of("sub vcl_recv { if (req.http.Cookie) {\n\
         set req.http.Cookie = \";\" + req.http.Cookie;\n\
         set req.http.Cookie = regsuball(req.http.Cookie, \"; +\", \";\");\n\
         set req.http.Cookie = regsuball(req.http.Cookie, \
         \";(SESS[a-z0-9]+|NO_CACHE)=\", \"; \\1=\");\n\
         set req.http.Cookie = regsuball(req.http.Cookie, \";[^ ][^;]*\", \"\");\n\
         set req.http.Cookie = regsuball(req.http.Cookie, \"^[; ]+|[; ]+$\", \"\");\n\
         if (req.http.Cookie == \"\") { unset req.http.Cookie; } else { return (pass); } } }");
    stores_the_rest(&site);
    has(&site, "fields['cookie'].matches(r'(^|;\\\\s*)(SESS[a-z0-9]+|NO_CACHE)=')");
    // The other cookies are not removed, and an upstream would read all cookies.
    let kept = of(
        "sub vcl_recv { set req.http.Cookie = regsuball(req.http.Cookie, \"lang=[^;]+\", \"\"); \
         return (hash); }",
    );
    assert!(stored(&kept).is_empty(), "{}", kept.configuration);
}

/// The condition of a branch decided about the store, although both sides did the same.
#[test]
fn a_question_on_which_nothing_depends_is_left_out() {
    let same = of("sub vcl_recv { unset req.http.Cookie; unset req.http.Authorization;\n\
         if (req.http.X-A ~ \"a\") { set req.http.X-B = \"b\"; } else \
         { set req.http.X-B = \"b\"; }\n\
         if (req.http.Forwarded) { unset req.http.Forwarded; } }");
    lacks(&same, "when = ");
    assert_eq!(stored(&same).len(), 1);
    has(&same, "remove = \"forwarded\"");
}

#[test]
fn conditions_on_responses_are_rules() {
    let site = of("sub vcl_recv { unset req.http.Cookie; return (hash); }\n\
         sub vcl_backend_response {\n\
         if (beresp.status == 500 || beresp.status == 503) { return (abandon); }\n\
         if (beresp.status == 404) { set beresp.ttl = 1m; set beresp.http.X-Kind = \"none\"; }\n\
         if (bereq.url ~ \"\\.css$\" && beresp.status == 200) { unset beresp.http.Pragma; \
         set beresp.ttl = 10y; }\n\
         if (beresp.http.Cache-Control ~ \"no-cache\" || beresp.http.Set-Cookie) { \
         set beresp.uncacheable = true; set beresp.ttl = 120s; return (deliver); }\n\
         if (beresp.ttl <= 0s || beresp.http.Vary == \"*\") { set beresp.uncacheable = true; \
         return (deliver); }\n}");
    assert_eq!(stored(&site).len(), 1, "{:#?}", site.notes);
    for part in [
        "when = \"status == 500 || status == 503\"  # vcl_backend_response\nstore = false",
        "path.matches(r'\\\\.css$') && query == ''",
        "ttl = \"8760h\"",
        "remove = \"pragma\"",
        "response['cache-control'].matches('no-cache')\"  # vcl_backend_response\nstore = false",
        "response['vary'] == '*'\"  # vcl_backend_response\nstore = false",
    ] {
        has(&site, part);
    }
    has(&site, "value = \"none\"");
}

#[test]
fn a_lifetime_is_not_for_responses_that_the_program_passes() {
    let site = of("sub vcl_recv { unset req.http.Cookie; return (hash); }\n\
         sub vcl_backend_response { if (beresp.ttl <= 0s) { set beresp.uncacheable = true; \
         return (deliver); } set beresp.ttl = 1h; }");
    assert!(stored(&site).is_empty(), "{}", site.configuration);
    let first = of("sub vcl_recv { unset req.http.Cookie; return (hash); }\n\
         sub vcl_backend_response { set beresp.ttl = 1h; if (beresp.ttl <= 0s) { \
         set beresp.uncacheable = true; } }");
    assert_eq!(stored(&first).len(), 1);
    has(&first, "ttl = \"1h\"");
    // Responses to some clients lose a field, and other clients must not be concerned.
    let of_clients = of(
        "sub vcl_recv { if (req.http.Cookie ~ \"(?=x)x\") { return (pass); } return (hash); }\n\
         sub vcl_backend_response { if (bereq.http.Cookie ~ \"login\" && beresp.status == 200) { \
         unset beresp.http.Set-Cookie; } }",
    );
    lacks(&of_clients, "[[rule]]");
}

#[test]
fn parts_of_the_key_are_those_of_all_requests() {
    let site = of("sub vcl_recv { unset req.http.Authorization;\n\
         if (!req.http.X-Forwarded-Proto) { if (std.port(server.ip) == 443) { \
         set req.http.X-Forwarded-Proto = \"https\"; } else { \
         set req.http.X-Forwarded-Proto = \"http\"; } }\n\
         return (hash); }\n\
         sub vcl_hash { if (req.http.cookie ~ \"vary=\") { hash_data(\"v\" + \
         regsub(req.http.cookie, \"^.*?vary=([^;]*);*.*$\", \"\\1\")); } \
         else { hash_data(\"none\"); }\n\
         if (req.http.X-Forwarded-Proto) { hash_data(req.http.X-Forwarded-Proto); } }");
    has(&site, "default = \"x-forwarded-proto\"  # VCL\nvalue = \"http\"");
    has(&site, "key_cookies = [\"vary\"]");
    has(&site, "key_fields = [\"x-forwarded-proto\"]");
    assert_eq!(stored(&site).len(), 1, "{}", site.configuration);
}

#[test]
fn a_host_of_the_program_is_that_of_an_upstream() {
    let site = of("sub vcl_recv { unset req.http.Cookie; unset req.http.Authorization; \
         set req.http.Host = \"inside.example\"; }");
    has(&site, "name = \"default-inside_example\"");
    has(&site, "host = \"inside.example\"");
    has(&site, "upstream = \"default-inside_example\"");
    assert_eq!(fate(&site, "set req.http.Host"), Fate::Different);
    assert!(why(&site, "set req.http.Host").contains("the key has the client's host"));
}

#[test]
fn the_language_of_varnish_3_is_read() {
    let old = imported(
        "backend a { .host = \"127.0.0.1\"; .port = \"8001\"; }\n\
         backend b { .host = \"127.0.0.1\"; .port = \"8002\"; }\n\
         director default round-robin { { .backend = a; } { .backend = b; } }\n\
         acl inside { \"10.0.0.0\"/8; }\n\
         sub vcl_recv { set req.backend = default;\n\
         if (req.request == \"PURGE\") { if (!client.ip ~ inside) { error 405 \"no\"; } \
         return (lookup); }\n\
         if (req.request != \"GET\" && req.request != \"HEAD\") { return (pass); }\n\
         if (req.url ~ \"^/private/\") { error 403 \"not here\"; }\n\
         remove req.http.Cookie; return (lookup); }\n\
         sub vcl_hit { if (req.request == \"PURGE\") { purge; error 200 \"gone\"; } }\n\
         sub vcl_fetch { if (beresp.status == 404) { set beresp.ttl = 10s; }\n\
         if (req.url ~ \"\\.css$\") { unset beresp.http.Set-Cookie; } }\n\
         sub vcl_error { set obj.http.Content-Type = \"text/html\"; synthetic {\"sorry\"}; \
         return (deliver); }\n",
    );
    for part in [
        "name = \"default\"",
        "url = \"http://127.0.0.1:8002\"",
        "answer = \"not here\\n\"",
        "from = [\"10.0.0.0/8\"]",
        "path.matches(r'\\\\.css$')",
    ] {
        has(&old, part);
    }
    stores_the_rest(&old);
    for text in ["C{ int x; }C sub vcl_recv { }", "director d random { { .backend = a; }"] {
        let read = &mut |_: &str| Err("no".to_owned());
        assert!(
            crate::import(Source::Vcl, "a.vcl", text, crate::Options::default(), read).is_err()
        );
    }
}

/// What a program with this `vcl_recv` and this `vcl_backend_response` becomes.
fn with(recv: &str, response: &str) -> Imported {
    of(&format!("sub vcl_recv {{ {recv} }}\nsub vcl_backend_response {{ {response} }}"))
}

const ALL: &str = "unset req.http.Cookie; unset req.http.Authorization; return (hash);";

/// The negation of three conditions was taken for three, and its middle field for absent.
#[test]
fn a_negation_of_several_conditions_is_one() {
    let three = with(
        "if (!(req.http.X-A || req.http.Cookie || req.http.X-B)) { set req.http.X-Anon = \"1\"; }",
        "",
    );
    for route in stored(&three) {
        assert!(!route.contains("when = "), "{route}");
    }
    has(&three, "'cookie' in fields || 'authorization' in fields");
    // The sign inside a text was replaced.
    let text = with("if (req.http.User-Agent !~ \"a == b\") { return (synth(403)); }", "");
    has(&text, "when = \"!fields['user-agent'].matches('a == b')\"");
}

/// An arm without statements was taken for one that is never taken.
#[test]
fn an_arm_without_statements_is_an_arm() {
    let list = "acl office { \"10.0.0.0\"/8; }\n";
    let closed = of(&format!(
        "{list}sub vcl_recv {{ if (client.ip !~ office) {{ }} else {{ return (pass); }} \
         return (synth(403)); }}"
    ));
    has(&closed, "when = \"!client.within(acl_office)\"  # vcl_recv\nanswer = \"403");
    let users = with("if (req.http.Cookie ~ \"session=\") { } else { unset req.http.Cookie; }", "");
    for route in stored(&users) {
        assert!(!route.contains("when = "), "{route}");
    }
    has(&users, "fields['cookie'].matches('session=')");
}

/// Statements behind a return were carried for all responses.
#[test]
fn what_comes_after_a_return_is_not_for_all_responses() {
    for (response, lacking) in [
        (
            "if (beresp.http.Set-Cookie) { set beresp.uncacheable = true; return (deliver); } \
             unset beresp.http.Set-Cookie;",
            "remove = \"set-cookie\"  # VCL",
        ),
        (
            "if (bereq.url ~ \"^/a/\") { if (beresp.status == 200) { return (deliver); } } \
             if (beresp.status == 200) { unset beresp.http.Set-Cookie; }",
            "remove = \"set-cookie\"",
        ),
        (
            "if (beresp.http.Cache-Control) { return (deliver); } set beresp.ttl = 1d;",
            "ttl = \"24h\"  # VCL",
        ),
        (
            "if (beresp.http.X-Lang) { return (deliver); } unset beresp.http.Vary;",
            "remove = \"vary\"  # VCL",
        ),
        (
            "if (bereq.uncacheable) { return (deliver); } if (beresp.status == 200) { unset \
             beresp.http.Cache-Control; }",
            "remove = \"cache-control\"",
        ),
        (
            "if (beresp.http.Content-Type ~ \"html\") { set beresp.http.X-No = \"1\"; } \
             if (beresp.http.X-No) { set beresp.uncacheable = true; }",
            "response['x-no']",
        ),
    ] {
        lacks(&with(ALL, response), lacking);
    }
    // Responses for which it has ended are passed, so a lifetime does not concern them.
    let passed = with(
        ALL,
        "if (beresp.status >= 500) { if (bereq.is_bgfetch) { return (abandon); } \
         set beresp.uncacheable = true; set beresp.ttl = 120s; return (deliver); } \
         if (beresp.status == 200 && (bereq.method == \"GET\" || bereq.method == \"HEAD\")) { \
         set beresp.http.X-A = \"a\"; } set beresp.ttl = 1d;",
    );
    has(&passed, "ttl = \"24h\"  # VCL");
    has(&passed, "when = \"status >= 500\"  # vcl_backend_response\nstore = false");
    let guarded = with(ALL, "if (beresp.http.X-A) { return (deliver); } set beresp.ttl = 1d;");
    has(&guarded, "when = \"response['x-a'] == ''\"  # vcl_backend_response\nttl = \"24h\"");
    // The last cell of a host and a path had the rules of all.
    let both = with(
        &format!("if (req.url ~ \"^/b/\") {{ set req.http.X-B = \"b\"; }} {ALL}"),
        "if (bereq.url ~ \"^/a/\" && beresp.http.X-Private) { set beresp.uncacheable = true; } \
         elsif (beresp.status == 404) { set beresp.ttl = 1m; }",
    );
    has(&both, "response['x-private'] != ''\"  # vcl_backend_response\nstore = false");
}

/// A condition on a URL whose query was removed was asked of the client's query.
#[test]
fn a_query_that_is_gone_is_not_asked_for() {
    let gone = with(
        "set req.url = regsub(req.url, \"\\?.*$\", \"\"); \
         if (req.url ~ \"\\.php$\") { return (synth(403)); }",
        "",
    );
    has(&gone, "when = \"path.matches(r'\\\\.php$')\"");
    // A slash, or a sign of money, is part of a query or of a path.
    let slash = with("if (req.url ~ \"/cart\") { return (pass); }", "");
    has(&slash, "path.matches('/cart') || query.matches('/cart')");
    let money = with("if (req.url ~ \"^/[$/]+secret\") { return (synth(403)); }", "");
    has(&money, "403");
}

/// Parameters were left out of the key of URLs for which the program keeps them.
#[test]
fn parameters_are_dropped_where_the_program_drops_them() {
    for recv in [
        "if (req.url ~ \"^/static/.*[?&]id=\") { set req.url = regsuball(req.url, \
         \"[?&]id=[^&]*\", \"\"); }",
        "set req.url = regsuball(req.url, \"&id=[^&]*\", \"\");",
        "set req.url = regsuball(req.url, \"[?&]id=[0-9]+\", \"\");",
    ] {
        lacks(&with(&format!("{recv} {ALL}"), ""), "query_drop");
    }
    let both = "set req.url = regsuball(req.url, \"&id=[^&]*\", \"\"); \
                set req.url = regsuball(req.url, \"\\?id=[^&]*\", \"?\");";
    has(&with(&format!("{both} {ALL}"), ""), "query_drop = [\"id\"]");
    // A text for some clients is no part of the key here.
    let agents = of(&format!(
        "sub vcl_recv {{ {ALL} }} sub vcl_hash {{ if (req.http.User-Agent ~ \"Mobile\") {{ \
         hash_data(\"mobile\"); }} }}"
    ));
    assert!(stored(&agents).is_empty(), "{}", agents.configuration);
}

/// A field that was added if it was absent counted as there after it was removed.
#[test]
fn a_default_ends_with_the_field() {
    let site = with(
        "if (!req.http.X-A) { set req.http.X-A = \"1\"; } unset req.http.X-A; \
         if (req.http.X-A) { return (hash); } return (synth(403));",
        "",
    );
    lacks(&site, "\nupstream = ");
}

/// The first substitution, and one that ends early, leave cookies that count.
#[test]
fn substitutions_that_leave_cookies_are_not_filters() {
    for value in [
        "regsub(req.http.Cookie, \"_ga=[^;]+\", \"\")",
        "regsuball(req.http.Cookie, \"session=.*?;?\", \"\")",
    ] {
        let recv = format!(
            "set req.http.Cookie = {value}; if (req.http.Cookie == \"\") {{ \
             unset req.http.Cookie; }}"
        );
        let site = with(&recv, "");
        for route in stored(&site) {
            // Requests with cookies are passed before.
            assert!(!route.contains("when = "), "{route}");
            has(&site, "'cookie' in fields");
        }
    }
    // Only what vcl_recv removes lets the built-in program use the store.
    let late =
        of("sub vcl_backend_fetch { unset bereq.http.Cookie; unset bereq.http.Authorization; }");
    has(&late, "'cookie' in fields || 'authorization' in fields");
}

/// In Varnish 3, the subroutine for stored responses decides who may purge.
#[test]
fn a_purge_of_varnish_3_is_guarded_where_it_is() {
    let guarded = "backend default { .host = \"127.0.0.1\"; .port = \"8001\"; }\n\
                   acl inside { \"10.0.0.0\"/8; }\n\
                   sub vcl_recv { if (req.request == \"PURGE\") { return (lookup); } }\n\
                   sub vcl_hit { if (req.request == \"PURGE\") { if (!client.ip ~ inside) { \
                   error 405 \"no\"; } purge; error 200 \"gone\"; } }\n";
    has(&imported(guarded), "from = [\"10.0.0.0/8\"]");
    let open = guarded.replace("if (!client.ip ~ inside) { error 405 \"no\"; }", "");
    has(&imported(&open), "from = [\"0.0.0.0/0\", \"::/0\"]");
}

/// The server refused routes that are never taken, and conditions that are too long.
#[test]
fn odd_programs_become_files_that_the_server_takes() {
    with(
        "if (req.http.X-A == \"1\" && req.http.X-C == \"1\") { if (req.http.X-C == \"1\") { \
         return (synth(467)); } return (synth(469)); }",
        "",
    );
    let long: String = (0..39)
        .map(|at| {
            let text = format!("{at}").repeat(60);
            format!("if (req.http.User-Agent ~ \"{text}\") {{ return (pass); }}\n")
        })
        .collect();
    with(&long, "");
    let branches: String = (0..200)
        .map(|at| format!("if (beresp.http.X-{at}) {{ set beresp.ttl = 1m; return (deliver); }}\n"))
        .collect();
    with(ALL, &branches);
    let arms: String = (0..3000)
        .map(|at| format!("elsif (beresp.http.X-{at}) {{ return (deliver); }}\n"))
        .collect();
    with(ALL, &format!("if (beresp.http.X) {{ return (deliver); }} {arms}"));
}
