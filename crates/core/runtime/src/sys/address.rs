//! Conversion of socket addresses to and from the kernel's layout.

use std::ffi::OsStr;
use std::io;
use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::unix::{unix_address, unix_path};

/// Space for an address of any family, and how much of it is used.
pub(crate) struct RawAddress {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl RawAddress {
    /// All of the space, for the kernel to write an address into.
    pub(crate) fn room() -> Self {
        RawAddress { storage: zeroed(), len: size_of::<libc::sockaddr_storage>() as u32 }
    }

    pub(crate) fn inet(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => RawAddress::of(
                libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                    sin_zero: [0; 8],
                },
                size_of::<libc::sockaddr_in>(),
            ),
            SocketAddr::V6(v6) => RawAddress::of(
                libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo().to_be(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                },
                size_of::<libc::sockaddr_in6>(),
            ),
        }
    }

    /// The address that a stream connects to: of a Unix socket, or of the internet.
    pub(crate) fn of_stream(address: SocketAddr) -> Self {
        unix_path(address).map_or_else(|| RawAddress::inet(address), |path| RawAddress::unix(&path))
    }

    fn unix(path: &Path) -> Self {
        // SAFETY: a C struct of integers, for which zero is a value.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let bytes = path.as_os_str().as_bytes();
        assert!(bytes.len() < address.sun_path.len(), "a longer path gets no address");
        for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
            *place = *byte as libc::c_char;
        }
        // The NUL at the end counts.
        let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
        RawAddress::of(address, len)
    }

    pub(crate) fn family(&self) -> i32 {
        i32::from(self.storage.ss_family)
    }

    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.storage).cast()
    }

    pub(crate) fn len(&self) -> libc::socklen_t {
        self.len
    }

    pub(crate) fn len_mut(&mut self) -> &mut libc::socklen_t {
        &mut self.len
    }

    /// The address of a peer. A peer at a Unix socket is `0.0.0.0:0`.
    pub(crate) fn to_peer(&self) -> io::Result<SocketAddr> {
        match self.family() {
            libc::AF_UNIX => Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
            _ => self.to_inet(),
        }
    }

    /// The address of our own socket, of the internet or a Unix socket with a path.
    pub(crate) fn to_local(&self) -> io::Result<SocketAddr> {
        if self.family() != libc::AF_UNIX {
            return self.to_inet();
        }
        // SAFETY: the storage is larger than and aligned for every address type, and any bytes are
        // a valid sockaddr_un.
        let address = unsafe { *self.as_ptr().cast::<libc::sockaddr_un>() };
        let path = address.sun_path.iter().map(|byte| *byte as u8);
        let path: Vec<u8> = path.take_while(|byte| *byte != 0).collect();
        unix_address(Path::new(OsStr::from_bytes(&path)))
    }

    /// The address as an internet one.
    pub(crate) fn to_inet(&self) -> io::Result<SocketAddr> {
        match self.family() {
            libc::AF_INET => {
                // SAFETY: the storage is larger than and aligned for every address type, and any
                // bytes are a valid sockaddr_in.
                let v4 = unsafe { *self.as_ptr().cast::<libc::sockaddr_in>() };
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Ok(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(v4.sin_port))))
            }
            libc::AF_INET6 => {
                // SAFETY: as above, for sockaddr_in6.
                let v6 = unsafe { *self.as_ptr().cast::<libc::sockaddr_in6>() };
                Ok(SocketAddr::V6(SocketAddrV6::new(
                    Ipv6Addr::from(v6.sin6_addr.s6_addr),
                    u16::from_be(v6.sin6_port),
                    u32::from_be(v6.sin6_flowinfo),
                    v6.sin6_scope_id,
                )))
            }
            family => Err(io::Error::other(format!("an address of family {family}"))),
        }
    }

    fn of<T>(address: T, len: usize) -> Self {
        const { assert!(size_of::<T>() <= size_of::<libc::sockaddr_storage>()) };
        let mut storage = zeroed();
        // SAFETY: T is one of the C address structs, plain data that fits (asserted above), and the
        // storage is aligned for all of them.
        unsafe { (&raw mut storage).cast::<T>().write(address) };
        RawAddress { storage, len: len as libc::socklen_t }
    }
}

fn zeroed() -> libc::sockaddr_storage {
    // SAFETY: a C struct of integers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_a_round_trip() {
        for text in ["127.0.0.1:80", "0.0.0.0:0", "[::1]:65535", "[fe80::1%3]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(RawAddress::inet(address).to_inet().unwrap(), address);
        }
    }
}
