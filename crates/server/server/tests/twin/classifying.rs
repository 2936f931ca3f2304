//! The class of a request must not depend on stored responses: every request of a corpus is sent
//! once with a fresh stored response and once without. The explanation must match the result.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use runtime::net::{ListenOptions, TcpListener, TcpStream};
use runtime::sim;
use server::explain::Explained;
use server::{Config, Origin};

use crate::world::{ADMIN, Client, World, address, forward, reverse, run};

const SERVER: &str = "10.0.0.3:80";

/// A request of the corpus.
struct Case {
    method: &'static str,
    /// Field lines, each with its CRLF.
    fields: &'static str,
    body: &'static str,
    /// How it is handled, with or without a stored response.
    becomes: Becomes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Becomes {
    /// Answered from the store if possible, otherwise by the origin.
    Cacheable,
    /// Answered from the store, otherwise with 504, never by the origin.
    OnlyFromStore,
    /// The origin answers each time.
    PassedOn,
    /// Refused with this status.
    Refused(u16),
}

const fn case(method: &'static str, fields: &'static str, becomes: Becomes) -> Case {
    Case { method, fields, body: "", becomes }
}

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n";

const CORPUS: &[Case] = &[
    case("GET", "", Becomes::Cacheable),
    case("HEAD", "", Becomes::Cacheable),
    case("GET", "If-None-Match: \"other\"\r\n", Becomes::Cacheable),
    case("GET", "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n", Becomes::Cacheable),
    case("GET", "Range: bytes=0-3\r\n", Becomes::Cacheable),
    case("GET", "Expect: 100-continue\r\n", Becomes::Cacheable),
    case("GET", "Via: 1.1 another\r\n", Becomes::Cacheable),
    case("GET", "Connection: Upgrade\r\nUpgrade: h2c\r\n", Becomes::Cacheable),
    case("GET", "Upgrade: websocket\r\n", Becomes::Cacheable),
    case("GET", "Cache-Control: only-if-cached\r\n", Becomes::OnlyFromStore),
    case("GET", "Max-Forwards: 0\r\n", Becomes::Cacheable),
    case("GET", UPGRADE, Becomes::PassedOn),
    case("GET", "If-Match: \"other\"\r\n", Becomes::PassedOn),
    case("GET", "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n", Becomes::PassedOn),
    Case { body: "abcd", ..case("GET", "Content-Length: 4\r\n", Becomes::PassedOn) },
    Case { body: "abcd", ..case("POST", "Content-Length: 4\r\n", Becomes::PassedOn) },
    case("DELETE", "", Becomes::PassedOn),
    case("OPTIONS", "", Becomes::PassedOn),
    case("OPTIONS", "Max-Forwards: 0\r\n", Becomes::Refused(200)),
    case("TRACE", "Max-Forwards: 0\r\n", Becomes::Refused(501)),
    case("GET", "Expect: x\r\n", Becomes::Refused(417)),
    case("HEAD", "Expect: x\r\n", Becomes::Refused(417)),
    case("GET", "Via: 1.0 a, 1.1 cache-1\r\n", Becomes::Refused(508)),
    case("POST", "Via: 1.1 cache-1\r\nContent-Length: 0\r\n", Becomes::Refused(508)),
];

/// What happened to a request.
#[derive(Debug, PartialEq, Eq)]
struct Happened {
    status: u16,
    asked_origin: bool,
}

/// A proxy named `cache-1`; in reverse mode in front of the server of this test.
fn named(mut config: Config) -> Config {
    config.via.name = Some("cache-1".parse().unwrap());
    let origin =
        Origin { authority: "10.0.0.3".into(), addresses: vec![address(SERVER)], tls: None };
    if !config.groups.is_empty() {
        let before = Config::reverse([origin], &[]);
        config.groups = before.groups;
    }
    config
}

/// An origin that accepts any request and answers all alike.
#[derive(Default)]
struct Server {
    asked: RefCell<HashMap<String, usize>>,
}

impl Server {
    fn start() -> Rc<Server> {
        let listener = TcpListener::bind(address(SERVER), &ListenOptions::default()).unwrap();
        let server = Rc::new(Server::default());
        let accepting = {
            let server = Rc::clone(&server);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    runtime::spawn(Rc::clone(&server).serve(stream)).detach();
                }
            }
        };
        runtime::spawn(accepting).detach();
        server
    }

    /// One request for each connection.
    async fn serve(self: Rc<Self>, stream: TcpStream) {
        let mut got = Vec::new();
        let mut piece = [0; 4096];
        let end = loop {
            match got.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => match stream.read(&mut piece).await {
                    Ok(read) if read > 0 => got.extend_from_slice(&piece[..read]),
                    _ => return,
                },
            }
        };
        let head = String::from_utf8(got[..end].to_vec()).unwrap();
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        *self.asked.borrow_mut().entry(path.to_owned()).or_default() += 1;
        let body = if method == "HEAD" { "" } else { "0123456789" };
        let answer = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nETag: \"x\"\r\n\
             Content-Length: 10\r\nConnection: close\r\n\r\n{body}"
        );
        let _ = stream.write_all(answer.as_bytes()).await;
        // An unread rest of the request's body must not turn the close into a reset.
        while stream.read(&mut piece).await.is_ok_and(|read| read > 0) {}
    }

    fn count(&self, path: &str) -> usize {
        self.asked.borrow().get(path).copied().unwrap_or(0)
    }
}

