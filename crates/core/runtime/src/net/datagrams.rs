//! UDP for QUIC: several datagrams in one call, their ECN marks, and their local address.
//!
//! On the system, quinn-udp makes the calls (GSO, GRO, IP_PKTINFO).

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll};

use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};

use super::tcp::adopt;
use crate::core;
use crate::counters::count;
use crate::io::{Direction, Socket};
use crate::sim::world::World as SimulatedWorld;
use crate::sys::World;

/// The buffers of a socket, in each direction.
const BUFFER_BYTES: usize = 1 << 20;
/// The most datagrams of one call on the twin.
const SIMULATED_SEGMENTS_MAX: usize = 8;

/// A socket that many peers send to.
#[derive(Debug)]
pub struct DatagramSocket {
    socket: Socket,
    calls: Calls,
}

/// Who makes the calls of a socket.
enum Calls {
    System(UdpSocketState),
    Simulated(Rc<SimulatedWorld>),
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Calls::System(system) => system.fmt(f),
            Calls::Simulated(_) => f.write_str("simulated"),
        }
    }
}

/// Datagrams that arrived together, from one peer.
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    /// Their length in bytes, all together.
    pub bytes: usize,
    /// The length of each; the last one may be shorter.
    pub segment_bytes: usize,
    /// Who sent them.
    pub from: SocketAddr,
    /// The address that they were sent to, if it is known.
    pub to: Option<IpAddr>,
    /// The two ECN bits.
    pub ecn: u8,
}

/// Datagrams to send together, to one peer.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'b> {
    /// The contents of all.
    pub contents: &'b [u8],
    /// The length of each, if there are several; the last one may be shorter.
    pub segment_bytes: Option<usize>,
    /// Who receives them.
    pub to: SocketAddr,
    /// The address to send from; `None` lets the system choose.
    pub from: Option<IpAddr>,
    /// The two ECN bits.
    pub ecn: u8,
}

impl DatagramSocket {
    /// A socket at `address`; port 0 lets the system choose one.
    ///
    /// # Errors
    /// The address is in use, is not local, or may not be used.
    pub fn bind(address: SocketAddr) -> io::Result<DatagramSocket> {
        let core = core::current();
        let fd = core.world.bind_udp(address)?;
        DatagramSocket::new(Socket::new(core, fd, true)?)
    }

    /// Makes a socket that was bound elsewhere one of the current core.
    ///
    /// # Errors
    /// The system refuses an option. `Unsupported` on the twin.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<DatagramSocket> {
        DatagramSocket::new(adopt(socket.into())?)
    }

    fn new(socket: Socket) -> io::Result<DatagramSocket> {
        let calls = match socket.world() {
            World::Simulated(world) => Calls::Simulated(Rc::clone(world)),
            World::Real => {
                let system = UdpSocketState::new((&borrowed(&socket)).into())?;
                // The system may allow less, which works too.
                let _ = system.set_recv_buffer_size((&borrowed(&socket)).into(), BUFFER_BYTES);
                let _ = system.set_send_buffer_size((&borrowed(&socket)).into(), BUFFER_BYTES);
                Calls::System(system)
            }
        };
        Ok(DatagramSocket { socket, calls })
    }

    /// The most datagrams of one [`Outgoing`].
    pub fn segments_max(&self) -> usize {
        match &self.calls {
            Calls::System(system) => system.max_gso_segments(),
            Calls::Simulated(_) => SIMULATED_SEGMENTS_MAX,
        }
    }

    /// Whether datagrams that are too long for a link may be cut on the way.
    pub fn may_fragment(&self) -> bool {
        match &self.calls {
            Calls::System(system) => system.may_fragment(),
            Calls::Simulated(_) => false,
        }
    }

    /// The address it is bound to.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.world().local_addr(self.socket.fd())
    }

    /// Waits until datagrams have arrived.
    ///
    /// # Errors
    /// The system refuses to watch one more descriptor.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_ready(cx, Direction::Read)
    }

    /// Waits until there is room to send. One task at a time may wait.
    ///
    /// # Errors
    /// The system refuses to watch one more descriptor.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_ready(cx, Direction::Write)
    }

    /// Receives what has arrived from one peer; what does not fit into `buf` is lost.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has arrived, or what the system says about earlier datagrams.
    pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<Incoming> {
        count(&self.socket.core().counters.recv_calls);
        let result = match &self.calls {
            Calls::Simulated(world) => {
                let received = world.net().recv_datagram(self.socket.fd(), buf);
                received.map(|(bytes, of)| Incoming {
                    bytes,
                    segment_bytes: bytes,
                    from: of.sender,
                    to: Some(of.to.ip()),
                    ecn: of.ecn,
                })
            }
            Calls::System(system) => {
                let mut meta = [RecvMeta::default()];
                let mut room = [IoSliceMut::new(buf)];
                let socket = borrowed(&self.socket);
                system.recv((&socket).into(), &mut room, &mut meta).map(|_| Incoming {
                    bytes: meta[0].len,
                    segment_bytes: meta[0].stride,
                    from: meta[0].addr,
                    to: meta[0].dst_ip,
                    ecn: meta[0].ecn.map_or(0, |ecn| ecn as u8),
                })
            }
        };
        self.socket.after_one(&result, Direction::Read);
        result
    }

    /// Sends. A failure other than a full buffer counts as a loss on the way.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room: see [`DatagramSocket::poll_writable`].
    pub fn try_send(&self, outgoing: &Outgoing<'_>) -> io::Result<()> {
        count(&self.socket.core().counters.send_calls);
        let Outgoing { contents, segment_bytes, to, from, ecn } = *outgoing;
        let result = match &self.calls {
            Calls::Simulated(world) => {
                let length = segment_bytes.unwrap_or(contents.len()).max(1);
                let (mut net, fd) = (world.net(), self.socket.fd());
                contents.chunks(length).try_for_each(|datagram| {
                    net.send_datagram(fd, datagram, Some(to), ecn).map(drop)
                })
            }
            Calls::System(system) => {
                let transmit = Transmit {
                    destination: to,
                    ecn: EcnCodepoint::from_bits(ecn),
                    contents,
                    segment_size: segment_bytes,
                    src_ip: from,
                };
                system.try_send((&borrowed(&self.socket)).into(), &transmit)
            }
        };
        self.socket.after_one(&result, Direction::Write);
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

fn borrowed(socket: &Socket) -> BorrowedFd<'_> {
    // SAFETY: the socket owns the descriptor, and closes it only when it is dropped.
    unsafe { BorrowedFd::borrow_raw(socket.fd()) }
}
