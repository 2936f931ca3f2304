//! What Caddyfiles become.

use super::{fate, has, imported, lacks, why};
use crate::{Fate, Imported, Options, Source};

fn caddy(text: &str) -> Imported {
    imported(Source::Caddy, "Caddyfile", text, false)
}

/// A site with these lines, alone on its port.
fn site(lines: &str) -> Imported {
    caddy(&format!("http://a.test:8080 {{\n{lines}\n}}\n"))
}

/// The conditions of the routes, each with where it leads.
fn routes(imported: &Imported) -> Vec<String> {
    let bare = |line: &str| line.split("  # ").next().unwrap_or_default().to_owned();
    let parts = imported.configuration.split("[[route]]\n").skip(1);
    let of = |part: &str, key: &str| {
        let line = part.lines().find(|line| line.starts_with(&format!("{key} = ")))?;
        Some(bare(line).split_once(" = ")?.1.trim_matches('"').to_owned())
    };
    let keys = ["when", "upstream", "files", "redirect", "answer", "status"];
    let shown = |part: &str| -> String {
        let part = part.split("\n\n[").next().unwrap_or_default();
        let all = keys.iter().filter_map(|key| Some(format!("{key} {}", of(part, key)?)));
        all.collect::<Vec<String>>().join(", ")
    };
    parts.map(shown).collect()
}

#[test]
fn the_order_is_that_of_caddy_and_not_of_the_file() {
    let found = site(
        "reverse_proxy app:1\nrespond /a no 403\nredir /a/long https://b.test{uri}\n\
         redir /a https://c.test 301\nhandle /h* {\nrespond h\n}\nhandle_path /h/long/* {\n\
         respond l\n}",
    );
    let wanted = [
        "when path.matches('(?i)^/a/long[. ]*$'), redirect https://b.test, status 302",
        "when path.matches('(?i)^/a[. ]*$'), redirect https://c.test, status 301",
        "when path.lowerAscii().startsWith('/h/long/'), answer l, status 200",
        "when path.lowerAscii().startsWith('/h'), answer h, status 200",
        "upstream app-1",
        "answer , status 200",
    ];
    assert_eq!(routes(&found), wanted);
    assert_eq!(fate(&found, "respond /a no"), Fate::Carried);
    has(&found, "store = false");
    assert!(!found.differs(), "{:#?}", found.notes);
}

#[test]
fn within_route_the_order_is_that_of_the_file() {
    let found = site("route {\nreverse_proxy /x* app:1\nrespond /x/y 403\nredir https://b.test\n}");
    let wanted = [
        "when path.lowerAscii().startsWith('/x'), upstream app-1",
        "when path.matches('(?i)^/x/y[. ]*$'), answer , status 403",
        "redirect https://b.test, status 302",
        "answer , status 200",
    ];
    assert_eq!(routes(&found), wanted);
}

#[test]
fn one_handle_block_excludes_the_others_and_what_follows_them_is_for_all() {
    let found = site(
        "handle /a/* {\nrequest_header X-A b\n}\nhandle {\nrespond no\n}\nreverse_proxy app:1",
    );
    let wanted = [
        "when path.lowerAscii().startsWith('/a/'), upstream app-1",
        "answer no, status 200",
        "answer , status 200",
    ];
    assert_eq!(routes(&found), wanted);
    has(&found, "set = \"X-A\"");
    let found = site("rewrite /a /b\nrewrite /b /c\nrespond /b b\nrespond /c c");
    let wanted = [
        "when path.matches('(?i)^/a[. ]*$'), answer b, status 200",
        "when path.matches('(?i)^/b[. ]*$'), answer c, status 200",
        "when path.matches('(?i)^/c[. ]*$'), answer c, status 200",
        "answer , status 200",
        "answer , status 200",
    ];
    assert_eq!(routes(&found), wanted);
}

