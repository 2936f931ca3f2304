//! The implementation by the system: one system call each, non-blocking and close-on-exec.

use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use super::address::RawAddress;
use super::options::ListenOptions;
use super::pipe::{PIPE_BYTES, PIPE_BYTES_MIN, Pipe};

/// The kernel accepts at most this many buffers in one call (UIO_MAXIOV).
const BUFFERS_MAX: usize = 1024;

/// Turns the -1 of a system call into its error.
pub(crate) fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// As [`check`] for calls that return a count. Repeats calls that a signal has interrupted.
pub(crate) fn counted(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(count) => return Ok(count),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// Restricts the calling thread to processor `cpu`.
pub(crate) fn pin_thread(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: a bit set, for which zero is the empty set; CPU_SET stays within it (checked above).
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        set
    };
    // SAFETY: the pointer and the size describe `set`; pid 0 is the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) }).map(drop)
}

/// Gives the calling thread its share of the processor, but does not let it preempt a running
/// thread when it wakes (SCHED_BATCH).
pub(crate) fn set_batch_scheduling() -> io::Result<()> {
    // SAFETY: a C struct of integers, for which zero is a value. musl's has more of them.
    let none: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: reads one sched_param; pid 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const none) }).map(drop)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec through the pointer.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(result, 0, "the system has this clock");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

pub(crate) fn wall_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

pub(crate) fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

pub(crate) fn thread_sleeps() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is a place for one rusage, and all zeros are a valid one.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_nvcsw as u64
}

pub(crate) fn thread_starved_ns() -> u64 {
    // "CPU-NS WAIT-NS SLICES". A kernel without this file counts as no waiting.
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    statistics.split(' ').nth(1).and_then(|wait| wait.parse().ok()).unwrap_or(0)
}

