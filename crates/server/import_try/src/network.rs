//! The network of a sandbox, by messages of rtnetlink(7).
//!
//! ```text
//! the server's namespace                          the origin's namespace
//!   lo, addresses of the server and of clients
//!   up0, default route  ------------ veth ---------  up1, every address is local
//! ```

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice, recv, sendto,
    socket_with,
};

/// The address of the server's end.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 255, 255, 1);
const SERVER_END: &str = "up0";
const ORIGIN_END: &str = "up1";
/// The index of `lo`, in every namespace.
const LO: u32 = 1;

const NEWLINK: u16 = 16;
const NEWADDR: u16 = 20;
const NEWROUTE: u16 = 24;
const ERROR: u16 = 2;
/// A request that wants an acknowledgement, and creates.
const CREATE: u16 = 0x1 | 0x4 | 0x400;
const UP: u32 = 1;
const INET: u8 = 2;
const INET6: u8 = 10;
const MAIN: u8 = 254;
const LOCAL: u8 = 255;
const UNICAST_ROUTE: u8 = 1;
const LOCAL_ROUTE: u8 = 2;
const SCOPE_LINK: u8 = 253;
const SCOPE_HOST: u8 = 254;

/// Sets up the loopback interface of this namespace, with these addresses besides its own.
pub(crate) fn loopback(addresses: &[IpAddr]) -> io::Result<()> {
    let socket = open()?;
    up(&socket, LO)?;
    addresses.iter().try_for_each(|address| add_address(&socket, LO, *address))
}

/// Connects this namespace to the namespace of the origin, a process, and routes all addresses
/// there.
pub(crate) fn connect(origin: u32) -> io::Result<()> {
    let socket = open()?;
    let mut peer = link(0, 0);
    attribute(&mut peer, 3, ORIGIN_END.as_bytes());
    attribute(&mut peer, 19, &origin.to_ne_bytes());
    let (mut data, mut info, mut message) = (Vec::new(), Vec::new(), link(0, 0));
    attribute(&mut data, 1, &peer);
    attribute(&mut info, 1, b"veth");
    attribute(&mut info, 2, &data);
    attribute(&mut message, 3, SERVER_END.as_bytes());
    attribute(&mut message, 18, &info);
    call(&socket, NEWLINK, &message)?;
    let index = netdevice::name_to_index(&socket, SERVER_END)?;
    up(&socket, index)?;
    add_address(&socket, index, SERVER.into())?;
    route(&socket, MAIN, UNICAST_ROUTE, SCOPE_LINK, None, index)
}

/// The other end: every address is local here, except the address of the server.
pub(crate) fn accept_all() -> io::Result<()> {
    let socket = open()?;
    up(&socket, LO)?;
    let index = netdevice::name_to_index(&socket, ORIGIN_END)?;
    up(&socket, index)?;
    route(&socket, LOCAL, UNICAST_ROUTE, SCOPE_LINK, Some(SERVER), index)?;
    route(&socket, LOCAL, LOCAL_ROUTE, SCOPE_HOST, None, LO)
}

fn open() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    // Protocol 0 is NETLINK_ROUTE.
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

fn up(socket: &OwnedFd, index: u32) -> io::Result<()> {
    call(socket, NEWLINK, &link(index, UP))
}

/// The header of a message about an interface.
fn link(index: u32, flags: u32) -> Vec<u8> {
    let words = [0, index, flags, flags];
    words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect()
}

fn add_address(socket: &OwnedFd, index: u32, address: IpAddr) -> io::Result<()> {
    let (family, bytes, bits) = match address {
        IpAddr::V4(address) => (INET, address.octets().to_vec(), 32),
        IpAddr::V6(address) => (INET6, address.octets().to_vec(), 128),
    };
    let mut message = vec![family, bits, 0, 0];
    message.extend(index.to_ne_bytes());
    attribute(&mut message, 2, &bytes);
    attribute(&mut message, 1, &bytes);
    call(socket, NEWADDR, &message)
}

fn route(
    socket: &OwnedFd,
    table: u8,
    kind: u8,
    scope: u8,
    to: Option<Ipv4Addr>,
    index: u32,
) -> io::Result<()> {
    let bits = if to.is_some() { 32 } else { 0 };
    let by_administrator = 4;
    let mut message = vec![INET, bits, 0, 0, table, by_administrator, scope, kind, 0, 0, 0, 0];
    if let Some(to) = to {
        attribute(&mut message, 1, &to.octets());
    }
    attribute(&mut message, 4, &index.to_ne_bytes());
    call(socket, NEWROUTE, &message)
}

fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).expect("attributes are short");
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// Sends a request and reads its acknowledgement.
fn call(socket: &OwnedFd, kind: u16, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(16 + payload.len()).expect("messages are short");
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(CREATE.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(payload);
    sendto(socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 4096];
    let (read, _) = recv(socket, &mut answer[..], RecvFlags::empty())?;
    let is_error = read >= 20 && answer[4..6] == ERROR.to_ne_bytes();
    let code = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
    match (is_error, code) {
        (true, 0) => Ok(()),
        (true, code) => Err(io::Error::from_raw_os_error(-code)),
        (false, _) => Err(io::Error::other("the kernel answered with another message")),
    }
}
