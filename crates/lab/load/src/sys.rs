//! The few system calls that the standard library does not offer: clocks, pinning, limits, and
//! sockets that connect without blocking from a chosen source address.
//!
//! What: thin safe functions over the system calls. Why: the generator counts nanoseconds and
//! system calls, so it must know which calls it makes. Ownership: dropping an `OwnedFd` closes it.
//! What never happens: a blocking call on a socket; a descriptor that a child inherits.

use std::io;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::process::{self, Pid, Signal};
use rustix::thread::{self, CpuSet};

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
    Ok(process::kill_process(number_of(pid, 1)?, Signal::TERM)?)
}

/// Ends one of our processes (SIGKILL).
///
/// # Errors
/// As [`terminate`]; also if the number is that of init.
pub fn kill(pid: i32) -> io::Result<()> {
    Ok(process::kill_process(number_of(pid, 2)?, Signal::KILL)?)
}

/// Asks all processes of one of our groups to end (SIGTERM).
///
/// # Errors
/// As [`terminate`]; also if the number is not a group's.
pub fn terminate_group(group: i32) -> io::Result<()> {
    Ok(process::kill_process_group(number_of(group, 2)?, Signal::TERM)?)
}

/// Ends all processes of one of our groups (SIGKILL).
///
/// # Errors
/// As [`terminate_group`].
pub fn kill_group(group: i32) -> io::Result<()> {
    Ok(process::kill_process_group(number_of(group, 2)?, Signal::KILL)?)
}

/// A number that is at least `least`: smaller ones have a special meaning to kill(2). Group 0 is
/// our own, and signalling group 1 would signal every process.
fn number_of(number: i32, least: i32) -> io::Result<Pid> {
    let valid = Some(number).filter(|number| *number >= least);
    valid.and_then(Pid::from_raw).ok_or_else(|| io::ErrorKind::InvalidInput.into())
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
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(thread::sched_setaffinity(None, &set)?)
}

/// Keeps the calling thread, and threads it starts, on one CPU until this is dropped.
#[derive(Debug)]
pub struct Pinned {
    before: CpuSet,
    /// Not `Send`: the thread that is pinned must drop it.
    _of_this_thread: PhantomData<*const ()>,
}

impl Pinned {
    /// Pins the calling thread.
    ///
    /// # Errors
    /// As [`pin_to_cpu`].
    pub fn to(cpu: usize) -> io::Result<Pinned> {
        let before = thread::sched_getaffinity(None)?;
        pin_to_cpu(cpu)?;
        Ok(Pinned { before, _of_this_thread: PhantomData })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // On failure the thread stays pinned: it has lost access to its former CPUs.
        let _ = thread::sched_setaffinity(None, &self.before);
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
    let fd = socket(addr, SocketType::STREAM)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    net::bind(&fd, &addr)?;
    net::listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// The address a socket is bound to.
pub(crate) fn local_addr(fd: &OwnedFd) -> io::Result<SocketAddr> {
    std::net::TcpListener::from(fd.try_clone()?).local_addr()
}

/// Accepts one connection, non-blocking and without Nagle's delay; `None` if none waits.
pub(crate) fn accept(listener: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    match net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
        Ok(fd) => {
            sockopt::set_tcp_nodelay(&fd, true)?;
            Ok(Some(fd))
        }
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Begins to connect. The socket becomes writable when it has connected or failed.
pub(crate) fn connect(
    kind: SocketType,
    addr: SocketAddr,
    source: Option<IpAddr>,
) -> io::Result<OwnedFd> {
    let fd = socket(addr, kind)?;
    if kind == SocketType::STREAM {
        sockopt::set_tcp_nodelay(&fd, true)?;
    }
    if let Some(source) = source {
        choose_port_at_connect(&fd)?;
        net::bind(&fd, &SocketAddr::new(source, 0))?;
    }
    match net::connect(&fd, &addr) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(e) => Err(e.into()),
    }
}

/// Choosing the port at connect, by the whole four-tuple, gives 28,000 ports per source instead of
/// 28,000 in total.
fn choose_port_at_connect(fd: &OwnedFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: `on` is valid for reads of its size.
    let failed = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    checked(failed).map(drop)
}

/// The result of a connect: the socket's pending error, if any.
pub(crate) fn socket_error(fd: &OwnedFd) -> io::Result<()> {
    Ok(sockopt::socket_error(fd)??)
}

/// Makes the close of this socket a reset, which avoids TIME_WAIT.
pub(crate) fn reset_on_close(fd: &OwnedFd) {
    // A failure leaves an ordinary close.
    let _ = sockopt::set_socket_linger(fd, Some(Duration::ZERO));
}

/// Whether a call has to be made again later.
pub(crate) fn would_block(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
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
    // An int with musl.
    message.msg_iovlen = pieces.len() as _;
    // SAFETY: `message` and the pieces it points to are valid for reads for the whole call.
    let sent = unsafe { libc::sendmsg(fd, &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// A socket of the family of `addr`: non-blocking, not inherited.
pub(crate) fn socket(addr: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(net::socket_with(family, kind, flags, None)?)
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A new epoll instance for the floors, which do not use `readiness`.
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
    use std::thread::{available_parallelism, spawn};

    use super::*;

    #[test]
    fn dropping_a_pin_restores_the_affinity() {
        // In a separate thread, because the test harness continues with this one.
        let looked = spawn(|| {
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
