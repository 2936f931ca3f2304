//! The few system calls that the standard library does not offer: clocks, pinning, limits, and
//! sockets that connect without blocking from a chosen source address.
//!
//! What: thin safe functions over libc. Why: the generator counts nanoseconds and system calls, so
//! it must know which calls it makes. Ownership: dropping an `OwnedFd` closes it. What never
//! happens: a blocking call on a socket; a descriptor that a child inherits.

use std::io;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Connections that may wait to be accepted by the servers of this crate.
pub const BACKLOG: i32 = 4096;

/// Nanoseconds of the monotonic clock.
#[inline]
pub fn mono_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since the Unix epoch.
pub fn wall_ns() -> i64 {
    i64::try_from(clock_ns(libc::CLOCK_REALTIME)).expect("the year is before 2262")
}

/// CPU time of the calling thread, user and kernel, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of the process `pid`, including its ended threads, in nanoseconds.
///
/// # Errors
/// There is no such process, or it may not be inspected.
pub fn process_cpu_ns(pid: i32) -> io::Result<u64> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is a valid place for one clock id for the duration of the call.
    let failed = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is a valid timespec for the duration of the call.
    checked(unsafe { libc::clock_gettime(clock, &raw mut at) })?;
    Ok(at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64)
}

/// Asks one of our processes to end (SIGTERM).
///
/// # Errors
/// There is no such process, or it is not ours.
pub fn terminate(pid: i32) -> io::Result<()> {
    // SAFETY: the call takes two integers and can only affect another process, as intended.
    checked(unsafe { libc::kill(pid, libc::SIGTERM) }).map(drop)
}

/// Asks all processes of one of our groups to end (SIGTERM).
///
/// # Errors
/// As [`terminate`]; also if the number is not a group's.
pub fn terminate_group(group: i32) -> io::Result<()> {
    signal_group(group, libc::SIGTERM)
}

/// Ends all processes of one of our groups (SIGKILL).
///
/// # Errors
/// As [`terminate_group`].
pub fn kill_group(group: i32) -> io::Result<()> {
    signal_group(group, libc::SIGKILL)
}

/// Ends a process with SIGKILL.
///
/// # Errors
/// As of [`terminate`]; a number that is not a single process's.
pub fn kill(pid: i32) -> io::Result<()> {
    if pid < 2 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: the call takes two integers and accesses no memory.
    checked(unsafe { libc::kill(pid, libc::SIGKILL) }).map(drop)
}

fn signal_group(group: i32, signal: libc::c_int) -> io::Result<()> {
    // 0 is our own group; -1 would signal every process.
    if group < 2 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: as in `terminate`; a negative number addresses the whole group.
    checked(unsafe { libc::kill(-group, signal) }).map(drop)
}

#[inline]
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is a valid timespec for the duration of the call.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut at) };
    assert!(failed == 0, "the clocks of Linux can always be read");
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// Pins the calling thread, and threads it starts, to one CPU.
///
/// # Errors
/// There is no such CPU, or this process may not use it.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: a cpu_set_t is plain bits, for which all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` was checked against the size of the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: `set` is valid for reads of its size; 0 names the calling thread.
    checked(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) })
        .map(drop)
}

/// Keeps the calling thread, and threads it starts, on one CPU until this is dropped.
#[derive(Debug)]
pub struct Pinned {
    before: libc::cpu_set_t,
    /// Not `Send`: the thread that is pinned must drop it.
    _of_this_thread: PhantomData<*const ()>,
}

impl Pinned {
    /// Pins the calling thread.
    ///
    /// # Errors
    /// As [`pin_to_cpu`].
    pub fn to(cpu: usize) -> io::Result<Pinned> {
        // SAFETY: a cpu_set_t is plain bits, for which all zeros is the empty set.
        let mut before: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        let bytes = size_of::<libc::cpu_set_t>();
        // SAFETY: `before` is valid for writes of its size; 0 names the calling thread.
        checked(unsafe { libc::sched_getaffinity(0, bytes, &raw mut before) })?;
        pin_to_cpu(cpu)?;
        Ok(Pinned { before, _of_this_thread: PhantomData })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let bytes = size_of::<libc::cpu_set_t>();
        // SAFETY: `before` is valid for reads of its size. On failure the thread stays pinned:
        // it has lost access to its former CPUs.
        unsafe { libc::sched_setaffinity(0, bytes, &raw const self.before) };
    }
}

