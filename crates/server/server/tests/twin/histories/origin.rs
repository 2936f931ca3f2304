//! The simulated origin with versions.
//!
//! The version of a URL grows with time and with each change. It is in `X-Version` and in every 16
//! bytes of the body, so that a body of two versions is noticed. Each answer has a number in
//! `X-Fetch`, also a 304, so that a stored response says which answer last brought or confirmed it.
//! How an answer behaves is drawn from the seed within the URL's [`Policy`].

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use runtime::net::{ListenOptions, TcpListener, TcpStream};
use runtime::time::{Instant, now, sleep, wall_ms};

use super::client::{WISHES, Wish};
use super::{Fault, Fetch, Framing, History, Micros, NEVER, Policy, Ranges, Validator};
use crate::origin::{Line, Seen, http_date, part_of};
use crate::storm::Draw;
use crate::world::address;

pub(super) const ADDRESS: &str = "10.0.0.3:80";
/// The version in what is not a version of the URL, with the number of the answer added.
pub(super) const NO_VERSION: u32 = 900_000;
/// The length of what is not a version of the URL.
const OTHER_BYTES: usize = 64;
/// In so many pieces a slow body comes.
const PIECES: u64 = 4;
const BLOCK_BYTES: usize = 16;
/// How long an answer takes for which a client wishes that.
const LATE_MS: u64 = 2500;
/// Longer than the proxy waits.
const STALL: Duration = Duration::from_secs(20);

/// The target of a URL: in one of two folders, with one of two tags.
pub(super) fn target(url: usize) -> String {
    format!("/{}/{url}?ranges=1", ["a", "b"][url % 2])
}

/// The body of one version.
pub(super) fn body(url: usize, variant: u8, version: u32, size: usize) -> Vec<u8> {
    let blocks =
        (0..size.div_ceil(BLOCK_BYTES)).map(|at| format!("{url:02}{variant}{version:06}{at:06}\n"));
    let mut bytes = blocks.collect::<String>().into_bytes();
    bytes.truncate(size);
    bytes
}

/// The versions of which a body has pieces.
pub(super) fn versions_in(bytes: &[u8]) -> Vec<u32> {
    let version = |block: &[u8]| std::str::from_utf8(block.get(3..9)?).ok()?.parse().ok();
    let mut versions: Vec<u32> = bytes.chunks(BLOCK_BYTES).filter_map(version).collect();
    versions.sort_unstable();
    versions.dedup();
    versions
}

/// The origin with versions.
pub(super) struct Versions {
    began: Instant,
    pub(super) history: RefCell<History>,
    draw: RefCell<Draw>,
    /// Changes of each URL.
    changes: Vec<Cell<u32>>,
}

/// How one request is answered.
struct Plan {
    number: usize,
    head_ms: u64,
    body_ms: u64,
    fault: Option<Fault>,
    head: String,
    /// With its framing.
    content: Vec<u8>,
    framing: Framing,
    interim: bool,
}

