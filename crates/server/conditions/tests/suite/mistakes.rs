//! Each mistake with its place and its reason.

use conditions::limits::{CONDITIONS_MAX, DEPTH_MAX, LINKS_MAX, TEXT_BYTES_MAX, TOKENS_MAX};
use conditions::{Builder, Lists, Scope};

use super::{lists, mistake};

/// A text, the place of its mistake, and a part of the reason.
#[rustfmt::skip]
const MISTAKES: &[(&str, &str, &str)] = &[
    // Syntax.
    ("", "", "is empty"),
    ("path = '/a'", "=", "write `==` to compare"),
    ("path == '/a' & port == 1", "&", "`&&`"),
    ("path == '/a' | port == 1", "|", "`||`"),
    ("path ~ 'a'", "~", "matches"),
    ("path == '/a' and port == 1", "and", "write `&&` for and"),
    ("path == '/a' or port == 1", "or", "write `||` for or"),
    ("not path == '/a'", "not", "write `!` for not"),
    ("path == '/a", "'", "no closing quote"),
    ("path == '\\q'", "\\q", "no escape of this kind"),
    ("(path == '/a'", "(", "is not closed"),
    ("path == '/a')", ")", "closes nothing"),
    ("path in ['/a')", ")", "closes nothing"),
    ("path == '/a' &&", "&&", "ends too early"),
    ("path == '/a' path", "path", "is not expected here"),
    ("path == '/a' // b", "//", "no comments"),
    ("as == 'a'", "as", "keeps for itself"),
    ("port == 1u", "1u", "without `u`"),
    ("port == 99999999999999999999", "99999999999999999999", "not a number"),
    ("path == b'a'", "b'", "bytes literals"),
    ("path == null", "null", "nothing is null"),
    ("é == 'a'", "é", "not a character"),
    ("path in {'a': 1}", "{", "maps are written in the configuration"),
    ("path + 'a' == '/b'", "+", "do not calculate"),
    ("port - 1 == 3", "-", "do not calculate"),
    ("-port == 1", "-", "do not calculate"),
    ("has(fields.x)", "(fields.x)", "`has` is not used"),
    ("fields.exists(x, x == 'a')", "exists(x, x == 'a')", "no loops"),
    // Names.
    ("hots == 'a'", "hots", "did you mean `host`?"),
    ("wrods == 'a'", "wrods", "did you mean `words`?"),
    ("nothing == 'a'", "nothing", "the known names are"),
    ("headers['a'] == 'b'", "headers", "fields['name']"),
    ("request.path == '/a'", "request", "have no prefix"),
    ("path.startWith('/a')", "startWith", "did you mean `startsWith`?"),
    ("path.replace('/a')", "replace", "the known names are"),
    ("startsWith(path, '/a')", "startsWith", "is a method"),
    ("shade(path) < 0.5", "shade", "did you mean `share`?"),
    ("tls == 'a'", "tls", "tls.sni"),
    ("tls.snj == 'a'", "tls.snj", "did you mean `sni`?"),
    ("fields.accept == 'a'", "fields.accept", "write `fields['accept']`"),
    ("path.foo == 'a'", "path.foo", "has no member"),
    ("path.size == 3", "path.size", "is a method"),
    ("client.startsWith('10.')", "startsWith", "client.within"),
    ("office.x()", "x", "a list has no method"),
    ("path.within('10.0.0.0/8')", "within", "is a method of `client`"),
    // Types.
    ("path", "path", "is a string, not a condition"),
    ("port", "port", "is an int, not a condition"),
    ("path == '/a' && user", "user", "is a string, not a condition"),
    ("!path", "path", "is a string, not a condition"),
    ("port == '1'", "port == '1'", "an int and a string"),
    ("(path == '/a') == 'a'", "(path == '/a') == 'a'", "a bool and a string"),
    ("path < '/a'", "path < '/a'", "compares numbers"),
    ("(path == '/a') < (path == '/b')", "(path == '/a') < (path == '/b')", "these are bools"),
    ("fields == 'a'", "fields == 'a'", "a table of values with names and a string"),
    ("path.startsWith(1)", "1", "is a string, and this is an int"),
    ("path.endsWith('a', 'b')", "path.endsWith('a', 'b')", "has 1 argument, and here are 2"),
    ("path.size(1) == 2", "path.size(1)", "has 0 arguments, and here are 1"),
    ("path.matches(user)", "user", "is a literal string"),
    ("fields[path] == 'a'", "path", "is a literal string"),
    ("path['a'] == 'a'", "path['a']", "has no values with names"),
    ("path in ['/a', 1]", "1", "is a literal string"),
    ("port in [1, path]", "path", "are numbers"),
    ("port in [1, port]", "port", "a literal number"),
    ("path in host", "path in host", "write `contains`"),
    ("path in fields", "path", "is a literal string"),
    ("port in words", "port in words", "cannot look for an int in a list"),
    ("client in office", "client in office", "client.within"),
    ("client in ['10.0.0.1']", "client in ['10.0.0.1']", "client.within"),
    ("client == path", "client == path", "with a literal"),
    ("client < '10.0.0.1'", "client < '10.0.0.1'", "have no order"),
    ("client == '10.0.0.0/8'", "client == '10.0.0.0/8'", "is a network"),
    ("client == 'a'", "client == 'a'", "is not an address"),
    ("client.within('a')", "'a'", "is not a network or an address"),
    ("client.within(words)", "words", "has 'GET', which is not a network"),
    ("client.within(teams)", "teams", "is a map, not a list"),
    ("client.within()", "client.within()", "at least one"),
    ("client.within(office, '::1')", "office", "one `within` for each list"),
    ("['a'] == 'a'", "['a']", "only used after `in`"),
    ("fields['a b'] == ''", "'a b'", "cannot be the name of a field"),
    ("cookies['a=b'] == ''", "'a=b'", "cannot be the name of a cookie"),
    ("'' in fields", "''", "cannot be the name of a field"),
    // Patterns.
    ("path.matches('(')", "'('", "unclosed group"),
    ("path.matches('(?=a)')", "'(?=a)'", "look-around"),
    ("path.matches('a{1000}{1000}')", "'a{1000}{1000}'", "too large"),
    ("path.matches('a|')", "path.matches('a|')", "always holds"),
    ("path.glob('**')", "path.glob('**')", "always holds"),
    ("path.glob('a/*')", "path.glob('a/*')", "paths begin with /"),
    ("host.glob('*.A')", "host.glob('*.A')", "hosts are lower case"),
    // Terms that never hold, or always.
    ("true", "true", "always holds"),
    ("port == 1 ? false : false", "port == 1 ? false : false", "can never hold"),
    ("path == '/a' && true", "true", "always true"),
    ("1 > 2", "1 > 2", "same value for every request"),
    ("'a' == 'b'", "'a' == 'b'", "same value for every request"),
    ("path == path", "path == path", "same value for every request"),
    ("share('a') < 0.5", "share('a')", "same value for every request"),
    ("teams['a'] == 'b'", "teams['a']", "always the same"),
    ("'a' in words", "'a' in words", "always or never"),
    ("'a'.lowerAscii() == path", "'a'.lowerAscii()", "in lower case"),
    ("path in []", "path in []", "can never hold"),
    ("status == 999", "status == 999", "a status is 100 to 599, so this can never hold"),
    ("status != 999", "status != 999", "a status is 100 to 599, so this always holds"),
    ("status in [404, 40]", "40", "can never hold"),
    ("status < 600", "status < 600", "always holds"),
    ("200.5 == status", "200.5 == status", "is an int"),
    ("port == -1", "port == -1", "a port is 0 to 65535"),
    ("hour == 24", "hour == 24", "an hour is 0 to 23"),
    ("minute > 59", "minute > 59", "a minute is 0 to 59"),
    ("weekday == 7", "weekday == 7", "0 (Sunday) to 6"),
    ("size < -1", "size < -1", "at least 0, or -1"),
    ("random < 1.0", "random < 1.0", "less than 1, so this always holds"),
    ("path.size() > -1", "path.size() > -1", "always holds"),
    ("method == 'get'", "method == 'get'", "methods are upper case"),
    ("method in ['GET', 'put']", "'put'", "methods are upper case"),
    ("host == 'A'", "host == 'A'", "hosts are lower case"),
    ("host == 'a:80'", "host == 'a:80'", "a host has no port"),
    ("host in upper", "host in upper", "the list `upper` has 'Example.org'"),
    ("path.startsWith('x')", "path.startsWith('x')", "paths begin with /"),
    ("path == ''", "path == ''", "paths begin with /"),
    ("path.startsWith('')", "path.startsWith('')", "always holds"),
    ("scheme == 'ftp'", "scheme == 'ftp'", "'http' or 'https'"),
    ("user.lowerAscii() == 'A'", "user.lowerAscii() == 'A'", "lower case"),
    ("client.within('0.0.0.0/0', '::/0')", "client.within('0.0.0.0/0', '::/0')", "always holds"),
];

