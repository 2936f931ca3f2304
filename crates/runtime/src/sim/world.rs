//! The seam answered from memory: what [`crate::sys::real`] asks of the system, asked of [`Net`].
//!
//! What: the simulated world of one core: its network, its disk, its clocks, and the record of what
//! happened. The functions here have the shape of those in `sys::real`; the network itself is in
//! [`super::net`].
//! What never happens: a function here waits. Time moves in [`World::advance`] only, which the
//! poller calls where a real one would sleep.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::RawFd;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::Path;
use std::time::Duration;

use readiness::simulated::Levels;

use super::Options;
use super::disk::{Disk, FileHandle};
use super::net::{Address, Net};
use crate::sys::options::ListenOptions;

/// The twin's first moment, in seconds since 1970: 1 January 2026.
const EPOCH_S: u64 = 1_767_225_600;
/// The virtual clock does not begin at zero, so that instants before the start can be named.
const START_NS: u64 = 1_000_000_000_000;
/// What a turn of the loop costs that has no time to sleep. Without it a task that polls the clock
/// would see it stand still for ever.
const BUSY_TURN_NS: u64 = 1_000;

/// Keeps the disk's chances apart from the network's.
const DISK_SEED: u64 = 0x6469_736b;

/// The simulated world of one core.
pub(crate) struct World {
    net: RefCell<Net>,
    disk: Disk,
    idle: Cell<bool>,
    /// Processor time that scenarios have spent.
    burned_ns: Cell<u64>,
}

fn error<T>(number: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(number))
}

/// Clock and record.
impl World {
    pub(crate) fn new(options: Options, levels: Levels) -> World {
        let disk = options.disk.clone().unwrap_or_else(|| Disk::new(options.seed ^ DISK_SEED));
        World {
            net: RefCell::new(Net::new(options, levels, START_NS)),
            disk,
            idle: Cell::new(false),
            burned_ns: Cell::new(0),
        }
    }

    /// The core computes for so long: time passes, and nothing else happens in it.
    pub(crate) fn burn(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.burned_ns.set(self.burned_ns.get().saturating_add(ns));
        let mut net = self.net.borrow_mut();
        net.now_ns = net.now_ns.saturating_add(ns);
    }

    pub(crate) fn thread_starved_ns(&self) -> u64 {
        0
    }

    pub(crate) fn thread_cpu_ns(&self) -> u64 {
        self.burned_ns.get()
    }

    /// Moves virtual time to the next thing that happens, at most `at_most` far. False if nothing
    /// happened.
    pub(crate) fn advance(&self, at_most: Option<Duration>) -> bool {
        let mut net = self.net.borrow_mut();
        let end = at_most.map(|at_most| {
            let ns = u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX);
            net.now_ns.saturating_add(ns.max(BUSY_TURN_NS))
        });
        if net.happen_until(end) {
            return true;
        }
        self.idle.set(at_most.is_none());
        false
    }

    /// True once after [`World::advance`] found that nothing will ever happen by itself.
    pub(crate) fn take_idle(&self) -> bool {
        self.idle.replace(false)
    }

    pub(crate) fn monotonic_ns(&self) -> u64 {
        self.net.borrow().now_ns
    }

    pub(crate) fn wall_ns(&self) -> u64 {
        self.monotonic_ns() - START_NS + EPOCH_S * 1_000_000_000
    }

    pub(crate) fn outside_wait(&self) -> Duration {
        self.net.borrow().options.outside_wait
    }

    pub(crate) fn describe(&self) -> String {
        let net = self.net.borrow();
        let elapsed_ms = (net.now_ns - START_NS) / 1_000_000;
        format!("seed {}, after {elapsed_ms} ms of virtual time", net.options.seed)
    }

    pub(crate) fn trace_hash(&self) -> u64 {
        self.net.borrow().trace.hash()
    }

    pub(crate) fn trace_tail(&self) -> String {
        self.net.borrow().trace.tail(START_NS)
    }
}

thread_local! {
    /// The end of the record of the last world that was dropped by a panic.
    static LAST_WORDS: RefCell<String> = const { RefCell::new(String::new()) };
}

pub(super) fn clear_last_words() {
    LAST_WORDS.with_borrow_mut(String::clear);
}

pub(super) fn last_words() -> String {
    LAST_WORDS.with_borrow(String::clone)
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let words = self.net.get_mut().trace.tail(START_NS);
            // The thread may be ending: then there is nobody left to read them.
            drop(LAST_WORDS.try_with(|last| last.replace(words)));
        }
    }
}

/// The order of what happens at the same time.
impl World {
    pub(crate) fn shuffle<T>(&self, things: &mut [T]) {
        let rng = &mut self.net.borrow_mut().rng;
        for last in (1..things.len()).rev() {
            things.swap(last, rng.below(last as u64 + 1) as usize);
        }
    }
}

/// The disk.
impl World {
    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// How long the next operation of the disk takes.
    pub(crate) fn draw_disk_delay_ns(&self) -> u64 {
        let mut net = self.net.borrow_mut();
        let range = net.options.disk_delay.clone();
        net.draw(&range)
    }

    pub(crate) fn trace(&self, what: &'static str, which: u64, amount: usize) {
        self.net.borrow_mut().trace(what, which, amount);
    }

