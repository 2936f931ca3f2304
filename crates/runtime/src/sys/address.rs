//! Conversion of socket addresses to and from the kernel's layout.

use std::ffi::OsStr;
use std::io;
use std::mem::{offset_of, size_of};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::Path;

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

    /// # Errors
    /// `InvalidInput` if the path is empty, too long or has a NUL.
    pub(crate) fn unix(path: &Path) -> io::Result<Self> {
        let bytes = path.as_os_str().as_bytes();
        let mut sun_path = [0; 108];
        if bytes.is_empty() || bytes.len() >= sun_path.len() || bytes.contains(&0) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a Unix socket's path has 1 to 107 bytes and no NUL",
            ));
        }
        for (to, from) in sun_path.iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        let address =
            libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path };
        Ok(RawAddress::of(address, offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1))
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

    /// The address as a Unix one; unnamed unless the socket was bound to a name.
    pub(crate) fn to_unix(&self) -> io::Result<UnixAddr> {
        // SAFETY: as above, for sockaddr_un.
        let un = unsafe { *self.as_ptr().cast::<libc::sockaddr_un>() };
        let start = offset_of!(libc::sockaddr_un, sun_path);
        let used = (self.len as usize).saturating_sub(start).min(un.sun_path.len());
        let bytes: Vec<u8> = un.sun_path[..used].iter().map(|&c| c as u8).collect();
        match bytes.first() {
            Some(0) => UnixAddr::from_abstract_name(&bytes[1..]),
            _ => {
                let name = bytes.split(|&b| b == 0).next().unwrap_or_default();
                UnixAddr::from_pathname(OsStr::from_bytes(name))
            }
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
        let path = Path::new("/tmp/a b.sock");
        assert_eq!(RawAddress::unix(path).unwrap().to_unix().unwrap().as_pathname(), Some(path));
        assert!(RawAddress::unix(Path::new("")).is_err());
        assert!(RawAddress::unix(Path::new(&"x".repeat(108))).is_err());
    }
}
