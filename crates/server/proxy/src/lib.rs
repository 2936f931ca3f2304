//! Client connections: from the first byte to the last, in HTTP/1, HTTP/2 and HTTP/3.
//!
//! What: a connection's set-up, its requests in turns, the answer to a fresh hit in the same turn,
//! and the protocol's side of the seam ([`exchange::client`]) for every other request. Why: to
//! answer requests correctly for as little CPU as possible.
//!
//! From the top down: [`mod@serve`] is one connection; [`h1`], [`h2`] and [`h3`] are the protocols.
//! `INSIDE` in `tools/xtask/src/tidy/imports.rs` has the exact floors.
//!
//! What never happens: a core blocks; a silent connection holds a buffer; a truncated response is
//! taken for a whole one; a client's bytes grow memory beyond a limit of [`exchange::limits`].
#![forbid(unsafe_code)]

pub mod h1;
mod h2;
mod h3;
mod serve;

pub use h3::Endpoint as Http3Endpoint;
pub use serve::serve as serve_connection;
