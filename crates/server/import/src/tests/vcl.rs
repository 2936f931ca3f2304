//! Files of VCL, and what becomes of them. Each imported file is read by the server's own reader.

use crate::tests::{fate, has, lacks, why};
use crate::{Fate, Imported, Options, Source};

fn imported(text: &str, open: bool) -> Imported {
    crate::tests::imported(Source::Vcl, "default.vcl", text, open)
}

fn left(imported: &Imported) -> Vec<(usize, Fate)> {
    let notes = imported.notes.iter().filter(|note| note.fate >= Fate::NotCarried);
    notes.map(|note| (note.line, note.fate)).collect()
}

/// Two backends, and this in `vcl_recv`, after what names a client is removed.
fn recv(inside: &str) -> String {
    format!(
        "vcl 4.1; backend default {{ .host = \"127.0.0.1\"; .port = \"8001\"; }}\n\
         backend api {{ .host = \"127.0.0.1\"; .port = \"8002\"; }}\n\
         sub vcl_backend_response {{ unset beresp.http.Set-Cookie; }} \
         sub vcl_recv {{ unset req.http.Cookie; unset req.http.Authorization; {inside} }}\n"
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
        "if (client.ip !~ named) { return (synth(403, \"no\")); }",
        "if (std.ip(req.http.X-A, \"0.0.0.0\") ~ named) { return (synth(403)); }",
        "if (req.http.User-Agent ~ \"(?!good)bot\") { return (synth(403)); }",
        "call missing;",
        "if (req.url ~ \"^/a.*/admin/\") { return (synth(403)); }",
        "if (req.http.X-Forwarded-For ~ \"^10\") { return (synth(401)); }",
        "return (vcl(other));",
    ] {
        let text = recv(rule) + "acl named { \"office.example\"; }\n";
        let closed = imported(&text, false);
        lacks(&closed, "\nupstream = ");
        has(&closed, "# upstream = \"default\"");
        has(&imported(&text, true), "\nupstream = \"default\"");
    }
    // A redirect to another address refuses nothing, and one by what a client is does.
    let unknown = |name: &str| format!("req.http.{name} ~ \"(?=x)x\"");
    let of = |condition: &str, status: u16| {
        imported(
            &recv(&format!("if ({condition}) {{ return (synth({status}, \"https://a\")); }}")),
            false,
        )
    };
    let proto = unknown("X-Forwarded-Proto");
    has(&of(&proto, 301), "\nupstream = \"default\"");
    for condition in [unknown("X-User"), format!("{proto} || {}", unknown("X-A"))] {
        lacks(&of(&condition, 302), "\nupstream = ");
        lacks(&of(&condition, 200), "\nupstream = ");
    }
    let inner = "if (req.http.Host ~ \"(?=x)x\") { if (req.http.X-A) { return (synth(302)); } }";
    lacks(&imported(&recv(inner), false), "\nupstream = ");
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
        recv("if (req.http.X-Key ~ \"(?=x)x\") { return (pass); }"),
        recv("") + "sub vcl_hash { hash_data(req.http.Authorization); }\n",
        recv("")
            + "sub vcl_backend_response { if (beresp.status == 200) { \
                    set beresp.uncacheable = true; } }\n",
        recv("set req.url = regsub(req.url, \"a\", \"b\");"),
    ] {
        // `--open` is about access, not about who shares responses.
        assert!(!stores(&text, false) && !stores(&text, true), "{text}");
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
    has(&imported, "ttl = \"1h\"  # VCL\noverrule = true");
    assert_eq!(left(&imported), [], "{:#?}", imported.notes);
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
                sub vcl_recv { unset req.http.Cookie; unset req.http.Authorization; \
                set req.backend_hint = d.backend(); }\n\
                sub vcl_backend_response { unset beresp.http.Set-Cookie; }\n";
    let imported = imported(text, false);
    for part in
        ["backup = true", "path = \"/up\"", "rise = 3", "connect = \"1s\"", "upstream = \"d\""]
    {
        has(&imported, part);
    }
    assert_eq!(left(&imported), [], "{:#?}", imported.notes);
}