#[test]
fn sites_are_on_their_ports_and_names_are_redirected_to_https() {
    let found = caddy(
        "example.org, *.example.org {\nreverse_proxy app\n}\nhttp://plain.example.org {\n\
         respond p\n}\n",
    );
    has(&found, "address = \"[::]:443\"");
    has(&found, "acme = [\"example.org\"]");
    has(&found, "hosts = [\"{label}.example.org\"]");
    has(&found, "redirect = \"https://{host}\"");
    has(&found, "terms_accepted = true");
    assert_eq!(fate(&found, "example.org"), Fate::NotCarried);
    let off = caddy("{\nauto_https off\n}\nexample.org {\nrespond a\n}\n:8080 {\nrespond b\n}\n");
    lacks(&off, "acme");
    lacks(&off, "redirect");
    // Caddy has no certificate for it either.
    lacks(&off, "address = \"[::]:443\"");
    let other = caddy(
        "{\nhttp_port 81\nauto_https disable_redirects\n}\nexample.org:444 {\nrespond a\n}\n",
    );
    has(&other, "challenge = \"tls-alpn-01\"");
    lacks(&other, "redirect");
    let local = caddy("localhost {\nrespond a\n}\n");
    lacks(&local, ":443\"");
    assert_eq!(fate(&local, "localhost"), Fate::Unprotected);
}

#[test]
fn a_matcher_that_is_not_known_closes_only_its_part() {
    let found =
        site("@x {\nexpression {path} == 'a'\npath /b*\n}\nrespond @x 403\nreverse_proxy app:1");
    assert_eq!(fate(&found, "respond @x"), Fate::Unprotected);
    has(&found, "answer = \"closed by plimsoll import\\n\"");
    assert_eq!(
        routes(&found)[0],
        "when path.lowerAscii().startsWith('/b'), \
         answer closed by plimsoll import\\n, status 403"
    );
    assert_eq!(routes(&found)[1], "upstream app-1");
    let all = site("@x expression true\nrespond @x 403\nreverse_proxy app:1");
    lacks(&all, "upstream = ");
    let header = site("@x expression true\nheader @x X-A b\nreverse_proxy app:1");
    assert_eq!(fate(&header, "header @x"), Fate::NotCarried);
    has(&header, "\nupstream = \"app-1\"");
}

#[test]
fn what_keeps_requests_out_and_is_not_carried_closes_its_part() {
    for lines in [
        "basicauth {\nbob JDJhJDE0JA==\n}\nreverse_proxy app:1",
        "forward_auth auth:1 {\nuri {path}\n}\nreverse_proxy app:1",
        "rate_limit {\nzone x\n}\nreverse_proxy app:1",
        "import missing.conf\nreverse_proxy app:1",
        "@x vars a b\nhandle @x {\nabort\n}\nreverse_proxy app:1",
    ] {
        let found = site(lines);
        lacks(&found, "\nupstream = \"app-1\"");
        assert!(found.has_left(), "{lines}");
        assert!(found.notes.iter().any(|note| note.fate == Fate::Unprotected), "{lines}");
        let open = format!("http://a.test:8080 {{\n{lines}\n}}\n");
        has(&imported(Source::Caddy, "Caddyfile", &open, true), "\nupstream = \"app-1\"");
    }
    let found = site("basicauth /x* {\nbob JDJhJDE0JA==\n}\nreverse_proxy app:1");
    has(&found, "\nupstream = \"app-1\"");
    assert!(!found.notes.iter().any(|note| note.directive.contains("JDJh")));
    let client =
        caddy("https://example.org {\ntls {\nclient_auth {\nmode request\n}\n}\nrespond a\n}\n");
    lacks(&client, "\nanswer = \"a\"");
}

