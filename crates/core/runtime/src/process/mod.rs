//! The process itself: its set-up before the cores run, and its handover to a successor.
//!
//! What: listening sockets opened or inherited before a core exists ([`listen`], [`inherited()`]),
//! the user to run as ([`Identity`]), the process that replaces this one ([`Successor`]) or that
//! this one replaces ([`Predecessor`]), and the supervisor ([`notify()`]).
//! Why here: all of it is system calls, and none of it belongs to a core. It is not simulated,
//! because it happens once in the life of a process, on its first thread.
//! What never happens: a listening socket is closed during a handover (the successor has it open
//! before we close it, so no connection in its queue is lost); an inherited descriptor is owned
//! twice; a process that should drop its privileges continues with some of them.

mod datagram_link;
mod disinherit;
mod inherited;
mod link;
mod notify;
mod predecessor;
mod socket_file;
mod successor;
mod user;

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{FromRawFd, OwnedFd};

pub use datagram_link::DatagramLink;
pub use disinherit::disinherit;
pub use inherited::{Inherited, inherited};
pub use link::{CHANGES_BYTES_MAX, Link, Message};
pub use notify::{ServiceState, notify};
pub use predecessor::Predecessor;
pub use socket_file::{SocketFile, SocketRights, listen_unix, listening_address};
pub use successor::{Successor, SuccessorState};
pub use user::{Identity, group_id, is_root, user_id};

use crate::net::ListenOptions;
use crate::sys::real;

/// Opens a listening socket that belongs to no core yet; [`crate::net::TcpListener::from_std`] adds
/// it to one. Non-blocking and close-on-exec.
///
/// # Errors
/// The address is in use, is not local, or may not be used.
pub fn listen(address: SocketAddr, options: &ListenOptions) -> io::Result<TcpListener> {
    let fd = real::listen_tcp(address, options)?;
    // SAFETY: a new descriptor with no other owner.
    Ok(TcpListener::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Opens a socket for datagrams that belongs to no core yet;
/// [`crate::net::DatagramSocket::from_std`] adds it to one. With `reuse_port`,
/// others may share its address, and the kernel distributes the datagrams by their addresses.
/// Non-blocking and close-on-exec.
///
/// # Errors
/// The address is in use, is not local, or may not be used.
pub fn bind_datagrams(address: SocketAddr, reuse_port: bool) -> io::Result<UdpSocket> {
    let fd = real::bind_shared_udp(address, reuse_port)?;
    // SAFETY: a new descriptor with no other owner.
    Ok(UdpSocket::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}
