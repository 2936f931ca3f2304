//! The process itself: what it is before its cores run, and what it leaves to the next one.
//!
//! What: listening sockets made or inherited before a core exists ([`listen`], [`inherited`]), the
//! user it goes on as ([`Identity`]), the process that takes its place ([`Successor`]) or whose
//! place it takes ([`Predecessor`]), and the supervisor that watches it ([`notify`]).
//! Why here: all of it is system calls, and none of it belongs to a core. It is not simulated: it
//! happens once in a process's life, on its first thread.
//! What never happens: a listening socket is closed because it was handed over (the successor holds
//! it open before we let go, and a connection in its queue is not lost); an inherited descriptor
//! is owned twice; a process that was to drop its privileges goes on with some of them.

mod inherited;
mod link;
mod notify;
mod predecessor;
mod successor;
mod user;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{FromRawFd, OwnedFd};

pub use inherited::{Inherited, inherited};
pub use link::{CHANGES_BYTES_MAX, Link, Message};
pub use notify::{ServiceState, notify};
pub use predecessor::Predecessor;
pub use successor::{Successor, SuccessorState};
pub use user::{Identity, is_root};

use crate::net::ListenOptions;
use crate::sys::real;

/// A listening socket that belongs to no core yet: [`crate::net::TcpListener::from_std`] gives it
/// to one. Non-blocking and close-on-exec.
///
/// # Errors
/// The address is in use, is not ours, or may not be used.
pub fn listen(address: SocketAddr, options: &ListenOptions) -> io::Result<TcpListener> {
    let fd = real::listen_tcp(address, options)?;
    // SAFETY: a new descriptor that nobody else owns.
    Ok(TcpListener::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}