#[test]
fn a_path_is_changed_for_the_upstream() {
    let found = site(
        "handle_path /api/* {\nreverse_proxy app:1\n}\nhandle {\nrewrite * /x{uri}\n\
         reverse_proxy app:2\n}",
    );
    has(&found, "path.matches('(?is)^/api/(?P<rest>.*)$')");
    has(&found, "rewrite = \"/{rest}\"");
    has(&found, "rewrite = \"/x/{rest}\"");
    // The second rule is for requests without the prefix.
    has(&found, "!path.lowerAscii().startsWith('/api/')");
    let found = site("rewrite @g /fixed\n@g method GET\nreverse_proxy app:1");
    has(&found, "when = \"host == 'a.test' && method == 'GET'\"");
    has(&found, "rewrite = \"/fixed\"");
    for lines in ["uri replace /a /b", "uri strip_prefix /b", "rewrite * /x?{query}", "method GET"]
    {
        let found = site(&format!("{lines}\nreverse_proxy app:1"));
        lacks(&found, "\nupstream = ");
        has(&found, "status = 501");
    }
}

#[test]
fn files() {
    let found = site(
        "root * /srv/www\ntry_files {path} {path}.html /index.html\nfile_server {\n\
         hide .git *.bak\nprecompressed gzip\n}\nencode gzip",
    );
    has(&found, "files = \"/srv/www\"");
    has(&found, "try_files = [\"{path}.html\", \"/index.html\"]");
    has(&found, "precompressed = true");
    has(&found, r"path.matches(r'/\\.git(/|$)')");
    has(&found, "codings = [\"gzip\"]");
    assert_eq!(fate(&found, "file_server"), Fate::Different);
    let found = site("handle_path /x/* {\nroot * /srv/x\nfile_server\n}\nreverse_proxy app:1");
    has(&found, "prefix = \"/x/\"");
    has(&found, "alias = true");
    // In another case, the path has no files.
    has(&found, "status = 501");
    for lines in [
        "root * srv\nfile_server",
        "file_server",
        "root * /srv\ntemplates\nfile_server",
        "root * /srv\nfile_server {\npass_thru\n}",
        "php_fastcgi unix//run/php.sock",
    ] {
        let found = site(lines);
        lacks(&found, "\nfiles = ");
        has(&found, "status = 501");
    }
}

#[test]
fn fields_of_requests_and_responses() {
    let found = site(
        "header X-A one\nheader X-A two\nheader /s/* X-S three\nheader {\n-X-Gone\n?X-D four\n}\n\
         reverse_proxy app:1 {\nheader_up X-Real-IP {remote_host}\n\
         header_up Host {upstream_hostport}\n\
         header_up X-Forwarded-Proto {scheme}\nheader_down X-Down five\n}",
    );
    lacks(&found, "\"one\"");
    // Caddy keeps the field of an upstream beside one that it sets before.
    has(&found, "add = \"X-A\"");
    has(&found, "default = \"X-D\"");
    has(&found, "set = \"X-Down\"");
    has(&found, "value = \"{client}\"");
    has(&found, "host = \"app:1\"");
    has(&found, "forwarded = \"x_forwarded\"");
    has(&found, "when = \"host == 'a.test' && path.lowerAscii().startsWith('/s/')\"");
    assert_eq!(fate(&found, "header_up X-Forwarded-Proto"), Fate::Nothing);
    let found = site("reverse_proxy app:1 {\nheader_up X-User {http.auth.user.id}\n}");
    has(&found, "remove = \"X-User\"");
    assert_eq!(fate(&found, "header_up"), Fate::NotCarried);
    let found = site("reverse_proxy app:1 {\nheader_up X-Forwarded-For 10.0.0.1\n}");
    has(&found, "set = \"X-Forwarded-Host\"");
    let found = site("reverse_proxy app:1 {\nheader_up X-Forwarded-Host b.test\n}");
    has(&found, "set = \"X-Forwarded-For\"");
    has(&found, "value = \"{client}\"");
    assert_eq!(found.configuration.matches("X-Forwarded-Host").count(), 1);
    lacks(&found, "forwarded = ");
}

