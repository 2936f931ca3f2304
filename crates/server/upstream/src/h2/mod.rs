//! HTTP/2 on the upstream's side of the seam: requests share connections.
//!
//! `link` is one connection: its task reads and writes the socket, and each request on it holds a
//! [`Slot`]. `links` are the connections of one core, by address and TLS peer, and the attempts to
//! open another. `message` writes the fields of a received response as a head of
//! HTTP/1, which the strict parser reads like any other.
//!
//! What never happens: a request is sent twice although the upstream may have processed it; a
//! client that does not read stops the responses of others.

mod link;
mod links;
mod message;

pub(crate) use link::{Link, Slot, Unprocessed};
pub(crate) use links::{Links, Opening, Place};
