//! Where a listener listens, at a Unix socket or at an address of the internet, and the clients of
//! a Unix socket.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::str::FromStr;

use ipnet::IpNet;
use runtime::net::{shown, unix_address, unix_path};
use runtime::process::{SocketRights, group_id, user_id};

use super::here::Here;
use super::keys::ListenTable;
use super::value::understood;
use super::{Role, UNIX};

/// An address with a port, or that of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress(pub SocketAddr);

impl ListenAddress {
    fn is_unix(self) -> bool {
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
        let wanted = "a network, such as \"10.0.0.0/8\" or \"fd00::/8\", or an address, or \"unix\"";
        network.map(Proxies).map_err(|_| format!("\"{text}\" is not {wanted}"))
    }
}

impl fmt::Display for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 == IpNet::from(NO_ADDRESS) {
            true => f.write_str(UNIX_PROXIES),
            false => self.0.fmt(f),
        }
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

understood!(ListenAddress Proxies Mode);

impl ListenTable {
    /// Reports settings that do not fit a Unix socket, or need one.
    pub(crate) fn check_unix(&self, here: &mut Here<'_, '_>) {
        if self.address.is_some_and(ListenAddress::is_unix) {
            if self.role == Role::Forward {
                let text = "clients of a forward listener are known by their addresses, and those \
                            of a Unix socket have none: listen on 127.0.0.1 or [::1]";
                here.mistake_of("address", text);
            }
            if self.http3 {
                here.mistake_of("http3", "a Unix socket has no UDP port: leave out http3");
            }
            return;
        }
        let written = [self.mode.is_some(), self.owner.is_some(), self.group.is_some()];
        for (key, _) in ["mode", "owner", "group"].iter().zip(written).filter(|(_, is)| *is) {
            here.mistake_of(key, "only a Unix socket has it: address = \"unix:/run/x.sock\"");
        }
        let of_unix = IpNet::from(NO_ADDRESS);
        for (key, networks) in
            [("trusted_proxies", &self.trusted_proxies), ("proxy_from", &self.proxy_from)]
        {
            if networks.iter().flatten().any(|one| one.0 == of_unix) {
                here.mistake_of(key, "only a Unix socket has clients that are \"unix\"");
            }
        }
    }

    /// Who may connect to the Unix socket.
    pub(crate) fn rights(&self, at: usize, here: &mut Here<'_, '_>) -> SocketRights {
        let mut number = |key: &str, name: &Option<String>, of: fn(&str) -> Result<u32, String>| {
            let found = name.as_deref().map(of)?;
            found.map_err(|why| here.mistake_of(&format!("listen[{at}].{key}"), why)).ok()
        };
        let uid = number("owner", &self.owner, user_id);
        let gid = number("group", &self.group, group_id);
        let usual = SocketRights::default();
        SocketRights { mode: self.mode.map_or(usual.mode, |mode| mode.0), uid, gid }
    }
}

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
        assert_eq!("660".parse::<Mode>().unwrap().to_string(), "0660");
        for wrong in ["unix:", "unix:run/x", "127.0.0.1", "/run/x"] {
            assert!(wrong.parse::<ListenAddress>().is_err(), "{wrong}");
        }
        for wrong in ["1777", "8", "", "rw"] {
            assert!(wrong.parse::<Mode>().is_err(), "{wrong}");
        }
    }
}