/// Such a program stored nothing.
#[test]
fn requests_of_clients_that_identify_themselves_are_passed_by_a_rule() {
    let text = "vcl 4.1;\nbackend default { .host = \"127.0.0.1\"; .port = \"8080\"; }\n\
                sub vcl_recv { }\nsub vcl_backend_response { }\nsub vcl_deliver { }\n";
    let all = imported(text, false);
    let rule = "when = \"'cookie' in fields || 'authorization' in fields\"  # built-in vcl_recv\n\
                store = false";
    has(&all, rule);
    assert!(!route(&all, "prefix = \"/\"").contains("store = false"));
    assert_eq!(left(&all), []);
    // One field is removed on some paths, so the rule is for the other field.
    let some = "sub vcl_recv { if (req.url ~ \"^/static/\") { unset req.http.Cookie; } }";
    let some = imported(&text.replace("sub vcl_recv { }", some), false);
    lacks(&some, "[[rule]]");
    let route = |has| route(&some, has);
    let own = "prefix = \"/static/\"  # vcl_recv\nwhen = \"'authorization' in fields\"";
    assert!(route(own).contains("store = false") && route(own).contains("remove = \"cookie\""));
    let both = "when = \"!(method in ['GET', 'HEAD']) || 'cookie' in fields || 'authorization'";
    assert!(route(both).contains("store = false"));
    assert!(!route("prefix = \"/static/\"  # vcl_recv\nupstream").contains("store = false"));
}

/// Conditions that follow each other have few cases, and conditions that do not end have many.
#[test]
fn more_cases_than_fit_are_not_asked() {
    let rules = |body: &str| -> String {
        (0..10).map(|at| format!("if (req.http.X-{at}) {{ {body} }}\n")).collect()
    };
    let ends = imported(&recv(&rules("return (synth(403));")), false);
    assert_eq!(ends.configuration.matches("when = ").count(), 1, "{}", ends.configuration);
    assert_eq!(left(&ends), []);
    let many = imported(&recv(&rules("set req.http.X-Y = req.http.X-Y + \"a\";")), false);
    assert!(many.configuration.matches("when = ").count() <= 16);
    assert!(many.has_left());
    // What the methods have in common has no condition on the method.
    let early = "if (req.http.X-A) { return (synth(403)); } \
                 if (req.method == \"PUT\") { return (synth(405)); }";
    let common = imported(&recv(early), false);
    has(&common, "when = \"'x-a' in fields\"");
    has(&common, "when = \"method == 'PUT'\"");
    assert_eq!(common.configuration.matches("when = ").count(), 2);
}

/// The usual program: cookies of statistics are removed, and those of a session pass the request.
#[test]
fn requests_without_cookies_are_stored_whatever_becomes_of_cookies() {
    for inside in [
        "if (req.http.Cookie) {\n\
         set req.http.Cookie = regsuball(req.http.Cookie, \"_ga=[^;]+(; )?\", \"\");\n\
         if (req.http.Cookie == \"\") { unset req.http.Cookie; } }",
        "set req.http.Cookie = regsuball(req.http.Cookie, \"_ga=[^;]+(; )?\", \"\");\n\
         if (req.http.Cookie ~ \"^\\s*$\") { unset req.http.Cookie; }",
    ] {
        let text = recv(inside)
            .replace("unset req.http.Cookie; unset req.http.Auth", "unset req.http.Auth");
        let imported = imported(&text, false);
        let with = "!fields['cookie'].matches(r'^[;\\\\s]*((_ga)=[^;]*[;\\\\s]*)*$')\"  \
                    # vcl_recv\nupstream = \"default\"";
        assert!(route(&imported, with).contains("store = false"));
        let without = route(&imported, "prefix = \"/\"  # vcl_recv\nupstream = \"default\"");
        assert!(!without.contains("store = false"), "{without}");
        // A request that is passed has these cookies, too.
        assert_eq!(fate(&imported, "set req.http.Cookie = regsuball"), Fate::Different);
    }
    // Without the last statement, an empty field is left, and Varnish passes such requests.
    let kept = "set req.http.Cookie = regsuball(req.http.Cookie, \"_ga=[^;]+\", \"\");";
    let kept = recv(kept).replace("unset req.http.Cookie; unset", "unset");
    let kept = imported(&kept, false);
    assert!(
        !kept
            .configuration
            .contains("prefix = \"/\"  # vcl_recv\nupstream = \"default\"  # vcl_recv\n\n")
    );
    // A session by its cookie, inside a condition.
    let session = "if (req.http.Cookie) { if (req.http.Cookie ~ \"(^|; )sid=\") { return (pass); } \
                   unset req.http.Cookie; }";
    let session = recv(session).replace("unset req.http.Cookie; unset", "unset");
    let session = imported(&session, false);
    has(&session, "bypass_cookies = [\"sid\"]");
    lacks(&session, "when = ");
    assert_eq!(left(&session), []);
}

