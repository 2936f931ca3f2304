//! Why a server did not start.

use std::net::SocketAddr;
use std::{fmt, io};

use store::disk::OpenError;

/// Why a server did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be listened on.
    Bind(SocketAddr, io::Error),
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
            StartError::Bind(address, error) if error.kind() == io::ErrorKind::AddrInUse => {
                write!(f, "{address} is in use: stop what listens there, or choose another port")
            }
            StartError::Bind(address, error) => write!(f, "cannot listen on {address}: {error}"),
            StartError::System(error) => write!(f, "the server cannot start: {error}"),
            StartError::Predecessor(error) => {
                write!(f, "the process that was to be replaced has gone: {error}")
            }
            StartError::Disk(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}
