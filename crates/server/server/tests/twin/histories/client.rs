//! The simulated clients: what they ask, and what they write into the history.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use runtime::time::{sleep, timeout};

use super::origin::{NO_VERSION, Versions, body, target, versions_in};
use super::{Answer, Got, NEVER, Purge, Request, URLS, Validator};
use crate::common::Response;
use crate::storm::Draw;
use crate::world::{ADMIN, Client, Version};

/// Longer than any answer takes: what takes longer is reported as one that never ends.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long a slow client stays, and how much it reads in a tenth of a second.
const SLOW_SECONDS: u64 = 8;
const SLOW_BYTES: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Get,
    Head,
    Range,
    /// With the validator of the client's last response.
    Condition,
    /// An unsafe method.
    Change(&'static str),
}

/// How the origin is to answer a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// As the policy of the URL says.
    Usual,
    /// As if for this client alone.
    Odd,
    /// The body breaks off ...
    Cut,
    /// ... or there is no answer.
    Gone,
    /// The head comes late, with the `Date` of that instant.
    Late,
    /// At once, with a body that takes seconds.
    Long,
}

/// The words for them in `X-Wish`.
pub(super) const WISHES: [(Wish, &str); 5] = [
    (Wish::Odd, "odd"),
    (Wish::Cut, "cut"),
    (Wish::Gone, "gone"),
    (Wish::Late, "late"),
    (Wish::Long, "long"),
];

/// What a client asks.
#[derive(Debug, Clone, Copy)]
pub(super) struct What {
    pub(super) kind: Kind,
    pub(super) url: usize,
    pub(super) variant: u8,
    pub(super) at: &'static str,
    pub(super) over: Version,
    /// The directive of a reload.
    pub(super) reload: Option<&'static str>,
    pub(super) max_stale: bool,
    pub(super) wish: Wish,
    /// It has a cookie.
    pub(super) known: bool,
    pub(super) slow: bool,
    pub(super) herd: Option<usize>,
}

impl What {
    /// A plain GET.
    pub(super) fn get(url: usize, variant: u8, (at, over): (&'static str, Version)) -> What {
        let (kind, wish, reload, herd) = (Kind::Get, Wish::Usual, None, None);
        let [max_stale, known, slow] = [false; 3];
        What { kind, url, variant, at, over, reload, max_stale, wish, known, slow, herd }
    }

    /// Any request.
    pub(super) fn drawn(
        draw: &mut Draw,
        way_to: impl Fn(&mut Draw, usize) -> (&'static str, Version),
    ) -> What {
        let change = Kind::Change(draw.of(&["PUT", "POST", "DELETE"]));
        let kind = match draw.below(24) {
            0 => change,
            1 | 2 => Kind::Head,
            3..=5 => Kind::Range,
            6 | 7 => Kind::Condition,
            _ => Kind::Get,
        };
        let url = draw.below(URLS) as usize;
        let get = What::get(url, draw.below(2) as u8, way_to(draw, url));
        What {
            kind,
            reload: draw.of(&[None, None, None, None, Some("no-cache"), Some("max-age=0")]),
            max_stale: draw.below(16) == 0,
            wish: if draw.below(8) == 0 { Wish::Odd } else { Wish::Usual },
            known: draw.below(2) == 0,
            ..get
        }
    }

    fn method(&self) -> &'static str {
        match self.kind {
            Kind::Head => "HEAD",
            Kind::Change(method) => method,
            _ => "GET",
        }
    }

    fn text(&self, validator: Option<&String>) -> String {
        let mut text = format!("{} {} HTTP/1.1\r\nHost: site\r\n", self.method(), target(self.url));
        text += &format!("X-V: {}\r\n", self.variant);
        match self.kind {
            Kind::Range => text += ["Range: bytes=0-19\r\n", "Range: bytes=20-\r\n"][self.url % 2],
            Kind::Condition => text += validator.map_or("If-None-Match: \"?\"\r\n", |line| line),
            Kind::Change(_) => text += "Content-Length: 0\r\n",
            Kind::Get | Kind::Head => {}
        }
        match (self.reload, self.max_stale) {
            (Some(directive), _) => text += &format!("Cache-Control: {directive}\r\n"),
            (None, true) => text += "Cache-Control: max-stale\r\n",
            (None, false) => {}
        }
        if let Some((_, word)) = WISHES.iter().find(|(wish, _)| *wish == self.wish) {
            text += &format!("X-Wish: {word}\r\n");
        }
        if self.known {
            text += "Cookie: id=known\r\n";
        }
        text + "\r\n"
    }
}

/// A client, which opens a connection for each request.
pub(super) struct Asker {
    origin: Rc<Versions>,
    /// The lines with the validators of its last responses.
    validators: HashMap<(usize, u8), String>,
}

impl Asker {
    pub(super) fn new(origin: Rc<Versions>) -> Asker {
        Asker { origin, validators: HashMap::new() }
    }