fn socket(family: i32, kind: i32) -> io::Result<OwnedFd> {
    let kind = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: a new descriptor with no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set_option<T>(fd: RawFd, level: i32, name: i32, value: T) -> io::Result<()> {
    let (pointer, len) = ((&raw const value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: pointer and length describe `value`, which lives until the call returns.
    check(unsafe { libc::setsockopt(fd, level, name, pointer, len) }).map(drop)
}

/// Disables pacing, for loopback, where nothing is lost or queued. A congestion control that paces
/// (BBR) would set a timer for each packet of 64 KiB, which costs as much as sending it.
fn send_unpaced(fd: RawFd) {
    // Every kernel has reno and allows it without privileges. If this fails, packets are paced.
    drop(set_option(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, *b"reno"));
}

fn bind(fd: &OwnedFd, address: &RawAddress) -> io::Result<()> {
    // SAFETY: pointer and length describe an address that lives until the call returns.
    check(unsafe { libc::bind(fd.as_raw_fd(), address.as_ptr(), address.len()) }).map(drop)
}

fn connect(fd: RawFd, address: &RawAddress) -> io::Result<()> {
    // SAFETY: pointer and length describe an address that lives until the call returns.
    check(unsafe { libc::connect(fd, address.as_ptr(), address.len()) }).map(drop)
}

fn listen(fd: &OwnedFd, backlog: u32) -> io::Result<()> {
    let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
    // SAFETY: no pointers.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) }).map(drop)
}

pub(crate) fn listen_tcp(address: SocketAddr, options: &ListenOptions) -> io::Result<RawFd> {
    let fd = socket(RawAddress::inet(address).family(), libc::SOCK_STREAM)?;
    set_option(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    if options.reuse_port {
        set_option(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    }
    // Accepted sockets inherit it: one call here instead of one for each connection.
    set_nodelay(fd.as_raw_fd(), true)?;
    if address.ip().is_loopback() {
        send_unpaced(fd.as_raw_fd());
    }
    bind(&fd, &RawAddress::inet(address))?;
    listen(&fd, options.backlog)?;
    Ok(fd.into_raw_fd())
}

pub(crate) fn connect_tcp(address: SocketAddr) -> io::Result<(RawFd, bool)> {
    let address = RawAddress::of_stream(address);
    let fd = socket(address.family(), libc::SOCK_STREAM)?;
    if address.family() != libc::AF_UNIX {
        set_nodelay(fd.as_raw_fd(), true)?;
    }
    let connected = connected(fd.as_raw_fd(), &address)?;
    Ok((fd.into_raw_fd(), connected))
}

pub(crate) fn finish_connect_tcp(fd: RawFd, address: SocketAddr) -> io::Result<bool> {
    connected(fd, &RawAddress::of_stream(address))
}

/// The same call starts a connect, returns its progress, and returns its error.
fn connected(fd: RawFd, address: &RawAddress) -> io::Result<bool> {
    match connect(fd, address) {
        Ok(()) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::EISCONN) => Ok(true),
            Some(libc::EINPROGRESS | libc::EALREADY | libc::EINTR) => Ok(false),
            _ => Err(error),
        },
    }
}

/// A Unix socket that is bound and does not listen yet.
pub(crate) fn bind_unix(address: SocketAddr) -> io::Result<OwnedFd> {
    let address = RawAddress::of_stream(address);
    let fd = socket(address.family(), libc::SOCK_STREAM)?;
    bind(&fd, &address)?;
    Ok(fd)
}

pub(crate) fn listen_unix(fd: &OwnedFd) -> io::Result<()> {
    listen(fd, ListenOptions::default().backlog)
}

/// A new connection and its peer. Clients of a Unix socket have no address: each is `0.0.0.0:0`.
pub(crate) fn accept_tcp(fd: RawFd) -> io::Result<(RawFd, SocketAddr)> {
    let mut peer = RawAddress::room();
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let accepted = loop {
        let (address, len) = (peer.as_mut_ptr(), &raw mut *peer.len_mut());
        // SAFETY: the address has as much room as its length says; both outlive the call.
        match check(unsafe { libc::accept4(fd, address, len, flags) }) {
            // SAFETY: a new descriptor with no other owner.
            Ok(accepted) => break unsafe { OwnedFd::from_raw_fd(accepted) },
            Err(error) => match error.raw_os_error() {
                // The peer was gone before it was accepted: accept the next one.
                Some(libc::ECONNABORTED | libc::EPROTO | libc::EINTR) => {}
                _ => return Err(error),
            },
        }
    };
    // The connection is closed if its address makes no sense.
    let peer = peer.to_peer()?;
    Ok((accepted.into_raw_fd(), peer))
}

pub(crate) fn recv(fd: RawFd, buf: &mut [u8]) -> io::Result<usize> {
    receive(fd, buf, 0)
}

pub(crate) fn peek(fd: RawFd, buf: &mut [u8]) -> io::Result<usize> {
    receive(fd, buf, libc::MSG_PEEK)
}

// Receives and sends are made by the numbers of their system calls. The C library's functions
// allow the thread to be cancelled during the call, which doubles their cost in user space. A
// library that is loaded before the C library does not see these calls. Each argument has the size
// of a register.

fn receive(fd: RawFd, buf: &mut [u8], flags: i32) -> io::Result<usize> {
    let (bytes, none) = (buf.as_mut_ptr(), std::ptr::null_mut::<u8>());
    // SAFETY: pointer and length describe `buf`. No address is asked for.
    counted(|| unsafe {
        libc::syscall(libc::SYS_recvfrom, fd, bytes, buf.len(), flags, none, none) as isize
    })
}

pub(crate) fn send(fd: RawFd, buf: &[u8]) -> io::Result<usize> {
    let (bytes, none) = (buf.as_ptr(), std::ptr::null::<u8>());
    // SAFETY: pointer and length describe `buf`. No address is given.
    counted(|| unsafe {
        let flags = libc::MSG_NOSIGNAL;
        libc::syscall(libc::SYS_sendto, fd, bytes, buf.len(), flags, none, 0_usize) as isize
    })
}

pub(crate) fn send_vectored(fd: RawFd, bufs: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    // SAFETY: a C struct of pointers and integers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // IoSlice is laid out as iovec; the kernel only reads through it.
    message.msg_iov = bufs.as_ptr().cast_mut().cast();
    // An int with musl.
    message.msg_iovlen = bufs.len().min(BUFFERS_MAX) as _;
    let flags = libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
    // SAFETY: the message names `bufs`, which live until the call returns. The kernel reads it with
    // its padding, which is zero.
    counted(|| unsafe { libc::syscall(libc::SYS_sendmsg, fd, &raw const message, flags) as isize })
}

pub(crate) fn pipe() -> io::Result<Pipe> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
    // SAFETY: new descriptors with no other owner.
    let [read, write] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    // SAFETY: no pointers.
    let bytes = unsafe {
        libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES);
        libc::fcntl(write.as_raw_fd(), libc::F_GETPIPE_SZ)
    };
    match usize::try_from(bytes) {
        Ok(bytes) if bytes >= PIPE_BYTES_MIN => Ok(Pipe::Real { read, write, bytes }),
        _ => Err(io::ErrorKind::QuotaExceeded.into()),
    }
}

pub(crate) fn recv_into(fd: RawFd, pipe: &mut Pipe, len: usize) -> io::Result<usize> {
    let Pipe::Real { write, .. } = pipe else { unreachable!("a pipe of this world") };
    splice(fd, write.as_raw_fd(), len, libc::SPLICE_F_MOVE)
}

pub(crate) fn send_from(fd: RawFd, pipe: &mut Pipe, len: usize, more: bool) -> io::Result<usize> {
    let Pipe::Real { read, .. } = pipe else { unreachable!("a pipe of this world") };
    splice(read.as_raw_fd(), fd, len, if more { libc::SPLICE_F_MORE } else { 0 })
}

fn splice(from: RawFd, to: RawFd, len: usize, flags: libc::c_uint) -> io::Result<usize> {
    let (none, flags) = (std::ptr::null_mut(), flags | libc::SPLICE_F_NONBLOCK);
    // SAFETY: no offsets; both descriptors are open.
    counted(|| unsafe { libc::splice(from, none, to, none, len, flags) })
}

pub(crate) fn shutdown(fd: RawFd, how: Shutdown) -> io::Result<()> {
    let how = match how {
        Shutdown::Read => libc::SHUT_RD,
        Shutdown::Write => libc::SHUT_WR,
        Shutdown::Both => libc::SHUT_RDWR,
    };
    // SAFETY: no pointers.
    check(unsafe { libc::shutdown(fd, how) }).map(drop)
}

pub(crate) fn close(fd: RawFd) {
    // SAFETY: the socket that calls this owns the descriptor and is being dropped.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}

pub(crate) fn bind_udp(address: SocketAddr) -> io::Result<RawFd> {
    bind_shared_udp(address, false)
}

pub(crate) fn bind_shared_udp(address: SocketAddr, reuse_port: bool) -> io::Result<RawFd> {
    let raw = RawAddress::inet(address);
    let fd = socket(raw.family(), libc::SOCK_DGRAM)?;
    if reuse_port {
        set_option(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    }
    bind(&fd, &raw)?;
    Ok(fd.into_raw_fd())
}

pub(crate) fn connect_udp(fd: RawFd, address: SocketAddr) -> io::Result<()> {
    connect(fd, &RawAddress::inet(address))
}

pub(crate) fn send_to(fd: RawFd, buf: &[u8], address: SocketAddr) -> io::Result<usize> {
    let to = RawAddress::inet(address);
    let (bytes, flags) = (buf.as_ptr().cast(), libc::MSG_NOSIGNAL);
    // SAFETY: pointers and lengths describe `buf` and `to`, which live until the call returns.
    counted(|| unsafe { libc::sendto(fd, bytes, buf.len(), flags, to.as_ptr(), to.len()) })
}

pub(crate) fn recv_from(fd: RawFd, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    let mut from = RawAddress::room();
    let received = counted(|| {
        let (address, len) = (from.as_mut_ptr(), &raw mut *from.len_mut());
        // SAFETY: pointers and lengths describe `buf` and `from`, which outlive the call.
        unsafe { libc::recvfrom(fd, buf.as_mut_ptr().cast(), buf.len(), 0, address, len) }
    })?;
    Ok((received, from.to_inet()?))
}

pub(crate) fn local_addr(fd: RawFd) -> io::Result<SocketAddr> {
    let mut address = RawAddress::room();
    let (pointer, len) = (address.as_mut_ptr(), &raw mut *address.len_mut());
    // SAFETY: the address has as much room as its length says; both outlive the call.
    check(unsafe { libc::getsockname(fd, pointer, len) })?;
    address.to_local()
}

pub(crate) fn set_nodelay(fd: RawFd, on: bool) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, i32::from(on))
}

pub(crate) fn set_linger0(fd: RawFd) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, linger)
}

