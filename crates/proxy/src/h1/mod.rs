//! HTTP/1 on the client's side of the seam (`crate::client`): everything about the protocol between
//! a client and us, and nothing else.
//!
//! `connection` reads and parses requests in turns and hands an exchange what it cannot answer at
//! once; `client` and `response` write responses, `body` reads request bodies, `setup` is what
//! comes before the first request.

mod body;
mod client;
mod connection;
mod response;
mod setup;

pub use client::{ClientStream, linger};
pub use connection::serve as serve_connection;
pub use response::append_date;