    /// Sends one request, and waits for its end.
    pub(super) async fn ask(&mut self, mut what: What) {
        let validator = self.origin.history.borrow().policies[what.url].validator;
        if what.kind == Kind::Head && validator == Validator::None {
            // Without a validator nothing says that the stored body is of another version.
            what.kind = Kind::Get;
        }
        let mut client = Client::over(what.over, what.at).await.unwrap();
        if what.herd.is_some() {
            // The members have connections before the first of them asks.
            sleep(Duration::from_millis(200)).await;
        }
        let start = self.origin.now();
        let at = {
            let requests = &mut self.origin.history.borrow_mut().requests;
            requests.push(Request { what, start, end: NEVER, got: Got::Waits });
            requests.len() - 1
        };
        let text = what.text(self.validators.get(&(what.url, what.variant)));
        let got = timeout(PATIENCE, async {
            if client.send(text.as_bytes()).await.is_err() {
                return Got::Broken;
            }
            if what.slow {
                for _ in 0..SLOW_SECONDS * 10 {
                    sleep(Duration::from_millis(100)).await;
                    let _ = timeout(Duration::from_millis(1), client.take(SLOW_BYTES)).await;
                }
                return Got::Left;
            }
            match client.response_to(what.method()).await {
                Ok(response) => self.got(&what, &response),
                Err(_) => Got::Broken,
            }
        });
        let got = got.await.unwrap_or(Got::Waits);
        if got == Got::Left {
            client.abort();
        }
        let end = if got == Got::Waits { NEVER } else { self.origin.now() };
        let request = &mut self.origin.history.borrow_mut().requests[at];
        (request.end, request.got) = (end, got);
    }

    fn got(&mut self, what: &What, response: &Response) -> Got {
        for (field, name) in [("etag", "If-None-Match"), ("last-modified", "If-Modified-Since")] {
            if let Some(value) = response.field(field) {
                let line = format!("{name}: {value}\r\n");
                self.validators.insert((what.url, what.variant), line);
                break;
            }
        }
        let number = |name| response.field(name).map(|value| value.parse().expect("a number"));
        let version = number("x-version").map(|version: usize| version as u32);
        let wrong = version.and_then(|version| self.wrong(what, response, version));
        Got::Whole(Answer {
            status: response.status,
            fetch: number("x-fetch"),
            version: version.filter(|version| *version < NO_VERSION),
            wrong,
            bytes: response.body.len(),
            cache_status: response.field("cache-status").unwrap_or("none").to_owned(),
            cookie: response.field("set-cookie").map(str::to_owned),
        })
    }

    /// The versions in a body that is not exactly that of its version.
    fn wrong(&self, what: &What, response: &Response, version: u32) -> Option<Vec<u32>> {
        let policy = &self.origin.history.borrow().policies[what.url];
        if what.kind == Kind::Head || matches!(response.status, 304 | 416) {
            return None;
        }
        let size = if version < NO_VERSION { policy.size } else { 64 };
        let variant = if policy.varies { what.variant } else { 0 };
        let mut right = body(what.url, variant, version, size);
        if let Some(range) = response.field("content-range") {
            let (first, rest) = range.strip_prefix("bytes ")?.split_once('-')?;
            let (last, _) = rest.split_once('/')?;
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            right = right[first..=last].to_vec();
        }
        (right != response.body).then(|| versions_in(&response.body))
    }
}

/// What a purge names.
#[derive(Debug, Clone, Copy)]
pub(super) enum By {
    Url,
    Prefix,
    Tag,
}

/// Purges a URL, and those that share its prefix or its tag.
pub(super) async fn purge(origin: &Versions, by: By, url: usize, soft: bool) {
    let (by, like) = match by {
        By::Url => (format!("url=http://site{}", target(url).replace("=1", "%3D1")), URLS as usize),
        By::Prefix => (format!("prefix=site{}", &target(url)[..3]), 2),
        By::Tag => (format!("tag=t{}", url % 2), 2),
    };
    let urls = (0..URLS as usize).filter(|other| other % like == url % like).collect();
    let start = origin.now();
    let at = {
        let purges = &mut origin.history.borrow_mut().purges;
        purges.push(Purge { by: by.clone(), urls, soft, start, end: NEVER });
        purges.len() - 1
    };
    let flag = if soft { "&soft=1" } else { "" };
    let text = format!("POST /purge?{by}{flag} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    let got = Client::to(ADMIN).await.unwrap().ask(text.as_bytes()).await;
    assert_eq!(got.status, 200, "{by}: {}", String::from_utf8_lossy(&got.body));
    origin.history.borrow_mut().purges[at].end = origin.now();
}