/// Raises this process's descriptor limit as far as allowed and returns it.
///
/// # Errors
/// The system does not report the limit.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit for the duration of the call.
    checked(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    if limit.rlim_cur < limit.rlim_max {
        let wanted = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
        // SAFETY: `wanted` is a valid rlimit for the duration of the call.
        if checked(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) }).is_ok() {
            limit.rlim_cur = limit.rlim_max;
        }
    }
    Ok(limit.rlim_cur)
}

/// Makes timers of the calling thread fire when they are due, not up to 50 us later.
pub(crate) fn sharpen_timers() {
    // SAFETY: PR_SET_TIMERSLACK takes one integer and touches no memory. A failure leaves the
    // default slack, which the lag measurement would show.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}

/// A listening socket: non-blocking, not inherited, its port reusable at once.
///
/// # Errors
/// Those of `socket`, `bind` and `listen`.
pub fn listen(addr: SocketAddr) -> io::Result<OwnedFd> {
    let fd = stream_socket(addr)?;
    set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    let (raw, len) = raw_address(addr);
    // SAFETY: `raw` is a valid socket address of `len` bytes.
    checked(unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), len) })?;
    // SAFETY: no memory is passed.
    checked(unsafe { libc::listen(fd.as_raw_fd(), BACKLOG) })?;
    Ok(fd)
}

/// The address a socket is bound to.
pub(crate) fn local_addr(fd: &OwnedFd) -> io::Result<SocketAddr> {
    std::net::TcpListener::from(fd.try_clone()?).local_addr()
}

/// Accepts one connection, non-blocking and without Nagle's delay; `None` if none waits.
pub(crate) fn accept(listener: RawFd) -> io::Result<Option<OwnedFd>> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: null pointers mean that the peer's address is not wanted.
    let got = unsafe { libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags) };
    match checked(got) {
        Ok(raw) => {
            // SAFETY: accept4 has just returned this descriptor, so it has no other owner.
            let fd = unsafe { OwnedFd::from_raw_fd(raw) };
            set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
            Ok(Some(fd))
        }
        Err(e) => match e.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ECONNABORTED) => Ok(None),
            _ => Err(e),
        },
    }
}

/// Begins to connect. The socket becomes writable when it has connected or failed.
pub(crate) fn connect(addr: SocketAddr, source: Option<IpAddr>) -> io::Result<OwnedFd> {
    let fd = stream_socket(addr)?;
    set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    if let Some(source) = source {
        // Choosing the port at connect, by the whole four-tuple, gives 28,000 ports per source
        // instead of 28,000 in total.
        set_option(&fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
        let (raw, len) = raw_address(SocketAddr::new(source, 0));
        // SAFETY: `raw` is a valid socket address of `len` bytes.
        checked(unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), len) })?;
    }
    let (raw, len) = raw_address(addr);
    // SAFETY: `raw` is a valid socket address of `len` bytes.
    match checked(unsafe { libc::connect(fd.as_raw_fd(), (&raw const raw).cast(), len) }) {
        Ok(_) => Ok(fd),
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => Ok(fd),
        Err(e) => Err(e),
    }
}

/// The result of a connect: the socket's pending error, if any.
pub(crate) fn socket_error(fd: RawFd) -> io::Result<()> {
    let mut code: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `code` and `len` are valid for the duration of the call, `len` is the size of `code`.
    checked(unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut code).cast(), &raw mut len)
    })?;
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// Makes the close of this socket a reset, which avoids TIME_WAIT.
pub(crate) fn reset_on_close(fd: &OwnedFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: `linger` is valid for reads of its size. A failure leaves an ordinary close.
    unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
}