fn option(fd: &OwnedFd, level: i32, name: i32) -> io::Result<i32> {
    let mut value: i32 = 0;
    let mut len = size_of::<i32>() as libc::socklen_t;
    let (pointer, len) = ((&raw mut value).cast(), &raw mut len);
    // SAFETY: pointer and length describe `value`; both outlive the call.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, pointer, len) })?;
    Ok(value)
}

/// Whether it is a listening TCP socket over IPv4 or IPv6, or a listening Unix socket for streams.
pub(crate) fn is_listening(fd: &OwnedFd) -> io::Result<bool> {
    let is_stream = match option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)? {
        libc::AF_INET | libc::AF_INET6 => {
            option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL)? == libc::IPPROTO_TCP
        }
        libc::AF_UNIX => option(fd, libc::SOL_SOCKET, libc::SO_TYPE)? == libc::SOCK_STREAM,
        _ => false,
    };
    Ok(is_stream && option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN)? != 0)
}

/// Whether it is a UDP socket over IPv4 or IPv6.
pub(crate) fn is_udp(fd: &OwnedFd) -> io::Result<bool> {
    let family = option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)?;
    Ok(matches!(family, libc::AF_INET | libc::AF_INET6)
        && option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL)? == libc::IPPROTO_UDP)
}

/// Makes an existing descriptor non-blocking and close-on-exec.
pub(crate) fn adopt(fd: &OwnedFd) -> io::Result<()> {
    let fd = fd.as_raw_fd();
    // SAFETY: no pointers.
    let flags = check(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    // SAFETY: no pointers.
    check(unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) })?;
    // SAFETY: no pointers.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }).map(drop)
}