#[test]
fn what_is_not_known_for_a_cell_is_a_condition() {
    for (rule, when) in [
        ("if (client.ip !~ inside) { return (synth(403)); }", "!client.within(acl_inside)"),
        (
            "if (req.http.User-Agent ~ \"bot\") { return (synth(403)); }",
            "fields['user-agent'].matches('bot')",
        ),
        ("if (req.method == \"POST\") { return (synth(403)); }", "method == 'POST'"),
        (
            "if (req.method != \"GET\" && req.method != \"HEAD\") { return (synth(403)); }",
            "method != 'GET'",
        ),
        (
            "if (req.url ~ \"(?i)^/admin/\") { return (synth(403)); }",
            "path.matches('(?i)^/admin/')",
        ),
        (
            "if (req.url ~ \"\\.(bak|sql)(\\?.*)?$\") { return (synth(403)); }",
            "path.matches(r'\\.(bak|sql)$') || query.matches(r'\\.(bak|sql)(\\?|$)')",
        ),
        ("if (!req.http.X-Key) { return (synth(403)); }", "!('x-key' in fields)"),
        (
            "if (req.http.X-A == \"a\" && (req.http.X-B || req.url ~ \"[?&]c=\")) \
             { return (synth(403)); }",
            "fields['x-a'] == 'a' && ('x-b' in fields || query.matches('(^|[?&])c=') || \
             path.matches('&c='))",
        ),
    ] {
        let list = if rule.contains("inside") { "acl inside { \"10.0.0.0\"/8; }\n" } else { "" };
        let carried = imported(&(recv(rule) + list), false);
        let when = if rule.contains("HEAD") { "!(method in ['GET', 'HEAD'])" } else { when };
        has(
            &carried,
            &format!(
                "when = \"{}\"  # vcl_recv\nanswer = \"403\\n\"",
                when.replace('\\', "\\\\").replace("\\\\\\\\", "\\\\")
            ),
        );
        has(&carried, "\nupstream = \"default\"");
        let list = when.contains("acl_inside");
        assert_eq!(carried.configuration.contains("[[list]]"), list);
        assert_eq!(
            left(&carried).is_empty(),
            list || !rule.contains("inside"),
            "{:#?}",
            carried.notes
        );
    }
}

#[test]
fn a_client_of_another_scheme_is_redirected_by_a_condition() {
    let text = recv(
        "if (req.http.X-Forwarded-Proto != \"https\") {\n\
         return (synth(750, \"https://\" + req.http.host + req.url)); }",
    ) + "sub vcl_synth { if (resp.status == 750) { set resp.http.Location = resp.reason; \
         set resp.status = 301; return (deliver); } }\n";
    let imported = imported(&text, false);
    has(
        &imported,
        "when = \"fields['x-forwarded-proto'] != 'https'\"  # vcl_recv\n\
         redirect = \"https://{host}\"  # vcl_recv\nwith_path = true",
    );
    has(&imported, "\nupstream = \"default\"");
}

/// The conditions of a program are tried in its order, and inside each other.
#[test]
fn cases_are_in_the_order_of_the_program() {
    let text = recv(
        "if (req.http.X-A) {\n\
           if (req.http.X-B) { set req.backend_hint = api; return (pass); }\n\
           return (pass); }\n\
         elsif (req.http.X-C) { set req.http.X-D = \"d\"; }\n\
         if (req.http.X-A && req.http.X-E) { return (synth(403)); }",
    );
    let imported = imported(&text, false);
    let whens: Vec<&str> =
        imported.configuration.lines().filter(|line| line.starts_with("when = ")).collect();
    let when = |text: &str| format!("when = \"{text}\"  # vcl_recv");
    assert_eq!(
        whens,
        [
            when("'x-a' in fields && 'x-b' in fields"),
            when("'x-a' in fields"),
            when("'x-c' in fields"),
        ]
    );
    assert!(route(&imported, "'x-c' in fields").contains("value = \"d\""));
    // What depends on a field is not stored.
    // The last branch is never reached.
    assert_eq!(left(&imported), [(3, Fate::NotCarried), (7, Fate::NotCarried)]);
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

/// A file of the fuzz target's corpus.
macro_rules! corpus {
    ($name:literal) => {
        include_str!(concat!("../../../../../tools/fuzz/corpus/import_vcl/", $name))
    };
}

/// The text of the route that has this, up to the next route.
fn route<'t>(imported: &'t Imported, has: &str) -> &'t str {
    let text = &imported.configuration;
    let (_, rest) = text.split_once(has).unwrap_or_else(|| panic!("no {has} in {text}"));
    rest.split("[[route]]").next().unwrap_or(rest)
}

