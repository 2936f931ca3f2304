//! `plimsoll import`: the real server runs on its file and ours on the imported one. Both get the
//! same 200 requests, and their answers are compared.
//!
//! A difference must be in the table of the test, with its reason, and each row of the table must
//! occur: otherwise it is not a difference any more.

mod nginx;
mod squid;
mod tried;
pub(crate) mod varnish;
mod verb;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Accepting, Home, OurServer, SOON, free_port, plimsoll};

/// Requests that each pair of servers gets.
const REQUESTS: usize = 200;

/// A request.
#[derive(Clone, Debug)]
struct Request {
    method: &'static str,
    target: String,
    host: String,
    fields: &'static str,
    body: &'static str,
}

impl Request {
    fn get(target: impl Into<String>, host: impl Into<String>) -> Request {
        let (target, host) = (target.into(), host.into());
        Request { method: "GET", target, host, fields: "", body: "" }
    }

    fn with(self, fields: &'static str) -> Request {
        Request { fields, ..self }
    }

    fn method(self, method: &'static str, body: &'static str) -> Request {
        Request { method, body, ..self }
    }
}

/// A response.
#[derive(Clone, Debug)]
struct Answer {
    status: u16,
    fields: BTreeMap<String, Vec<String>>,
    body: Vec<u8>,
}

impl Answer {
    fn field(&self, name: &str) -> String {
        self.fields.get(name).map(|all| all.join(", ")).unwrap_or_default()
    }

    /// The content without gzip, if it has that.
    fn decoded(&self) -> Vec<u8> {
        if self.field("content-encoding") != "gzip" {
            return self.body.clone();
        }
        let mut child = Command::new("gzip")
            .arg("-dc")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Short enough for the pipe.
        child.stdin.take().unwrap().write_all(&self.body).unwrap();
        child.wait_with_output().unwrap().stdout
    }
}

/// Sends a request on a new connection.
fn ask(address: SocketAddr, request: &Request) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let Request { method, target, host, fields, body } = request;
    let length =
        if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let text = format!(
        "{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}{length}\r\n\
         {body}"
    );
    stream.write_all(text.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    // A server that refuses may reset the connection after its response.
    let _ = stream.read_to_end(&mut bytes);
    answer(&bytes).unwrap_or_else(|| panic!("{text}: {}", bytes.escape_ascii()))
}

fn answer(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let mut fields: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in lines {
        let (name, value) = line.split_once(':')?;
        fields.entry(name.to_ascii_lowercase()).or_default().push(value.trim().to_owned());
    }
    let mut body = bytes[end + 4..].to_vec();
    if fields.get("transfer-encoding").is_some_and(|all| all == &["chunked"]) {
        body = joined(&body)?;
    }
    Some(Answer { status, fields, body })
}

/// The content of a body in chunks.
fn joined(mut chunks: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = chunks.windows(2).position(|two| two == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&chunks[..end]).ok()?, 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        body.extend(chunks.get(end + 2..end + 2 + length)?);
        chunks = chunks.get(end + 4 + length..)?;
    }
}

