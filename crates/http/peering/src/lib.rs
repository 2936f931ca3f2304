//! What caches say to each other, as functions of bytes: no I/O, no clock.
//!
//! | module | what a cache says | bytes |
//! | --- | --- | --- |
//! | [`icp`] | have you got this URL? yes or no | 25 and the URL |
//! | [`htcp`] | have you got a response to this request? or: forget it | 22 and the request |
//! | [`digest`] | these are my URLs, roughly: a filter, fetched by HTTP | 5 bits a URL |
//! | [`carp`] | nothing: all children compute which parent is responsible for a URL | none |
//!
//! ICP is the oldest. HTCP also says which fields a request has, and can remove responses. Both
//! cost a round trip for each miss. A digest costs none, and is minutes to an hour old. CARP is for
//! parents that share one set of URLs, and needs no siblings.
//!
//! Who owns: a message that was read borrows from its datagram; a message is written into a buffer
//! of the caller.
//!
//! The rule on strangers: an answer to a stranger is never longer than the question, because the
//! address of the stranger can be forged, and the answer then goes to a victim. The messages that
//! are meant for strangers keep this rule by their layout, and tests check it:
//! [`icp::Kind::Denied`] and [`htcp::Message::refuse`].
//!
//! What never happens: a panic on bytes from the network, an allocation while reading, a guess at
//! the meaning of a message whose lengths disagree.
#![forbid(unsafe_code)]

mod bytes;
pub mod carp;
pub mod digest;
#[cfg(any(test, fuzzing))]
#[path = "../../../../tools/fuzz/checks/peering.rs"]
pub mod fuzzing;
pub mod htcp;
pub mod icp;
pub mod limits;

pub use bytes::{Malformed, Problem};