#[test]
fn a_purge_that_something_else_guards_is_closed() {
    let texts =
        [corpus!("purge_behind_field"), corpus!("purge_behind_key"), corpus!("purge_and_key")];
    for text in texts {
        for open in [false, true] {
            let imported = imported(text, open);
            has(&imported, "[purge]\nfrom = []");
            assert_eq!(fate(&imported, "PURGE"), Fate::Unprotected);
        }
    }
    // One path refuses it.
    let text = "if (req.method == \"PURGE\") { if (req.url ~ \"^/protected/\") { \
                return (synth(405)); } return (purge); }";
    has(&imported(&recv(text), false), "[purge]\nfrom = []");
}

#[test]
fn a_field_that_is_replaced_is_not_the_clients() {
    let of = |text: &str| imported(text, false);
    let removed = |imported: &Imported, name: &str| {
        has(imported, &format!("remove = \"{name}\""));
    };
    has(&of(corpus!("late_answers")), "set = \"x-real-ip\"  # VCL\nvalue = \"{client}\"");
    removed(&of(&corpus!("passed").replace("synth(401)", "pass")), "x-remote-user");
    let branch = of(&recv("if (req.http.X-A ~ \"(?=b)b\") { set req.http.X-Role = \"admin\"; }"));
    removed(&branch, "x-role");
    let twice = of(&recv("set req.http.X-A = req.http.X-B; if (!req.http.X-A) { return (pass); }"));
    assert_eq!(fate(&twice, "if (! req.http.X-A)"), Fate::NotCarried);
    // Ours would be appended to the client's.
    let replaced = of(&recv("set req.http.X-Forwarded-For = client.ip;"));
    has(&replaced, "set = \"x-forwarded-for\"  # VCL\nvalue = \"{client}\"");
    lacks(&replaced, "\nforwarded = ");
    let added = of(&recv(
        "if (req.http.X-Forwarded-For) { \
         set req.http.X-Forwarded-For = req.http.X-Forwarded-For + \", \" + client.ip; } \
         else { set req.http.X-Forwarded-For = client.ip; }",
    ));
    has(&added, "forwarded = ");
    lacks(&added, "x-forwarded-for");
    lacks(&added, "store = false");
}

#[test]
fn what_is_part_of_the_key_is_exactly_one_name() {
    let text = corpus!("keys_and_methods").replace("if (req.http.Auth", "if (req.http.X-Auth");
    let imported = imported(&text, false);
    has(&imported, "store = false");
    assert_eq!(fate(&imported, "hash_data(req.url +"), Fate::NotCarried);
    let key = |text: &str| recv("") + &format!("sub vcl_hash {{ hash_data({text}); }}\n");
    has(&self::imported(&key("req.http.host + req.http.Cookie"), false), "store = false");
    lacks(&self::imported(&key("req.http.host"), false), "store = false");
}

#[test]
fn a_route_does_what_is_safe_for_all_methods() {
    // Requests of one method go to another backend.
    let other = imported(corpus!("keys_and_methods"), false);
    let post = route(&other, "when = \"method == 'POST'\"");
    assert!(post.contains("\nupstream = \"write\""), "{post}");
    assert_eq!(fate(&other, "set req.backend_hint = write"), Fate::Carried);
    // Cookies are removed from those of some methods.
    let early = "if (req.method != \"GET\" && req.method != \"HEAD\") { return (pass); }";
    let program =
        recv("").replace("{ unset req.http.Cookie;", &format!("{{ {early} unset req.http.Cookie;"));
    let some = imported(&program, false);
    let others = route(&some, "when = \"!(method in ['GET', 'HEAD'])\"");
    assert!(!others.contains("remove = \"cookie\"") && others.contains("store = false"));
    let get = route(&some, "prefix = \"/\"  # vcl_recv\nupstream");
    assert!(get.contains("remove = \"cookie\"") && !get.contains("store = false"));
    assert_eq!(left(&some), []);
    // Those of all: the usual program in the other order.
    let all = imported(&recv(early), false);
    has(&all, "remove = \"cookie\"");
    lacks(&all, "store = false");
    let post =
        imported(&recv("if (req.method == \"POST\") { return (synth(200, \"ok\")); }"), false);
    has(&post, "when = \"method == 'POST'\"  # vcl_recv\nanswer = \"ok\\n\"");
    let head = imported(&recv("if (req.method == \"HEAD\") { return (pass); }"), false);
    assert!(route(&head, "when = \"method == 'HEAD'\"").contains("store = false"));
    // A field of the client that only some methods keep.
    let field = imported(&recv("if (req.method != \"POST\") { unset req.http.X-Role; }"), false);
    assert!(!route(&field, "when = \"method == 'POST'\"").contains("remove = \"x-role\""));
    has(&field, "remove = \"x-role\"");
}

