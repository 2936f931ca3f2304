//! Serving requests: client connections, the exchanges on them, tunnels, and explanations.
//!
//! What: routing, policy, the use of the cache by the rules of RFC 9111, collapsed fetches,
//! upstream connections, the response. Why: to answer requests correctly for as little CPU as
//! possible.
//!
//! From the top down: [`mod@serve`] is one connection; [`h1`], [`h2`] and [`h3`] are the protocols
//! with clients. They answer a fresh hit at once ([`hit`]) and hand everything else through the
//! seam ([`client`]) to an [`exchange`]. [`explain`] describes what an exchange would do. `INSIDE`
//! in `xtask/src/tidy/imports.rs` has the exact floors.
//!
//! What never happens: a core blocks; a silent connection holds a buffer; a truncated response is
//! taken for a whole one; a client's bytes grow memory beyond a limit of [`limits`].
#![forbid(unsafe_code)]

mod cache_status;
mod client;
mod exchange;
pub mod explain;
pub mod h1;
mod h2;
mod h3;
mod hit;
pub mod limits;
pub mod listener;
mod logged;
mod request;
mod serve;
mod shared;
pub mod snapshot;
mod tunnel;
mod websocket;
mod worker;

pub use h3::Endpoint as Http3Endpoint;
pub use serve::serve as serve_connection;
pub use shared::Shared;
pub use worker::Worker;
