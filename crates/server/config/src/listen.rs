//! Where a listener listens, at a Unix socket or at an address of the internet, and the clients of
//! a Unix socket.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::str::FromStr;

use ipnet::IpNet;
use runtime::net::{shown, unix_address, unix_path};

use super::UNIX;
use super::value::understood;

/// An address with a port, or that of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress(pub SocketAddr);

impl ListenAddress {
    /// Whether it is a Unix socket.
    pub(crate) fn is_unix(self) -> bool {
        unix_path(self.0).is_some()
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenAddress, String> {
        let address = match text.strip_prefix(UNIX) {
            Some(path) if path.starts_with('/') => {
                unix_address(Path::new(path)).map_err(|error| error.to_string())
            }
            Some(_) => Err(format!("\"{text}\" is not {UNIX} and an absolute path")),
            None => text.parse().map_err(|_| {
                format!(
                    "\"{text}\" is not an address with a port, such as \"127.0.0.1:3128\" or \
                     \"[::]:80\", or a Unix socket, such as \"unix:/run/x.sock\""
                )
            }),
        };
        address.map(ListenAddress)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(self.0))
    }
}

/// A network of proxies, or `unix`: those at a Unix socket, which have no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proxies(pub(crate) IpNet);

impl Proxies {
    /// Whether they are at a Unix socket.
    pub(crate) fn are_unix(self) -> bool {
        self.0 == IpNet::from(NO_ADDRESS)
    }
}

/// The address of clients at Unix sockets.
const NO_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const UNIX_PROXIES: &str = "unix";

impl FromStr for Proxies {
    type Err = String;

    fn from_str(text: &str) -> Result<Proxies, String> {
        if text == UNIX_PROXIES {
            return Ok(Proxies(NO_ADDRESS.into()));
        }
        let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        let wanted =
            "a network, such as \"10.0.0.0/8\" or \"fd00::/8\", or an address, or \"unix\"";
        network.map(Proxies).map_err(|_| format!("\"{text}\" is not {wanted}"))
    }
}

impl fmt::Display for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.are_unix() {
            true => f.write_str(UNIX_PROXIES),
            false => self.0.fmt(f),
        }
    }
}

/// The name of a congestion control of TCP, such as `bbr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CongestionControl(String);

impl CongestionControl {
    /// The longest name that the kernel takes, bytes.
    const BYTES_MAX: usize = 15;

    /// The name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl FromStr for CongestionControl {
    type Err = String;

    fn from_str(text: &str) -> Result<CongestionControl, String> {
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b"_-".contains(&b);
        match (1..=CongestionControl::BYTES_MAX).contains(&text.len()) && text.bytes().all(is_name)
        {
            true => Ok(CongestionControl(text.to_owned())),
            false => Err(format!("{text:?} is not the name of one, such as \"bbr\"")),
        }
    }
}

impl fmt::Display for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The mode of a file, in octal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode(pub(crate) u32);

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
        mode.map(Mode).ok_or_else(|| format!("\"{text}\" is no mode in octal, such as \"0660\""))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

understood!(ListenAddress Proxies CongestionControl Mode);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_shown_as_they_are_written() {
        for text in ["unix:/run/x.sock", "127.0.0.1:80", "[::]:80"] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
        for text in ["unix", "10.0.0.0/8", "fd00::/8"] {
            assert_eq!(text.parse::<Proxies>().unwrap().to_string(), text);
        }
        for text in ["bbr", "dctcp", "x-y_2"] {
            assert_eq!(text.parse::<CongestionControl>().unwrap().to_string(), text);
        }
        for wrong in ["", "a b", "bbr\n", "sixteen-letters-"] {
            assert!(wrong.parse::<CongestionControl>().is_err(), "{wrong}");
        }
        assert_eq!("660".parse::<Mode>().unwrap().to_string(), "0660");
        for wrong in ["unix:", "unix:run/x", "127.0.0.1", "/run/x"] {
            assert!(wrong.parse::<ListenAddress>().is_err(), "{wrong}");
        }
        for wrong in ["1777", "8", "", "rw"] {
            assert!(wrong.parse::<Mode>().is_err(), "{wrong}");
        }
    }
}
