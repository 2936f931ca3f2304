//! (first cut)
use super::Options;
use crate::net::ListenOptions;
use readiness::simulated::Levels;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::RawFd;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::Path;
use std::time::Duration;

pub(crate) struct World;
#[derive(Debug)]
pub(crate) struct FileHandle;
impl FileHandle {
    pub(crate) fn len(&self) -> u64 {
        0
    }
}
fn no<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}
pub(super) fn clear_last_words() {}
pub(super) fn last_words() -> String {
    String::new()
}
impl World {
    pub(crate) fn new(_: Options, _: Levels) -> World {
        World
    }
    pub(crate) fn advance(&self, _: Option<Duration>) -> bool {
        false
    }
    pub(crate) fn take_idle(&self) -> bool {
        true
    }
    pub(crate) fn describe(&self) -> String {
        String::new()
    }
    pub(crate) async fn disk_delay(&self) {}
    pub(crate) fn open_file(&self, _: &Path) -> io::Result<FileHandle> {
        no()
    }
    pub(crate) fn read_file(&self, _: &FileHandle, _: &mut [u8], _: u64) -> io::Result<usize> {
        no()
    }
    pub(crate) fn put_file(&self, _: &Path, _: Vec<u8>) {}
    pub(crate) fn remove_file(&self, _: &Path) -> io::Result<()> {
        no()
    }
    pub(crate) fn crash_connections(&self, _: SocketAddr) {}
    pub(crate) fn trace_hash(&self) -> u64 {
        0
    }
    pub(crate) fn trace_tail(&self) -> String {
        String::new()
    }
    pub(crate) fn monotonic_ns(&self) -> u64 {
        0
    }
    pub(crate) fn wall_ns(&self) -> u64 {
        0
    }
    pub(crate) fn listen_tcp(&self, _: SocketAddr, _: &ListenOptions) -> io::Result<RawFd> {
        no()
    }
    pub(crate) fn connect_tcp(&self, _: SocketAddr) -> io::Result<(RawFd, bool)> {
        no()
    }
    pub(crate) fn finish_connect_tcp(&self, _: RawFd, _: SocketAddr) -> io::Result<bool> {
        no()
    }
    pub(crate) fn accept_tcp(&self, _: RawFd) -> io::Result<(RawFd, SocketAddr)> {
        no()
    }
    pub(crate) fn listen_unix(&self, _: &Path, _: u32) -> io::Result<RawFd> {
        no()
    }
    pub(crate) fn connect_unix(&self, _: &Path) -> io::Result<RawFd> {
        no()
    }
    pub(crate) fn accept_unix(&self, _: RawFd) -> io::Result<(RawFd, UnixAddr)> {
        no()
    }
    pub(crate) fn recv(&self, _: RawFd, _: &mut [u8]) -> io::Result<usize> {
        no()
    }
    pub(crate) fn peek(&self, _: RawFd, _: &mut [u8]) -> io::Result<usize> {
        no()
    }
    pub(crate) fn send(&self, _: RawFd, _: &[u8]) -> io::Result<usize> {
        no()
    }
    pub(crate) fn send_vectored(&self, _: RawFd, _: &[IoSlice<'_>]) -> io::Result<usize> {
        no()
    }
    pub(crate) fn shutdown(&self, _: RawFd, _: Shutdown) -> io::Result<()> {
        no()
    }
    pub(crate) fn close(&self, _: RawFd) {}
    pub(crate) fn bind_udp(&self, _: SocketAddr, _: bool) -> io::Result<RawFd> {
        no()
    }
    pub(crate) fn connect_udp(&self, _: RawFd, _: SocketAddr) -> io::Result<()> {
        no()
    }
    pub(crate) fn send_to(&self, _: RawFd, _: &[u8], _: SocketAddr) -> io::Result<usize> {
        no()
    }
    pub(crate) fn recv_from(&self, _: RawFd, _: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        no()
    }
    pub(crate) fn local_addr(&self, _: RawFd) -> io::Result<SocketAddr> {
        no()
    }
    pub(crate) fn peer_addr(&self, _: RawFd) -> io::Result<SocketAddr> {
        no()
    }
    pub(crate) fn set_nodelay(&self, _: RawFd, _: bool) -> io::Result<()> {
        Ok(())
    }
    pub(crate) fn set_linger0(&self, _: RawFd) -> io::Result<()> {
        no()
    }
}
