//! Sockets as futures: TCP, UDP and Unix.
//!
//! What: thin types over one `Socket` of `io.rs` each. Every method takes `&self`; an
//! operation comes as `try_…` (answers at once, `WouldBlock` if it cannot) and as a future.
//! Who owns: a socket belongs to the core on which it was made and to nobody else. Dropping it
//! takes it out of the poller and closes it.
//! What never happens: a call here never blocks, and no write raises SIGPIPE.
//!
//! The cheapest way to serve a connection, which costs its share of one wait, one recv and one send
//! for a request:
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

mod stream;
mod tcp;
mod udp;
mod unix;

pub use crate::sys::options::ListenOptions;
pub use tcp::{TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixListener, UnixStream};
