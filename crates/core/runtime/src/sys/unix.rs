//! Unix sockets in place of internet addresses.
//!
//! What: [`unix_address`] gives the path of a Unix socket an address, by which
//! [`crate::net::TcpStream::connect`] connects to it. Such an address has a flow label that no
//! other address has: addresses that are parsed, looked up or received have none. The address is
//! that of this machine.
//! Who owns: the process keeps each path for ever.
//! What never happens: bytes from a network name a Unix socket.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The flow label of these addresses: `unix`.
const FLOW_LABEL: u32 = 0x756e_6978;
/// The longest path: the kernel's, without the NUL at its end.
const PATH_BYTES_MAX: usize = 107;
/// Paths of one process, those of earlier configurations included.
const PATHS_MAX: usize = 4096;

static PATHS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The address of a Unix socket, which need not exist yet.
///
/// # Errors
/// The path is empty, too long or has a NUL, or there are too many.
pub fn unix_address(path: &Path) -> io::Result<SocketAddr> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() || bytes.len() > PATH_BYTES_MAX || bytes.contains(&0) {
        let what = format!("the path of a Unix socket has 1 to {PATH_BYTES_MAX} bytes and no NUL");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let mut paths = PATHS.lock().unwrap_or_else(PoisonError::into_inner);
    let there = paths.iter().position(|other| other == path);
    let at = match there {
        Some(at) => at,
        None if paths.len() >= PATHS_MAX => {
            return Err(io::Error::other("this process has known too many Unix sockets"));
        }
        None => {
            paths.push(path.to_path_buf());
            paths.len() - 1
        }
    };
    let scope = u32::try_from(at).map_err(io::Error::other)?;
    let address = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, FLOW_LABEL, scope);
    Ok(SocketAddr::V6(address))
}

/// The path of the Unix socket with this address, if it is one.
#[must_use]
pub fn unix_path(address: SocketAddr) -> Option<PathBuf> {
    match address {
        SocketAddr::V6(v6) if v6.flowinfo() == FLOW_LABEL => {
            let paths = PATHS.lock().unwrap_or_else(PoisonError::into_inner);
            paths.get(usize::try_from(v6.scope_id()).ok()?).cloned()
        }
        _ => None,
    }
}

/// An address as an operator writes it: `unix:` and the path of a Unix socket, or host and port.
#[must_use]
pub fn shown(address: SocketAddr) -> String {
    match unix_path(address) {
        Some(path) => format!("unix:{}", path.display()),
        None => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_address_and_no_other_address_has_a_path() {
        let [one, other] = ["/run/a.sock", "/run/b.sock"].map(Path::new);
        let address = unix_address(one).unwrap();
        assert_eq!(unix_address(one).unwrap(), address);
        assert_ne!(unix_address(other).unwrap(), address);
        assert_eq!(unix_path(address).as_deref(), Some(one));
        assert!(address.ip().is_loopback());
        assert_eq!(shown(address), "unix:/run/a.sock");
        for text in ["[::1]:0", "[::1%1]:0", "127.0.0.1:80"] {
            assert_eq!(unix_path(text.parse().unwrap()), None, "{text}");
        }
        for wrong in ["", &"x".repeat(108), "a\0b"] {
            assert!(unix_address(Path::new(wrong)).is_err(), "{wrong:?}");
        }
    }
}
