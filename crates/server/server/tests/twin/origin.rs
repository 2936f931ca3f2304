//! The simulated origin: the target's query says how it answers, so that a test reads as what
//! it asks for, and the checker knows what is right without asking.
//!
//! | in the query | meaning |
//! | --- | --- |
//! | `size=N` | the content's length |
//! | `cc=V`, `expires=S`, `etag=V`, `vary=NAME`, `status=N` | fields and status |
//! | `key=V`, `tag=V` | `Surrogate-Key`, `Cache-Tag` |
//! | `frame=chunked`, `frame=close` | how the end of the content is marked; by length otherwise |
//! | `delay=MS`, `pause=MS` | before the head; in the middle of the content |
//! | `ranges=1` | `Range` is answered with a part, by `If-Range` if there is one |
//! | `modified=1` | a `Last-Modified` long ago, which `If-Range` may name |
//! | `breaks=N` | the answer to the first request for it breaks off after N bytes of content |
//! | `location=1` | `Content-Location` is the target |
//! | `see=NAME` | `Location` is `/NAME?utm_source=see&cc=max-age=600&size=9` |
//! | `late=MS` | between the making of the answer and its head |
//! | `bump=1` | a method other than GET and HEAD makes all entity tags new |
//! | `either=A,B` | it varies by the first of these fields that the request has, if by any |
//! | `group=NAME` | it varies by NAME, and only the first letter of that counts, also for the tag |
//! | `old=1` | the answer is of HTTP/1.0 |
//! | `cookie=1`, `cookie=304` | a `Set-Cookie` that no two answers share; only with 304 |
//! | `own=no-cache`, `own=private` | that directive, for `Set-Cookie` alone |
//! | `gone=N` | from the Nth request on, the connection is closed without an answer |
//! | `cut=N`, `reset=N` | the connection is closed, or reset, after N bytes of content |
//! | `drop=1` | the connection is closed behind the response, without a word before |
//! | `half=1` | only the origin's direction is closed behind the response |
//! | `interim=N` | so many 103 before the final head |
//! | `early=1` | the answer is sent before the request's body is read |
//! | `fails=N`, `sick=N` | the first N requests for it get 503; those from the Nth on |
//! | `nodate=1` | no `Date` |
//! | `drip=MS` | so long between any two pieces of 500 bytes |
//! | `duplex=1` | the body is sent back while it comes |
//! | `extra=1` | a second, unsolicited response, a while after the first |
//! | `behind=1` | the beginning of another response comes with the end of the content |
//! | `text=1` | the content is text, and its type says so |
//! | `coded=NAME` | it is coded like this, whatever the request accepts |
//! | `torn=1` | the end of the coded content is missing, which its length does not show |
//! | `silent=1`, `garbage=1` | no answer at all; one that is not HTTP |
//! | `whole_range=1` | a 200 with `Content-Range` |
//!
//! A request's field `X-Answer` has such a query, too, which counts before that of the target. So
//! one client draws another answer than the others.
//!
//! It checks every request as an origin at risk would: one framing, one host, nothing of one hop.

use std::cell::{Cell, RefCell};
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use coding::Coding;
use runtime::Either;
use runtime::net::{ListenOptions, TcpListener, TcpStream};
use runtime::time::{sleep, wall_ms};
use transport::proxy_protocol::{Header, parse_header};

use crate::common::content;

/// The date of a response that says when it was modified.
pub(crate) const MODIFIED: &str = "Thu, 01 Jan 1970 00:16:40 GMT";

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Names in lower case.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Names in lower case.
    pub(crate) trailers: Vec<(String, String)>,
    /// Which of its connections it came on.
    pub(crate) connection: usize,
    /// The PROXY header that this connection began with.
    pub(crate) proxy_header: Option<Header>,
}

impl Seen {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    fn asks<'t>(&'t self, name: &str) -> Option<&'t str> {
        let own = self.field("x-answer").and_then(|query| in_query(query, name));
        own.or_else(|| asks(&self.target, name))
    }

    fn asks_number(&self, name: &str) -> Option<usize> {
        self.asks(name).map(|value| value.parse().expect("a number in the query"))
    }
}

/// What the query of a target says of `name`.
pub(crate) fn asks<'t>(target: &'t str, name: &str) -> Option<&'t str> {
    in_query(target.split_once('?')?.1, name)
}

fn in_query<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

/// The same, as a number.
pub(crate) fn asks_number(target: &str, name: &str) -> Option<usize> {
    asks(target, name).map(|value| value.parse().expect("a number in the query"))
}