/// Receives into `buf`; `Ok(0)` is the end of the stream.
#[inline]
pub(crate) fn recv(fd: RawFd, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `buf` is valid for writes of its length.
    let got = unsafe { libc::recv(fd, buf.as_mut_ptr().cast(), buf.len(), 0) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Takes up to `len` bytes off the stream without copying them (TCP's MSG_TRUNC).
#[inline]
pub(crate) fn recv_discard(fd: RawFd, len: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC on a TCP socket the kernel drops the bytes and never touches the
    // buffer (tcp(7)), so a null one is allowed.
    let got = unsafe { libc::recv(fd, std::ptr::null_mut(), len, libc::MSG_TRUNC) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Sends as much of `buf` as the socket accepts. A closed peer is an error, not a signal.
#[inline]
pub(crate) fn send(fd: RawFd, buf: &[u8]) -> io::Result<usize> {
    // SAFETY: `buf` is valid for reads of its length.
    let sent = unsafe { libc::send(fd, buf.as_ptr().cast(), buf.len(), libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Sends as much of the pieces, in order, as the socket accepts.
#[inline]
pub(crate) fn send_pieces(fd: RawFd, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
    // SAFETY: a msghdr is plain data, for which all zeros means "no address, no control data".
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // By its documentation, IoSlice has the layout of iovec, and sendmsg only reads it.
    message.msg_iov = pieces.as_ptr().cast_mut().cast();
    message.msg_iovlen = pieces.len();
    // SAFETY: `message` and the pieces it points to are valid for reads for the whole call.
    let sent = unsafe { libc::sendmsg(fd, &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

fn stream_socket(addr: SocketAddr) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is passed.
    let raw = checked(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: socket has just returned this descriptor, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn set_option(fd: &OwnedFd, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
    // SAFETY: `value` is valid for reads of its size.
    let failed = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    checked(failed).map(drop)
}

/// An address in the kernel's form, and its length in bytes.
fn raw_address(addr: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: a sockaddr_storage is plain data, for which all zeros is "unspecified".
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = &raw mut storage;
    match addr {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage can contain, and is aligned for, every kind of socket
            // address.
            unsafe { place.cast::<libc::sockaddr_in>().write(raw) };
            (storage, size_of::<libc::sockaddr_in>() as libc::socklen_t)
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: sockaddr_storage can contain, and is aligned for, every kind of socket
            // address.
            unsafe { place.cast::<libc::sockaddr_in6>().write(raw) };
            (storage, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
        }
    }
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A new epoll instance for the null server, which does not use `readiness`.
pub(crate) fn epoll_create() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let raw = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: epoll_create1 has just returned this descriptor, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Adds or changes `fd`. Its events carry its number.
pub(crate) fn epoll_control(epoll: &OwnedFd, what: i32, fd: RawFd, events: i32) -> io::Result<()> {
    let mut event = libc::epoll_event { events: events as u32, u64: fd as u64 };
    // SAFETY: `event` is valid for the duration of the call.
    checked(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), what, fd, &raw mut event) }).map(drop)
}

/// Waits for events and returns how many of `events` were filled: none if a signal interrupted.
#[inline]
pub(crate) fn epoll_wait(
    epoll: &OwnedFd,
    events: &mut [libc::epoll_event],
    timeout_ms: i32,
) -> io::Result<usize> {
    let room = libc::c_int::try_from(events.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: `events` is valid for writes of `room` events.
    let got = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), room, timeout_ms) };
    match checked(got) {
        Ok(count) => Ok(count as usize),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(e) => Err(e),
    }
}

/// CPU time of all children that have ended and been waited for, ns.
pub fn children_cpu_ns() -> u64 {
    // SAFETY: an rusage is plain numbers, for which all zeros is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writes of its size.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    assert!(failed == 0, "a process may always look at its own usage");
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use std::thread::{self, available_parallelism};

    use super::*;

    #[test]
    fn dropping_a_pin_restores_the_affinity() {
        // In a separate thread, because the test harness continues with this one.
        let looked = thread::spawn(|| {
            let before = available_parallelism().unwrap();
            let pinned = Pinned::to(0).unwrap();
            let meanwhile = available_parallelism().unwrap().get();
            drop(pinned);
            (before, meanwhile, available_parallelism().unwrap())
        });
        let (before, meanwhile, after) = looked.join().unwrap();
        assert_eq!((meanwhile, after), (1, before));
        assert!(Pinned::to(1 << 20).is_err(), "no such CPU");
    }
}