const _: () = assert!(size_of::<IoSlice<'_>>() == size_of::<libc::iovec>());

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of a socket's congestion control.
    fn congestion_control(fd: RawFd) -> String {
        let mut name = [0_u8; 16];
        let mut len = name.len() as libc::socklen_t;
        let (into, level) = (name.as_mut_ptr().cast(), libc::IPPROTO_TCP);
        // SAFETY: pointer and length describe `name`.
        let got = unsafe { libc::getsockopt(fd, level, libc::TCP_CONGESTION, into, &raw mut len) };
        check(got).unwrap();
        let text = String::from_utf8_lossy(&name);
        text.trim_end_matches('\0').to_owned()
    }

    #[test]
    fn a_stream_connects_to_a_unix_socket() {
        use std::io::Read;

        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("socket");
        let address = crate::sys::unix::unix_address(&path).unwrap();
        let kind = |result: io::Result<_>| result.err().map(|error: io::Error| error.kind());
        assert_eq!(kind(connect_tcp(address)), Some(io::ErrorKind::NotFound));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let (fd, connected) = connect_tcp(address).unwrap();
        assert!(connected);
        let (mut accepted, _) = listener.accept().unwrap();
        assert_eq!(send(fd, b"abc").unwrap(), 3);
        let mut got = [0; 3];
        accepted.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"abc");
        close(fd);
        drop(listener);
        assert_eq!(kind(connect_tcp(address)), Some(io::ErrorKind::ConnectionRefused));
    }

    #[test]
    fn connections_on_loopback_are_not_paced() {
        let options = ListenOptions::default();
        let listener = listen_tcp(SocketAddr::from(([127, 0, 0, 1], 0)), &options).unwrap();
        let address = local_addr(listener).unwrap();
        let client = std::net::TcpStream::connect(address).unwrap();
        let (accepted, _) = loop {
            match accept_tcp(listener) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::yield_now();
                }
                accepted => break accepted.unwrap(),
            }
        };
        assert_eq!(congestion_control(accepted), "reno");
        let anywhere = listen_tcp(SocketAddr::from(([0, 0, 0, 0], 0)), &options).unwrap();
        let usual = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
        assert_eq!(congestion_control(anywhere), usual.trim(), "the system's default");
        drop(client);
        [listener, accepted, anywhere].into_iter().for_each(close);
    }
}
