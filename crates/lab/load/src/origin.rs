//! A small, fast origin for experiments: deterministic objects over HTTP/1.1.
//!
//! What: one thread, one poller, keep-alive and pipelining. `answer` decides the responses,
//! `content` has the body bytes. Why: experiments with a proxy need a source that is cheap, returns
//! exactly what the request asks for, and can be checked byte for byte. What never happens: a
//! response out of order; a copy of a body; a read from a client that does not take its responses.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http1::{Limits, Scratch, parse_request};
use readiness::slots::SlotTable;
use readiness::{Choice, Events, Interest, Poller, Ready, Token};

use crate::answer::{self, Answer};
use crate::{content, sys, websocket};

/// Most open connections; more wait in the backlog.
const CONNECTIONS_MAX: u32 = 1 << 20;
const EVENTS_MAX: usize = 256;
const BUFFER_BYTES: usize = 64 * 1024;
/// A longer body of a request is dropped by the kernel as it comes. A shorter one is read with its
/// head.
const READ_BYTES_MAX: usize = 64 * 1024;
/// Most bytes passed to one `send`. The origin often shares a processor with a generator, and a
/// kernel without preemption keeps that processor for the whole call, which would delay the
/// generator's next request.
const SEND_BYTES_MAX: u64 = 64 * 1024;
/// How often the stop flag is checked.
const STOP_CHECK: Duration = Duration::from_millis(50);
const LISTENER: Token = Token::new(Token::SLOT_RESERVED - 1, 0);

/// What an origin has done so far. Any thread may read it.
#[derive(Debug, Default)]
pub struct OriginCounters {
    /// Requests answered, of all kinds, and messages of WebSockets.
    pub requests: AtomicU64,
    /// Responses with status 304, included in `requests`.
    pub not_modified: AtomicU64,
    /// Refusals (status 400 and above), included in `requests`.
    pub refused: AtomicU64,
    /// Body bytes sent.
    pub body_bytes: AtomicU64,
    /// Connections accepted.
    pub connections: AtomicU64,
}

/// An origin that is bound but not yet serving.
#[derive(Debug)]
pub struct Origin {
    listener: OwnedFd,
    addr: SocketAddr,
    counters: Arc<OriginCounters>,
}

impl Origin {
    /// Listens on `addr` (port 0: any).
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn bind(addr: SocketAddr) -> io::Result<Origin> {
        let listener = sys::listen(addr)?;
        let addr = sys::local_addr(&listener)?;
        Ok(Origin { listener, addr, counters: Arc::default() })
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// The counters it will update.
    pub fn counters(&self) -> Arc<OriginCounters> {
        Arc::clone(&self.counters)
    }

    /// Serves in the calling thread until `stop` is set (checked every 50 ms).
    ///
    /// # Errors
    /// The system refuses a poller or, when descriptors run out, a connection.
    pub fn run(self, stop: &AtomicBool) -> io::Result<()> {
        let mut poller = Poller::open(Choice::Preferred).map_err(io::Error::other)?;
        poller.register(self.listener.as_raw_fd(), LISTENER, Interest::READ)?;
        let mut serving = Serving {
            poller,
            clients: SlotTable::with_limit(CONNECTIONS_MAX),
            delayed: BinaryHeap::new(),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            scratch: Scratch::new(),
            limits: Limits::DEFAULT,
            date: String::new(),
            date_s: -1,
            counters: self.counters,
        };
        let mut events = Events::with_capacity(EVENTS_MAX);
        while !stop.load(Ordering::Relaxed) {
            let wait = serving.wait_max();
            serving.poller.wait(&mut events, Some(wait))?;
            serving.read_clock();
            for event in events.iter() {
                if event.token == LISTENER {
                    serving.accept_all(&self.listener)?;
                } else {
                    serving.serve(event.token, event.ready);
                }
            }
            serving.send_delayed();
        }
        Ok(())
    }
}

struct Client {
    fd: OwnedFd,
    /// Request bytes that have not been answered.
    input: Vec<u8>,
    /// Response heads that the socket has not accepted.
    head: Vec<u8>,
    /// The body after `head`: the object, as text or not, and the range still to send.
    object: u64,
    text: bool,
    body_at: u64,
    body_end: u64,
    close: bool,
    /// It has switched to WebSocket.
    is_websocket: bool,
    /// Bytes of a request's body that have not come yet, and the answer after them, whose head is
    /// in `head`.
    awaited: Option<(u64, Answer)>,
    /// The response in `head` waits for its delay to pass.
    delayed: bool,
    interest: Interest,
}

impl Client {
    fn has_output(&self) -> bool {
        !self.head.is_empty() || self.body_at < self.body_end
    }