/// Sends a request for a new target, with or without storing a response for it first.
async fn send(server: &Server, base: &str, (case, at): (&Case, usize), stored: bool) -> Happened {
    let path = format!("/c/{at}-{stored}");
    let target = format!("{base}{path}");
    if stored {
        let request = format!("GET {target} HTTP/1.1\r\nHost: 10.0.0.3\r\n\r\n");
        assert_eq!(Client::new().await.ask(request.as_bytes()).await.status, 200);
    }
    let explained = explain(&path, base, case).await;
    let before = server.count(&path);
    let Case { method, fields, body, .. } = case;
    let mut client = Client::new().await;
    let request = format!("{method} {target} HTTP/1.1\r\nHost: 10.0.0.3\r\n{fields}\r\n{body}");
    client.send(request.as_bytes()).await.unwrap();
    let status = client.response_to(method).await.unwrap().status;
    let happened = Happened { status, asked_origin: server.count(&path) > before };
    let does = explained.decision.does.as_str();
    let predicts_origin = matches!(does, "fetch" | "validate" | "pass" | "tunnel");
    let context = format!("{method} {fields:?} stored {stored}: {does}, then {happened:?}");
    assert_eq!(predicts_origin, happened.asked_origin, "{context}");
    if let Some(status) = explained.answer.status.filter(|_| explained.answer.exact) {
        assert_eq!(status, happened.status, "{context}");
    }
    happened
}

/// The explanation of the request by the admin address, before it is sent.
async fn explain(path: &str, base: &str, case: &Case) -> Explained {
    let encoded = |text: &str| text.bytes().map(|b| format!("%{b:02x}")).collect::<String>();
    let url =
        if base.is_empty() { format!("http://10.0.0.3{path}") } else { format!("{base}{path}") };
    let mut query = format!("url={}&method={}", encoded(&url), case.method);
    for line in case.fields.lines() {
        query += &format!("&header={}", encoded(line));
    }
    let mut admin = Client::to(ADMIN).await.unwrap();
    let call = format!("GET /explain?{query} HTTP/1.1\r\nHost: a\r\n\r\n");
    let reply = admin.ask(call.as_bytes()).await;
    assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    serde_json::from_slice(&reply.body).unwrap()
}

async fn check(base: &str) {
    let server = Server::start();
    for (at, case) in CORPUS.iter().enumerate() {
        let with = send(&server, base, (case, at), true).await;
        let without = send(&server, base, (case, at), false).await;
        let context = format!("{} {:?}: {with:?}, {without:?}", case.method, case.fields);
        match case.becomes {
            Becomes::Cacheable => {
                assert!(!with.asked_origin && without.asked_origin, "{context}");
                assert_eq!(with.status, without.status, "{context}");
            }
            Becomes::OnlyFromStore => {
                assert!(!with.asked_origin && !without.asked_origin, "{context}");
                assert_eq!((with.status, without.status), (200, 504), "{context}");
            }
            Becomes::PassedOn => {
                assert!(with.asked_origin && without.asked_origin, "{context}");
                assert_eq!(with.status, without.status, "{context}");
            }
            Becomes::Refused(status) => {
                let refused = Happened { status, asked_origin: false };
                assert!(with == refused && without == refused, "{context}");
            }
        }
    }
}

#[test]
fn stored_responses_do_not_change_the_class_of_a_request() {
    sim::check(0..2, |seed| {
        run(sim::Options::new(seed), named(reverse()), async |_: Rc<World>| {
            check("").await;
        });
    });
}

#[test]
fn nor_do_they_for_a_forward_proxy() {
    sim::check(0..2, |seed| {
        run(sim::Options::new(seed), named(forward()), async |_: Rc<World>| {
            check("http://10.0.0.3").await;
        });
    });
}

/// It was answered with the stored response.
#[test]
fn a_websocket_request_for_a_stored_url_is_passed_on() {
    run(sim::Options::new(1), named(reverse()), async |_: Rc<World>| {
        let server = Server::start();
        let case = case("GET", UPGRADE, Becomes::PassedOn);
        assert!(send(&server, "", (&case, 0), true).await.asked_origin);
    });
}

/// It was answered with 200 from the store.
#[test]
fn an_unknown_expectation_is_refused_for_a_stored_url_too() {
    run(sim::Options::new(1), named(reverse()), async |_: Rc<World>| {
        let server = Server::start();
        let case = case("GET", "Expect: x\r\n", Becomes::Refused(417));
        assert_eq!(send(&server, "", (&case, 0), true).await.status, 417);
    });
}