#[test]
fn what_comes_after_an_unknown_end_is_in_doubt() {
    let text = corpus!("unknown_director").replace("Cookie ~ \"", "X ~ \"(?=s)");
    let imported = imported(&text, false);
    lacks(&imported, "remove = \"cookie\"");
    has(&imported, "store = false");
    assert_eq!(fate(&imported, "unset req.http.Cookie"), Fate::NotCarried);
    let end = "if (req.http.X ~ \"(?=y)y\") { return (hash); }";
    let backend = self::imported(&recv(&format!("{end} set req.backend_hint = api;")), false);
    lacks(&backend, "\nupstream = ");
    let field = self::imported(&recv(&format!("{end} set req.http.X-Role = \"user\";")), false);
    has(&field, "remove = \"x-role\"");
    let branch = "if (req.http.X ~ \"(?=y)y\") { set req.backend_hint = api; }";
    lacks(&self::imported(&recv(branch), false), "\nupstream = ");
}

#[test]
fn responses_to_authorized_requests_are_not_shared() {
    let text = recv("").replace("unset req.http.Authorization; ", "");
    for rule in ["if (req.http.Authorization) { return (pass); }", ""] {
        let text =
            text.replace("unset req.http.Cookie;", &format!("unset req.http.Cookie; {rule}"));
        has(&imported(&text, false), "store = false");
    }
    lacks(&imported(&recv(""), false), "store = false");
}

#[test]
fn a_response_with_a_cookie_is_not_shared() {
    let text = recv("").replace("unset beresp.http.Set-Cookie;", "");
    for open in [false, true] {
        // The route's own rule is that such a response is for one client.
        let imported = imported(&text, open);
        lacks(&imported, "store = false");
        lacks(&imported, "set_cookie");
    }
}

#[test]
fn a_late_answer_closes() {
    for text in [corpus!("late_answers"), corpus!("passed")] {
        let imported = imported(text, false);
        lacks(&imported, "prefix = \"/private/\"  # vcl_recv\nupstream = ");
        assert!(imported.notes.iter().any(|note| note.fate == Fate::Unprotected));
    }
    let late = imported(corpus!("late_answers"), false);
    for path in ["/private/", "/nomiss/"] {
        let route = route(&late, &format!("prefix = \"{path}\""));
        assert!(!route.contains("\nupstream = "), "{route}");
    }
    for sub in ["vcl_pass", "vcl_miss", "vcl_hit", "vcl_hash", "vcl_deliver"] {
        let text = recv("") + &format!("sub {sub} {{ return (synth(403)); }}\n");
        lacks(&imported(&text, false), "\nupstream = ");
    }
}

#[test]
fn a_backend_that_is_no_upstream_is_not_replaced() {
    let none = imported(corpus!("late_answers"), false);
    let any = none.configuration.split("[[route]]").find(|part| !part.contains("hosts = "));
    assert!(any.is_some() && !none.configuration.contains("\"default\""));
    assert!(route(&none, "[[route]]\nprefix = \"/\"").contains("status = 501"));
    let unknown = imported(corpus!("unknown_director"), false);
    assert!(route(&unknown, "hosts = [\"api.example.org\"]").contains("status = 501"));
    assert_eq!(fate(&unknown, "set req.backend_hint = d.backend("), Fate::NotCarried);
}

#[test]
fn what_is_not_known_here_closes() {
    for rule in [
        "jwt.verify(req.http.X);",
        "set req.method = \"GET\";",
        "set req.url = \"/denied\";",
        "set req.http.Host = req.http.X;",
        "if (req.http.X ~ \"(?=x)x\") { jwt.verify(req.http.X); }",
        "if (req.http.X ~ \"(?=x)x\") { return (restart); }",
    ] {
        lacks(&imported(&recv(rule), false), "\nupstream = ");
    }
    for rule in [
        "std.log(\"x\");",
        "set req.grace = 1h;",
        "set req.http.Host = regsub(req.http.Host, \":[0-9]+\", \"\");",
        "set req.http.host = std.tolower(req.http.host);",
    ] {
        let imported = imported(&recv(rule), false);
        has(&imported, "\nupstream = ");
        lacks(&imported, "store = false");
    }
    // A path that was written otherwise is not compared.
    let text = "set req.url = regsub(req.url, \"a\", \"b\"); \
                if (req.url ~ \"^/admin/\") { return (synth(403)); }";
    lacks(&imported(&recv(text), false), "\nupstream = ");
}