    /// Sends until the socket blocks. True when everything is sent.
    fn send(&mut self) -> io::Result<bool> {
        let mut head_at = 0;
        loop {
            let left = (self.body_end - self.body_at).min(SEND_BYTES_MAX);
            let piece = if self.text { content::text } else { content::piece };
            let first = piece(self.object, self.body_at, left);
            let (after, more) = (self.body_at + first.len() as u64, left - first.len() as u64);
            let second = piece(self.object, after, more);
            let head = &self.head[head_at..];
            if head.is_empty() && first.is_empty() {
                self.head.clear();
                return Ok(true);
            }
            let pieces = [IoSlice::new(head), IoSlice::new(first), IoSlice::new(second)];
            match sys::send_pieces(self.fd.as_raw_fd(), &pieces) {
                Ok(sent) => {
                    let of_head = sent.min(head.len());
                    head_at += of_head;
                    self.body_at += (sent - of_head) as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.head.drain(..head_at);
                    return Ok(false);
                }
                Err(e) => return Err(e),
            }
        }
    }
}

struct Serving {
    poller: Poller,
    clients: SlotTable<Client>,
    /// Delayed responses: due time, ns of the monotonic clock, and the client's token.
    delayed: BinaryHeap<Reverse<(u64, u64)>>,
    buffer: Box<[u8]>,
    scratch: Scratch,
    limits: Limits,
    /// The Date field, formatted once a second.
    date: String,
    date_s: i64,
    counters: Arc<OriginCounters>,
}

impl Serving {
    fn wait_max(&self) -> Duration {
        match self.delayed.peek() {
            Some(Reverse((due_ns, _))) => {
                Duration::from_nanos(due_ns.saturating_sub(sys::mono_ns())).min(STOP_CHECK)
            }
            None => STOP_CHECK,
        }
    }

    fn read_clock(&mut self) {
        let wall_ns = sys::wall_ns();
        let second = wall_ns / 1_000_000_000;
        if second != self.date_s {
            self.date_s = second;
            self.date = answer::date_of(wall_ns);
        }
    }

