//! A small, fast origin for experiments: deterministic objects over HTTP/1.1.
//!
//! What: one thread, one poller, keep-alive and pipelining; what it answers stands in `answer`, the
//! bytes in `content`. Why: a proxy's experiments need a source that is cheap, says exactly what it
//! was told to say, and can be checked byte for byte. What never happens: a response out of order;
//! a copy of a body; reading on from a client that does not take its responses.

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
use crate::{content, sys};

/// Connections at once; more wait in the backlog.
const CONNECTIONS_MAX: u32 = 1 << 20;
const EVENTS_MAX: usize = 256;
const BUFFER_BYTES: usize = 64 * 1024;
/// Given to one call. It often shares a processor with a generator, and a kernel that does not
/// preempt itself keeps it for as long as a call takes: a request would be begun late.
const SEND_BYTES_MAX: u64 = 64 * 1024;
/// How long it may sleep before it looks at its stop flag.
const STOP_LOOK: Duration = Duration::from_millis(50);
const LISTENER: Token = Token::new(Token::SLOT_RESERVED - 1, 0);

/// What an origin has done so far. May be read from any thread.
#[derive(Debug, Default)]
pub struct OriginCounters {
    /// Requests answered, of all kinds.
    pub requests: AtomicU64,
    /// Of these, with 304.
    pub not_modified: AtomicU64,
    /// Of these, refused (400 and above).
    pub refused: AtomicU64,
    /// Bytes of bodies sent.
    pub body_bytes: AtomicU64,
    /// Connections accepted.
    pub connections: AtomicU64,
}

