//! Sockets as futures: TCP and UDP. A stream may also be of a Unix socket ([`unix_address`]).
//!
//! What: each type is a thin wrapper of a `Socket` of `io.rs`. Every method takes `&self`; an
//! operation exists as `try_…` (returns at once, with `WouldBlock` if it cannot complete) and as a
//! future.
//! Who owns: a socket belongs to the core that made it. Dropping it removes it from the poller and
//! closes it.
//! What never happens: a call blocks, or a write raises SIGPIPE.
//!
//! The cheapest way to serve a connection. A request costs its share of one wait, one recv and one
//! send:
//!
//! ```no_run
//! # async fn serve(stream: runtime::net::TcpStream) -> std::io::Result<()> {
//! let mut buf = [0; 4096];
//! loop {
//!     let read = stream.read(&mut buf).await?; // waits first, then reads
//!     if read == 0 {
//!         return Ok(());
//!     }
//!     stream.write_all(&buf[..read]).await?; // writes first, waits only if it must
//! }
//! # }
//! ```

mod datagrams;
mod tcp;
mod udp;

pub use crate::sys::options::ListenOptions;
pub use crate::sys::unix::{shown, unix_address, unix_path};
pub use datagrams::{DatagramSocket, Incoming, Outgoing};
pub use tcp::{TcpListener, TcpStream};
pub use udp::UdpSocket;