    fn accept_all(&mut self, listener: &OwnedFd) -> io::Result<()> {
        while !self.clients.is_full()
            && let Some(fd) = sys::accept(listener)?
        {
            let raw = fd.as_raw_fd();
            let token = self.clients.insert(Client {
                fd,
                input: Vec::new(),
                head: Vec::new(),
                object: 0,
                text: false,
                body_at: 0,
                body_end: 0,
                close: false,
                is_websocket: false,
                awaited: None,
                delayed: false,
                interest: Interest::READ,
            });
            self.poller.register(raw, token, Interest::READ)?;
            self.counters.connections.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn serve(&mut self, token: Token, ready: Ready) {
        let Some(client) = self.clients.get_mut(token) else { return };
        if client.delayed {
            return;
        }
        if client.awaited.is_some() {
            return self.drop_body(token);
        }
        if client.has_output() {
            if ready.has(Ready::WRITABLE) {
                self.resume(token);
            }
            return;
        }
        match sys::recv(client.fd.as_raw_fd(), &mut self.buffer) {
            Ok(0) => self.close(token),
            Ok(count) if client.input.is_empty() => {
                // Almost always whole requests, which are answered from the shared buffer.
                let buffer = std::mem::take(&mut self.buffer);
                let used = self.answer_all(token, &buffer[..count]);
                if let Some(client) = self.clients.get_mut(token) {
                    client.input.extend_from_slice(&buffer[used..count]);
                }
                self.buffer = buffer;
            }
            Ok(count) => {
                client.input.extend_from_slice(&self.buffer[..count]);
                self.answer_input(token);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.close(token),
        }
    }

    /// Drops the part of a long body that has come. Answers the request when the body is complete.
    fn drop_body(&mut self, token: Token) {
        let Some(client) = self.clients.get_mut(token) else { return };
        let Some((left, answer)) = client.awaited else { return };
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        match sys::recv_discard(client.fd.as_raw_fd(), most) {
            Ok(0) => self.close(token),
            Ok(count) => {
                let left = left.checked_sub(count as u64).expect("no more is dropped than asked");
                client.awaited = (left > 0).then_some((left, answer));
                if left == 0 {
                    self.respond(token, answer);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.close(token),
        }
    }

    /// Answers the requests in a client's own buffer.
    fn answer_input(&mut self, token: Token) {
        let Some(client) = self.clients.get_mut(token) else { return };
        let input = std::mem::take(&mut client.input);
        let used = self.answer_all(token, &input);
        if let Some(client) = self.clients.get_mut(token) {
            client.input = input;
            client.input.drain(..used);
        }
    }

    /// Answers the requests in `bytes`, one after the other, until one must wait. Returns the
    /// number of bytes consumed.
    fn answer_all(&mut self, token: Token, bytes: &[u8]) -> usize {
        let mut used = 0;
        while used < bytes.len() {
            let Some(client) = self.clients.get_mut(token) else { return used };
            if client.close || client.delayed || client.has_output() {
                break;
            }
            if client.is_websocket {
                match websocket::echo(&bytes[used..], &mut client.head) {
                    Ok(None) => break,
                    Ok(Some(count)) => {
                        used += count;
                        self.counters.requests.fetch_add(1, Ordering::Relaxed);
                        self.push(token);
                    }
                    Err(()) => self.close(token),
                }
                continue;
            }
            let parsed = parse_request(&bytes[used..], &mut self.scratch, &self.limits);
            let answer = match parsed {
                Ok(None) => break,
                Ok(Some(request)) if answer::is_upgrade(&request) => {
                    used += request.head_bytes;
                    client.is_websocket = true;
                    client.head.extend_from_slice(websocket::SWITCH);
                    self.push(token);
                    continue;
                }
                Ok(Some(request)) => {
                    let body_bytes = answer::body_bytes(&request);
                    let whole = request.head_bytes + body_bytes;
                    let missing = whole.saturating_sub(bytes.len() - used);
                    if missing > 0 && body_bytes > READ_BYTES_MAX {
                        let answer = answer::answer(&request, &self.date, &mut client.head);
                        client.awaited = Some((missing as u64, answer));
                        return bytes.len();
                    }
                    if missing > 0 {
                        break;
                    }
                    used += whole;
                    answer::answer(&request, &self.date, &mut client.head)
                }
                Err(reject) => {
                    used = bytes.len();
                    answer::reject(reject.status, &self.date, &mut client.head)
                }
            };
            self.respond(token, answer);
        }
        used
    }

    /// Sends a response whose head is already in its client's buffer, now or after its delay.
    fn respond(&mut self, token: Token, answer: Answer) {
        let Some(client) = self.clients.get_mut(token) else { return };
        (client.object, client.text) = (answer.object, answer.text);
        (client.body_at, client.body_end) = (0, answer.body_bytes);
        client.close = answer.close;
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        self.counters.body_bytes.fetch_add(answer.body_bytes, Ordering::Relaxed);
        match answer.status {
            304 => _ = self.counters.not_modified.fetch_add(1, Ordering::Relaxed),
            400.. => _ = self.counters.refused.fetch_add(1, Ordering::Relaxed),
            _ => {}
        }
        if answer.delay.is_zero() {
            return self.push(token);
        }
        client.delayed = true;
        let due_ns = sys::mono_ns() + answer.delay.as_nanos() as u64;
        self.delayed.push(Reverse((due_ns, token.to_u64())));
        // Polling is level-triggered: further input, even a close, would wake the loop again and
        // again.
        self.set_interest(token, Interest::NONE);
    }

    /// Sends a client's output until the socket blocks.
    fn push(&mut self, token: Token) {
        let Some(client) = self.clients.get_mut(token) else { return };
        match client.send() {
            Ok(true) if client.close => self.close(token),
            Ok(true) => self.set_interest(token, Interest::READ),
            Ok(false) => self.set_interest(token, Interest::WRITE),
            Err(_) => self.close(token),
        }
    }

    /// Sends, then answers requests that arrived in the meantime.
    fn resume(&mut self, token: Token) {
        self.push(token);
        self.answer_input(token);
    }

    fn send_delayed(&mut self) {
        while let Some(&Reverse((due_ns, packed))) = self.delayed.peek()
            && due_ns <= sys::mono_ns()
        {
            self.delayed.pop();
            let token = Token::from_u64(packed);
            if let Some(client) = self.clients.get_mut(token) {
                client.delayed = false;
                self.resume(token);
            }
        }
    }

    fn set_interest(&mut self, token: Token, interest: Interest) {
        let Some(client) = self.clients.get_mut(token) else { return };
        if client.interest != interest {
            client.interest = interest;
            if self.poller.change(client.fd.as_raw_fd(), token, interest).is_err() {
                self.close(token);
            }
        }
    }

    fn close(&mut self, token: Token) {
        if let Some(client) = self.clients.remove(token) {
            // It has been registered since `accept`; a failure means it is already gone.
            let _gone = self.poller.remove(client.fd.as_raw_fd());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpStream};
    use std::thread;

    /// A conversation with a new origin, which ends with it. Returns how many requests the origin
    /// has counted, too.
    fn with_origin<T>(talk: impl FnOnce(&mut TcpStream) -> T) -> (T, u64) {
        let origin = Origin::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (addr, counters) = (origin.local_addr(), origin.counters());
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = thread::spawn(move || origin.run(&flag).unwrap());
        let got = talk(&mut TcpStream::connect(addr).unwrap());
        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        (got, counters.requests.load(Ordering::Relaxed))
    }

    fn send_in_pieces(stream: &mut TcpStream, pieces: &[&[u8]]) {
        for piece in pieces {
            stream.write_all(piece).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends bytes to a new origin and returns everything it sends back.
    fn talk(pieces: &[&[u8]]) -> (Vec<u8>, u64) {
        with_origin(|stream| {
            send_in_pieces(stream, pieces);
            // Sent last, so the origin closes when it has answered everything.
            let last = b"GET /obj/0?size=0 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            stream.write_all(last).unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            let _closed_already = stream.shutdown(Shutdown::Both);
            got
        })
    }

    fn bodies(mut got: &[u8]) -> Vec<Vec<u8>> {
        let mut bodies = Vec::new();
        let mut scratch = Scratch::new();
        while !got.is_empty() {
            let head = http1::parse_response(got, &mut scratch, &Limits::DEFAULT);
            let head = head.unwrap().unwrap();
            let length = head.content_length().unwrap_or_default() as usize;
            let start = head.head_bytes;
            bodies.push(got[start..start + length].to_vec());
            got = &got[start + length..];
        }
        bodies
    }

    #[test]
    fn pipelined_requests_are_answered_in_order() {
        let mut requests_sent = Vec::new();
        for n in 0..50 {
            let size = n * 5000;
            let delay = if n % 10 == 3 { "&delay_us=2000" } else { "" };
            let request = format!("GET /obj/{n}?size={size}{delay} HTTP/1.1\r\nHost: a\r\n\r\n");
            requests_sent.extend_from_slice(request.as_bytes());
        }
        let (got, requests) = talk(&[&requests_sent]);
        assert_eq!(requests, 51);
        let bodies = bodies(&got);
        assert_eq!(bodies.len(), 51);
        for (n, body) in bodies[..50].iter().enumerate() {
            assert_eq!(body.len(), n * 5000);
            assert!(content::matches(n as u64, 0, body), "object {n}");
        }
    }

    #[test]
    fn a_request_may_come_in_pieces() {
        let (got, requests) =
            talk(&[b"GET /obj/1?si", b"ze=3 HTTP/1.1\r\nHo", b"st: a\r\n\r", b"\n"]);
        assert_eq!(requests, 2);
        assert!(content::matches(1, 0, &bodies(&got)[0]));
    }

    #[test]
    fn a_post_is_answered_after_its_body() {
        let (head, body) =
            ("POST /obj/2?size=7 HTTP/1.1\r\nHost: a\r\nContent-Length: 5000", "GET /");
        let post = format!("{head}\r\n\r\n{}", body.repeat(1000));
        for cut in [0, 10, 80, 1000, post.len()] {
            let (first, second) = post.as_bytes().split_at(cut);
            let (got, requests) = talk(&[first, second]);
            assert_eq!(requests, 2, "cut at {cut}");
            assert!(content::matches(2, 0, &bodies(&got)[0]));
        }
    }

    #[test]
    fn a_long_post_is_answered_after_its_body() {
        let head = "POST /obj/2?size=7 HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n";
        let post = format!("{head}{}", "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(12_000));
        let post = &post.as_bytes()[..head.len() + 300_000];
        for cut in [10, 1000, 200_000, post.len()] {
            let (first, second) = post.split_at(cut);
            let (got, requests) = talk(&[first, second]);
            assert_eq!(requests, 2, "cut at {cut}");
            assert!(content::matches(2, 0, &bodies(&got)[0]));
        }
    }

    #[test]
    fn messages_of_a_websocket_are_echoed() {
        let message = websocket::message(100);
        let ((), requests) = with_origin(|stream| {
            stream.write_all(&websocket::handshake("a", "/")).unwrap();
            let mut got = vec![0; websocket::SWITCH.len()];
            stream.read_exact(&mut got).unwrap();
            assert_eq!(got, websocket::SWITCH);
            send_in_pieces(stream, &[&message[..50], &message[50..], &message.repeat(3)]);
            let mut got = vec![0; 4 * 102];
            stream.read_exact(&mut got).unwrap();
            // Not a message: the origin closes.
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        });
        assert_eq!(requests, 4);
    }

    #[test]
    fn a_large_object_is_sent_complete_and_correct() {
        let (got, _) = talk(&[b"GET /obj/5?size=9000000 HTTP/1.1\r\nHost: a\r\n\r\n"]);
        let body = &bodies(&got)[0];
        assert_eq!(body.len(), 9_000_000);
        assert!(content::matches(5, 0, body));
    }

    #[test]
    fn an_invalid_request_is_refused_and_the_connection_closed() {
        let (got, requests) = talk(&[b"GET /obj/1 HTTP/1.1\r\n\r\n"]);
        assert_eq!(requests, 1);
        assert!(got.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&got));
    }
}
