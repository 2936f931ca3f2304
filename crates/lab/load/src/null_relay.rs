//! The null relay: the least work a proxy can do for what it passes on.
//!
//! What: one `epoll_wait` for many connections. For each request, a `recv` from the client, a
//! `send` to a kept connection to the origin, a `recv` of the answer and a `send` to the client. An
//! origin connection serves one exchange at a time, as in a real proxy, and is then kept for any
//! client. The end of an answer is the given number of bytes after the end of its head; nothing
//! else is looked at. As a tunnel, it gives each client its own origin connection and looks at
//! nothing. Why: the cost of a real proxy is reported as a multiple of this one.
//!
//! What a client sends during an exchange belongs to it, so a body may come after its head, but the
//! next request must not come before the answer. If one side closes, both are closed, also in the
//! middle of an answer.
//!
//! What never happens: parsing, logging, a time-out; a read while one of the two sides has not
//! taken its last bytes, so that a connection holds at most `BUFFER_BYTES`.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::null_server::{EVENTS_MAX, Epoll, head_end};
use crate::sys;

/// Size of the receive buffer, and of the pieces in which a long body is passed on.
const BUFFER_BYTES: usize = 128 * 1024;

/// A null relay that is bound but not yet serving.
#[derive(Debug)]
pub struct NullRelay {
    listener: OwnedFd,
    addr: SocketAddr,
    origin: SocketAddr,
    body_bytes: Option<u64>,
}

/// One side of an exchange or of a tunnel.
struct Side {
    fd: OwnedFd,
    /// The side that gets what this one sends. None for a client between two exchanges and for a
    /// kept origin connection.
    other: Option<RawFd>,
    /// What is missing of the answer, if this is an origin connection and not of a tunnel.
    answer: Option<Answer>,
    /// Bytes for this side that its socket has not accepted yet.
    unsent: Vec<u8>,
    /// How many of these it has accepted since. It is 0 if there are none.
    sent: usize,
    /// The events that epoll waits for.
    events: i32,
}

/// The part of an answer that has not come yet.
#[derive(Clone, Copy, Default)]
struct Answer {
    /// How many bytes of the head's end the last `recv` stopped after, 0..=3.
    matched: u8,
    /// Bytes of the body, once the head has ended.
    body: Option<u64>,
}

impl Answer {
    /// Takes the next bytes. True if they are the last ones.
    fn take(&mut self, mut bytes: &[u8], body_bytes: u64) -> bool {
        if self.body.is_none() {
            let Some(end) = head_end(&mut self.matched, bytes) else { return false };
            bytes = &bytes[end..];
        }
        let left = self.body.unwrap_or(body_bytes).saturating_sub(bytes.len() as u64);
        self.body = Some(left);
        left == 0
    }
}

impl NullRelay {
    /// Listens on `addr` (port 0: any). Each answer of the origin has a body of `body_bytes`;
    /// without that number, every connection is a tunnel.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn bind(
        addr: SocketAddr,
        origin: SocketAddr,
        body_bytes: Option<u64>,
    ) -> io::Result<NullRelay> {
        let listener = sys::listen(addr)?;
        let addr = sys::local_addr(&listener)?;
        Ok(NullRelay { listener, addr, origin, body_bytes })
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Relays in the calling thread until `stop` is set. Returns the number of answers, or of
    /// tunnels.
    ///
    /// # Errors
    /// The system refuses epoll or, when descriptors run out, a connection.
    pub fn run(self, stop: &AtomicBool) -> io::Result<u64> {
        let NullRelay { listener, origin, body_bytes, .. } = self;
        let epoll = Epoll::new()?;
        let (sides, kept) = (Vec::new(), Vec::new());
        let mut relaying = Relaying { epoll, origin, body_bytes, sides, kept, relayed: 0 };
        relaying.epoll.add(listener.as_raw_fd())?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut ready = Vec::with_capacity(EVENTS_MAX);
        while !stop.load(Ordering::Relaxed) {
            relaying.epoll.wait(&mut ready)?;
            for &fd in &ready {
                if fd == listener.as_raw_fd() {
                    while let Some(client) = sys::accept(&listener)? {
                        relaying.add(client, None)?;
                    }
                } else {
                    relaying.serve(fd, &mut buffer)?;
                }
            }
        }
        Ok(relaying.relayed)
    }
}

