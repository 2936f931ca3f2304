//! The layer below the sockets: the system, or the simulated world.
//!
//! What: [`World`] has one function for each call that a socket or a clock makes. `real` implements
//! them with system calls, the network of [`crate::sim`] in memory. Both have the same functions,
//! and no code above this file knows which one it calls.
//! Why: the production code is the code that is tested with seeded faults.
//! What never happens: a function blocks, or keeps a buffer after it has returned.

pub(crate) mod address;
pub(crate) mod options;
pub(crate) mod pipe;
pub(crate) mod real;
pub(crate) mod unix;

use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::RawFd;
use std::rc::Rc;

use self::options::ListenOptions;
use self::pipe::Pipe;
use crate::sim::world::World as SimulatedWorld;

/// Where the sockets of a core live.
pub(crate) enum World {
    Real,
    Simulated(Rc<SimulatedWorld>),
}

macro_rules! world {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)+) => {
        impl World {
            $($(#[$doc])*
            #[inline]
            pub(crate) fn $name(&self, $($arg: $type),*) $(-> $result)? {
                match self {
                    World::Real => real::$name($($arg),*),
                    World::Simulated(world) => world.net().$name($($arg),*),
                }
            })+
        }
    };
}

world! {
    /// Nanoseconds of a monotonic clock.
    fn monotonic_ns() -> u64;
    /// Nanoseconds since 1970.
    fn wall_ns() -> u64;
    /// Nanoseconds of processor time that the calling thread has used.
    fn thread_cpu_ns() -> u64;
    /// How often the calling thread has slept: its voluntary context switches.
    fn thread_sleeps() -> u64;
    /// Nanoseconds for which the calling thread was runnable but others ran.
    fn thread_starved_ns() -> u64;

    /// A listening TCP socket; its connections have TCP_NODELAY set.
    fn listen_tcp(address: SocketAddr, options: &ListenOptions) -> io::Result<RawFd>;
    /// A connecting TCP socket. True if it is already connected.
    fn connect_tcp(address: SocketAddr) -> io::Result<(RawFd, bool)>;
    /// Whether a connecting socket is connected.
    fn finish_connect_tcp(fd: RawFd, address: SocketAddr) -> io::Result<bool>;
    fn accept_tcp(fd: RawFd) -> io::Result<(RawFd, SocketAddr)>;

    fn recv(fd: RawFd, buf: &mut [u8]) -> io::Result<usize>;
    /// As `recv`, without consuming the bytes.
    fn peek(fd: RawFd, buf: &mut [u8]) -> io::Result<usize>;
    fn send(fd: RawFd, buf: &[u8]) -> io::Result<usize>;
    /// `more`: an incomplete packet may wait for the next bytes.
    fn send_vectored(fd: RawFd, bufs: &[IoSlice<'_>], more: bool) -> io::Result<usize>;
    /// An empty pipe.
    fn pipe() -> io::Result<Pipe>;
    /// As `recv` of up to `len` bytes, into an empty pipe and without copying.
    fn recv_into(fd: RawFd, pipe: &mut Pipe, len: usize) -> io::Result<usize>;
    /// As `send` of the first `len` bytes in the pipe, without copying.
    fn send_from(fd: RawFd, pipe: &mut Pipe, len: usize, more: bool) -> io::Result<usize>;
    fn shutdown(fd: RawFd, how: Shutdown) -> io::Result<()>;
    fn close(fd: RawFd);

    fn bind_udp(address: SocketAddr) -> io::Result<RawFd>;
    fn connect_udp(fd: RawFd, address: SocketAddr) -> io::Result<()>;
    fn send_to(fd: RawFd, buf: &[u8], address: SocketAddr) -> io::Result<usize>;
    fn recv_from(fd: RawFd, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)>;

    fn local_addr(fd: RawFd) -> io::Result<SocketAddr>;
    fn set_nodelay(fd: RawFd, on: bool) -> io::Result<()>;
    /// Makes closing the socket reset its connection.
    fn set_linger0(fd: RawFd) -> io::Result<()>;
}
