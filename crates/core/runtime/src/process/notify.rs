//! Reports the state of the service to the supervisor, by systemd's datagrams.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A state to report to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceState<'t> {
    /// The service is ready, with a status text.
    Ready(&'t str),
    /// The service reloads its configuration; `Ready` follows.
    Reloading,
    /// The service is stopping.
    Stopping,
    /// Another process takes over the service.
    MainPid(u32),
    /// Only a text for the operator.
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

/// Reports `state` to the supervisor named by `NOTIFY_SOCKET`. False if there is none.
///
/// # Errors
/// There is a supervisor, and the report cannot be sent.
pub fn notify(state: ServiceState<'_>) -> io::Result<bool> {
    let Some(path) = env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
        return Ok(false);
    };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(&path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.text().as_bytes(), &address)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_sent_as_lines() {
        assert_eq!(ServiceState::Ready("serving").text(), "READY=1\nSTATUS=serving\n");
        assert_eq!(ServiceState::MainPid(7).text(), "MAINPID=7\n");
        assert!(ServiceState::Reloading.text().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    }
}
