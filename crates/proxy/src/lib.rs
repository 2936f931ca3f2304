//! Serving requests: a client connection, and one exchange after the other on it.
//!
//! What: routing, policy, the cache's use by the rules of RFC 9111, collapsed fetches, upstream
//! connections, the response; tunnels; and the explanation of all this. Why: to answer a request
//! for as little CPU as can be, correctly.
//!
//! A request's way: [`connection`] reads and parses; a fresh stored response leaves in the same
//! turn; all else goes through [`exchange`] to [`fetch`] and the crates `cache` and `upstream`.
//!
//! What never happens: a core blocks; a silent connection holds a buffer; a response is taken for
//! whole that was not; a byte of a client grows memory beyond a limit of [`limits`].
#![forbid(unsafe_code)]

mod arrival;
mod ask;
pub mod client;
mod connect;
mod connection;
mod destination;
mod ended;
mod exchange;
pub mod explain;
mod fetch;
mod fixed;
pub mod limits;
pub mod purge_method;
mod request;
mod request_body;
mod shared;
pub mod site;
mod told;
mod tunnel;
mod upgrade;
mod worker;

pub use connection::serve as serve_connection;
pub use shared::Shared;
pub use worker::Worker;