/// The content for a target, for a request whose varying field has this value.
pub(crate) fn expected(target: &str, variant: Option<&str>) -> Vec<u8> {
    let path =
        target.split_once("://").map_or(target, |(_, rest)| &rest[rest.find('/').unwrap()..]);
    let size = asks_number(path, "size").unwrap_or(0);
    if asks(path, "text").is_some() {
        let line = format!("{path} of {}\n", variant.unwrap_or("all"));
        return line.bytes().cycle().take(size).collect();
    }
    content(&format!("{path}|{}", variant.unwrap_or_default()), size)
}

/// The origin and its memory.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    pub(crate) seen: RefCell<Vec<Seen>>,
    /// Bytes that its sockets have taken.
    pub(crate) sent: Cell<usize>,
    pub(crate) connections: Cell<usize>,
    /// Connections that were closed while it waited before it went on with an answer.
    pub(crate) abandoned: Cell<usize>,
    cookies: Cell<u32>,
    /// Goes into every entity tag: one more makes all of them new.
    pub(crate) version: Cell<u32>,
}

impl Origin {
    pub(crate) fn start(address: SocketAddr) -> Rc<Origin> {
        let origin = Rc::new(Origin::default());
        let listener = TcpListener::bind(address, &ListenOptions::default()).unwrap();
        let serving = Rc::clone(&origin);
        runtime::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    sleep(Duration::from_millis(10)).await;
                    continue;
                };
                serving.connections.set(serving.connections.get() + 1);
                let connection = serving.connections.get();
                runtime::spawn(Rc::clone(&serving).serve(stream, connection)).detach();
            }
        })
        .detach();
        origin
    }

    /// How many requests for this target came.
    pub(crate) fn count(&self, target: &str) -> usize {
        self.seen.borrow().iter().filter(|seen| seen.target == target).count()
    }

    pub(crate) fn last(&self) -> Seen {
        self.seen.borrow().last().expect("a request has come").clone()
    }

    async fn serve(self: Rc<Self>, stream: TcpStream, connection: usize) {
        let mut line = Line::new(stream);
        let header = line.proxy_header().await;
        while let Some(mut seen) = line.head(connection).await {
            seen.proxy_header = header;
            if seen.asks("duplex").is_some() {
                self.seen.borrow_mut().push(seen.clone());
                self.echo(&mut line, &seen).await;
                return;
            }
            let early = seen.asks("early").is_some();
            if seen.field("expect").is_some()
                && !early
                && line.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_err()
            {
                return;
            }
            if !early {
                let Some(body) = line.body(&seen).await else { return };
                seen.body = body;
                seen.trailers.append(&mut line.trailers);
            }
            self.seen.borrow_mut().push(seen.clone());
            if !self.answer(&line.stream, &seen).await {
                return;
            }
            if seen.asks("half").is_some() {
                line.stream.shutdown(Shutdown::Write).ok();
            }
            if early {
                // The rest is thrown away up to its end, as a careful server does.
                line.body(&seen).await;
                return;
            }
        }
    }

    /// Sends a body of known length back while it comes.
    async fn echo(&self, line: &mut Line, seen: &Seen) {
        let length = seen.field("content-length").expect("a length").parse().expect("a number");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let mut going = self.send(&line.stream, head.as_bytes()).await;
        let mut left: usize = length;
        while going && left > 0 && (!line.buf.is_empty() || line.more().await) {
            left -= line.buf.len();
            let piece = std::mem::take(&mut line.buf);
            going = self.send(&line.stream, &piece).await;
        }
    }

    /// True when the connection goes on.
    async fn answer(&self, stream: &TcpStream, seen: &Seen) -> bool {
        if let Some(ms) = seen.asks_number("delay")
            && !self.waits(stream, Duration::from_millis(ms as u64)).await
        {
            return false;
        }
        if seen.asks_number("gone").is_some_and(|nth| self.count(&seen.target) >= nth) {
            return false;
        }
        if seen.asks("silent").is_some() {
            return self.waits(stream, Duration::from_secs(100_000)).await;
        }
        if seen.asks("garbage").is_some() {
            self.send(stream, b"SSH-2.0-OpenSSH_9.2\r\n\r\n").await;
            return false;
        }
        for _ in 0..seen.asks_number("interim").unwrap_or(0) {
            if !self.send(stream, b"HTTP/1.1 103 Early Hints\r\nLink: </s>\r\n\r\n").await {
                return false;
            }
        }
        let (head, content) = self.response(seen);
        if let Some(ms) = seen.asks_number("late") {
            sleep(Duration::from_millis(ms as u64)).await;
        }
        if !self.send(stream, head.as_bytes()).await {
            return false;
        }
        let first = self.count(&seen.target) == 1;
        let breaks = seen.asks_number("breaks").filter(|_| first);
        let cut = seen.asks_number("cut").or(seen.asks_number("reset")).or(breaks);
        let bodiless = matches!(&head[9..12], "204" | "304");
        let whole = framed(seen, &content, cut, bodiless);
        let middle = whole.len() / 2;
        if let Some(ms) = seen.asks_number("drip") {
            for piece in whole.chunks(500) {
                if !self.send(stream, piece).await {
                    return false;
                }
                sleep(Duration::from_millis(ms as u64)).await;
            }
            return true;
        }
        if !self.send(stream, &whole[..middle]).await {
            return false;
        }
        if let Some(ms) = seen.asks_number("pause")
            && !self.waits(stream, Duration::from_millis(ms as u64)).await
        {
            return false;
        }
        let behind: &[u8] = if seen.asks("behind").is_some() { b"HTTP/1.1 2" } else { b"" };
        if !self.send(stream, &[&whole[middle..], behind].concat()).await {
            return false;
        }
        if seen.asks("extra").is_some() {
            sleep(Duration::from_millis(100)).await;
            self.send(stream, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil").await;
        }
        if seen.asks("reset").is_some() {
            // What was sent arrives first: the reset is to come in the middle of the body.
            sleep(Duration::from_secs(1)).await;
            stream.set_linger0().ok();
        }
        let ends = seen.asks("frame") == Some("close") || seen.asks("drop").is_some();
        !ends && cut.is_none()
    }

    /// Waits before it goes on. False if the other side closes the connection meanwhile.
    async fn waits(&self, stream: &TcpStream, long: Duration) -> bool {
        let closed = async {
            if stream.readable().await.is_ok() && stream.try_peek(&mut [0]).is_ok_and(|n| n > 0) {
                // The body of the request.
                std::future::pending::<()>().await;
            }
        };
        let waited = runtime::race(closed, sleep(long)).await;
        if waited == Either::Left(()) {
            self.abandoned.set(self.abandoned.get() + 1);
        }
        waited == Either::Right(())
    }

    fn response(&self, seen: &Seen) -> (String, Vec<u8>) {
        if seen.asks("bump").is_some() && !matches!(seen.method.as_str(), "GET" | "HEAD") {
            self.version.set(self.version.get() + 1);
        }
        let either = seen.asks("either").into_iter().flat_map(|names| names.split(','));
        let either = either.into_iter().find(|name| seen.field(name).is_some());
        let vary = seen.asks("vary").or(seen.asks("group")).or(either);
        let varying = vary.map(|name| seen.field(name).unwrap_or("none").to_owned());
        let varying = varying.map(|value| match seen.asks("group") {
            Some(_) => value[..1].to_owned(),
            None => value,
        });
        let mut content = match seen.method.as_str() {
            "POST" => seen.body.clone(),
            _ => expected(&seen.target, varying.as_deref()),
        };
        let coding = seen.asks("coded").and_then(|name| Coding::of(name.as_bytes()));
        if let Some(coding) = coding {
            content = coding::encode(coding, 5, &[content], u64::MAX).unwrap();
            if seen.asks("torn").is_some() {
                content.truncate(content.len() - 6);
            }
        }
        let group = varying.as_deref().filter(|_| seen.asks("group").is_some()).unwrap_or_default();
        let etag = |tag| format!("\"{tag}{group}.{}\"", self.version.get());
        let etag = seen.asks("etag").filter(|tag| !tag.is_empty()).map(etag);
        let known = |tags: &str| tags.split(", ").any(|tag| Some(tag) == etag.as_deref());
        let matches = seen.field("if-none-match").is_some_and(known);
        let part = part_of(seen, etag.as_deref(), content.len());
        let count = self.count(&seen.target);
        let fails = seen.asks_number("fails").unwrap_or(0) >= count
            || seen.asks_number("sick").is_some_and(|nth| count >= nth);
        let status = match seen.asks_number("status") {
            _ if fails => 503,
            _ if matches => 304,
            _ if part.is_some() => 206,
            status => status.unwrap_or(200),
        };
        let version = if seen.asks("old").is_some() { "1.0" } else { "1.1" };
        let mut head = format!("HTTP/{version} {status} Fine\r\nX-Target: {}\r\n", seen.target);
        if seen.asks("nodate").is_none() {
            head += &format!("Date: {}\r\n", http_date(wall_ms()));
        }
        if let Some(etag) = etag {
            head += &format!("ETag: {etag}\r\n");
        }
        if seen.asks("modified").is_some() {
            head += &format!("Last-Modified: {MODIFIED}\r\n");
        }
        if let Some(value) = seen.asks("cc").filter(|_| !fails) {
            head += &format!("Cache-Control: {value}\r\n");
            if let Some(directive) = seen.asks("own") {
                head += &format!("Cache-Control: {directive}=\"Set-Cookie\"\r\n");
                head += "Proxy-Authenticate: Basic\r\nProxy-Authentication-Info: a=b\r\n";
            }
        }
        if seen.asks("text").is_some() {
            head += "Content-Type: text/plain; charset=utf-8\r\n";
        }
        if let Some(coding) = coding {
            head += &format!("Content-Encoding: {}\r\n", coding.name());
        }
        if seen.asks("location").is_some() {
            head += &format!("Content-Location: {}\r\n", seen.target);
        }
        if let Some(name) = seen.asks("see") {
            head += &format!("Location: /{name}?utm_source=see&cc=max-age=600&size=9\r\n");
        }
        if seen.asks("cookie").is_some_and(|when| when != "304" || status == 304) {
            self.cookies.set(self.cookies.get() + 1);
            head += &format!("Set-Cookie: id={}\r\n", self.cookies.get());
        }
        if let Some((first, last)) = part.filter(|_| status == 206) {
            head += &format!("Content-Range: bytes {first}-{last}/{}\r\n", content.len());
            content = content[first..=last].to_vec();
        }
        if seen.asks("whole_range").is_some() {
            head += &format!("Content-Range: bytes 0-1/{}\r\n", content.len());
        }
        if let Some(seconds) = seen.asks_number("expires") {
            head += &format!("Expires: {}\r\n", http_date(wall_ms() + seconds as u64 * 1000));
        }
        if let Some(name) = vary {
            head += &format!("Vary: {name}\r\nX-Variant: {}\r\n", varying.unwrap());
        }
        for (asked, name) in [("key", "Surrogate-Key"), ("tag", "Cache-Tag")] {
            if let Some(value) = seen.asks(asked) {
                head += &format!("{name}: {}\r\n", value.replace('+', " "));
            }
        }
        let bodiless = matches!(status, 204 | 304) || seen.method == "HEAD";
        match seen.asks("frame") {
            _ if matches!(status, 204 | 304) => {}
            Some("chunked") => head += "Transfer-Encoding: chunked\r\n",
            Some("close") => head += "Connection: close\r\n",
            _ => head += &format!("Content-Length: {}\r\n", content.len()),
        }
        if bodiless {
            content.clear();
        }
        head += "Keep-Alive: timeout=5\r\nX-Hop: secret\r\nConnection: X-Hop\r\n\r\n";
        (head, content)
    }

    async fn send(&self, stream: &TcpStream, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let Ok(sent) = stream.write(bytes).await else { return false };
            self.sent.set(self.sent.get() + sent);
            bytes = &bytes[sent..];
        }
        true
    }
}

