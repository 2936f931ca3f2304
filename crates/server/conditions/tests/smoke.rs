//! Every form of the language, once.

use conditions::{Builder, Facts, Lists, Scope};
use http1::{Limits, Scratch, parse_request};
use std::net::IpAddr;

fn judge(texts: &[&str]) {
    let mut lists = Lists::new();
    lists.add_list("bots", vec!["a".into(), "b".into()]).unwrap();
    lists.add_list("office", vec!["10.0.0.0/8".into()]).unwrap();
    lists.add_map("team", vec![("/a/b".into(), "x".into())]).unwrap();
    let mut builder = Builder::new(lists.clone());
    let mut ids = Vec::new();
    for text in texts {
        match builder.add(text, Scope::Request) {
            Ok(id) => ids.push(id),
            Err(mistake) => println!("{text}\n   {} [{}]", mistake, &text[mistake.at.clone()]),
        }
    }
    let conditions = builder.build();
    let head = b"GET /a/b?x=1&y=%41+b HTTP/1.1\r\nHost: h\r\nUser-Agent: curl/8\r\nCookie: a=1; b=2\r\nX-A: one\r\nx-a: two\r\n\r\n";
    let mut scratch = Scratch::new();
    let (head, _) = match parse_request(head, &mut scratch, &Limits::DEFAULT).unwrap() {
        Some(h) => (h, 0),
        None => panic!(),
    };
    let facts = Facts {
        host: b"example.org",
        path: b"/a/b",
        query: b"x=1&y=%41+b",
        method: b"GET",
        scheme: "https",
        listener: "main",
        port: 443,
        client: "::ffff:10.0.0.1".parse::<IpAddr>().unwrap(),
        user: None,
        fields: head.fields,
        tls: None,
        now_s: 1_700_000_000,
        random: 0.25,
        response: None,
    };
    let mut judge = conditions.judge(facts);
    for id in ids {
        println!(
            "{} = {}  {:?}",
            conditions.text(id),
            judge.holds(id),
            judge
                .terms(id)
                .iter()
                .map(|t| format!("{} [{}] {}", t.text, t.value, t.holds))
                .collect::<Vec<_>>()
        );
    }
}

#[test]
fn smoke() {
    judge(&[
        "path.startsWith('/a') && (host == 'example.org' || method in ['GET', 'HEAD'])",
        "fields['x-a'] == 'one, two' && cookies['b'] == '2' && args['y'] == 'A b'",
        "client.within(office) && !client.within('192.0.2.0/24', '10.1.0.0/16')",
        "client == '10.0.0.1' ? random < 0.5 : hour == 3",
        "'X-A' in fields && !('zz' in cookies)",
        "team[path] == 'x' && path in team && path.size() == 4 && share(path) < 1.0",
        "path.glob('/a/*') && path.matches('^/(?P<first>[a-z]+)') && fields['user-agent'].lowerAscii().contains('curl')",
        "port == -1",
        "host == 'A'",
        "status == 404",
        "hots == 'a'",
        "path.startWith('/a')",
        "path.startsWith('x')",
        "1 > 2",
        "path = '/a'",
        "path == 'a",
        "(path == '/a'",
        "path == '/a' and host == 'b'",
        "has(fields.x)",
        "fields.exists(x, x == 'a')",
        "path == '/a' &&",
        "port == '1'",
        "path.matches('(')",
        "fields['a b'] == ''",
        "path in bots && client in office",
        "((port) == (80)) && true",
        "path < '/a'",
        "é == 'a'",
        "path == '\\q'",
        "path + 'a' == '/b'",
        "path == '/a' path",
        "as == 'a'",
        "[1,2]",
        "path in {'a': 1}",
        "-port == 1",
        "port - 1 == 3",
        "path == null",
        "random in [1u]",
        "host in ['a', 'B']",
        "client.startsWith('1')",
        "path.size() > -1",
        "path.matches('a{1000}{1000}')",
        "x.y.z == 'a'",
        "path.foo == 'a'",
        "!path",
        "true",
        "fields == 'a'",
        "share('a') < 0.5",
        "office.x()",
    ]);
}
