//! The language: what each form means, and which mistake each wrong text is.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod language;
mod mistakes;
mod together;

use std::net::IpAddr;

use conditions::{
    Builder, Conditions, Facts, Id, Lists, Mistake, ResponseFacts, Scope, Sent, TlsNames, check,
};
use http1::{Limits, Scratch, parse_request, parse_response};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nUser-Agent: Curl/8\r\n\
    Cookie: a=1; b = 2;c\r\nCookie: a=3; sid=x=y\r\nX-A: one\r\nx-a: two\r\n\
    Accept: text/html\r\nAccept: */*\r\n\r\n";
/// Its path is `/a/b` for rules.
const SENT: Sent<'_> = Sent {
    authority: b"Example.org.:8443",
    path_and_query: b"/a//%2e/B%2fc/../?q=%2541&%%&%00&%4",
    tunnel_port: None,
};
const RESPONSE: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n\r\n";
/// A Tuesday, 22:13:20.
const NOW_S: u64 = 1_700_000_000;

fn lists() -> Lists {
    let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    let mut lists = Lists::new();
    lists.add_list("words", owned(&["GET", "two", "example.org"])).unwrap();
    lists.add_list("office", owned(&["10.0.0.0/8", "2001:db8::1"])).unwrap();
    lists.add_list("upper", owned(&["Example.org"])).unwrap();
    lists.add_map("teams", vec![("/a/b".into(), "red".into()), ("x".into(), "".into())]).unwrap();
    lists
}

fn compiled(texts: &[&str]) -> (Conditions, Vec<Id>) {
    let mut builder = Builder::new(lists());
    let add = |text: &&str| {
        builder.add(text, Scope::Response).unwrap_or_else(|mistake| panic!("{text}: {mistake}"))
    };
    let ids = texts.iter().map(add).collect();
    (builder.build(), ids)
}

/// A GET of `https://example.org/a/b?…` by a logged-in user, answered with a 404.
fn with_facts<R>(look: impl FnOnce(Facts<'_>) -> R) -> R {
    let mut scratch = (Scratch::new(), Scratch::new());
    let request = parse_request(REQUEST, &mut scratch.0, &Limits::DEFAULT).unwrap().unwrap();
    let response = parse_response(RESPONSE, &mut scratch.1, &Limits::DEFAULT).unwrap().unwrap();
    let tls = TlsNames { sni: Some("example.org".into()), client_subject: None };
    look(Facts {
        host: b"example.org",
        path: b"/a/b",
        query: b"q=a%20b+c&empty&x=1&x=%32&%71%72=3&bad=%4",
        sent: SENT,
        method: b"GET",
        scheme: "https",
        listener: "main",
        port: 443,
        client: "::ffff:10.1.2.3".parse::<IpAddr>().unwrap(),
        user: Some(b"ada"),
        fields: request.fields,
        tls: Some(&tls),
        now_s: NOW_S,
        random: 0.25,
        response: Some(ResponseFacts { status: 404, fields: response.fields, size: Some(1000) }),
    })
}

fn holds(text: &str) -> bool {
    let (conditions, ids) = compiled(&[text]);
    with_facts(|facts| conditions.judge(facts).holds(ids[0]))
}

/// The place and the reason of a mistake.
fn mistake(text: &str, scope: Scope) -> (String, String) {
    match check(text, scope, &lists()) {
        Ok(_) => panic!("{text} is no mistake"),
        Err(Mistake { at, why }) => (text[at].to_owned(), why),
    }
}