struct Relaying {
    epoll: Epoll,
    origin: SocketAddr,
    /// None: tunnels.
    body_bytes: Option<u64>,
    /// Indexed by descriptor.
    sides: Vec<Option<Side>>,
    /// Origin connections without an exchange. The last one is used next.
    kept: Vec<RawFd>,
    relayed: u64,
}

impl Relaying {
    fn add(&mut self, fd: OwnedFd, answer: Option<Answer>) -> io::Result<RawFd> {
        let raw = fd.as_raw_fd();
        self.epoll.add(raw)?;
        let at = raw as usize;
        if self.sides.len() <= at {
            self.sides.resize_with(at + 1, || None);
        }
        let (unsent, events) = (Vec::new(), libc::EPOLLIN);
        self.sides[at] = Some(Side { fd, other: None, answer, unsent, sent: 0, events });
        Ok(raw)
    }

    /// Passes on what a side has sent, or what it has room for now.
    fn serve(&mut self, fd: RawFd, buffer: &mut [u8]) -> io::Result<()> {
        let Some(side) = self.sides[fd as usize].as_mut() else {
            return Ok(()); // Closed by an earlier event of the same wait.
        };
        let other = side.other;
        if !side.unsent.is_empty() {
            match sys::send(side.fd.as_raw_fd(), &side.unsent[side.sent..]) {
                Ok(count) => side.sent += count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return self.close(fd),
            }
            if side.sent == side.unsent.len() {
                side.unsent.clear();
                side.sent = 0;
            }
            return self.wait_for(fd, other);
        }
        if other.is_some_and(|other| self.has_unsent(other)) {
            return Ok(());
        }
        let count = match sys::recv(fd, buffer) {
            Ok(0) => return self.close(fd),
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(_) => return self.close(fd),
        };
        let other = match other {
            Some(other) => other,
            None => match self.begin(fd)? {
                Some(origin) => origin,
                // The origin is gone, or sends on a connection that carries no exchange.
                None => return self.close(fd),
            },
        };
        self.pass(fd, other, &buffer[..count])
    }

    fn has_unsent(&self, fd: RawFd) -> bool {
        self.sides[fd as usize].as_ref().is_some_and(|side| !side.unsent.is_empty())
    }

    /// Gives a client an origin connection for its exchange or its tunnel.
    fn begin(&mut self, client: RawFd) -> io::Result<Option<RawFd>> {
        if self.sides[client as usize].as_ref().is_some_and(|side| side.answer.is_some()) {
            return Ok(None);
        }
        let origin = match self.kept.pop() {
            Some(kept) => kept,
            None => {
                // It blocks, but only until the kernel of this machine has connected.
                let Ok(stream) = TcpStream::connect(self.origin) else { return Ok(None) };
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                self.relayed += u64::from(self.body_bytes.is_none());
                self.add(stream.into(), self.body_bytes.map(|_| Answer::default()))?
            }
        };
        for (side, other) in [(client, origin), (origin, client)] {
            self.side(side).other = Some(other);
        }
        Ok(Some(origin))
    }

    fn side(&mut self, fd: RawFd) -> &mut Side {
        self.sides[fd as usize].as_mut().expect("both sides of an exchange are open")
    }

    /// Sends to `to` what has come from `from`.
    fn pass(&mut self, from: RawFd, to: RawFd, bytes: &[u8]) -> io::Result<()> {
        let sent = match sys::send(to, bytes) {
            Ok(sent) => sent,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => return self.close(from),
        };
        let body_bytes = self.body_bytes;
        let answer = self.side(from).answer.as_mut();
        let is_last = answer.zip(body_bytes).is_some_and(|(answer, body_bytes)| {
            let is_last = answer.take(bytes, body_bytes);
            if is_last {
                *answer = Answer::default();
            }
            is_last
        });
        if is_last {
            self.relayed += 1;
            self.side(from).other = None;
            self.side(to).other = None;
            self.kept.push(from);
        }
        if sent < bytes.len() {
            self.side(to).unsent.extend_from_slice(&bytes[sent..]);
            self.wait_for(to, (!is_last).then_some(from))?;
        }
        Ok(())
    }

