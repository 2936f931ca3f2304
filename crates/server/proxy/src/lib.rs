//! Client connections: from the first byte to the last, in HTTP/1, HTTP/2 and HTTP/3.
//!
//! What: the set-up of a connection, its requests one after the other, the answer to a fresh hit in
//! the turn in which the request was read, and the protocol's side of the seam
//! ([`exchange::client`]) for every other request. Why: to answer requests correctly for as little
//! CPU as possible.
//!
//! From the top down: [`mod@serve`] is one connection; [`h1`], [`h2`] and [`h3`] are the protocols.
//! `INSIDE` in `tools/xtask/src/tidy/imports.rs` has the exact floors.
//!
//! What never happens: a core blocks; a silent connection holds a buffer; a truncated response is
//! taken for a whole one; a client's bytes grow memory beyond a limit of [`exchange::limits`].
//!
//! # What it promises
//!
//! These guarantees hold for all bytes that a client or an upstream may send. Memory stays within
//! the named limits of `limits.rs`. The resources that one client network holds delay no other
//! client network (`transport::shares`, `core_io::room`). One request is never read as two
//! requests. A response never answers the wrong request.
//!
//! A refusal names its rule. A reload that fails changes nothing. A restart closes a socket only
//! when the next process holds it.
//!
//! Each scenario of the twin that is not about the text of HTTP/1 runs with clients of HTTP/1,
//! HTTP/2 and HTTP/3. The clients of HTTP/3 also run on a network that loses and reorders
//! datagrams. On this network, the times and sizes of QUIC's datagrams follow from the seed,
//! although keys are random.
#![forbid(unsafe_code)]

mod coding;
mod encoded_heads;
pub mod h1;
mod h2;
mod h3;
mod serve;

pub use h3::Endpoint as Http3Endpoint;
pub use serve::serve as serve_connection;
