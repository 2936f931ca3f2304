//! What caches say to each other, as functions of bytes: no I/O, no clock.
//!
//! | module | what | size |
//! | --- | --- | --- |
//! | [`icp`] | "do you have this URL?", and a yes or no | 25 bytes and the URL |
//! | [`digest`] | which URLs a cache has, fetched by HTTP once an hour | 5 bits a URL |
//! | [`carp`] | which of several parents is responsible for a URL | nothing is sent |
//!
//! Who owns: a message that was read borrows from its datagram; a message is written into a buffer
//! of the caller.
//!
//! The rule on strangers: an answer to a stranger is never longer than the question, because the
//! address of the stranger can be forged, and the answer then goes to a victim. The messages that
//! are meant for strangers keep this rule by their layout, and tests check it:
//! [`icp::Kind::Denied`].
//!
//! What never happens: a panic on bytes from the network, an allocation while reading, a guess at
//! the meaning of a message whose lengths disagree.
#![forbid(unsafe_code)]

mod bytes;
pub mod carp;
pub mod digest;
#[cfg(any(test, fuzzing))]
#[path = "../../../fuzz/checks/peering.rs"]
pub mod fuzzing;
pub mod icp;
pub mod limits;

pub use bytes::{Malformed, Problem};
