//! HTTP/1 on the client's side of the seam (`exchange::client`): everything about the protocol
//! between a client and us, and nothing else.
//!
//! `connection` reads and parses requests in turns and hands an exchange what it cannot answer at
//! once; `client` and `response` write responses, `body` reads request bodies, `setup` is what
//! comes before the first request.

mod body;
mod client;
mod connection;
mod response;
mod setup;

pub(crate) use client::end;
pub use client::{ClientStream, linger};
pub(crate) use connection::{Connection, Ended, Next};
pub(crate) use response::{
    framing as response_framing, refusal_text, write as write_response, write_interim,
    write_refusal,
};
pub(crate) use setup::{Accepted, pass as set_up};