    /// Waits for what a side and the one it exchanges with can do now.
    fn wait_for(&mut self, fd: RawFd, other: Option<RawFd>) -> io::Result<()> {
        let own = self.has_unsent(fd);
        let others = other.is_some_and(|other| self.has_unsent(other));
        for (at, to_send) in [(Some(fd), own), (other, others)] {
            let Some(at) = at else { continue };
            let events = match to_send {
                true => libc::EPOLLOUT,
                false if own || others => 0,
                false => libc::EPOLLIN,
            };
            let side = self.side(at);
            if side.events != events {
                side.events = events;
                self.epoll.change(at, events)?;
            }
        }
        Ok(())
    }

    /// Closes a side and the one it exchanges with. Dropping a descriptor also removes it from
    /// epoll.
    fn close(&mut self, fd: RawFd) -> io::Result<()> {
        let Some(side) = self.sides[fd as usize].take() else { return Ok(()) };
        match side.other {
            Some(other) => self.sides[other as usize] = None,
            None => self.kept.retain(|kept| *kept != fd),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener};
    use std::sync::Arc;
    use std::thread::{self, JoinHandle};
    use std::time::Duration;

    use super::*;
    use crate::Origin;

    /// A relay in a thread.
    struct Running {
        addr: SocketAddr,
        stop: Arc<AtomicBool>,
        thread: JoinHandle<u64>,
    }

    fn run<T: Send + 'static>(
        run: impl FnOnce(&AtomicBool) -> io::Result<T> + Send + 'static,
    ) -> (Arc<AtomicBool>, JoinHandle<T>) {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        (stop, thread::spawn(move || run(&flag).unwrap()))
    }

    impl Running {
        fn start(origin: SocketAddr, body_bytes: Option<u64>) -> Running {
            let relay = NullRelay::bind("127.0.0.1:0".parse().unwrap(), origin, body_bytes);
            let relay = relay.unwrap();
            let addr = relay.local_addr();
            let (stop, thread) = run(move |stop| relay.run(stop));
            Running { addr, stop, thread }
        }

        fn client(&self) -> TcpStream {
            let client = TcpStream::connect(self.addr).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            client
        }

        fn stop(self) -> u64 {
            self.stop.store(true, Ordering::Relaxed);
            self.thread.join().unwrap()
        }
    }

    /// Reads an answer with a body of this length; returns the body.
    fn answer(client: &mut TcpStream, body_bytes: usize) -> Vec<u8> {
        let mut matched = 0;
        let mut byte = [0];
        while head_end(&mut matched, &byte).is_none() {
            client.read_exact(&mut byte).unwrap();
        }
        let mut body = vec![0; body_bytes];
        client.read_exact(&mut body).unwrap();
        body
    }

    #[test]
    fn exchanges_of_several_clients_share_kept_connections() {
        for body_bytes in [0, 10, 1 << 20] {
            let origin = Origin::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let (origin_addr, counters) = (origin.local_addr(), origin.counters());
            let (origin_stop, origin_thread) = run(move |stop| origin.run(stop));
            let relay = Running::start(origin_addr, Some(body_bytes));
            let mut clients = [relay.client(), relay.client()];
            let path = format!("/obj/5?size={body_bytes}");
            for round in 0..3 {
                for client in &mut clients {
                    let get = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
                    let post = format!(
                        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1024\r\n\r\n{}",
                        "x".repeat(1024)
                    );
                    let request = if round == 1 { post } else { get };
                    client.write_all(request.as_bytes()).unwrap();
                    let body = answer(client, body_bytes as usize);
                    assert!(crate::content::matches(5, 0, &body));
                }
            }
            // The two clients never ask at the same time.
            assert_eq!(counters.connections.load(Ordering::Relaxed), 1);
            assert_eq!(counters.requests.load(Ordering::Relaxed), 6);
            assert_eq!(relay.stop(), 6);
            origin_stop.store(true, Ordering::Relaxed);
            origin_thread.join().unwrap();
        }
    }

