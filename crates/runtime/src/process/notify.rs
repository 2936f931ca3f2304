//! Telling the supervisor how far we are: systemd's datagrams.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// What a supervisor is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceState<'t> {
    /// It serves. With a text that says what.
    Ready(&'t str),
    /// It reads its configuration again; `Ready` follows.
    Reloading,
    /// It has begun to end.
    Stopping,
    /// Another process is the service from now on.
    MainPid(u32),
    /// Nothing but a text for the operator.
    Status(&'t str),
}

impl ServiceState<'_> {
    fn text(self) -> String {
        match self {
            ServiceState::Ready(status) => format!("READY=1\nSTATUS={status}\n"),
            ServiceState::Reloading => {
                let now_us = crate::sys::real::monotonic_ns() / 1_000;
                format!("RELOADING=1\nMONOTONIC_USEC={now_us}\n")
            }
            ServiceState::Stopping => "STOPPING=1\n".to_owned(),
            ServiceState::MainPid(pid) => format!("MAINPID={pid}\n"),
            ServiceState::Status(status) => format!("STATUS={status}\n"),
        }
    }
}

/// Tells the supervisor that `NOTIFY_SOCKET` names. False when there is none.
///
/// # Errors
/// There is one, and it cannot be told.
pub fn notify(told: ServiceState<'_>) -> io::Result<bool> {
    let Some(path) = env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
        return Ok(false);
    };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(&path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(told.text().as_bytes(), &address)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supervisor_reads_lines() {
        assert_eq!(ServiceState::Ready("serving").text(), "READY=1\nSTATUS=serving\n");
        assert_eq!(ServiceState::MainPid(7).text(), "MAINPID=7\n");
        assert!(ServiceState::Reloading.text().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    }
}
