//! Sends one request after another, to fill a cache and to check what it still holds.
//!
//! This is a blocking client with keep-alive connections, which reads each response to its end. The
//! load generator requests random objects; this client requests each object once. Any response
//! other than a complete 200 is an error.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use load::sys;

/// The host of all requests for many objects, so that the server can move to another port.
pub(crate) const HOST: &str = "objects.test";
/// Number of connections that fill a cache.
const FILLING: u32 = 16;
/// How often a request is tried, and the pause between tries.
const TRIES_MAX: u32 = 20;
const TRY_AGAIN: Duration = Duration::from_millis(100);
const ANSWER_MAX: Duration = Duration::from_secs(10);
const BUFFER_BYTES: usize = 64 * 1024;

/// A client with one connection.
#[derive(Debug)]
pub(crate) struct Client {
    addr: SocketAddr,
    patience: Duration,
    stream: Option<TcpStream>,
}

impl Client {
    pub(crate) fn new(addr: SocketAddr) -> Client {
        Client { addr, patience: ANSWER_MAX, stream: None }
    }

    /// A client that is connected at once, with this timeout for responses.
    ///
    /// # Errors
    /// There is no connection.
    pub(crate) fn connected(addr: SocketAddr, patience: Duration) -> io::Result<Client> {
        Ok(Client { addr, patience, stream: Some(connect(addr, patience)?) })
    }

    /// A client whose connection is a tunnel to `target` through a forward proxy.
    ///
    /// # Errors
    /// There is no connection, or the proxy refuses the tunnel.
    pub(crate) fn through_tunnel(
        proxy: SocketAddr,
        target: SocketAddr,
        patience: Duration,
    ) -> io::Result<Client> {
        let mut stream = connect(proxy, patience)?;
        write!(stream, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        match head.starts_with(b"HTTP/1.1 200 ") {
            true => Ok(Client { addr: proxy, patience, stream: Some(stream) }),
            false => Err(io::Error::other(String::from_utf8_lossy(&head).into_owned())),
        }
    }

    /// Requests a path and reads the response. Returns its head.
    ///
    /// # Errors
    /// There is no connection, or the response is incomplete or not a 200.
    pub(crate) fn get(&mut self, path: &str) -> io::Result<String> {
        self.exchange(path, |_| ())
    }

    /// The same, but passes the body to `take` as it arrives.
    fn exchange(&mut self, path: &str, take: impl FnMut(&[u8])) -> io::Result<String> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
        self.converse(request.as_bytes(), take)
    }

    /// Sends any request. Its response may also be a 304.
    ///
    /// # Errors
    /// There is no connection, or the response is incomplete or neither a 200 nor a 304.
    pub(crate) fn converse(
        &mut self,
        request: &[u8],
        mut take: impl FnMut(&[u8]),
    ) -> io::Result<String> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => connect(self.addr, self.patience)?,
        };
        stream.write_all(request)?;
        let mut buffer = [0; BUFFER_BYTES];
        let (mut filled, end) = (0, b"\r\n\r\n");
        let body_at = loop {
            let read = stream.read(&mut buffer[filled..])?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += read;
            if let Some(at) = buffer[..filled].windows(end.len()).position(|part| part == end) {
                break at + end.len();
            }
        };
        let head = String::from_utf8_lossy(&buffer[..body_at]).into_owned();
        let mut remaining = body_bytes(&head)?;
        let mut piece = body_at..filled;
        loop {
            take(&buffer[piece.clone()]);
            remaining =
                remaining.checked_sub(piece.len() as u64).ok_or(io::ErrorKind::InvalidData)?;
            if remaining == 0 {
                break;
            }
            match stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => piece = 0..read,
            }
        }
        self.stream = Some(stream);
        Ok(head)
    }
}