/// A bound, not yet serving origin.
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

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// What it will count.
    pub fn counters(&self) -> Arc<OriginCounters> {
        Arc::clone(&self.counters)
    }

    /// Serves in the calling thread until `stop` is set (it looks each 50 ms).
    ///
    /// # Errors
    /// The system refuses a poller or, for want of descriptors, a connection.
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
            let wait = serving.wait_at_most();
            serving.poller.wait(&mut events, Some(wait))?;
            serving.read_clock();
            for event in events.iter() {
                if event.token == LISTENER {
                    serving.accept_all(self.listener.as_raw_fd())?;
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
    /// Bytes of requests that have not been answered.
    input: Vec<u8>,
    /// Heads that the socket has not taken.
    head: Vec<u8>,
    /// The body after `head`: the object and the part of it still to send.
    object: u64,
    body_at: u64,
    body_end: u64,
    close: bool,
    /// The answer in `head` waits for its instant.
    delayed: bool,
    interest: Interest,
}

impl Client {
    fn has_output(&self) -> bool {
        !self.head.is_empty() || self.body_at < self.body_end
    }

    /// Sends what the socket takes; true when all is sent.
    fn send(&mut self) -> io::Result<bool> {
        let mut head_at = 0;
        loop {
            let left = (self.body_end - self.body_at).min(SEND_BYTES_MAX);
            let first = content::piece(self.object, self.body_at, left);
            let second = content::piece(
                self.object,
                self.body_at + first.len() as u64,
                left - first.len() as u64,
            );
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
    /// Answers that wait: when, ns of the monotonic clock, and for whom.
    delayed: BinaryHeap<Reverse<(u64, u64)>>,
    buffer: Box<[u8]>,
    scratch: Scratch,
    limits: Limits,
    /// The Date field, made once a second.
    date: String,
    date_s: i64,
    counters: Arc<OriginCounters>,
}

impl Serving {
    fn wait_at_most(&self) -> Duration {
        match self.delayed.peek() {
            Some(Reverse((due_ns, _))) => {
                Duration::from_nanos(due_ns.saturating_sub(sys::mono_ns())).min(STOP_LOOK)
            }
            None => STOP_LOOK,
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

    fn accept_all(&mut self, listener: i32) -> io::Result<()> {
        while !self.clients.is_full()
            && let Some(fd) = sys::accept(listener)?
        {
            let raw = fd.as_raw_fd();
            let token = self.clients.insert(Client {
                fd,
                input: Vec::new(),
                head: Vec::new(),
                object: 0,
                body_at: 0,
                body_end: 0,
                close: false,
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
        if client.has_output() {
            if ready.has(Ready::WRITABLE) {
                self.go_on(token);
            }
            return;
        }
        match sys::recv(client.fd.as_raw_fd(), &mut self.buffer) {
            Ok(0) => self.close(token),
            Ok(count) if client.input.is_empty() => {
                // Nearly always whole requests: answered from the shared buffer.
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

    /// Answers what stands in a client's own buffer.
    fn answer_input(&mut self, token: Token) {
        let Some(client) = self.clients.get_mut(token) else { return };
        let input = std::mem::take(&mut client.input);
        let used = self.answer_all(token, &input);
        if let Some(client) = self.clients.get_mut(token) {
            client.input = input;
            client.input.drain(..used);
        }
    }

    /// Answers the requests in `bytes`, one after the other, until one must wait; returns how many
    /// bytes are done with.
    fn answer_all(&mut self, token: Token, bytes: &[u8]) -> usize {
        let mut used = 0;
        while used < bytes.len() {
            let Some(client) = self.clients.get_mut(token) else { return used };
            if client.close || client.delayed || client.has_output() {
                break;
            }
            let parsed = parse_request(&bytes[used..], &mut self.scratch, &self.limits);
            let answer = match parsed {
                Ok(None) => break,
                Ok(Some(request)) => {
                    used += request.head_bytes;
                    answer::answer(&request, &self.date, &mut client.head)
                }
                Err(reject) => {
                    used = bytes.len();
                    answer::reject(reject.status, &self.date, &mut client.head)
                }
            };
            self.give(token, answer);
        }
        used
    }

    /// An answer's head was just written to its client: sends it, now or at its instant.
    fn give(&mut self, token: Token, answer: Answer) {
        let Some(client) = self.clients.get_mut(token) else { return };
        client.object = answer.object;
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
        // Level-triggered: what it may send meanwhile, its close too, would wake us on and on.
        self.want(token, Interest::NONE);
    }

    /// Sends a client's output as far as it goes.
    fn push(&mut self, token: Token) {
        let Some(client) = self.clients.get_mut(token) else { return };
        match client.send() {
            Ok(true) if client.close => self.close(token),
            Ok(true) => self.want(token, Interest::READ),
            Ok(false) => self.want(token, Interest::WRITE),
            Err(_) => self.close(token),
        }
    }

    /// Sends, and answers what was asked meanwhile.
    fn go_on(&mut self, token: Token) {
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
                self.go_on(token);
            }
        }
    }

    fn want(&mut self, token: Token, interest: Interest) {
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
            // It is registered since it was accepted; a failure means it is gone already.
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

    /// Sends bytes to a fresh origin, half closes, and returns all that comes back.
    fn talk(pieces: &[&[u8]]) -> (Vec<u8>, u64) {
        let origin = Origin::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (addr, counters) = (origin.local_addr(), origin.counters());
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = thread::spawn(move || origin.run(&flag).unwrap());
        let mut stream = TcpStream::connect(addr).unwrap();
        for piece in pieces {
            stream.write_all(piece).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        // Asked last, so that the origin closes when all is answered.
        stream
            .write_all(b"GET /obj/0?size=0 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        let _closed_already = stream.shutdown(Shutdown::Both);
        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        (got, counters.requests.load(Ordering::Relaxed))
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
        let mut asked = Vec::new();
        for n in 0..50 {
            let size = n * 5000;
            let delay = if n % 10 == 3 { "&delay_us=2000" } else { "" };
            let request = format!("GET /obj/{n}?size={size}{delay} HTTP/1.1\r\nHost: a\r\n\r\n");
            asked.extend_from_slice(request.as_bytes());
        }
        let (got, requests) = talk(&[&asked]);
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
    fn a_large_object_is_sent_whole_and_right() {
        let (got, _) = talk(&[b"GET /obj/5?size=9000000 HTTP/1.1\r\nHost: a\r\n\r\n"]);
        let body = &bodies(&got)[0];
        assert_eq!(body.len(), 9_000_000);
        assert!(content::matches(5, 0, body));
    }

    #[test]
    fn what_is_no_request_is_refused_and_the_connection_closed() {
        let (got, requests) = talk(&[b"GET /obj/1 HTTP/1.1\r\n\r\n"]);
        assert_eq!(requests, 1);
        assert!(got.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&got));
    }
}