#[test]
fn upstreams() {
    let found = site(
        "reverse_proxy a:1 https-less:2 {\nlb_policy first\nhealth_uri /up\nfail_duration 10s\n\
         transport http {\nresponse_header_timeout 5s\n}\n}",
    );
    has(&found, "backup = true");
    has(&found, "path = \"/up\"");
    has(&found, "first_byte = \"5s\"");
    has(&found, "base = \"10s\"");
    let found = site("reverse_proxy https://a {\ntransport http {\ntls_insecure_skip_verify\n}\n}");
    has(&found, "url = \"https://a\"");
    has(&found, "verify = false");
    for lines in [
        "reverse_proxy {env.APP}",
        "reverse_proxy a {\nhandle_response {\nrespond b\n}\n}",
        "reverse_proxy a {\ntransport fastcgi\n}",
    ] {
        let found = site(lines);
        lacks(&found, "\nupstream = ");
        has(&found, "status = 501");
    }
}

#[test]
fn snippets_files_and_variables() {
    let found = caddy(
        "(s) {\nheader X-{args[0]} {args.1}\n}\n:8080 {\nimport s A b\nrespond \"x\"\n}\n\
         (unused) {\nabort\n}\n",
    );
    has(&found, "set = \"X-A\"");
    has(&found, "value = \"b\"");
    assert_eq!(fate(&found, "(unused)"), Fate::Nothing);
    let found = caddy("{$DOMAIN} {\nrespond a\n}\n:8080 {\nrespond b\n}\n");
    lacks(&found, "answer = \"a\"");
    has(&found, "answer = \"b\"");
    assert_eq!(fate(&found, "{$DOMAIN}"), Fate::Unprotected);
    assert!(why(&found, "{$DOMAIN}").contains("variables"));
    let found = caddy("http://{$DOMAIN:a.test}:{$PORT:81} {\nrespond {$TEXT:b}\n}\n");
    has(&found, "address = \"[::]:81\"");
    has(&found, "answer = \"b\"");
    assert_eq!(fate(&found, "{$PORT:81}"), Fate::Different);
}

#[test]
fn texts_that_are_not_in_the_language_name_their_line() {
    let error = |text: &str| {
        let mut read = |_: &str| Err(String::new());
        let options = Options::default();
        crate::import(Source::Caddy, "f", text, options, &mut read).unwrap_err().to_string()
    };
    for (text, wanted) in [
        ("a {\n", "f:1: a block is not closed before the end of the file"),
        ("a {\n}\n}\n", "f:3: this brace closes nothing"),
        ("a {\nrespond \"b\n}\n", "f:2: a quote is not closed"),
        ("a { respond b }\n", "f:1: a word follows { on its line"),
        ("(a) {\n", "f:1: the block of this snippet is not closed"),
        ("(a) {\nimport a\n}\n:80 {\nimport a\n}\n", "f:2: imports are more than 16 levels deep"),
    ] {
        assert_eq!(error(text), wanted);
    }
    let deep = "a {\n".repeat(40);
    assert_eq!(error(&deep), "f:35: blocks are more than 32 levels deep");
}

#[test]
fn odd_inputs_end_soon() {
    let long = format!(":80 {{\nrespond {}\n}}\n", "x".repeat(1 << 20));
    let start = std::time::Instant::now();
    for text in [
        "\u{feff}:80 {\r\n\trespond a\r\n}\r\n".to_owned(),
        "\0".to_owned(),
        ":80 {\n\0respond\0\n}\n".to_owned(),
        long,
        format!(":80 {{\n{}}}\n", "redir /a /b\n".repeat(20_000)),
        format!(":80 {{\n{}}}\n", "uri @a strip_prefix /b\n".repeat(20_000)),
        "<< ".repeat(200_000),
        "{$".repeat(400_000),
        (0..40_000).fold(":80 {\n".to_owned(), |all, at| all + &format!("redir /a{at} /b\n"))
            + "}\n",
        (0..20_000).map(|at| format!("http://h{at}.test {{\nheader /x* A b\n}}\n")).collect(),
        "a.test, ".repeat(50_000),
        (0..5_000).map(|at| format!("h{at}.test {{\nrespond a\n}}\n")).collect(),
    ] {
        let mut read = |_: &str| Err(String::new());
        let _ = crate::import(Source::Caddy, "f", &text, Options::default(), &mut read);
    }
    // If the time grew with the square of the length, each of some would take a minute.
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}
