//! How an exchange ended.

use std::net::SocketAddr;
use std::sync::Arc;

use cache::stored::Stored;
use caching::range::ByteRange;
use config::Action;
use outcome::{Fault, Outcome, Refusal};

/// What became of an exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) outcome: Outcome,
    pub(crate) status: u16,
    pub(crate) head_bytes: u64,
    pub(crate) upstream: Option<SocketAddr>,
    /// The connection may carry another request.
    pub(crate) keep: bool,
}

/// Why an exchange ended before its response was sent whole.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The client has gone, or the response broke off: the connection is closed.
    Gone(Done),
    /// A route says the answer.
    Fixed(Box<Action>),
    /// The connection was a tunnel, which is over.
    Over(Done),
    /// We answer with an error of our own.
    Refused(Refusal),
    /// Nothing has been sent, and the body that was to be is not on the disk any more.
    BodyLost,
    /// The body on the disk broke off after its head had been sent.
    Torn(Box<Torn>),
}

impl Ended {
    pub(crate) fn fault(fault: Fault) -> Ended {
        Ended::Refused(Refusal::Fault(fault))
    }
}

/// A body that broke off.
#[derive(Debug)]
pub(crate) struct Torn {
    pub(crate) stored: Arc<Stored>,
    /// What is still to be sent.
    pub(crate) missing: ByteRange,
    pub(crate) done: Done,
}
