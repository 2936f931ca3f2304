//! Ports for servers of tests and measurements. The harness and tests of crates below it include
//! this file.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};

/// A loopback address on which nothing listened a moment ago. The system gives these ports to no
/// connection of a client and to no listener that leaves the choice to it, and two calls never
/// return the same one. So nothing else takes the port, however long a server takes to start.
///
/// # Errors
/// Something listens on all of these ports.
pub(crate) fn free_address() -> io::Result<SocketAddr> {
    /// Debian's ephemeral ports begin at 32,768.
    const PORTS: std::ops::Range<u32> = 10_000..32_768;
    const PER_PROCESS: u32 = 500;
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(PER_PROCESS);
    for _ in PORTS {
        let at = first.wrapping_add(CALLS.fetch_add(1, Ordering::SeqCst));
        let port = (PORTS.start + at % (PORTS.end - PORTS.start)) as u16;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // Not by binding it: a child that another thread has just forked would listen there until
        // its exec, and answer in place of the server that is waited for.
        if TcpStream::connect(address).is_err() {
            return Ok(address);
        }
    }
    Err(io::Error::other("something listens on each of the ports 10,000 to 32,767"))
}
