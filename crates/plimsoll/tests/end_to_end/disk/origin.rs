//! An origin whose every byte is a function of the name, the variant and a changing version, so
//! that a response alone shows whether it is correct and which version it is.
//!
//! A name is `/KIND/SIZE/NUMBER`; see [`Kind`]. The bodies of versions differ in length by a few
//! bytes.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use runtime::sim::Rng;

use crate::support::Accepting;

/// The kind of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// With a strong ETag.
    Plain,
    /// The same, and it varies by `X-Variant` of the request.
    Vary,
    /// Without a validator: a missing part cannot be fetched.
    Bare,
}

/// An object that can be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) kind: Kind,
    pub(super) bytes: u64,
    pub(super) number: u64,
}

/// Number of tags; the number of an object determines its tag.
pub(super) const TAGS: u64 = 8;

impl Object {
    pub(super) fn path(&self) -> String {
        let kind = match self.kind {
            Kind::Plain => "plain",
            Kind::Vary => "vary",
            Kind::Bare => "bare",
        };
        format!("/{kind}/{}/{}", self.bytes, self.number)
    }

    fn of(path: &str) -> Option<Object> {
        let mut parts = path.strip_prefix('/')?.split('/');
        let kind = match parts.next()? {
            "plain" => Kind::Plain,
            "vary" => Kind::Vary,
            "bare" => Kind::Bare,
            _ => return None,
        };
        let bytes = parts.next()?.parse().ok()?;
        Some(Object { kind, bytes, number: parts.next()?.parse().ok()? })
    }

    /// Its correct body.
    pub(super) fn body(&self, variant: &str, version: u64) -> Vec<u8> {
        let more = if self.bytes == 0 { 0 } else { version % 3 * 7 };
        let bytes = usize::try_from(self.bytes + more).unwrap();
        let name = format!("{} {variant} {version}", self.path());
        // FNV-1a, then SplitMix64: different for every object, and fast in an unoptimised build.
        let seed = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
        });
        let mut body = Vec::with_capacity(bytes + 8);
        let mut random = Rng::new(seed);
        while body.len() < bytes {
            body.extend_from_slice(&random.next().to_le_bytes());
        }
        body.truncate(bytes);
        body
    }
}

/// The versions of changed objects.
#[derive(Default)]
struct State {
    versions: Mutex<HashMap<String, u64>>,
    requests: AtomicU64,
}

impl State {
    fn version(&self, path: &str) -> u64 {
        self.versions.lock().unwrap().get(path).copied().unwrap_or(0)
    }

    fn change(&self, path: &str) -> u64 {
        let mut versions = self.versions.lock().unwrap();
        let version = versions.entry(path.to_owned()).or_default();
        *version += 1;
        *version
    }
}

/// The server, with a thread per connection. Dropping it ends it.
pub(super) struct Origin {
    accepting: Accepting,
    state: Arc<State>,
}

impl Origin {
    pub(super) fn start() -> Origin {
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        // A killed proxy can end its connections at any point.
        let accepting = Accepting::start(move |stream| drop(serve(&stream, &shared)));
        Origin { accepting, state }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.accepting.address)
    }

    pub(super) fn version(&self, path: &str) -> u64 {
        self.state.version(path)
    }

    /// Changes an object.
    pub(super) fn change(&self, path: &str) -> u64 {
        self.state.change(path)
    }

    /// Requests so far.
    pub(super) fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::Relaxed)
    }
}

fn serve(stream: &TcpStream, state: &State) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut to = stream;
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            lines.push(line.to_owned());
        }
        state.requests.fetch_add(1, Ordering::Relaxed);
        to.write_all(&answer(&lines, state))?;
    }
}

/// The value of a field.
pub(super) fn field<'l>(lines: impl IntoIterator<Item = &'l str>, name: &str) -> Option<&'l str> {
    lines.into_iter().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

fn answer(lines: &[String], state: &State) -> Vec<u8> {
    let mut words = lines[0].split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let asked = |name| field(lines[1..].iter().map(String::as_str), name);
    let Some(object) = Object::of(path) else {
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec();
    };
    if method == "POST" {
        let version = state.change(path);
        return format!("HTTP/1.1 200 OK\r\nX-Version: {version}\r\nContent-Length: 0\r\n\r\n")
            .into_bytes();
    }
    let version = state.version(path);
    let variant = match object.kind {
        Kind::Vary => asked("x-variant").unwrap_or(""),
        _ => "",
    };
    let tag = format!("\"{version}{variant}\"");
    let mut head = format!("X-Version: {version}\r\nX-Saw: {variant}.\r\n");
    head += "Cache-Control: max-age=3600\r\n";
    head += &format!("Surrogate-Key: t{}\r\n", object.number % TAGS);
    if object.kind != Kind::Bare {
        head += &format!("ETag: {tag}\r\n");
    }
    if object.kind == Kind::Vary {
        head += "Vary: X-Variant\r\n";
    }
    if object.kind != Kind::Bare && asked("if-none-match").is_some_and(|tags| tags.contains(&tag)) {
        return format!("HTTP/1.1 304 Not Modified\r\n{head}\r\n").into_bytes();
    }
    let body = object.body(variant, version);
    let whole = body.len() as u64;
    let same = asked("if-range").is_none_or(|wanted| wanted == tag && object.kind != Kind::Bare);
    let range = asked("range").filter(|_| same).and_then(|range| {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        let first: u64 = first.parse().ok()?;
        let last = last.parse().unwrap_or(u64::MAX).min(whole.checked_sub(1)?);
        (first <= last).then_some((first, last))
    });
    let (status, part) = match range {
        None => ("200 OK", &body[..]),
        Some((first, last)) => {
            head += &format!("Content-Range: bytes {first}-{last}/{whole}\r\n");
            ("206 Partial Content", &body[first as usize..=last as usize])
        }
    };
    let head = format!("HTTP/1.1 {status}\r\n{head}Content-Length: {}\r\n\r\n", part.len());
    if method == "HEAD" {
        return head.into_bytes();
    }
    [head.as_bytes(), part].concat()
}
