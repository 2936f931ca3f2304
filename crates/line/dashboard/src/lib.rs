//! The live page: one HTML file, the events that feed the page, and who may read both.
//!
//! What: [`Snapshot`] is the content of an event; [`Feed`] numbers the events and leaves out what
//! has not changed; [`page_response`] is the page; [`Access`] decides who may read. Why one crate:
//! our server's admin address and `plimsoll dashboard` show the same page.
//!
//! The page asks for `/events` and gets server-sent events (text/event-stream). The first event of
//! a connection has everything, so a page that lost its connection simply asks again.
//!
//! What never happens: I/O, a reading of a clock; the page loads anything from elsewhere, or
//! changes anything.
//!
//! # What it promises
//!
//! The crate does no I/O and reads no clock. The page changes nothing and loads nothing from
//! elsewhere. One thread computes the figures for all pages, and only while
//! a page is open. In our server the cores are not involved, except that they count requests by URL
//! while a page is open.
#![forbid(unsafe_code)]

mod access;
mod feed;
mod page;
mod snapshot;

pub use access::{Access, Asked, Refused, TOKEN_BYTES_MIN, Token};
pub use feed::{Feed, HEARTBEAT, RETRY, SAMPLES_MAX};
pub use page::{events_head, page_response, refusal};
pub use snapshot::{
    Capacity, CostGroup, Costs, FleetServer, Line, Memory, MemorySize, Now, Sample, Snapshot,
    Source, Stale, Upstream, Upstreams, Url, Urls,
};

/// How long a connection may be silent before it gets a [`HEARTBEAT`], seconds. The page gives up a
/// connection that is silent for three times as long.
pub const HEARTBEAT_S: u64 = 10;
