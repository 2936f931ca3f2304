//! Why a server did not start.

use std::net::SocketAddr;
use std::{fmt, fs, io};

use runtime::net::{shown, unix_path};
use store::disk::OpenError;

/// Why a server did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be listened on.
    Bind(SocketAddr, io::Error),
    /// The connections of a listener cannot have the congestion control of this name.
    CongestionControl(SocketAddr, String, io::Error),
    /// The event notification or a thread is not available.
    System(io::Error),
    /// The process to be replaced has gone.
    Predecessor(io::Error),
    /// The store on disk cannot be used as it is.
    Disk(OpenError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Bind(address, error) if unix_path(*address).is_some() => {
                let address = shown(*address);
                match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        write!(f, "{address} is in use: stop what listens there")
                    }
                    _ => write!(f, "cannot listen on {address}: {error}"),
                }
            }
            StartError::Bind(address, error) if error.kind() == io::ErrorKind::AddrInUse => {
                let port = address.port();
                write!(
                    f,
                    "{address} is in use: stop what listens there (ss -ltnp 'sport = :{port}' \
                     shows it), or choose another port"
                )
            }
            StartError::Bind(address, error) => {
                write!(f, "cannot listen on {address}: {error}")?;
                match error.kind() {
                    io::ErrorKind::PermissionDenied => f.write_str(
                        "; choose a port above 1023, run it as root, or give the program the \
                         right to it: setcap cap_net_bind_service=+ep $(command -v plimsoll)",
                    ),
                    io::ErrorKind::AddrNotAvailable => {
                        f.write_str("; ip -brief address lists the addresses of this machine")
                    }
                    _ => Ok(()),
                }
            }
            StartError::CongestionControl(address, name, error) => {
                write!(f, "congestion_control = {name:?} of {}: ", shown(*address))?;
                let (why, list) = match error.kind() {
                    io::ErrorKind::NotFound => (
                        format!(
                            "the kernel has none of this name: load its module, `modprobe \
                             tcp_{name}`, and name it in /etc/modules-load.d"
                        ),
                        "available",
                    ),
                    io::ErrorKind::PermissionDenied => {
                        let why = "start the server as root, or add it to the allowed ones";
                        (format!("{name} needs privileges: {why}"), "allowed")
                    }
                    _ => return write!(f, "{error}"),
                };
                f.write_str(&why)?;
                // /proc may be hidden from the server.
                let setting = format!("tcp_{list}_congestion_control");
                match fs::read_to_string(format!("/proc/sys/net/ipv4/{setting}")) {
                    Ok(names) => write!(f, " (net.ipv4.{setting} = {})", names.trim()),
                    Err(_) => write!(f, " (see net.ipv4.{setting})"),
                }
            }
            StartError::System(error) => write!(f, "the server cannot start: {error}"),
            StartError::Predecessor(error) => {
                write!(f, "the process that was to be replaced has gone: {error}")
            }
            StartError::Disk(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}