/// The origin: the first part of a path says how its response may be stored. It reports what it
/// was sent in `X-Seen-` fields.
fn origin(name: &'static str) -> Accepting {
    Accepting::start(move |stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let [mut first, mut host, mut from, mut tag, mut cookie, mut user, mut language] =
            std::array::from_fn(|_| String::new());
        let mut length = 0;
        if reader.read_line(&mut first).is_err() || first.is_empty() {
            return;
        }
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).is_err() || line.trim().is_empty() {
                break;
            }
            let (field, value) = line.split_once(':').unwrap_or_default();
            let value = value.trim().to_owned();
            match field.to_ascii_lowercase().as_str() {
                "host" => host = value,
                "x-forwarded-for" => from = value,
                "if-none-match" => tag = value,
                "cookie" => cookie = value,
                "x-remote-user" => user = value,
                "x-language" => language = value,
                "content-length" => length = value.parse().unwrap_or(0),
                _ => {}
            }
        }
        let mut content = vec![0; length];
        let _ = reader.read_exact(&mut content);
        let method = first.split(' ').next().unwrap_or_default();
        let target = first.split(' ').nth(1).unwrap_or_default();
        // A parent is asked for whole URLs.
        let path = target.split_once("://").map_or(target, |(_, rest)| {
            rest.split_once('/').map_or("", |(authority, _)| &rest[authority.len()..])
        });
        let kind = path.split('/').nth(1).unwrap_or_default();
        let lifetime = match kind {
            "private" => "private",
            "none" => "no-store",
            "public" => "public, max-age=600",
            // Nothing about how long it is fresh.
            "plain" | "gone" | "fails" => "",
            _ => "max-age=600",
        };
        let own = format!("\"{}\"", path.len());
        let session = if kind == "session" { "Set-Cookie: sid=1\r\n" } else { "" };
        let (status, body) = match (method, kind) {
            ("POST", _) => ("200 OK", format!("{} bytes\n", content.len())),
            (_, "missing" | "gone") => ("404 Not Found", "not here\n".to_owned()),
            (_, "fails") => ("503 Service Unavailable", "no\n".to_owned()),
            _ if tag == own => ("304 Not Modified", String::new()),
            _ => ("200 OK", format!("{name} {path}\n").repeat(20)),
        };
        let lifetime = match if method == "POST" { "no-store" } else { lifetime } {
            "" => String::new(),
            lifetime => format!("Cache-Control: {lifetime}\r\n"),
        };
        // A length of 0 in a 304 would be that of the content.
        let length = match status.starts_with("304") {
            true => String::new(),
            false => format!("Content-Length: {}\r\n", body.len()),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\n{length}Accept-Ranges: bytes\r\n\
             {lifetime}ETag: {own}\r\nX-Powered-By: test\r\n\
             X-Seen-Host: {host}\r\nX-Seen-For: {from}\r\nX-Seen-Cookie: {cookie}\r\n\
             X-Seen-User: {user}\r\nX-Seen-Language: {language}\r\nX-Origin: {name}\r\n\
             {session}Connection: close\r\n\r\n"
        );
        let body = if method == "HEAD" || status.starts_with("304") { "" } else { &body };
        let _ = (&stream).write_all(format!("{head}{body}").as_bytes());
    })
}

/// A difference that is allowed.
#[derive(Clone, Copy)]
struct Allowed {
    why: &'static str,
    applies: fn(&Request, &Answer, &Answer) -> bool,
}

/// Whether both came from the store, or none.
fn both_hit(theirs: &Answer, ours: &Answer) -> bool {
    let hit = theirs.field("x-cache") == "HIT" || theirs.field("x-varnish").contains(' ');
    hit == is_hit(ours)
}

/// What differs where responses are coded.
const CODED: &[Allowed] = &[
    Allowed {
        why: "the first client gets a response as it is stored here, and coded there",
        applies: |request, theirs, ours| {
            let coded = request.fields.contains("gzip");
            let plain = ours.field("content-encoding").is_empty();
            coded && plain && both_hit(theirs, ours) && theirs.decoded() == ours.body
        },
    },
    Allowed {
        why: "both are coded, with other lengths",
        applies: |request, theirs, ours| {
            let coded = |answer: &Answer| answer.field("content-encoding") == "gzip";
            let same = theirs.decoded() == ours.decoded();
            request.fields.contains("gzip") && coded(theirs) && coded(ours) && same && is_hit(ours)
        },
    },
];

/// A pair of servers.
struct Pair {
    theirs: SocketAddr,
    ours: SocketAddr,
    /// Whether the other server says that a response came from its store.
    hit: fn(&Answer) -> bool,
    /// Fields that are compared besides the usual ones.
    fields: &'static [&'static str],
    allowed: &'static [Allowed],
    _mine: OurServer,
}

