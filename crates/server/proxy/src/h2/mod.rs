//! HTTP/2 on the client's side of the seam (`exchange::client`): everything about the protocol
//! between a client and us, and nothing else.
//!
//! `link` is one connection: it reads frames in turns, answers fresh hits at once, and starts an
//! exchange for every other request. The rest serves HTTP/3 too: `streams` is what both connections
//! do for an exchange, `serve` is the way of one request, `client` sends the response of its
//! stream, `body` is its content, and `message` writes heads in the form of the other version.
//!
//! What never happens: bytes of a client reach an upstream as they were received. A request is
//! built from checked fields, and `http1` parses it like any other.

mod body;
mod client;
mod link;
mod message;
mod serve;
mod streams;

#[cfg(feature = "tls")]
pub(crate) use client::StreamClient;
pub(crate) use link::serve;
#[cfg(feature = "tls")]
pub(crate) use message::write_request;
#[cfg(feature = "tls")]
pub(crate) use serve::{Server, exchange, refuse, serve as serve_request};
#[cfg(feature = "tls")]
pub(crate) use streams::{Shared, Stop, Streams};