fn connect(addr: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The body length of a 200 or 304 response.
fn body_bytes(head: &str) -> io::Result<u64> {
    let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => {}
        Some("304") => return Ok(0),
        _ => return Err(bad(status)),
    }
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let named = name.eq_ignore_ascii_case("content-length");
        if named { value.trim().parse().ok() } else { None }
    });
    length.ok_or_else(|| bad("a response without a length"))
}

/// Requests each object once, from the given CPU.
///
/// # Errors
/// The first error; one line.
pub(crate) fn fill(
    addr: SocketAddr,
    path: &str,
    objects: u32,
    (cpu, stop): (usize, &AtomicBool),
) -> Result<(), String> {
    let part = |first: u32| {
        sys::pin_to_cpu(cpu)?;
        let mut client = Client::new(addr);
        for object in (first..objects).step_by(FILLING as usize) {
            if stop.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            retry(&mut client, &object_path(path, object))?;
        }
        Ok(())
    };
    let ended: io::Result<()> = thread::scope(|scope| {
        let parts: Vec<_> =
            (0..FILLING.min(objects)).map(|first| scope.spawn(move || part(first))).collect();
        let panicked = || Err(io::Error::other("a thread panicked"));
        parts.into_iter().try_for_each(|part| part.join().unwrap_or_else(|_| panicked()))
    });
    ended.map_err(|e| format!("while filling it: {e}"))
}

/// Retries until there is a response, because a busy server may refuse requests.
fn retry(client: &mut Client, path: &str) -> io::Result<String> {
    for _ in 1..TRIES_MAX {
        if let Ok(head) = client.get(path) {
            return Ok(head);
        }
        thread::sleep(TRY_AGAIN);
    }
    client.get(path)
}

/// The path of an object.
pub(crate) fn object_path(path: &str, object: u32) -> String {
    path.replace("{n}", &object.to_string())
}

/// The requests and the connections that nginx has counted (stub_status), with this request.
pub(crate) fn nginx_counts(addr: SocketAddr) -> Option<(u64, u64)> {
    let mut page = Vec::new();
    Client::new(addr).exchange("/status", |part| page.extend_from_slice(part)).ok()?;
    counts_in(&String::from_utf8_lossy(&page))
}

/// Its third line: connections accepted, connections handled, requests.
fn counts_in(page: &str) -> Option<(u64, u64)> {
    let numbers: Vec<u64> =
        page.lines().nth(2)?.split_whitespace().map_while(|text| text.parse().ok()).collect();
    let [accepted, _, requests] = numbers[..] else { return None };
    Some((requests, accepted))
}

/// A metric of our server, by name.
pub(crate) fn metric(admin: SocketAddr, name: &str) -> Option<f64> {
    let mut page = Vec::new();
    Client::new(admin).exchange("/metrics", |part| page.extend_from_slice(part)).ok()?;
    let page = String::from_utf8_lossy(&page);
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use harness::origin::OriginThread;

    use super::*;

    #[test]
    fn each_object_is_requested_once() {
        let origin = OriginThread::start(None).unwrap();
        let addr = origin.address();
        let filled = fill(addr, "/obj/{n}?size=100000", 37, (0, &AtomicBool::new(false)));
        assert_eq!(filled, Ok(()));
        assert_eq!(origin.counters().requests.load(Ordering::Relaxed), 37);
        assert!(Client::new(addr).get("/nothing").is_err());
        assert!(fill(addr, "/obj/{n}", 37, (0, &AtomicBool::new(true))).is_err());
        origin.stop().unwrap();
    }

    #[test]
    fn nginx_counts_requests_and_connections() {
        let page = "Active connections: 2 \nserver accepts handled requests\n 7 7 31 \nReading: 0";
        assert_eq!(counts_in(page), Some((31, 7)));
        assert_eq!(counts_in("Active connections: 2 \n"), None);
    }

    #[test]
    fn a_response_must_be_a_200_with_a_length() {
        assert_eq!(body_bytes("HTTP/1.1 200 OK\r\ncontent-Length: 7\r\n\r\n").unwrap(), 7);
        assert!(body_bytes("HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(body_bytes("HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\n").is_err());
    }
}