/// The part that a request asks for: both ends, each of them there.
pub(crate) fn part_of(seen: &Seen, etag: Option<&str>, size: usize) -> Option<(usize, usize)> {
    let range = seen.field("range").filter(|_| seen.asks("ranges").is_some())?;
    let date = seen.asks("modified").map(|_| MODIFIED);
    if seen.field("if-range").is_some_and(|named| Some(named) != etag && Some(named) != date) {
        return None;
    }
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    match (first.parse::<usize>().ok(), last.parse::<usize>().ok()) {
        (None, Some(suffix)) => Some((size.saturating_sub(suffix), size - 1)),
        (Some(first), last) if first < size => {
            Some((first, last.unwrap_or(size - 1).min(size - 1)))
        }
        _ => None,
    }
}

/// The content in the framing that was asked for, up to `cut` bytes of it.
fn framed(seen: &Seen, content: &[u8], cut: Option<usize>, bodiless: bool) -> Vec<u8> {
    if seen.asks("frame") != Some("chunked") || bodiless || seen.method == "HEAD" {
        return content[..cut.unwrap_or(content.len()).min(content.len())].to_vec();
    }
    let mut out = Vec::new();
    for (at, chunk) in content[..cut.unwrap_or(content.len())].chunks(700).enumerate() {
        let extension = if at < 20 { ";of=\"us\"" } else { "" };
        out.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    if cut.is_none() {
        out.extend_from_slice(b"0\r\nX-Trailer: t\r\n\r\n");
    }
    out
}

pub(crate) fn http_date(ms: u64) -> String {
    String::from_utf8(caching::date::format(ms).to_vec()).unwrap()
}

/// The origin's end of a connection.
pub(crate) struct Line {
    pub(crate) stream: TcpStream,
    buf: Vec<u8>,
    trailers: Vec<(String, String)>,
}

impl Line {
    pub(crate) fn new(stream: TcpStream) -> Line {
        Line { stream, buf: Vec::new(), trailers: Vec::new() }
    }

    async fn more(&mut self) -> bool {
        let mut piece = [0; 16 * 1024];
        match self.stream.read(&mut piece).await {
            Ok(0) | Err(_) => false,
            Ok(read) => {
                self.buf.extend_from_slice(&piece[..read]);
                true
            }
        }
    }

    /// The PROXY header, if the connection begins with one.
    async fn proxy_header(&mut self) -> Option<Header> {
        loop {
            match parse_header(&self.buf) {
                Err(_) => return None,
                Ok(Some(header)) => {
                    self.buf.drain(..header.bytes);
                    return Some(header);
                }
                Ok(None) if self.more().await => {}
                Ok(None) => return None,
            }
        }
    }

    /// The next request's head, held to what an origin may expect of a proxy.
    pub(crate) async fn head(&mut self, connection: usize) -> Option<Seen> {
        let end = loop {
            if let Some(end) = self.buf.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
            if !self.more().await {
                return None;
            }
        };
        let head: Vec<u8> = self.buf.drain(..end + 4).collect();
        let head = String::from_utf8(head[..end].to_vec()).expect("our clients send text");
        let mut lines = head.split("\r\n");
        let request: Vec<&str> = lines.next().unwrap().split(' ').collect();
        assert!(request.len() == 3 && request[2] == "HTTP/1.1", "{head}");
        assert!(request[1].starts_with('/') || request[1] == "*", "{head}");
        let fields: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap_or_else(|| panic!("{head}")))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let count = |name: &str| fields.iter().filter(|(n, _)| n == name).count();
        assert_eq!(count("host"), 1, "{head}");
        assert!(count("content-length") + count("transfer-encoding") <= 1, "{head}");
        // A health check is our own request, not forwarded for a client.
        let passed_on = !head.contains("plimsoll-health-check");
        // A test that has turned it off says so.
        let named = passed_on && count("x-via-off") == 0;
        // A test that has more proxies on the way says how many.
        let proxies = fields.iter().find(|(name, _)| name == "x-proxies");
        let proxies = proxies.map_or(1, |(_, count)| count.parse().expect("a number"));
        assert_eq!(count("via"), if named { proxies } else { 0 }, "{head}");
        for hop in ["connection", "keep-alive", "te", "upgrade", "proxy-connection", "x-hop"] {
            assert!(count(hop) == 0 || !passed_on, "{head}");
        }
        let (method, target) = (request[0].to_owned(), request[1].to_owned());
        Some(Seen {
            method,
            target,
            fields,
            body: Vec::new(),
            trailers: Vec::new(),
            connection,
            proxy_header: None,
        })
    }

    /// The request's body; `None` if it breaks off.
    pub(crate) async fn body(&mut self, seen: &Seen) -> Option<Vec<u8>> {
        if let Some(length) = seen.field("content-length") {
            let length: usize = length.parse().expect("checked by the proxy");
            while self.buf.len() < length {
                if !self.more().await {
                    return None;
                }
            }
            return Some(self.buf.drain(..length).collect());
        }
        if seen.field("transfer-encoding").is_none() {
            return Some(Vec::new());
        }
        assert_eq!(seen.field("transfer-encoding"), Some("chunked"));
        let mut body = Vec::new();
        loop {
            let size = self.line().await?;
            let size = usize::from_str_radix(&size, 16).expect("the proxy makes its own chunks");
            if size == 0 {
                break;
            }
            while self.buf.len() < size + 2 {
                if !self.more().await {
                    return None;
                }
            }
            let chunk: Vec<u8> = self.buf.drain(..size + 2).collect();
            assert_eq!(&chunk[size..], b"\r\n");
            body.extend_from_slice(&chunk[..size]);
        }
        loop {
            let trailer = self.line().await?;
            if trailer.is_empty() {
                return Some(body);
            }
            let (name, value) = trailer.split_once(": ").expect("the proxy writes its own lines");
            let name = name.to_ascii_lowercase();
            self.trailers.push((name.clone(), value.to_owned()));
            let framing = ["content-length", "transfer-encoding", "host", "te", "connection"];
            assert!(!framing.contains(&name.as_str()), "{trailer}");
        }
    }

    /// The next line, without its end; `None` if it breaks off.
    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buf.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.buf.drain(..end + 2).take(end).collect();
                return Some(String::from_utf8_lossy(&line).into_owned());
            }
            if !self.more().await {
                return None;
            }
        }
    }
}