impl Versions {
    pub(super) fn start(history: History, draw: Draw) -> Rc<Versions> {
        let changes = history.policies.iter().map(|_| Cell::new(0)).collect();
        let (began, history) = (now(), RefCell::new(history));
        let origin = Rc::new(Versions { began, history, draw: RefCell::new(draw), changes });
        let listener = TcpListener::bind(address(ADDRESS), &ListenOptions::default()).unwrap();
        let serving = Rc::clone(&origin);
        runtime::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                runtime::spawn(Rc::clone(&serving).serve(stream)).detach();
            }
        })
        .detach();
        origin
    }

    pub(super) fn now(&self) -> Micros {
        self.began.elapsed().as_micros() as Micros
    }

    async fn serve(self: Rc<Self>, stream: TcpStream) {
        let mut line = Line::new(stream);
        while let Some(seen) = line.head(0).await {
            if line.body(&seen).await.is_none() {
                return;
            }
            let plan = self.plan(&seen);
            let number = plan.number;
            let goes_on = self.answer(&line.stream, plan).await.is_some();
            self.history.borrow_mut().fetches[number].end = self.now();
            if !goes_on {
                return;
            }
        }
    }

    /// `None`: the connection ends.
    async fn answer(&self, stream: &TcpStream, plan: Plan) -> Option<()> {
        sleep(Duration::from_millis(plan.head_ms)).await;
        match plan.fault {
            Some(Fault::Gone) => return None,
            Some(Fault::Stall) => {
                sleep(STALL).await;
                return None;
            }
            _ => {}
        }
        if plan.interim {
            let early = b"HTTP/1.1 103 Early Hints\r\nLink: </s>\r\n\r\n";
            stream.write_all(early).await.ok()?;
        }
        stream.write_all(plan.head.as_bytes()).await.ok()?;
        let is_cut = plan.fault == Some(Fault::Cut);
        let bytes = if is_cut { plan.content.len() / 2 } else { plan.content.len() };
        let pieces = if plan.body_ms > 0 { PIECES } else { 1 };
        for piece in plan.content[..bytes].chunks((bytes / pieces as usize).max(1)) {
            sleep(Duration::from_millis(plan.body_ms / pieces)).await;
            stream.write_all(piece).await.ok()?;
        }
        if is_cut && plan.framing == Framing::Close {
            // Only a reset shows that the end is missing. It overtakes what is not read yet.
            sleep(Duration::from_millis(100)).await;
            stream.set_linger0().ok()?;
        }
        (!is_cut && plan.framing != Framing::Close).then_some(())
    }

    fn version(&self, url: usize, policy: &Policy) -> u32 {
        self.changes[url].get() + (self.now() / (policy.changes_ms * 1000)) as u32 + 1
    }

    /// Decides everything about an answer at the instant of the request.
    fn plan(&self, seen: &Seen) -> Plan {
        let url: usize = seen.target[3..4].parse().expect("one of our targets");
        let policy = self.history.borrow().policies[url].clone();
        let number = self.history.borrow().fetches.len();
        let draw = &mut *self.draw.borrow_mut();
        let is_safe = matches!(seen.method.as_str(), "GET" | "HEAD");
        if !is_safe {
            self.changes[url].set(self.changes[url].get() + 1);
        }
        let version = self.version(url, &policy);
        let variant = u8::from(policy.varies && seen.field("x-v") == Some("1"));
        let is_hit_by_fault = draw.below(100) < policy.faults_percent;
        let wish = WISHES.iter().find(|(_, word)| is_safe && seen.field("x-wish") == Some(word));
        let wish = wish.map_or(Wish::Usual, |(wish, _)| *wish);
        let fault = match wish {
            Wish::Usual => (is_safe && is_hit_by_fault).then(|| draw.of(&policy.faults)),
            Wish::Odd => Some(policy.odd),
            Wish::Cut => Some(Fault::Cut),
            Wish::Gone => Some(Fault::Gone),
            Wish::Late | Wish::Long => None,
        };
        let is_late = policy.always_late || draw.below(2) == 0;
        let head_ms = if is_late { policy.head_ms } else { 0 };
        let body_ms = if draw.below(2) == 0 { policy.body_ms } else { 0 };
        let (head_ms, body_ms) = match wish {
            Wish::Late => (LATE_MS, body_ms),
            Wish::Long => (0, LATE_MS),
            _ => (head_ms, body_ms),
        };
        let date_after_ms = if wish == Wish::Late && policy.dated { head_ms } else { 0 };
        let date_ms = wall_ms() + date_after_ms;
        let said = Said { policy: &policy, number, url, variant, version, fault, seen, date_ms };
        let (status, head, content) = said.response();
        let cookie = head.contains("\r\nSet-Cookie:");
        let has_range = seen.field("range").is_some();
        self.history.borrow_mut().fetches.push(Fetch {
            url,
            variant,
            method: seen.method.clone(),
            has_range,
            start: self.now(),
            dated: self.now() + date_after_ms * 1000,
            end: NEVER,
            needs: (head_ms + if content.is_empty() { 0 } else { body_ms }) * 1000,
            version,
            status,
            fault,
            cookie,
        });
        let (interim, framing) = (policy.interim && is_safe, policy.framing);
        Plan { number, head_ms, body_ms, fault, head, content, framing, interim }
    }
}

/// What goes into an answer.
struct Said<'s> {
    policy: &'s Policy,
    number: usize,
    url: usize,
    variant: u8,
    version: u32,
    fault: Option<Fault>,
    seen: &'s Seen,
    /// For `Date`.
    date_ms: u64,
}

