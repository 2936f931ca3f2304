//! What each form means.

use conditions::{Facts, Reads, Scope, Sent, check, hidden_by};

use super::{compiled, holds, lists, with_facts};

/// Conditions that hold for the request of these tests.
const HOLD: &[&str] = &[
    // Variables.
    "host == 'example.org'",
    "path == '/a/b'",
    "query.startsWith('q=')",
    "url == 'https://example.org:8443/a//./B/c/../?q=%41&%&%00&%4'",
    "target == '/a//./B/c/../?q=%41&%&%00&%4'",
    "url.matches('^https://[^/]*:8443/')",
    "target.lowerAscii().contains('/b/c')",
    "method == 'GET'",
    "scheme == 'https'",
    "listener == 'main'",
    "port == 443",
    "user == 'ada'",
    "tls.sni == 'example.org'",
    "tls.client_subject == ''",
    "hour == 22",
    "minute == 13",
    "weekday == 2",
    "random == 0.25",
    "status == 404",
    "size == 1000",
    // Fields: several of one name, known and unknown names, absent.
    "fields['x-a'] == 'one, two'",
    "fields['ACCEPT'] == 'text/html, */*'",
    "fields['User-Agent'] == 'Curl/8'",
    "fields['x-none'] == ''",
    "fields['if-range'] == ''",
    "'X-A' in fields",
    "!('x-none' in fields)",
    "'accept' in fields",
    "!('if-range' in fields)",
    "response['content-type'] == 'text/html'",
    "'content-type' in response",
    "!('x-a' in response)",
    // Cookies: the first of a name, spaces, no value, other fields.
    "cookies['a'] == '1'",
    "cookies['b'] == '2'",
    "cookies['c'] == ''",
    "!('c' in cookies)",
    "cookies['sid'] == 'x=y'",
    "'sid' in cookies",
    "!('si' in cookies)",
    // Query parameters.
    "args['q'] == 'a b c'",
    "args['x'] == '1, 2'",
    "args['empty'] == ''",
    "'empty' in args",
    "!('none' in args)",
    "args['qr'] == '3'",
    "args['bad'] == '%4'",
    // Operators.
    "path == '/a/b' && port == 443 && method == 'GET'",
    "path == '/' || port == 443",
    "!(path == '/')",
    "!!(path == '/a/b')",
    "path != '/'",
    "'/a/b' == path",
    "host == tls.sni",
    "host != user",
    "444 > port",
    "port < 444",
    "port <= 443",
    "port > 442",
    "port >= 443",
    "port != 80",
    "port == 443.0",
    "port < 443.5",
    "random < 0.5",
    "random >= 0.25",
    "size > port",
    "method in ['HEAD', 'GET']",
    "!(method in ['HEAD', 'PUT'])",
    "status in [404, 410]",
    "random in [0.5, 0.25]",
    "path == '/' ? port == 80 : port == 443",
    "path == '/' ? true : port == 443",
    "(path == '/') == (port == 80)",
    "(path == '/') != (port == 443)",
    "(path == '/') == false",
    // Methods.
    "path.startsWith('/a')",
    "path.endsWith('/b')",
    "path.contains('/a/')",
    "path.matches('^/[a-z]/[a-z]$')",
    "path.matches('b')",
    "path.glob('/a/*')",
    "path.glob('/*')  == false",
    "path.glob('/**')",
    "path.glob('/a.b') == false",
    "path.size() == 4",
    "size(path) == 4",
    "fields['user-agent'].lowerAscii() == 'curl/8'",
    "fields['user-agent'].lowerAscii().startsWith('curl')",
    "query.contains(user) || path.startsWith(args['none'])",
    // Addresses, lists and maps.
    "client.within('10.0.0.0/8')",
    "client.within('192.0.2.1', '10.1.2.3')",
    "!client.within('192.0.2.0/24')",
    "client.within('::ffff:10.0.0.0/104')",
    "client.within(office)",
    "client == '10.1.2.3'",
    "client == '::ffff:10.1.2.3'",
    "client != '10.1.2.4'",
    "method in words",
    "!(path in words)",
    "teams[path] == 'red'",
    "teams[host] == ''",
    "path in teams",
    "!(host in teams)",
    // Literals.
    "path == \"/a/b\"",
    "path == r'/a/b'",
    "path == '/a\\u002fb'",
    "path == '''/a/b'''",
    "status == 0x194",
    "size != -1",
    "random > 2.4e-1",
];

#[test]
fn every_form_has_its_meaning() {
    for text in HOLD {
        assert!(holds(text), "{text}");
        assert!(!holds(&format!("!({text})")), "!({text})");
    }
}

#[test]
fn conditions_together_are_judged_as_alone() {
    let (conditions, ids) = compiled(HOLD);
    with_facts(|facts| {
        let mut found = Vec::new();
        conditions.judge(facts).matching(&ids, |at| found.push(at));
        assert_eq!(found, (0..HOLD.len()).collect::<Vec<_>>());
    });
}