#[test]
fn keys_lifetimes_and_bypasses() {
    let text = "vcl 4.1; import std; import cookie;\n\
                backend default { .host = \"127.0.0.1\"; .port = \"1\"; }\n\
                sub vcl_recv { unset req.http.Authorization;\n\
                cookie.parse(req.http.Cookie);\n\
                set req.http.X-Currency = cookie.get(\"currency\");\n\
                if (req.http.Cookie ~ \"(^|;\\s*)session[^=]*=\") { return (pass); }\n\
                unset req.http.Cookie;\n\
                set req.url = \
                regsuball(req.url, \"([?&])(utm_[^=&]*|fbclid)(=[^&]*)?\", \"\\1\");\n\
                set req.url = regsuball(req.url, \"&&+\", \"&\");\n\
                set req.url = std.querysort(req.url); }\n\
                sub vcl_hash { hash_data(req.http.X-Currency); hash_data(req.http.X-Country); }\n\
                sub vcl_backend_response { unset beresp.http.Set-Cookie;\n\
                set beresp.do_gzip = true; set beresp.grace = 1h;\n\
                if (beresp.http.Content-Type ~ \"^(image/|text/css)\") { set beresp.ttl = 1d; }\n\
                elsif (beresp.status == 404 || beresp.status == 410) { set beresp.ttl = 10s; }\n\
                if (bereq.url ~ \"^/news/\") { set beresp.ttl = 1m; } }\n";
    let imported = imported(text, false);
    assert_eq!(left(&imported), [], "{:#?}", imported.notes);
    let root = route(&imported, "prefix = \"/\"");
    for part in [
        "query = \"sort\"",
        "query_drop = [\"utm_*\", \"fbclid\"]",
        "key_cookies = [\"currency\"]",
        "cookies_sent = \"key\"",
        "key_fields = [\"x-country\"]",
        "bypass_cookies = [\"session*\"]",
        "content_type = [\"image/*\", \"text/css\"]  # VCL\nttl = \"24h\"  # VCL\ngrace = \"1h\"",
        "status = [\"404\", \"410\"]  # VCL\nttl = \"10s\"",
    ] {
        assert!(root.contains(part), "{part}: {root}");
    }
    assert_eq!(route(&imported, "prefix = \"/news/\"").matches("ttl = \"1m\"").count(), 3);
    has(&imported, "codings = [\"gzip\"]");
    // Devices, and a value of a cookie that is not one cookie's.
    let device = "if (req.http.User-Agent ~ \"Mobi\") { set req.http.X-Device = \"m\"; }";
    for other in [
        text.replace("set req.url = std.query", &format!("{device} set req.url = std.query")),
        text.replace("session[^=]*=", "a|b"),
    ] {
        has(&self::imported(&other, false), "store = false");
    }
}

#[test]
fn a_rate_that_is_not_carried_closes() {
    let rule = "if (vsthrottle.is_denied(client.identity, 15, 10s)) { return (synth(429)); }";
    let some = imported(&recv(&format!("if (req.url ~ \"^/a/\") {{ {rule} }}")), false);
    lacks(&some, "[[quota]]");
    assert!(!route(&some, "prefix = \"/a/\"").contains("\nupstream = "));
    assert!(why(&some, "if (vsthrottle").contains("[[quota]]"));
}

#[test]
fn what_is_never_fresh_is_never_served_stale() {
    let respond = |inside: &str| recv("").replace("Set-Cookie;", &format!("Set-Cookie; {inside}"));
    for inside in [
        "set beresp.grace = 1h; if (beresp.status >= 500) { set beresp.uncacheable = true; }",
        "set beresp.grace = 1h; if (beresp.status == 404) { set beresp.ttl = 0s; }",
        "if (beresp.status >= 500) { set beresp.ttl = 0s; } set beresp.grace = 1h;",
    ] {
        let imported = imported(&respond(inside), false);
        let part = "ttl = \"0s\"  # VCL\ngrace = \"0s\"  # VCL\nerror_grace = \"0s\"";
        has(&imported, part);
        has(&imported, "grace = \"1h\"");
    }
}

#[test]
fn a_redirect_with_captures_differs_by_its_query() {
    let text = recv(
        "if (req.url ~ \"^/old/(.*)\") {\n\
         return (synth(720, \"/new/\" + regsub(req.url, \"^/old/(.*)\", \"\\1\"))); }",
    ) + "sub vcl_synth { if (resp.status == 720) { set resp.http.Location = resp.reason; \
         set resp.status = 301; return (deliver); } }\n";
    let imported = imported(&text, false);
    has(&imported, "redirect = \"/new/{*}\"");
    assert_eq!(fate(&imported, "return(synth(720"), Fate::Different);
}