/// Fields that are compared.
const FIELDS: &[&str] = &["content-type", "etag", "content-range", "content-length"];

impl Pair {
    /// Imports the file of the other server, which listens on this port, and starts ours on it with
    /// another port and with these replacements. `left`: the lines of what is not carried; without
    /// it, much is not.
    fn start(
        home: &Home,
        (file, theirs): (&str, u16),
        left: Option<&[usize]>,
        replaced: &[(&str, &str)],
        hit: fn(&Answer) -> bool,
    ) -> Pair {
        let output = plimsoll(&["import", &home.at(file), "--json"]);
        let result = output.json();
        let of = |fate: &str| -> Vec<usize> {
            let notes = result["notes"].as_array().unwrap().iter();
            let notes = notes.filter(|note| note["fate"] == fate);
            notes.map(|note| note["line"].as_u64().unwrap() as usize).collect()
        };
        let differs =
            ["different", "not_carried", "unprotected"].iter().any(|fate| !of(fate).is_empty());
        assert_eq!(output.code, Some(i32::from(differs)), "{output:?}");
        if let Some(left) = left {
            assert_eq!(of("not_carried"), left, "{:#}", result["notes"]);
            assert_eq!(of("unprotected"), [0; 0], "{:#}", result["notes"]);
        }
        let port = free_port();
        let mine = format!("127.0.0.1:{port}");
        let text = result["configuration"].as_str().unwrap();
        // VCL has no address: ours is the one of varnishd.
        let mut text = text.replace(&format!("127.0.0.1:{theirs}"), &mine);
        for (from, to) in [("127.0.0.1:6081", mine.as_str())].iter().chain(replaced) {
            text = text.replace(from, to);
        }
        let toml = home.write("plimsoll.toml", text);
        plimsoll(&["check", &toml]).succeeded();
        let server = OurServer::configured(&toml);
        assert_ne!(server.announced["listen"], Value::Null);
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (theirs, ours) = (address(theirs), address(port));
        Pair { theirs, ours, hit, fields: &[], allowed: &[], _mine: server }
    }

    /// Sends the requests to both, one after the other, and compares their answers.
    fn compare(&self, requests: &[Request]) {
        assert_eq!(requests.len(), REQUESTS);
        let mut used = vec![0; self.allowed.len()];
        let (mut wrong, mut hits, mut refused) = (Vec::new(), 0, 0);
        for request in requests {
            let (theirs, ours) = (ask(self.theirs, request), ask(self.ours, request));
            hits += usize::from(is_hit(&ours));
            refused += usize::from(ours.status >= 400);
            let Some(difference) = self.difference(&theirs, &ours) else { continue };
            let row = self.allowed.iter().position(|one| (one.applies)(request, &theirs, &ours));
            match row {
                Some(row) => used[row] += 1,
                None => wrong.push(format!(
                    "{request:?}: {difference}\n{:?}\n{:?}",
                    theirs.fields, ours.fields
                )),
            }
        }
        assert!(wrong.is_empty(), "{} of {REQUESTS}:\n{}", wrong.len(), wrong.join("\n"));
        for (row, times) in self.allowed.iter().zip(used) {
            assert!(times > 0, "this difference does not occur: {}", row.why);
        }
        // Otherwise the comparison says little.
        assert!(hits >= REQUESTS / 4, "only {hits} hits");
        assert!(refused >= REQUESTS / 20, "only {refused} refusals");
    }