#[test]
fn a_pattern_reads_bytes() {
    let (conditions, ids) = compiled(&["path.matches('^/a.b$')", "path.glob('/a*')"]);
    for path in [b"/a\nb", b"/a\xffb", b"/a\0b"] {
        with_facts(|mut facts| {
            facts.path = path;
            let mut judge = conditions.judge(facts);
            assert!(judge.holds(ids[0]) && judge.holds(ids[1]), "{}", path.escape_ascii());
        });
    }
}

/// The shares may never change: a client would get another branch of a split.
#[test]
fn the_share_of_a_string_is_fixed() {
    let (conditions, ids) = compiled(&["share(user) < 0.5"]);
    let mut shares = Vec::new();
    for user in ["", "ada", "bob", "0123456789abcdef0123456789abcdef"] {
        with_facts(|mut facts| {
            facts.user = Some(user.as_bytes());
            shares.push(conditions.judge(facts).terms(ids[0])[0].value.clone());
        });
    }
    assert_eq!(shares, SHARES);
    // A tenth of the users is a tenth, nearly.
    let (conditions, ids) = compiled(&["share(user) < 0.1"]);
    let users = (0..10_000).map(|number| &*format!("user{number}").leak());
    let few = users.filter(|user| {
        with_facts(|mut facts| {
            facts.user = Some(user.as_bytes());
            conditions.judge(facts).holds(ids[0])
        })
    });
    let few = few.count();
    assert!((900..1100).contains(&few), "{few}");
}

const SHARES: [&str; 4] = ["0.17588", "0.410603", "0.078182", "0.004183"];

#[test]
fn without_a_response_its_facts_have_fixed_values() {
    let (conditions, ids) = compiled(&[
        "status in [404, 500]",
        "size == -1",
        "response['content-type'] == ''",
        "'content-type' in response",
    ]);
    with_facts(|mut facts| {
        facts.response = None;
        let mut judge = conditions.judge(facts);
        let values: Vec<bool> = ids.iter().map(|id| judge.holds(*id)).collect();
        assert_eq!(values, [false, true, true, false]);
    });
}

#[test]
fn a_url_is_written_as_squid_writes_it() {
    let (conditions, ids) = compiled(&["url == 'x' || target == 'x'"]);
    let of = |scheme, host: &str, authority: &str, path_and_query: &str, tunnel_port| {
        let (authority, path_and_query) = (authority.as_bytes(), path_and_query.as_bytes());
        let sent = Sent { authority, path_and_query, tunnel_port };
        let terms = with_facts(|facts| {
            let facts = Facts { host: host.as_bytes(), scheme, sent, ..facts };
            conditions.judge(facts).terms(ids[0])
        });
        terms.into_iter().map(|term| term.value.replace('\'', "")).collect::<Vec<_>>().join(" ")
    };
    for (scheme, host, authority, path, wanted) in [
        ("http", "a.test", "A.test:80", "", "http://a.test/ /"),
        ("http", "a.test", "a.test:443", "?b", "http://a.test:443/?b /?b"),
        ("https", "a.test", "a.test:0443", "/?", "https://a.test/? /?"),
        ("https", "a.test", "a.test:", "//b", "https://a.test//b //b"),
        ("http", "[::1]", "[::0:1]:80", "/%C3%a9", "http://[::1]/é /é"),
        ("http", "[::1]", "[::1]:81", "*", "http://[::1]:81* *"),
    ] {
        assert_eq!(of(scheme, host, authority, path, None), wanted, "{authority}{path}");
    }
    assert_eq!(of("http", "a.test", "A.test", "", Some(443)), "a.test:443 ");
    assert_eq!(of("http", "[::1]", "[::1]", "", Some(80)), "[::1]:80 ");
}

#[test]
fn a_condition_reads_what_its_terms_read() {
    let reads = |text: &str| check(text, Scope::Response, &lists()).unwrap().reads();
    assert_eq!(reads("host == 'a' && port == 1"), Reads::HOST | Reads::LISTENER);
    assert_eq!(reads("cookies['a'] == args['b']"), Reads::COOKIES | Reads::ARGS);
    assert_eq!(reads("teams[path] == tls.sni"), Reads::PATH | Reads::TLS);
    assert_eq!(reads("share(query) < 0.5 || 'a' in fields"), Reads::QUERY | Reads::FIELDS);
    assert_eq!(
        reads("hour < 7 ? client == '::1' : random < 0.5"),
        Reads::TIME | Reads::CLIENT | Reads::RANDOM
    );
    let of_status = Reads::RESPONSE | Reads::STATUS;
    assert_eq!(reads("status == 404 && user == ''"), of_status | Reads::USER);
    let of_fields = Reads::RESPONSE | Reads::RESPONSE_FIELDS;
    assert_eq!(reads("size > 4 || response['etag'] != ''"), of_fields);
    assert_eq!(reads("method == 'GET' && scheme == 'http'"), Reads::METHOD | Reads::SCHEME);
    let of_target = Reads::PATH | Reads::QUERY;
    assert_eq!(reads("target == '/'"), of_target);
    assert_eq!(reads("url == 'a'"), Reads::HOST | Reads::SCHEME | of_target);
    assert!(reads("path == '/'").is_within(Reads::PATH | Reads::HOST));
    assert!(!reads("path == '/'").contains(Reads::HOST));
}