#[test]
fn captures_of_hosts_and_paths() {
    let text = recv(
        "if (req.http.Host ~ \"^([^.]+)\\.old\\.example$\" && req.url ~ \"^/([^/]+)/shop/\") {\n\
         return (synth(751, \"https://\" + regsub(req.http.Host, \"\\..*\", \"\") + \".example/\" + \
         regsub(req.url, \"^/[^/]+/shop/\", \"\") + \"?l=\" + \
         regsub(req.url, \"^/([^/]+)/.*\", \"\\1\"))); }\n\
         if (req.url ~ \"^/([^/]+)/api/\") {\n\
         set req.http.X-L = regsub(req.url, \"^/([^/]+)/.*\", \"\\1\"); }",
    ) + "sub vcl_synth { if (resp.status == 751) { set resp.http.Location = resp.reason; \
         set resp.status = 301; return (deliver); } }\n";
    let imported = imported(&text, false);
    has(&imported, "redirect = \"https://{h}.example/{*}?l={c1}\"");
    assert!(route(&imported, "path = \"/{c1}/api/*\"").contains("value = \"{c1}\""));
    assert_eq!(left(&imported), [], "{:#?}", imported.notes);
    let host = text.replace("\"https://\" + regsub(req.http.Host", "\"//\" + regsub(req.http.Host");
    lacks(&self::imported(&host, false), "redirect = ");
}

#[test]
fn a_parameter_that_is_left_out_by_a_wider_pattern_is_a_difference() {
    let of = |function: &str, name: &str| {
        let value = format!("{function}(req.url, \"([?&])({name})=[^&]*\", \"\\1\")");
        let imported = imported(&recv(&format!("set req.url = {value};")), false);
        has(&imported, "query_drop = [");
        fate(&imported, "set req.url")
    };
    assert_eq!(of("regsuball", "gclid"), Fate::Carried);
    assert_eq!(of("regsub", "gclid"), Fate::Different);
    assert_eq!(of("regsuball", "utm_[a-z]+"), Fate::Different);
}

/// Programs that keep responses out of the store in other ways.
#[test]
fn what_varnish_does_not_store_is_not_stored() {
    let respond = |inside: &str| recv("") + &format!("sub vcl_backend_response {{ {inside} }}\n");
    for text in [
        recv("set req.hash_always_miss = true;"),
        respond("set beresp.ttl = -1s;"),
        respond("set beresp.ttl = std.duration(beresp.http.X-TTL, 0s);"),
        respond("unset beresp.http.Cache-Control;"),
        respond("set beresp.http.Cache-Control = \"max-age=600\";"),
        respond("unset beresp.http.Expires;"),
    ] {
        has(&imported(&text, false), "store = false");
    }
    let known = respond("unset beresp.http.Cache-Control; set beresp.ttl = 1h;");
    lacks(&imported(&known, false), "store = false");
}

/// A path in the middle of a segment was not known, and what it refuses closed everything.
#[test]
fn a_path_inside_a_segment_is_a_route() {
    let text = recv(
        "if (req.url ~ \"^/adm\") { return (synth(403, \"no\")); }\n\
                     if (req.url ~ \"^/admin/ok/\") { return (pass); }",
    );
    let imported = imported(&text, false);
    has(&imported, "path = \"/adm*\"  # vcl_recv\nanswer = \"no\\n\"");
    assert!(route(&imported, "prefix = \"/\"").contains("\nupstream = "));
    lacks(&imported, "\"/admin/ok/\"");
}

/// The field was taken away before the store had read it.
#[test]
fn a_field_for_the_store_is_taken_from_clients_alone() {
    let deliver =
        |name: &str| recv("") + &format!("sub vcl_deliver {{ unset resp.http.{name}; }}\n");
    for name in ["Surrogate-Control", "X-Accel-Expires"] {
        let imported = imported(&deliver(name), false);
        lacks(&imported, &format!("remove = \"{}\"", name.to_ascii_lowercase()));
        assert_eq!(fate(&imported, &format!("unset resp.http.{name}")), Fate::NotCarried);
    }
    let tags = imported(&deliver("Surrogate-Key"), false);
    lacks(&tags, "remove = \"surrogate-key\"");
    assert!(!tags.has_left(), "{:#?}", tags.notes);
}

