//! HTTP/3 on the client's side of the seam (`exchange::client`): everything about the protocol
//! between a client and us, and nothing else.
//!
//! `endpoint` is one UDP socket of a core: it gives each datagram to its connection, and accepts
//! new ones. `link` is one connection: QUIC by `quinn-proto`, the frames by `http3`; it answers
//! fresh hits at once, and starts an exchange for every other request. The client of an exchange
//! and the content of its request are those of HTTP/2, and so is the way in which heads become
//! those of HTTP/1.
//!
//! ```text
//!   socket --datagrams--> endpoint --> connection --streams--> request --> exchange
//!      ^                                   |                                   |
//!      +-----------------------------------+<-------- head, content -----------+
//! ```
//!
//! What never happens: more is sent to an address that is not validated than three times what came
//! from there (RFC 9000 section 8.1); a request is processed before the handshake is complete
//! (0-RTT: only what its route allows); bytes of a client reach an upstream as they were received.

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(feature = "tls")]
mod endpoint;
#[cfg(feature = "tls")]
mod limits;
#[cfg(feature = "tls")]
mod link;
#[cfg(feature = "tls")]
mod stream;

#[cfg(not(feature = "tls"))]
pub use absent::Endpoint;
#[cfg(feature = "tls")]
pub use endpoint::Endpoint;