impl Said<'_> {
    /// The status, the head and the framed body.
    fn response(&self) -> (u16, String, Vec<u8>) {
        let Said { policy, seen, .. } = self;
        let is_get = seen.method == "GET";
        let (validator, tag) = self.validator();
        let has_range = seen.field("range").is_some();
        let error = match policy.ranges {
            Ranges::Error(status) if has_range && self.fault.is_none() => Some(status),
            _ => None,
        };
        let can_part = policy.ranges == Ranges::Parts && is_get;
        let part = can_part.then(|| part_of(seen, tag.as_deref(), policy.size)).flatten();
        let status = match self.fault {
            Some(Fault::Status(status)) => status,
            Some(Fault::Private | Fault::NoStore) => 200,
            _ if !matches!(seen.method.as_str(), "GET" | "HEAD") => 200,
            _ if error.is_some() => error.unwrap_or_default(),
            _ if self.is_known(&validator, tag.as_deref()) => 304,
            _ if part.is_some() => 206,
            _ => 200,
        };
        let is_usual = matches!(self.fault, None | Some(Fault::Cut | Fault::Gone | Fault::Stall));
        let is_version = is_usual && matches!(status, 200 | 206 | 304);
        let is_change = !matches!(seen.method.as_str(), "GET" | "HEAD");
        let (version, size) = match is_version && !is_change {
            true => (self.version, policy.size),
            false => (NO_VERSION + self.number as u32, OTHER_BYTES),
        };
        let mut content = body(self.url, self.variant, version, size);
        let mut head = format!("HTTP/1.1 {status} Fine\r\nX-Fetch: {}\r\n", self.number);
        head += &format!("X-Version: {version}\r\nSurrogate-Key: t{}\r\n", self.url % 2);
        if policy.dated {
            head += &format!("Date: {}\r\n", http_date(self.date_ms));
        }
        if policy.varies {
            head += "Vary: X-V\r\n";
        }
        head += &match (self.fault, error) {
            (Some(Fault::Private), _) => "Cache-Control: private\r\n".to_owned(),
            (Some(Fault::NoStore), _) => "Cache-Control: no-store\r\n".to_owned(),
            (Some(Fault::Status(302)), _) => "Location: /login\r\n".to_owned(),
            (_, Some(_)) => "Cache-Control: max-age=60\r\n".to_owned(),
            _ if is_version && !is_change => format!("{validator}{}", self.lifetime()),
            _ => String::new(),
        };
        let wants_cookie = policy.cookies && is_version && seen.field("cookie").is_none();
        if wants_cookie && !is_change {
            head += &format!("Set-Cookie: id={}\r\n", self.number);
        }
        if let Some((first, last)) = part.filter(|_| status == 206) {
            head += &format!("Content-Range: bytes {first}-{last}/{size}\r\n");
            content = content[first..=last].to_vec();
        }
        let framing = if status == 304 { None } else { Some(policy.framing) };
        match framing {
            None => content.clear(),
            Some(Framing::Length) => head += &format!("Content-Length: {}\r\n", content.len()),
            Some(Framing::Chunks) => head += "Transfer-Encoding: chunked\r\n",
            Some(Framing::Close) => head += "Connection: close\r\n",
        }
        if seen.method == "HEAD" {
            content.clear();
        } else if framing == Some(Framing::Chunks) {
            content = chunks(&content);
        }
        (status, head + "\r\n", content)
    }

    /// The line of the validator, and the entity tag.
    fn validator(&self) -> (String, Option<String>) {
        let tag = format!("\"{}.{}.{}\"", self.url, self.variant, self.version);
        let tag = match self.policy.validator {
            Validator::None => return (String::new(), None),
            Validator::Modified => {
                // Long ago, and another second for each version.
                let at = 1_400_000_000_000 + u64::from(self.version) * 1000;
                return (format!("Last-Modified: {}\r\n", http_date(at)), None);
            }
            Validator::Strong => tag,
            Validator::Weak => format!("W/{tag}"),
            Validator::Changing => format!("\"{}\"", self.number),
        };
        (format!("ETag: {tag}\r\n"), Some(tag))
    }

    /// Whether the request says that its sender has this version.
    fn is_known(&self, validator: &str, tag: Option<&str>) -> bool {
        match (self.seen.field("if-none-match"), self.seen.field("if-modified-since")) {
            (Some(tags), _) => tags.split(", ").any(|known| Some(known) == tag),
            (None, Some(date)) => validator == format!("Last-Modified: {date}\r\n"),
            (None, None) => false,
        }
    }

    fn lifetime(&self) -> String {
        let Policy { lifetime_s, while_revalidate_s, if_error_s, .. } = self.policy;
        if *lifetime_s == 0 {
            return "Cache-Control: no-cache\r\n".to_owned();
        }
        let mut line = format!("Cache-Control: public, max-age={lifetime_s}");
        for (name, seconds) in
            [("stale-while-revalidate", while_revalidate_s), ("stale-if-error", if_error_s)]
        {
            if *seconds > 0 {
                line += &format!(", {name}={seconds}");
            }
        }
        if self.policy.must_revalidate {
            line += ", must-revalidate";
        }
        line + "\r\n"
    }
}

fn chunks(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in content.chunks(5000) {
        out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}