/// `abandon` was treated like `pass`: a page that Varnish keeps from all clients was sent.
#[test]
fn a_response_that_is_kept_from_clients_closes() {
    let of = |sub: &str, inside: &str| {
        recv("").replace("sub vcl_backend_response", "sub vcl_unused")
            + &format!("sub {sub} {{ {inside} }}\n")
    };
    for action in [
        "return (abandon);",
        "return (retry);",
        "return (fail);",
        "return (fail(\"no\"));",
        "return (error);",
        "return (error(403, \"no\"));",
        "set beresp.status = 403;",
        "set beresp.status = 503; unset beresp.http.X-Internal;",
        "set beresp.status = beresp.status + 200;",
        "set beresp.status = 302; set beresp.http.Location = \"/login\";",
    ] {
        for condition in [
            "beresp.http.X-Internal == \"1\"",
            "beresp.status == 404 || beresp.http.X-Internal",
            "!bereq.is_bgfetch",
            "bereq.is_bgfetch || beresp.http.X-Internal",
        ] {
            let text = of("vcl_backend_response", &format!("if ({condition}) {{ {action} }}"));
            let closed = imported(&text, false);
            lacks(&closed, "\nupstream = ");
            assert!(left(&closed).iter().any(|(_, fate)| *fate == Fate::Unprotected), "{text}");
            has(&imported(&text, true), "\nupstream = \"default\"");
        }
    }
    for (sub, inside) in [
        ("vcl_backend_response", "return (abandon);"),
        ("vcl_backend_response", "set beresp.status = 403;"),
        ("vcl_deliver", "if (req.http.X-A) { set resp.status = 403; }"),
        ("vcl_deliver", "if (resp.http.X-A) { if (req.http.X-B) { set resp.status = 302; } }"),
        ("vcl_deliver", "set resp.status = 503;"),
        ("vcl_deliver", "if (obj.hits > 9) { set resp.status = 429; }"),
    ] {
        lacks(&imported(&of(sub, inside), false), "\nupstream = ");
    }
    let some = of("vcl_backend_fetch", "if (bereq.http.X-A) { return (abandon); }");
    let some = imported(&some, false);
    assert!(route(&some, "when = \"'x-a' in fields\"").contains("answer = \"closed by plimsoll"));
    // No client waits for these, or a client gets an error in both.
    for (sub, inside) in [
        (
            "vcl_backend_response",
            "if (beresp.status >= 500 && bereq.is_bgfetch) { return (abandon); }",
        ),
        (
            "vcl_backend_response",
            "if (beresp.status >= 500) { if (bereq.is_bgfetch) { return (abandon); } }",
        ),
        ("vcl_backend_response", "if (beresp.status == 503) { return (retry); }"),
        ("vcl_backend_response", "if (beresp.status > 499) { set beresp.status = 503; }"),
        ("vcl_backend_response", "if (beresp.http.X-A) { set beresp.status = 200; }"),
        ("vcl_deliver", "if (obj.hits > 0) { set resp.http.X-Cache = \"HIT\"; }"),
    ] {
        has(&imported(&of(sub, inside), false), "\nupstream = \"default\"");
    }
}

/// The condition of the first arm decided about all arms.
#[test]
fn each_arm_of_a_branch_has_its_own_condition() {
    let text = recv(
        "if (req.http.X-Forwarded-Proto ~ \"(?=x)x\") { return (synth(301, \"https://a\")); }\n\
         elsif (!req.http.X-User) { return (synth(302, \"/login\")); }",
    );
    lacks(&imported(&text, false), "\nupstream = ");
}

/// The text was sent beside the server's own value.
#[test]
fn a_forwarded_field_with_a_text_has_one_value() {
    let text = imported(&recv("set req.http.X-Forwarded-Proto = \"https\";"), false);
    has(&text, "forwarded = \"x_forwarded_for\"");
    has(&text, "value = \"https\"");
    assert_eq!(fate(&text, "set req.http.X-Forwarded-Proto"), Fate::Carried);
    let removed = imported(&recv("unset req.http.X-Forwarded-Host;"), false);
    assert_eq!(fate(&removed, "unset req.http.X-Forwarded-Host"), Fate::Carried);
    has(&removed, "remove = \"x-forwarded-host\"");
}

/// A port behind the host was taken for a part of it, and the server refused the imported file.
#[test]
fn a_host_may_have_its_port() {
    for (fields, url) in [
        (".host = \"web:8080\";", "http://web:8080"),
        (".host = \"[::1]:81\";", "http://[::1]:81"),
        (".host = \"::1\";", "http://[::1]:80"),
        (".host = \"web\"; .port = \"8080\";", "http://web:8080"),
    ] {
        let text = format!("vcl 4.1; backend a {{ {fields} }}\n");
        has(&imported(&text, false), &format!("url = \"{url}\""));
    }
}

/// A host in brackets got a second pair of brackets, and the server refused the imported file.
#[test]
fn an_address_in_brackets_has_one_pair_of_brackets() {
    for host in ["::1", "[::1]"] {
        let text = format!("vcl 4.1; backend a {{ .host = \"{host}\"; .port = \"80\"; }}\n");
        has(&imported(&text, false), "url = \"http://[::1]:80\"");
    }
}
