//! The null server: the least work a server can do per request.
//!
//! What: one `epoll_wait` for many connections, one `recv` and one `send` per request, and the same
//! response to every request. It only looks for the end of a head. Why: the cost of a real server
//! is reported as a multiple of this one. It uses raw epoll, not `readiness`, because `readiness`
//! is measured against it too. What never happens: parsing, logging, a time-out.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys;

/// Most events that one wait returns.
pub(crate) const EVENTS_MAX: usize = 256;
/// How often the stop flag is checked, milliseconds.
const STOP_CHECK_MS: i32 = 50;
/// Size of the receive buffer. Requests are small.
const BUFFER_BYTES: usize = 16 * 1024;
const HEAD_END: &[u8; 4] = b"\r\n\r\n";
/// How a request ends after whose response the connection is closed. The generator writes this
/// field last.
const CLOSE_END: &[u8] = b"Connection: close\r\n\r\n";

/// A null server that is bound but not yet serving.
#[derive(Debug)]
pub struct NullServer {
    listener: OwnedFd,
    addr: SocketAddr,
    response: Vec<u8>,
}

/// The state of one connection.
struct Peer {
    fd: OwnedFd,
    /// How many bytes of a head's end the last `recv` stopped after, 0..=3.
    matched: u8,
    /// Response bytes that are due and that the socket has not accepted yet.
    owed: usize,
    /// Whether the client wants it to be closed after that.
    closes: bool,
    /// Whether epoll waits for writability instead of readability.
    wants_write: bool,
}

impl NullServer {
    /// Listens on `addr` (port 0: any) and prepares a 200 response with a body of `body_bytes`.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn bind(addr: SocketAddr, body_bytes: usize) -> io::Result<NullServer> {
        let listener = sys::listen(addr)?;
        let addr = sys::local_addr(&listener)?;
        let mut response = format!(
            "HTTP/1.1 200 OK\r\nServer: null\r\nContent-Type: application/octet-stream\r\n\
             Cache-Control: max-age=3600\r\nContent-Length: {body_bytes}\r\n\r\n"
        )
        .into_bytes();
        response.resize(response.len() + body_bytes, b'x');
        Ok(NullServer { listener, addr, response })
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves in the calling thread until `stop` is set. Returns the number of requests answered.
    ///
    /// # Errors
    /// The system refuses epoll or, when descriptors run out, a connection.
    pub fn run(self, stop: &AtomicBool) -> io::Result<u64> {
        let epoll = Epoll::new()?;
        let mut serving =
            Serving { epoll, peers: Vec::new(), response: self.response, answered: 0 };
        serving.epoll.add(self.listener.as_raw_fd())?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut ready = Vec::with_capacity(EVENTS_MAX);
        while !stop.load(Ordering::Relaxed) {
            serving.epoll.wait(&mut ready)?;
            for &fd in &ready {
                if fd == self.listener.as_raw_fd() {
                    serving.accept_all(&self.listener)?;
                } else {
                    serving.serve(fd, &mut buffer)?;
                }
            }
        }
        Ok(serving.answered)
    }
}

struct Serving {
    epoll: Epoll,
    /// Indexed by descriptor.
    peers: Vec<Option<Peer>>,
    response: Vec<u8>,
    answered: u64,
}

impl Serving {
    fn accept_all(&mut self, listener: &OwnedFd) -> io::Result<()> {
        while let Some(fd) = sys::accept(listener)? {
            let raw = fd.as_raw_fd();
            self.epoll.add(raw)?;
            let at = raw as usize;
            if self.peers.len() <= at {
                self.peers.resize_with(at + 1, || None);
            }
            let (matched, owed, closes, wants_write) = (0, 0, false, false);
            self.peers[at] = Some(Peer { fd, matched, owed, closes, wants_write });
        }
        Ok(())
    }