#[test]
fn terms_show_their_values_in_order() {
    let (conditions, ids) =
        compiled(&["!(fields['x-a'].contains('two')) || status != 200 && 'x' in fields \
                   || host == tls.sni || client == '::1' || random < 0.5"]);
    let terms = with_facts(|facts| conditions.judge(facts).terms(ids[0]));
    let shown: Vec<String> = terms
        .iter()
        .map(|term| format!("{} | {} | {}", term.text, term.value, term.holds))
        .collect();
    assert_eq!(
        shown,
        [
            "fields['x-a'].contains('two') | 'one, two' | true",
            "status != 200 | 404 | true",
            "'x' in fields | absent | false",
            "host == tls.sni | 'example.org' and 'example.org' | true",
            "client == '::1' | 10.1.2.3 | false",
            "random < 0.5 | 0.25 | true",
        ]
    );
}

#[test]
fn groups_are_captured_if_the_condition_holds() {
    let captured = |text: &str, name: &str| {
        let (conditions, ids) = compiled(&[text]);
        with_facts(|facts| conditions.capture(ids[0], name, &facts).map(|value| value.to_vec()))
    };
    let some = |value: &str| Some(value.as_bytes().to_vec());
    assert_eq!(captured("path.matches('^/(?P<one>[a-z])/(?P<two>.*)')", "two"), some("b"));
    assert_eq!(captured("path.matches('^/(?P<one>[a-z])(?P<two>/x)?')", "two"), some(""));
    assert_eq!(captured("path.matches('^/(?P<one>[a-z])')", "none"), None);
    assert_eq!(captured("path.matches('^/(?P<one>[a-z])') && port == 80", "one"), None);
    let either = "path.matches('^/(?P<x>a)') && port == 80 || path.matches('(?P<x>b)')";
    assert_eq!(captured(either, "x"), some("b"), "the branch that holds");
    assert_eq!(captured("!(!path.matches('(?P<x>b)') || port == 80)", "x"), some("b"));
    assert_eq!(captured("port == 443 ? path.matches('(?P<x>b)') : host == 'a'", "x"), some("b"));
}

#[test]
fn captures_are_the_groups_of_every_branch() {
    let captures = |text: &str| check(text, Scope::Request, &lists()).unwrap().captures();
    assert_eq!(captures("path.matches('(?P<b>b)(?P<a>a)')"), ["a", "b"]);
    assert_eq!(captures("path.matches('(?P<a>a)') && path.matches('(?P<b>b)')"), ["a", "b"]);
    assert_eq!(captures("path.matches('(?P<a>a)(?P<b>b)') || path.matches('(?P<b>b)')"), ["b"]);
    assert_eq!(captures("!path.matches('(?P<a>a)')"), [""; 0]);
    assert_eq!(captures("!(!path.matches('(?P<a>a)'))"), ["a"]);
    assert_eq!(captures("query.matches('(?P<a>a)')"), [""; 0], "only of the path");
    assert_eq!(captures("port == 1 ? path.matches('(?P<a>a)') : path.matches('(?P<a>b)')"), ["a"]);
}

#[test]
fn a_condition_hides_the_conditions_that_imply_it() {
    let hides = |earlier: &str, later: &str| {
        let of = |text: &str| check(text, Scope::Request, &lists()).unwrap();
        hidden_by(&of(earlier), &of(later))
    };
    for (earlier, later) in [
        ("path == '/a'", "path == '/a'"),
        ("path == '/a'", "'/a' == path && port == 80"),
        ("port == 80 && path == '/a'", "path == '/a' && host == 'a' && port == 80"),
        ("path == '/a' || host == 'a'", "host == 'a' && port == 1"),
        ("host == 'a' || host == 'b' || port == 1", "host == 'b' || host == 'a'"),
        ("path.startsWith('/a')", "path.startsWith('/a/b')"),
        ("path.startsWith('/a')", "path == '/ab'"),
        ("path.startsWith('/a')", "path in ['/a', '/ab']"),
        ("path.matches('^/a')", "path == '/ab'"),
        ("path.contains('b')", "path.endsWith('abc')"),
        ("client.within('10.0.0.0/8')", "client.within('10.1.0.0/16', '10.2.0.0/16')"),
        ("path != '/a'", "path != '/a' && port == 1"),
        ("!(port == 1 && path == '/a')", "!(path == '/a')"),
        ("user in words", "user == 'two'"),
    ] {
        assert!(hides(earlier, later), "{earlier} hides {later}");
    }
    for (earlier, later) in [
        ("path == '/a'", "path == '/b'"),
        ("path == '/a' && port == 1", "path == '/a'"),
        ("path.startsWith('/a/b')", "path.startsWith('/a')"),
        ("path != '/a'", "path == '/a'"),
        ("host == 'a'", "host == 'a' || host == 'b'"),
        ("client.within('10.1.0.0/16')", "client.within('10.0.0.0/8')"),
        ("path == '/a' ? port == 1 : port == 2", "path == '/a'"),
    ] {
        assert!(!hides(earlier, later), "{earlier} does not hide {later}");
    }
}