#[test]
fn each_mistake_has_its_place_and_its_reason() {
    for (text, place, reason) in MISTAKES {
        let (at, why) = mistake(text, Scope::Response);
        assert_eq!(at, *place, "{text}: {why}");
        assert!(why.contains(reason), "{text}: {why}");
    }
}

#[test]
fn the_response_is_not_there_before_the_request_is_answered() {
    for text in ["status == 404", "size > 5", "response['a'] == 'b'", "'a' in response"] {
        let (_, why) = mistake(text, Scope::Request);
        assert!(why.contains("is about the response"), "{why}");
    }
}

#[test]
fn texts_within_the_limits_are_read_and_longer_texts_are_not() {
    let ok = |text: &str| conditions::check(text, Scope::Request, &lists()).unwrap();
    let nested = |depth: usize| format!("{}port == 1{}", "(".repeat(depth), ")".repeat(depth));
    ok(&nested(DEPTH_MAX));
    assert!(mistake(&nested(DEPTH_MAX + 1), Scope::Request).1.contains("nest deeper"));
    let not = |depth: usize| format!("{}port == 1{}", "!(".repeat(depth), ")".repeat(depth));
    ok(&not(DEPTH_MAX));
    assert!(mistake(&not(DEPTH_MAX + 1), Scope::Request).1.contains("nest deeper"));
    let choice = |depth: usize| format!("{}port == 1", "port == 2 ? port == 3 : ".repeat(depth));
    ok(&choice(DEPTH_MAX));
    assert!(mistake(&choice(DEPTH_MAX + 1), Scope::Request).1.contains("nest deeper"));
    let lower = |links: usize| format!("path{} == '/a'", ".lowerAscii()".repeat((links - 1) / 2));
    ok(&lower(LINKS_MAX));
    assert!(mistake(&lower(LINKS_MAX + 2), Scope::Request).1.contains("operators"));
    // Three tokens and the sign between.
    let many = |terms: usize| vec!["port == 1"; terms].join(" || ");
    ok(&many(TOKENS_MAX / 4));
    assert!(mistake(&many(TOKENS_MAX / 4 + 1), Scope::Request).1.contains("words and signs"));
    let long = |bytes: usize| format!("path == '/{}'", "a".repeat(bytes - "path == '/'".len()));
    ok(&long(TEXT_BYTES_MAX));
    assert!(mistake(&long(TEXT_BYTES_MAX + 1), Scope::Request).1.contains("bytes"));
    let mut builder = Builder::new(Lists::new());
    for _ in 0..CONDITIONS_MAX {
        builder.add("port == 1", Scope::Request).unwrap();
    }
    let why = builder.add("port == 1", Scope::Request).unwrap_err().why;
    assert!(why.contains("more than 512 conditions"), "{why}");
}