    pub(crate) fn read_file(
        &self,
        file: &FileHandle,
        buf: &mut [u8],
        offset: u64,
    ) -> io::Result<usize> {
        let mut net = self.net.borrow_mut();
        let fails = net.options.disk_error;
        if net.rng.chance(fails) {
            net.trace("read file: error", 0, 0);
            return error(libc::EIO);
        }
        let asked = net.short_read(buf.len());
        let read = file.read(&mut buf[..asked], offset);
        net.trace("read file", offset, *read.as_ref().unwrap_or(&0));
        read
    }
}

/// The network: the shape of `sys::real`.
impl World {
    pub(crate) fn listen_tcp(
        &self,
        address: SocketAddr,
        options: &ListenOptions,
    ) -> io::Result<RawFd> {
        let mut net = self.net.borrow_mut();
        net.listen_inet(address, options.backlog, options.reuse_port)
    }

    pub(crate) fn connect_tcp(&self, address: SocketAddr) -> io::Result<(RawFd, bool)> {
        self.net.borrow_mut().connect_inet(address).map(|fd| (fd, false))
    }

    pub(crate) fn finish_connect_tcp(&self, fd: RawFd, _address: SocketAddr) -> io::Result<bool> {
        self.net.borrow_mut().finish_connect(fd)
    }

    pub(crate) fn accept_tcp(&self, fd: RawFd) -> io::Result<(RawFd, SocketAddr)> {
        match self.net.borrow_mut().accept(fd)? {
            (fd, Address::Inet(peer)) => Ok((fd, peer)),
            (_, Address::Path(_)) => error(libc::EAFNOSUPPORT),
        }
    }

    pub(crate) fn listen_unix(&self, path: &Path, backlog: u32) -> io::Result<RawFd> {
        self.net.borrow_mut().listen(Address::Path(path.to_path_buf()), backlog, false)
    }

    pub(crate) fn connect_unix(&self, path: &Path) -> io::Result<RawFd> {
        self.net.borrow_mut().connect_path(path)
    }

    pub(crate) fn accept_unix(&self, fd: RawFd) -> io::Result<(RawFd, UnixAddr)> {
        let (fd, _) = self.net.borrow_mut().accept(fd)?;
        Ok((fd, UnixAddr::from_pathname("")?))
    }

    pub(crate) fn recv(&self, fd: RawFd, buf: &mut [u8]) -> io::Result<usize> {
        self.net.borrow_mut().recv(fd, buf, false)
    }

    pub(crate) fn peek(&self, fd: RawFd, buf: &mut [u8]) -> io::Result<usize> {
        self.net.borrow_mut().recv(fd, buf, true)
    }

    pub(crate) fn send(&self, fd: RawFd, buf: &[u8]) -> io::Result<usize> {
        self.net.borrow_mut().send(fd, buf)
    }

    pub(crate) fn send_vectored(
        &self,
        fd: RawFd,
        bufs: &[IoSlice<'_>],
        _more: bool,
    ) -> io::Result<usize> {
        let mut net = self.net.borrow_mut();
        // No more than a connection can hold: the rest would only be copied again next time.
        let mut bytes = Vec::new();
        for buf in bufs {
            let room = net.options.buffer_bytes.saturating_sub(bytes.len());
            bytes.extend_from_slice(&buf[..buf.len().min(room)]);
        }
        net.send(fd, &bytes)
    }

    pub(crate) fn shutdown(&self, fd: RawFd, how: Shutdown) -> io::Result<()> {
        self.net.borrow_mut().shutdown(fd, how)
    }

    pub(crate) fn close(&self, fd: RawFd) {
        self.net.borrow_mut().close(fd);
    }

    pub(crate) fn bind_udp(&self, address: SocketAddr, reuse_port: bool) -> io::Result<RawFd> {
        self.net.borrow_mut().bind_datagram(address, reuse_port)
    }

    pub(crate) fn connect_udp(&self, fd: RawFd, address: SocketAddr) -> io::Result<()> {
        self.net.borrow_mut().connect_datagram(fd, address)
    }

    pub(crate) fn send_to(&self, fd: RawFd, buf: &[u8], address: SocketAddr) -> io::Result<usize> {
        self.net.borrow_mut().send_datagram(fd, buf, Some(address))
    }

    pub(crate) fn recv_from(&self, fd: RawFd, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.net.borrow_mut().recv_datagram(fd, buf)
    }

    pub(crate) fn local_addr(&self, fd: RawFd) -> io::Result<SocketAddr> {
        match self.net.borrow().local(fd)? {
            Address::Inet(address) => Ok(address),
            Address::Path(_) => error(libc::EAFNOSUPPORT),
        }
    }

    pub(crate) fn peer_addr(&self, fd: RawFd) -> io::Result<SocketAddr> {
        match self.net.borrow().remote(fd)? {
            Address::Inet(address) => Ok(address),
            Address::Path(_) => error(libc::EAFNOSUPPORT),
        }
    }

    /// Everything is sent at once here anyway.
    pub(crate) fn set_nodelay(&self, _fd: RawFd, _on: bool) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn set_linger0(&self, fd: RawFd) -> io::Result<()> {
        self.net.borrow_mut().set_linger0(fd)
    }

    pub(crate) fn crash_connections(&self, address: SocketAddr) {
        self.net.borrow_mut().crash_connections(&Address::Inet(address));
    }
}