    fn serve(&mut self, fd: RawFd, buffer: &mut [u8]) -> io::Result<()> {
        let Some(peer) = self.peers[fd as usize].as_mut() else {
            return Ok(()); // Closed by an earlier event of the same wait.
        };
        // No reads while the client has responses to take.
        if peer.owed == 0 {
            match sys::recv(peer.fd.as_raw_fd(), buffer) {
                Ok(0) => return self.close(fd),
                Ok(n) => {
                    let heads = heads_ended(&mut peer.matched, &buffer[..n]);
                    peer.owed = heads * self.response.len();
                    peer.closes = buffer[..n].ends_with(CLOSE_END);
                    self.answered += heads as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(_) => return self.close(fd),
            }
        }
        while peer.owed > 0 {
            let left = (peer.owed - 1) % self.response.len() + 1;
            match sys::send(peer.fd.as_raw_fd(), &self.response[self.response.len() - left..]) {
                Ok(n) => peer.owed -= n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return self.close(fd),
            }
        }
        let wants_write = peer.owed > 0;
        if peer.closes && !wants_write {
            return self.close(fd);
        }
        if wants_write != peer.wants_write {
            peer.wants_write = wants_write;
            let events = if wants_write { libc::EPOLLOUT } else { libc::EPOLLIN };
            return self.epoll.change(fd, events);
        }
        Ok(())
    }

    /// Dropping the descriptor also removes it from epoll.
    fn close(&mut self, fd: RawFd) -> io::Result<()> {
        self.peers[fd as usize] = None;
        Ok(())
    }
}

/// Counts the ends of heads in `bytes`. `matched` carries an end that a `recv` has cut.
fn heads_ended(matched: &mut u8, mut bytes: &[u8]) -> usize {
    let mut ended = 0;
    while let Some(end) = head_end(matched, bytes) {
        ended += 1;
        bytes = &bytes[end..];
    }
    ended
}

/// Where in `bytes` the first head has ended. `matched` carries an end that a `recv` has cut.
pub(crate) fn head_end(matched: &mut u8, bytes: &[u8]) -> Option<usize> {
    // Almost always a complete head.
    if *matched == 0
        && let Some(at) = memchr::memmem::find(bytes, HEAD_END)
    {
        return Some(at + HEAD_END.len());
    }
    for (at, byte) in bytes.iter().enumerate() {
        if *byte == HEAD_END[usize::from(*matched)] {
            *matched += 1;
            if usize::from(*matched) == HEAD_END.len() {
                *matched = 0;
                return Some(at + 1);
            }
        } else {
            *matched = u8::from(*byte == b'\r');
        }
    }
    None
}

/// A level-triggered epoll instance that identifies descriptors by their numbers.
pub(crate) struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Epoll> {
        let fd = sys::epoll_create()?;
        Ok(Epoll { fd, events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX] })
    }

    /// Waits for readability from now on.
    pub(crate) fn add(&self, fd: RawFd) -> io::Result<()> {
        sys::epoll_control(&self.fd, libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN)
    }

    pub(crate) fn change(&self, fd: RawFd, events: i32) -> io::Result<()> {
        sys::epoll_control(&self.fd, libc::EPOLL_CTL_MOD, fd, events)
    }

    pub(crate) fn wait(&mut self, ready: &mut Vec<RawFd>) -> io::Result<()> {
        ready.clear();
        let count = sys::epoll_wait(&self.fd, &mut self.events, STOP_CHECK_MS)?;
        ready.extend(self.events[..count].iter().map(|event| event.u64 as RawFd));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpStream};
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn ends_of_heads_are_counted_at_every_cut() {
        let bytes = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\n\r\r\n\r\n";
        for cut in 0..=bytes.len() {
            let mut matched = 0;
            let first = heads_ended(&mut matched, &bytes[..cut]);
            let second = heads_ended(&mut matched, &bytes[cut..]);
            assert_eq!(first + second, 2, "cut at {cut}");
        }
    }

    #[test]
    fn each_request_is_answered_once_whatever_the_response_size() {
        for body_bytes in [10, 1 << 20] {
            let server = NullServer::bind("127.0.0.1:0".parse().unwrap(), body_bytes).unwrap();
            let addr = server.local_addr();
            let stop = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&stop);
            let thread = thread::spawn(move || server.run(&flag).unwrap());
            let mut stream = TcpStream::connect(addr).unwrap();
            stream.write_all(&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(5)).unwrap();
            // Half closed: the server answers what it has read, then sees the end of the stream.
            thread::sleep(std::time::Duration::from_millis(20));
            stream.shutdown(Shutdown::Write).unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            assert_eq!(memchr::memmem::find_iter(&got, b"HTTP/1.1 200 OK").count(), 5);
            assert!(got.len() > 5 * body_bytes);
            stop.store(true, Ordering::Relaxed);
            assert_eq!(thread.join().unwrap(), 5);
        }
    }
}