#[test]
fn lists_have_names_that_conditions_can_use() {
    let mut lists = Lists::new();
    for (name, reason) in [
        ("", "cannot be the name"),
        ("A", "cannot be the name"),
        ("1a", "cannot be the name"),
        ("a-b", "cannot be the name"),
        ("host", "is a word of conditions"),
        ("in", "is a word of conditions"),
        ("while", "is a word of conditions"),
        ("share", "is a word of conditions"),
    ] {
        let why = lists.add_list(name, Vec::new()).unwrap_err();
        assert!(why.contains(reason), "{name}: {why}");
    }
    lists.add_list("_a1", Vec::new()).unwrap();
    assert!(lists.add_map("_a1", Vec::new()).unwrap_err().contains("two lists"));
    let pairs = vec![("a".into(), "1".into()), ("a".into(), "2".into())];
    assert!(lists.add_map("b", pairs).unwrap_err().contains("two values for 'a'"));
}

/// Texts of one piece, as often as the limits allow: each is read or refused, without recursing
/// and soon.
#[test]
fn texts_of_one_piece_are_read_soon() {
    let start = std::time::Instant::now();
    for piece in [
        "a ", "a.", "a?", "a?a:", "a&&", "a||", "!", "-", "!-", "a<", "a in ", "(", "[", "a[",
        "f(", "(a)", "[a],", "a,", "a==", "1 ", "'a' ", "'a'.f().", "f(a).", "a[1]", ".a", ":",
        "?:", "){", "(a?", "a?(", "!(", "a&&(", "a||(b&&", "f(a,", "[a,", "true ", "null.", "r'' ",
        "0x1 ",
    ] {
        for count in [1, 2, 15, 16, 17, 31, 32, 33, 100, 255, 500, 1000, 2000] {
            let text = piece.repeat(count);
            let closed = format!("{text}port == 1{}", ")".repeat(text.matches('(').count()));
            for text in [text, closed] {
                let _ = conditions::check(&text, Scope::Request, &lists());
            }
        }
    }
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}
