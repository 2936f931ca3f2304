//! The origin of the HTTP/2 tests, over HTTP/1.1. It keeps every byte and every request that it
//! receives.
//!
//! | path | response |
//! | --- | --- |
//! | `/cached/SIZE` | 200, [`content`], may be stored for ten minutes |
//! | `/held/SIZE` | the same, but only after [`Recorder::release`] |
//! | `/missing` | 404 |
//! | `/page` | [`PAGE`] |
//! | any other | 200, must not be stored |
//!
//! A connection whose bytes are not a request is closed.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};

use crate::support::{Accepting, SOON, read_some, wait_for};

/// The body of `/cached/SIZE`: letters, so that a command can print it.
pub(crate) fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| b'a' + (at % 23) as u8).collect()
}

/// A page whose script gets forty responses at once, and then sends content to a path that says how
/// many came whole over HTTP/2.
const PAGE: &str = "<!doctype html><script type=module>
const sizes = Array.from({ length: 40 }, (_, at) => 50000 + at);
const get = async (size) => (await (await fetch(`/cached/${size}`)).arrayBuffer()).byteLength;
const got = await Promise.all(sizes.map(get));
const whole = got.filter((length, at) => length == sizes[at]).length;
const entries = performance.getEntriesByType('resource');
const over = entries.filter((entry) => entry.nextHopProtocol == 'h2'
    && entry.name.includes('/cached/')).length;
await fetch(`/sent/${whole}/${over}`, { method: 'POST', body: 'x'.repeat(50000) });
</script>";

/// A complete request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The request line and the fields.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn method(&self) -> &str {
        self.head.split(' ').next().unwrap()
    }

    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// The value of a field; its name is in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// The running origin. Dropping it stops it.
pub(crate) struct Recorder {
    accepting: Accepting,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    record: Mutex<Record>,
    released: Condvar,
}

#[derive(Default)]
struct Record {
    bytes: Vec<u8>,
    requests: Vec<Request>,
    is_released: bool,
}

impl Recorder {
    pub(crate) fn start() -> Recorder {
        let shared = Arc::new(Shared::default());
        let ours = Arc::clone(&shared);
        // How a connection ends is the proxy's decision.
        let accepting = Accepting::start(move |stream| drop(ours.serve(stream)));
        Recorder { accepting, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.accepting.address)
    }

    /// The requests for this path so far.
    pub(crate) fn requests(&self, path: &str) -> Vec<Request> {
        let record = self.shared.record.lock().unwrap();
        record.requests.iter().filter(|request| request.path() == path).cloned().collect()
    }

    /// The only request for this path.
    #[track_caller]
    pub(crate) fn only(&self, path: &str) -> Request {
        let mut requests = self.requests(path);
        assert_eq!(requests.len(), 1, "requests for {path}");
        requests.remove(0)
    }

    /// The paths of all requests so far.
    pub(crate) fn paths(&self) -> Vec<String> {
        let record = self.shared.record.lock().unwrap();
        record.requests.iter().map(|request| request.path().to_owned()).collect()
    }

    /// Every byte that it received.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.shared.record.lock().unwrap().bytes.clone()
    }

    #[track_caller]
    pub(crate) fn wait_for_request(&self, path: &str) {
        wait_for(path, SOON, || (!self.requests(path).is_empty()).then_some(()));
    }

    /// Answers all requests for `/held/…`.
    pub(crate) fn release(&self) {
        self.shared.record.lock().unwrap().is_released = true;
        self.shared.released.notify_all();
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.release();
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut input = Input { shared: self, stream, bytes: Vec::new() };
        loop {
            let request = input.request()?;
            self.record.lock().unwrap().requests.push(request.clone());
            self.answer(&request, &mut input.stream)?;
        }
    }

    fn answer(&self, request: &Request, to: &mut TcpStream) -> io::Result<()> {
        let path = request.path();
        let held = path.strip_prefix("/held/");
        if held.is_some() {
            let record = self.record.lock().unwrap();
            drop(self.released.wait_while(record, |record| !record.is_released).unwrap());
        }
        let size = path.strip_prefix("/cached/").or(held).and_then(|size| size.parse().ok());
        let (status, fields, body) = match size {
            Some(size) => ("200 OK", "Cache-Control: max-age=600\r\nETag: \"v1\"", content(size)),
            None if path == "/missing" => ("404 Not Found", "X-Kind: none", b"nothing".to_vec()),
            None if path == "/page" => ("200 OK", "Content-Type: text/html", PAGE.into()),
            None => ("200 OK", "Cache-Control: no-store", b"ok".to_vec()),
        };
        let head =
            format!("HTTP/1.1 {status}\r\n{fields}\r\nContent-Length: {}\r\n\r\n", body.len());
        to.write_all(head.as_bytes())?;
        match request.method() {
            "HEAD" => Ok(()),
            _ => to.write_all(&body),
        }
    }
}

/// What comes from one connection.
struct Input<'s> {
    shared: &'s Shared,
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Input<'_> {
    fn request(&mut self) -> io::Result<Request> {
        let mut head = String::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            head.push_str(&line);
            head.push_str("\r\n");
        }
        let mut request = Request { head, body: Vec::new() };
        if request.field("expect").is_some() {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        request.body = if request.field("transfer-encoding").is_some() {
            self.chunks()?
        } else {
            let length = request.field("content-length").unwrap_or("0");
            self.take(length.parse().map_err(io::Error::other)?)?
        };
        Ok(request)
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size = usize::from_str_radix(&self.line()?, 16).map_err(io::Error::other)?;
            if size == 0 {
                // Trailers and the empty line.
                while !self.line()?.is_empty() {}
                return Ok(body);
            }
            body.append(&mut self.take(size)?);
            if !self.line()?.is_empty() {
                return Err(io::Error::other("a chunk without an end"));
            }
        }
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.bytes.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.bytes.drain(..end + 2).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            self.more()?;
        }
    }

    fn take(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.bytes.len() < count {
            self.more()?;
        }
        Ok(self.bytes.drain(..count).collect())
    }

    fn more(&mut self) -> io::Result<()> {
        let mut part = [0; 16 * 1024];
        let read = read_some(&mut self.stream, &mut part)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.shared.record.lock().unwrap().bytes.extend_from_slice(&part[..read]);
        self.bytes.extend_from_slice(&part[..read]);
        Ok(())
    }
}