    /// Sends the requests to both. What the other server refuses, ours refuses; what it does not
    /// take from its store, ours does not; a field that it hides, ours hides. Ours may do less.
    fn is_no_opener(&self, requests: &[Request]) {
        assert_eq!(requests.len(), REQUESTS);
        let (mut wrong, mut refused, mut answered) = (Vec::new(), 0, 0);
        for request in requests {
            let (theirs, ours) = (ask(self.theirs, request), ask(self.ours, request));
            let (theirs_seen, ours_seen) =
                [&theirs, &ours].map(|answer| answer.fields.contains_key("x-origin")).into();
            let refuses = theirs.status >= 400 && !theirs_seen;
            refused += usize::from(refuses);
            answered += usize::from(ours_seen);
            let what = if refuses && ours.status < 400 {
                "opened"
            } else if ours_seen && theirs.field("x-origin") != ours.field("x-origin") {
                "another origin"
            } else if is_hit(&ours) && !(self.hit)(&theirs) {
                "shared"
            } else if ours_seen
                && !is_hit(&ours)
                && ["x-seen-user", "x-seen-for"].iter().any(|name| {
                    ours.field(name).contains("forged") && !theirs.field(name).contains("forged")
                })
            {
                "passed on"
            } else if request.method == "POST"
                && ours_seen
                && theirs.field("x-seen-cookie") != ours.field("x-seen-cookie")
            {
                "a form without its cookie"
            } else {
                continue;
            };
            wrong.push(format!("{what}: {request:?}\n{:?}\n{:?}", theirs.fields, ours.fields));
        }
        assert!(wrong.is_empty(), "{} of {REQUESTS}:\n{}", wrong.len(), wrong.join("\n"));
        // Otherwise the comparison says little.
        assert!(refused >= REQUESTS / 10, "only {refused} refusals");
        assert!(answered >= REQUESTS / 10, "only {answered} answers of origins");
    }

    fn difference(&self, theirs: &Answer, ours: &Answer) -> Option<String> {
        if theirs.status != ours.status {
            return Some(format!("status {} and {}", theirs.status, ours.status));
        }
        if (self.hit)(theirs) != is_hit(ours) {
            return Some(format!("hit: {} and {}", (self.hit)(theirs), is_hit(ours)));
        }
        // Of a 304, RFC 9110 (15.4.5) requires few fields.
        if ours.status == 304 {
            let (one, other) = (theirs.field("etag"), ours.field("etag"));
            return (one != other).then(|| format!("etag: {one} and {other}"));
        }
        let from_origin = |answer: &Answer| answer.fields.contains_key("x-seen-host");
        if from_origin(theirs) != from_origin(ours) {
            return Some("one is the origin's".to_owned());
        }
        // Pages of refusals are each server's own.
        if !from_origin(ours) && ours.status >= 300 {
            let path = |answer: &Answer| {
                let location = answer.field("location");
                let (_, rest) = location.split_once("://").unwrap_or(("", &location));
                rest[rest.find('/').unwrap_or(0)..].to_owned()
            };
            let (one, other) = (path(theirs), path(ours));
            return (one != other).then(|| format!("Location {one} and {other}"));
        }
        if theirs.body != ours.body {
            return Some("bodies".to_owned());
        }
        FIELDS.iter().chain(self.fields).find_map(|name| {
            let (one, other) = (theirs.field(name), ours.field(name));
            (one != other).then(|| format!("{name}: {one:?} and {other:?}"))
        })
    }
}

/// Whether ours came from the store.
fn is_hit(answer: &Answer) -> bool {
    answer.field("cache-status").contains("; hit")
}

/// Requests to each of these hosts and paths in turn, as clients send them that want more than they
/// may have.
fn pushing(hosts: &[&str], paths: &[&str]) -> Vec<Request> {
    let ways = |request: Request| {
        [
            request.clone(),
            request.clone().with("X-Remote-User: forged\r\nX-Forwarded-For: forged\r\n"),
            request.clone().with("Cookie: session=1\r\n"),
            request.clone().with("Authorization: Basic QQ==\r\n"),
            request.clone().method("POST", "a=b").with("Cookie: session=1\r\n"),
            request.clone().method("PURGE", ""),
            request,
        ]
    };
    let all = hosts.iter().flat_map(|host| paths.iter().map(move |path| (host, path)));
    all.flat_map(|(host, path)| ways(Request::get(*path, *host))).cycle().take(REQUESTS).collect()
}