    #[test]
    fn an_answer_may_come_in_pieces_and_a_slow_client_gets_all_of_it() {
        const BODY_BYTES: usize = 20 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Running::start(listener.local_addr().unwrap(), Some(BODY_BYTES as u64));
        let mut client = relay.client();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let (mut origin, _) = listener.accept().unwrap();
        let writer = thread::spawn(move || {
            for piece in ["HTTP/1.1 200 OK\r\nA: b\r", "\n\r", "\n"] {
                origin.write_all(piece.as_bytes()).unwrap();
                thread::sleep(Duration::from_millis(5));
            }
            let mut sent = 0;
            while sent < BODY_BYTES {
                let piece = crate::content::piece(1, sent as u64, (BODY_BYTES - sent) as u64);
                origin.write_all(piece).unwrap();
                sent += piece.len();
            }
            origin
        });
        // Longer than the sockets can hold, so the relay has to wait for this client.
        thread::sleep(Duration::from_millis(50));
        assert!(crate::content::matches(1, 0, &answer(&mut client, BODY_BYTES)));
        // The connection is kept, and carries the next exchange after the one before.
        let mut origin = writer.join().unwrap();
        client.write_all(b"next").unwrap();
        let mut request = vec![0; b"GET / HTTP/1.1\r\nHost: a\r\n\r\nnext".len()];
        origin.read_exact(&mut request).unwrap();
        assert!(request.ends_with(b"\r\n\r\nnext"));
        drop(origin);
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "both sides are closed");
        assert_eq!(relay.stop(), 1);
    }

    #[test]
    fn a_kept_connection_that_the_origin_closes_is_not_used() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Running::start(listener.local_addr().unwrap(), Some(0));
        let mut client = relay.client();
        for _ in 0..2 {
            client.write_all(b"x").unwrap();
            let (mut origin, _) = listener.accept().unwrap();
            origin.read_exact(&mut [0]).unwrap();
            origin.write_all(b"\r\n\r\n").unwrap();
            assert_eq!(answer(&mut client, 0), b"");
            origin.shutdown(Shutdown::Write).unwrap();
            assert_eq!(origin.read(&mut [0]).unwrap(), 0, "the relay has closed it");
        }
        assert_eq!(relay.stop(), 2);
    }

    #[test]
    fn a_side_that_sends_before_it_has_taken_its_bytes_does_not_wake_the_relay() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (sides, kept) = (Vec::new(), Vec::new());
        let (epoll, origin) = (Epoll::new().unwrap(), listener.local_addr().unwrap());
        let mut relaying = Relaying { epoll, origin, body_bytes: None, sides, kept, relayed: 0 };
        let client = relaying.add(TcpStream::connect(origin).unwrap().into(), None).unwrap();
        let origin = relaying.begin(client).unwrap().unwrap();
        for (unsent, events) in [(1, (libc::EPOLLOUT, 0)), (0, (libc::EPOLLIN, libc::EPOLLIN))] {
            relaying.side(client).unsent = vec![0; unsent];
            relaying.wait_for(client, Some(origin)).unwrap();
            assert_eq!((relaying.side(client).events, relaying.side(origin).events), events);
        }
    }

    #[test]
    fn a_tunnel_passes_everything_in_both_directions() {
        const BYTES: usize = 8 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Running::start(listener.local_addr().unwrap(), None);
        let mut client = relay.client();
        client.write_all(b"\r\n\r\n").unwrap();
        let (mut origin, _) = listener.accept().unwrap();
        origin.read_exact(&mut [0; 4]).unwrap();
        // Neither side reads until both have filled their sockets.
        let talk = |stream: &TcpStream, byte: u8| {
            let (mut out, mut into) = (stream.try_clone().unwrap(), stream.try_clone().unwrap());
            let writer = thread::spawn(move || out.write_all(&vec![byte; BYTES]).unwrap());
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(50));
                let mut got = vec![0; BYTES];
                into.read_exact(&mut got).unwrap();
                writer.join().unwrap();
                got
            })
        };
        let (of_client, of_origin) = (talk(&client, b'o'), talk(&origin, b'c'));
        assert!(of_client.join().unwrap().iter().all(|byte| *byte == b'c'));
        assert!(of_origin.join().unwrap().iter().all(|byte| *byte == b'o'));
        drop(client);
        assert_eq!(origin.read(&mut [0]).unwrap(), 0, "both sides are closed");
        assert_eq!(relay.stop(), 1);
    }
}
